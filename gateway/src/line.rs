//! The line before work that takes a core for a while: drafts of policies, which are laid out, validated, tried or compiled as candidates before they
//! are anybody's, what policies can speak of, searches for what is permitted, and ledgers that are read whole. One is worked on at a time, because
//! the other cores are for those who ask. Of each tenant one at most stands in line, so that whoever has many does not stand before everybody else.

use crate::http::{Code, Refusal};
use axum::http::{HeaderValue, header};
use model::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long one waits for those before it. Most take milliseconds.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How many of a tenant wait at once. Each has a body in memory.
const WAITING_MAX: usize = 32;
/// When to ask again that was told that there are others, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// A line, and the one place that it leads to.
#[derive(Debug)]
pub struct Line {
    place: Arc<Semaphore>,
    /// Who of a tenant may stand in line, and who may wait for that. A tenant is here from its first time on.
    tenants: Mutex<HashMap<TenantId, OfTenant>>,
    wait_max: Duration,
    /// What is told to whom the line is too long.
    busy: &'static str,
}

#[derive(Debug, Clone)]
struct OfTenant {
    in_line: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// The place, and the right to stand in line for it, until both are dropped.
#[derive(Debug)]
pub struct Place {
    _of_tenant: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Line {
    /// A line for drafts of policies.
    pub fn of_drafts() -> Self {
        Self::waiting(
            WAIT_MAX,
            "this gateway works on other drafts of policies; try again when they are done",
        )
    }

    /// A line for searches.
    pub fn of_searches() -> Self {
        Self::waiting(
            WAIT_MAX,
            "this gateway works on other searches; try again when they are done",
        )
    }

    /// A line for those who verify, export and take evidence.
    pub fn of_readings() -> Self {
        Self::waiting(
            WAIT_MAX,
            "this gateway reads other ledgers; try again when they are done",
        )
    }

    fn waiting(wait_max: Duration, busy: &'static str) -> Self {
        Self {
            place: Arc::new(Semaphore::new(1)),
            tenants: Mutex::default(),
            wait_max,
            busy,
        }
    }

    /// The place, to be kept until the work is done, also if nobody waits for it any more.
    pub async fn place(&self, tenant: TenantId) -> Result<Place, Refusal> {
        let OfTenant { in_line, waiting } = self.of_tenant(tenant);
        let _waiting = waiting.try_acquire_owned().map_err(|_| self.too_long())?;
        let place = async {
            Place {
                _of_tenant: acquire(in_line).await,
                _of_all: acquire(Arc::clone(&self.place)).await,
            }
        };
        tokio::time::timeout(self.wait_max, place)
            .await
            .map_err(|_| self.too_long())
    }

    /// The place for the next part of work that has begun, for which it waits as long as it takes. It gives the place back after each part.
    pub async fn place_for_part(&self, tenant: TenantId) -> Place {
        let OfTenant { in_line, .. } = self.of_tenant(tenant);
        Place {
            _of_tenant: acquire(in_line).await,
            _of_all: acquire(Arc::clone(&self.place)).await,
        }
    }

    fn of_tenant(&self, tenant: TenantId) -> OfTenant {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let of_tenant = tenants.entry(tenant).or_insert_with(|| OfTenant {
            in_line: Arc::new(Semaphore::new(1)),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
        });
        of_tenant.clone()
    }

    fn too_long(&self) -> Refusal {
        Refusal::new(Code::Overloaded, self.busy).with_header(header::RETRY_AFTER, RETRY_AFTER)
    }
}

async fn acquire(line: Arc<Semaphore>) -> OwnedSemaphorePermit {
    line.acquire_owned().await.expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::{Pin, pin};

    const ONE: TenantId = TenantId::from_bytes([1; 16]);
    const OTHER: TenantId = TenantId::from_bytes([2; 16]);

    #[tokio::test]
    async fn a_draft_waits_for_the_one_before_it_and_not_for_ever() {
        let drafts = Line::waiting(Duration::ZERO, "busy");
        let place = drafts.place(ONE).await.unwrap();
        for tenant in [ONE, OTHER] {
            assert_eq!(drafts.place(tenant).await.unwrap_err().code(), Code::Overloaded);
        }
        drop(place);
        drop(drafts.place(OTHER).await.unwrap());
    }

    #[tokio::test]
    async fn many_drafts_of_one_tenant_are_one_in_line() {
        let drafts = Line::of_drafts();
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

    #[tokio::test]
    async fn so_many_of_a_tenant_wait_and_no_more() {
        let line = Line::of_searches();
        let place = line.place(ONE).await.unwrap();
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Box::pin(line.place(ONE))).collect();
        for place in &mut waiting {
            assert!(now(place.as_mut()).await.is_none());
        }
        assert_eq!(line.place(ONE).await.unwrap_err().code(), Code::Overloaded);
        drop(waiting);
        drop(place);
        drop(line.place(ONE).await.unwrap());
    }

    /// The place, if it is to be had without waiting.
    async fn now(place: Pin<&mut impl Future<Output = Result<Place, Refusal>>>) -> Option<Place> {
        tokio::time::timeout(Duration::ZERO, place).await.ok()?.ok()
    }
}
