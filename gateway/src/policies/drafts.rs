//! The place for drafts of policies: what is laid out, validated or compiled as a candidate before it is anybody's policy. One is worked on at a time, because a
//! draft can take a core for seconds, and the others are for those who ask.

use crate::http::{Code, Refusal};
use axum::http::{HeaderValue, header};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a draft waits for those before it. Most take milliseconds.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// When to ask again that was told that there are others, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// The place for drafts. They get it in the order in which they came.
#[derive(Debug)]
pub struct Drafts {
    place: Arc<Semaphore>,
    wait_max: Duration,
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
            wait_max,
        }
    }

    /// The place, to be kept until the work is done, also if nobody waits for it any more.
    pub(crate) async fn place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = Arc::clone(&self.place).acquire_owned();
        let place = tokio::time::timeout(self.wait_max, place)
            .await
            .map_err(|_| busy())?;
        Ok(place.expect("the semaphore is never closed"))
    }
}

fn busy() -> Refusal {
    let detail = "this gateway works on other drafts of policies; try again when they are done";
    Refusal::new(Code::Overloaded, detail).with_header(header::RETRY_AFTER, RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_draft_waits_for_the_one_before_it_and_not_for_ever() {
        let drafts = Drafts::waiting(Duration::ZERO);
        let place = drafts.place().await.unwrap();
        assert_eq!(drafts.place().await.unwrap_err().code(), Code::Overloaded);
        drop(place);
        drop(drafts.place().await.unwrap());
    }
}
