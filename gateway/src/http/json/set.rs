//! Bodies with policies, which may be long. A long one is read where nobody waits for a decision, and one at a time, in
//! which tenants take turns.
//!
//! Whoever waits for a turn to change something, or to have a draft compiled, has its body in memory, and may have a
//! thousand connections. So a long body takes room until it is answered, of the room that all of them have together.

use super::{Bounds, Format, SET_BYTES_MAX, bytes};
use crate::fair_semaphore::{FairSemaphore, Permit};
use crate::fairness_key::FairnessKey;
use crate::gateway::Gateway;
use crate::http::arrivals::Arrivals;
use crate::http::refusal::Refusal;
use crate::http::room::Taken;
use axum::extract::{FromRequest, Request};
use canon::{Integers, Limits};
use model::TenantId;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// A body with more bytes is long. Other bodies have no more, and most sets have not.
const SHORT_BYTES_MAX: usize = 256 << 10;
/// These bodies may take so many times as long to arrive, because by default they may be so many times as large: 4 MiB,
/// and others 256 KiB. `--body-bytes-max` does not change the time of either.
const TIMES_THE_TIME: u32 = 16;

/// The room for long bodies that are not answered yet, and whose turn it is to be read.
#[derive(Debug)]
pub struct LongBodies {
    room: Arrivals,
    reading: FairSemaphore,
}

impl LongBodies {
    /// As much room as all bodies have that are on their way.
    pub fn new(body_bytes_max: usize) -> Self {
        Self {
            room: Arrivals::new(body_bytes_max),
            reading: FairSemaphore::for_long_bodies(),
        }
    }

    fn enter(&self, fairness_key: Option<FairnessKey>, bytes: usize) -> Result<Taken, Refusal> {
        self.room.enter(fairness_key, bytes).map_err(|_| {
            Refusal::overloaded_by("too many long bodies with policies are not answered yet; try again later")
        })
    }

    /// A turn to be read. Whoever has room waits for it as long as it takes: the room bounds how many do.
    async fn turn(&self, fairness_key: Option<FairnessKey>) -> Permit {
        let key = fairness_key.unwrap_or(FairnessKey::people_of(TenantId::SYSTEM));
        self.reading.acquire_for_part(key).await
    }
}

/// A JSON body with policies, which may have [`SET_BYTES_MAX`] bytes, and its room if it is long: to be held until it
/// is answered.
pub struct SetJson<T>(pub T, pub Option<Taken>);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<Gateway>> for SetJson<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let mut bounds = Bounds::of(&gateway.options).left(&parts.extensions);
        bounds.bytes_max = bounds.bytes_max.max(SET_BYTES_MAX);
        // Or they could not be sent over a slow line that others can be sent over.
        bounds.time_max = bounds.time_max.saturating_mul(TIMES_THE_TIME);
        let (format, limits) = (Format::of(&parts.headers)?, bounds.limits());
        let bytes = bytes(body, &parts.headers, bounds).await?;
        if bytes.len() <= SHORT_BYTES_MAX {
            return Ok(Self(read(format, &bytes, limits)?, None));
        }
        let room = gateway.long_bodies.enter(bounds.fairness_key, bytes.len())?;
        let turn = gateway.long_bodies.turn(bounds.fairness_key).await;
        // The turn and the room are held also when nobody waits for it any more.
        let reading = tokio::task::spawn_blocking(move || {
            let value = read(format, &bytes, limits);
            drop(turn);
            value.map(|value| Self(value, Some(room)))
        });
        reading.await.map_err(|error| {
            let detail = "the body could not be read";
            Refusal::broken_off(&error, "reading a long body broke off", detail)
        })?
    }
}

fn read<T: DeserializeOwned>(format: Format, bytes: &[u8], limits: Limits) -> Result<T, Refusal> {
    let text = format.canonical(bytes, limits, Integers::Exact)?;
    Ok(canon::read(text.as_str())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::pin::pin;

    #[tokio::test]
    async fn a_long_body_waits_for_no_more_than_one_of_each_other_tenant() {
        let bodies = LongBodies::new(1);
        let of = |tenant: u8| Some(FairnessKey::people_of(TenantId::from_bytes([tenant; 16])));
        let first = bodies.turn(of(1)).await;
        let mut second = pin!(bodies.turn(of(1)));
        let mut third = pin!(bodies.turn(of(1)));
        let mut other = pin!(bodies.turn(of(2)));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        assert!(other.as_mut().now_or_never().is_none());
        drop(first);
        assert!(
            second.as_mut().now_or_never().is_none(),
            "it stands behind the other"
        );
        let turn = other.as_mut().now_or_never().expect("it is the other's turn");
        drop(turn);
        let turn = second.as_mut().now_or_never().expect("it is next");
        assert!(third.as_mut().now_or_never().is_none());
        drop(turn);
        assert!(third.as_mut().now_or_never().is_some());
    }
}
