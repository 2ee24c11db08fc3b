//! Answers that are on their way in one piece: how many bytes of them the gateway keeps, of all together.
//!
//! A page has some 4 MiB, and whoever has a thousand connections may ask for a page on each and take none. So a long
//! answer takes room until the last of its bytes has left or its caller has gone, and whoever reads and finds no room
//! is refused. Nearly all answers are short, and take none: a head that does not end has as much on every connection.
//!
//! What was done is told in any case, and counts. Batches, whose answers are long, are refused before anything of them
//! is done where their agents have no room left.
//!
//! What is streamed takes none: it is read in parts, and none before the one before it is taken, and there is a bound to
//! how much of it there is (`crate::outgoing`, `crate::live`). Nor does what is answered without a credential, which is
//! short, or part of the program.

use super::caller::ShownCredential;
use super::json;
use super::refusal::Refusal;
use super::room::{Beyond, Room, Taken};
use crate::fair_semaphore::{FairSemaphore, Permit};
use crate::fairness_key::FairnessKey;
use crate::gateway::Gateway;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use model::TenantId;

/// There is room for so many bytes: sixteen of the longest pages.
const BYTES_MAX: usize = 16 * store::BYTES_AT_ONCE;
/// An answer with more bytes is long.
pub(super) const SHORT_BYTES_MAX: usize = 32 << 10;

/// The room. Clones of it are the same room.
#[derive(Debug, Clone)]
pub struct Answers(Room);

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Something was read, and can be read again.
    Read,
    /// Something was done, or refused.
    Change,
}

/// Whose answer it is.
#[derive(Debug, Clone)]
pub(super) struct Recipient {
    key: Option<FairnessKey>,
    deed: Deed,
    /// What the caller has shown, if that can be looked at again.
    credential: Option<ShownCredential>,
}

/// Anybody, who has shown nothing.
impl Default for Recipient {
    fn default() -> Self {
        Self {
            key: None,
            deed: Deed::Read,
            credential: None,
        }
    }
}

impl Recipient {
    /// This one, who is told what was done, or why nothing was: in any case.
    pub(super) fn told(self) -> Self {
        Self {
            deed: Deed::Change,
            ..self
        }
    }

    /// A permit to write a long answer. Whoever only reads may be refused; what was done is told in any case, and does
    /// not stand behind what its own tenant reads.
    pub(super) async fn wait_for_turn(&self, line: &FairSemaphore) -> Result<Permit, Refusal> {
        let key = self.key.unwrap_or(FairnessKey::people_of(TenantId::SYSTEM));
        match self.deed {
            Deed::Read => line.acquire(key).await,
            Deed::Change => Ok(line.acquire_for_part(key.of_what_was_done()).await),
        }
    }

    /// Room for so much of an answer. Whoever only reads may be refused.
    pub(super) fn room(&self, answers: &Answers, bytes: usize) -> Result<Taken, Refusal> {
        answers.take(self.key, bytes, self.deed)
    }

    /// Refuses whoever may not read any more what has waited to be written.
    pub(super) fn check(&self, gateway: &Gateway) -> Result<(), Refusal> {
        match (self.deed, &self.credential) {
            (Deed::Read, Some(credential)) => credential.check(gateway),
            (Deed::Read, None) | (Deed::Change, _) => Ok(()),
        }
    }
}

/// The bytes of an answer, and their room.
struct Kept {
    bytes: Bytes,
    /// Given back after the bytes.
    _room: Taken,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self::new(BYTES_MAX)
    }
}

impl Answers {
    /// Room for so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self(Room::new(bytes_max))
    }

    /// Whether nobody has any of the room.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses if agents of this tenant have answers on their way, and there is no room for a short one more.
    pub(crate) fn check_agents_of(&self, tenant: TenantId) -> Result<(), Refusal> {
        let key = Some(FairnessKey::agents_of(tenant));
        self.take(key, SHORT_BYTES_MAX, Deed::Read).map(drop)
    }

    /// An answer as it leaves, which has its room if it is long; a refusal if there is none.
    pub(super) async fn let_out(&self, mut response: Response) -> Result<Response, Refusal> {
        let Some(Recipient { key, deed, .. }) = response.extensions_mut().remove() else {
            return Ok(response);
        };
        // What is streamed says no length.
        let length = response.body().size_hint().exact();
        let length = length.and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| *length > SHORT_BYTES_MAX) else {
            return Ok(response);
        };
        let room = self.take(key, length, deed)?;
        let (parts, body) = response.into_parts();
        // INVARIANT: a body that says its length is in memory already, in one piece, and is not copied.
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        // Hyper lets the body go when it has its bytes, and keeps these until they are written.
        let kept = Bytes::from_owner(Kept { bytes, _room: room });
        Ok(Response::from_parts(parts, Body::from(kept)))
    }

    /// Room for so many bytes of these, or of somebody else. One answer gets it in any case.
    fn take(&self, key: Option<FairnessKey>, bytes: usize, deed: Deed) -> Result<Taken, Refusal> {
        let beyond = match deed {
            Deed::Read => Beyond::WhoeverHasNone,
            Deed::Change => Beyond::Everybody,
        };
        self.0.take(key, bytes, beyond).ok_or_else(|| {
            let detail = "too many answers are on their way; take those that were asked for, and try again";
            Refusal::overloaded_by(detail)
        })
    }
}

