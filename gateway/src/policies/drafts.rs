//! The place for drafts of policies: what is laid out, validated or compiled as a candidate before it is anybody's policy. One is worked on at a time, because a
//! draft can take a core for seconds, and the others are for those who ask. Of each tenant one at most stands in line for it, so that
//! whoever has many does not stand before everybody else.

use crate::http::{Code, Refusal};
use axum::http::{HeaderValue, header};
use model::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a draft waits for those before it. Most take milliseconds.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// When to ask again that was told that there are others, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// The place for drafts.
#[derive(Debug)]
pub struct Drafts {
    place: Arc<Semaphore>,
    /// Who of a tenant may stand in line for it. A tenant is here from its first draft on.
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
    wait_max: Duration,
}

/// The place, and the right to stand in line for it, until both are dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _of_tenant: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for Drafts {
    fn default() -> Self {
        Self::waiting(WAIT_MAX)
    }
}

impl Drafts {
    fn waiting(wait_max: Duration) -> Self {
        Self {
            place: Arc::new(Semaphore::new(1)),
            tenants: Mutex::default(),
            wait_max,
        }
    }

    /// The place, to be kept until the work is done, also if nobody waits for it any more.
    pub(crate) async fn place(&self, tenant: TenantId) -> Result<Place, Refusal> {
        let of_tenant = self.of_tenant(tenant);
        let place = async {
            Place {
                _of_tenant: acquire(of_tenant).await,
                _of_all: acquire(Arc::clone(&self.place)).await,
            }
        };
        tokio::time::timeout(self.wait_max, place)
            .await
            .map_err(|_| busy())
    }

    fn of_tenant(&self, tenant: TenantId) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let line = tenants.entry(tenant);
        Arc::clone(line.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

async fn acquire(line: Arc<Semaphore>) -> OwnedSemaphorePermit {
    line.acquire_owned().await.expect("the semaphore is never closed")
}

fn busy() -> Refusal {
    let detail = "this gateway works on other drafts of policies; try again when they are done";
    Refusal::new(Code::Overloaded, detail).with_header(header::RETRY_AFTER, RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::{Pin, pin};

    const ONE: TenantId = TenantId::from_bytes([1; 16]);
    const OTHER: TenantId = TenantId::from_bytes([2; 16]);

    #[tokio::test]
    async fn a_draft_waits_for_the_one_before_it_and_not_for_ever() {
        let drafts = Drafts::waiting(Duration::ZERO);
        let place = drafts.place(ONE).await.unwrap();
        for tenant in [ONE, OTHER] {
            assert_eq!(drafts.place(tenant).await.unwrap_err().code(), Code::Overloaded);
        }
        drop(place);
        drop(drafts.place(OTHER).await.unwrap());
    }

    #[tokio::test]
    async fn many_drafts_of_one_tenant_are_one_in_line() {
        let drafts = Drafts::waiting(WAIT_MAX);
        let first = drafts.place(ONE).await.unwrap();
        let (second, third) = (drafts.place(ONE), drafts.place(ONE));
        let other = drafts.place(OTHER);
        let (mut second, mut third, mut other) = (pin!(second), pin!(third), pin!(other));
        assert!(now(second.as_mut()).await.is_none());
        assert!(now(third.as_mut()).await.is_none());
        assert!(now(other.as_mut()).await.is_none());
        drop(first);
        // The second of the same tenant gets into line only now, and the third not before that one is done.
        let place = now(other.as_mut()).await.unwrap();
        assert!(now(second.as_mut()).await.is_none());
        drop(place);
        let place = now(second.as_mut()).await.unwrap();
        assert!(now(third.as_mut()).await.is_none());
        drop(place);
        drop(now(third.as_mut()).await.unwrap());
    }

    /// The place, if it is to be had without waiting.
    async fn now(place: Pin<&mut impl Future<Output = Result<Place, Refusal>>>) -> Option<Place> {
        tokio::time::timeout(Duration::ZERO, place).await.ok()?.ok()
    }
}