/// Notes on a response whose it is and what it answers, for when it leaves.
pub async fn layer(State(deed): State<Deed>, request: Request, next: Next) -> Response {
    let recipient = Recipient {
        key: json::fairness_key(request.extensions()),
        deed,
        credential: ShownCredential::of(request.extensions()),
    };
    let mut response = next.run(request).await;
    response.extensions_mut().insert(recipient);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Code;
    use futures_util::{FutureExt, stream};
    use std::convert::Infallible;
    use std::pin::pin;

    const TENANT: TenantId = TenantId::from_bytes([1; 16]);
    const A: FairnessKey = FairnessKey::agents_of(TENANT);
    /// Who has to stop them.
    const B: FairnessKey = FairnessKey::people_of(TENANT);
    const LONG: usize = SHORT_BYTES_MAX + 1;

    /// What becomes of an answer with this body for those of this key.
    fn answer(answers: &Answers, key: FairnessKey, deed: Deed, body: Body) -> Result<Response, Refusal> {
        let mut response = Response::new(body);
        response.extensions_mut().insert(Recipient {
            key: Some(key),
            deed,
            credential: None,
        });
        answers.let_out(response).now_or_never().unwrap()
    }

    fn read(answers: &Answers, key: FairnessKey, bytes: usize) -> Result<Response, Refusal> {
        answer(answers, key, Deed::Read, Body::from(vec![b' '; bytes]))
    }

    #[test]
    fn an_answer_has_its_room_until_nobody_has_its_bytes() {
        let answers = Answers::new(2 * LONG);
        let response = read(&answers, A, LONG).unwrap();
        let bytes = axum::body::to_bytes(response.into_body(), LONG);
        let bytes = bytes.now_or_never().unwrap().unwrap();
        assert_eq!(bytes.len(), LONG);
        let last = bytes.slice(LONG - 1..);
        drop(bytes);
        assert_eq!(read(&answers, A, LONG).unwrap_err().code(), Code::Overloaded);
        drop(last);
        assert!(answers.is_empty());
        read(&answers, A, LONG).unwrap();
    }

    #[test]
    fn whoever_has_no_answer_on_its_way_gets_one_however_long_it_is() {
        let answers = Answers::new(LONG);
        let _first = read(&answers, A, 10 * LONG).unwrap();
        assert!(read(&answers, A, LONG).is_err());
        let _other = read(&answers, B, 10 * LONG).unwrap();
        assert!(read(&answers, B, LONG).is_err());
    }

    #[test]
    fn a_short_answer_takes_no_room_and_neither_does_one_that_is_streamed() {
        let answers = Answers::new(0);
        let _short = read(&answers, A, SHORT_BYTES_MAX).unwrap();
        let part = Ok::<_, Infallible>(Bytes::from(vec![b' '; LONG]));
        let streamed = Body::from_stream(stream::iter([part]));
        let _streamed = answer(&answers, A, Deed::Read, streamed).unwrap();
        assert!(answers.is_empty());
    }

    #[tokio::test]
    async fn what_was_done_waits_to_be_written_where_whoever_reads_is_refused() {
        let line = FairSemaphore::for_long_answers();
        let of = |deed| Recipient {
            key: Some(A),
            deed,
            credential: None,
        };
        let (reading, changing) = (of(Deed::Read), of(Deed::Change));
        let first = reading.wait_for_turn(&line).await.unwrap();
        let mut waiting = Vec::new();
        let refusal = loop {
            let mut read = Box::pin(reading.wait_for_turn(&line));
            match read.as_mut().now_or_never() {
                Some(refused) => break refused.unwrap_err(),
                None => waiting.push(read),
            }
        };
        assert_eq!(refusal.code(), Code::Overloaded);
        let mut told = pin!(changing.wait_for_turn(&line));
        assert!(told.as_mut().now_or_never().is_none());
        drop(first);
        // It does not stand behind those of its own tenant that read.
        let turn = told.now_or_never().unwrap().unwrap();
        let mut waiting = waiting.iter_mut();
        assert!(waiting.all(|read| read.as_mut().now_or_never().is_none()));
        drop(turn);
    }

    #[test]
    fn what_was_done_is_told_without_room_and_counts() {
        let answers = Answers::new(2 * LONG);
        let done = || answer(&answers, A, Deed::Change, Body::from(vec![b' '; LONG])).unwrap();
        answers.check_agents_of(TENANT).unwrap();
        let told = [done(), done(), done()];
        assert!(read(&answers, A, LONG).is_err());
        let refusal = answers.check_agents_of(TENANT).unwrap_err();
        assert_eq!(refusal.code(), Code::Overloaded);
        answers.check_agents_of(TenantId::from_bytes([2; 16])).unwrap();
        drop(told);
        answers.check_agents_of(TENANT).unwrap();
        assert!(answers.is_empty());
    }
}
