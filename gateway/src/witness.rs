//! A small witness: for teams that run two machines and want each to see where the other's ledgers end.
//!
//! It keeps the last checkpoint that it has cosigned of each log, and cosigns the next one only if that continues it: C2SP
//! tlog-witness. It knows nothing of entries and has no other duty, so it needs no database. Whoever asks is not asked who it
//! is: a checkpoint counts if a key signed it that the operator of the witness has named.

mod folder;

pub use folder::{Folder, FolderError};

use crate::signing::Keyring;
use axum::Router;
use axum::body::HttpBody;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::BytesMut;
use folder::Evidence;
use futures_util::FutureExt;
use ledger::witness::{AddCheckpoint, Cosigned, Uncosigned, cosignature_lines};
use ledger::{Checkpoint, Note, NoteSignature, VerifierKey};
use model::{Clock, Timestamp};
use serde::Deserialize;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The largest request: a proof has 63 lines at most, and a note some hundred bytes and its signatures, of which those
/// that a quantum computer does not break have 7 kB each in base64. Sixteen of them are to be read.
const REQUEST_BYTES_MAX: usize = 128 * 1024;
/// The largest request that is waited for without room. The longest proof has 3 kB, a signature of ours a tenth of
/// one, and a connection has as much to read into anyway.
const SHORT_BYTES_MAX: usize = 8 * 1024;
/// How many bytes those may have together that are longer and are waited for. Nobody is asked who it is, so whoever
/// takes all of it keeps out others that are as long; genuine ones are short.
const ARRIVING_BYTES_MAX: usize = 16 << 20;
/// How long it may be on its way: it is small, and nobody keeps a connection for longer by sending a byte now and then.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);
/// Most signatures of a log that are kept: one for each of its keys that sign at a time.
const SIGNATURES_KEPT_MAX: usize = 16;
/// What the body of a 409 is.
const SIZE: HeaderValue = HeaderValue::from_static("text/x.tlog.size");

/// A witness.
pub struct Witness {
    keys: Keyring,
    logs: Vec<VerifierKey>,
    clock: Arc<dyn Clock>,
    /// Held from reading what was cosigned until the next is on disk: of two who come at once, the second sees what the first
    /// has left. It guards what this process remembers of that, too.
    folder: Arc<tokio::sync::Mutex<Folder>>,
    /// Room for long requests that are on their way, a permit for each byte.
    arriving: Semaphore,
}

/// Why a checkpoint is not cosigned.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Uncosigned(#[from] Uncosigned),
    /// 404.
    #[error("`{0}` is not a tenant of a log that this witness knows")]
    UnknownOrigin(String),
    /// 413, or 400 where it broke off.
    #[error(transparent)]
    Body(#[from] BytesRejection),
    /// 408.
    #[error("the body did not come in time")]
    LateBody,
    /// 503.
    #[error("too many long bodies are on their way; try again later")]
    Full,
    /// 500: nothing is cosigned that is not kept, and nothing is taken for all that was cosigned that is not.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

impl Refused {
    fn status(&self) -> StatusCode {
        let status = match self {
            Self::Uncosigned(uncosigned) => uncosigned.status(),
            Self::UnknownOrigin(_) => 404,
            Self::Body(rejection) => rejection.status().as_u16(),
            Self::LateBody => 408,
            Self::Full => 503,
            Self::Folder(_) => 500,
        };
        StatusCode::from_u16(status).expect("all of these are statuses")
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = self.status();
        match self {
            Self::Uncosigned(Uncosigned::OtherSize { known: size, .. } | Uncosigned::Fork(size)) => {
                (status, [(header::CONTENT_TYPE, SIZE)], format!("{size}\n")).into_response()
            }
            Self::Body(rejection) => rejection.into_response(),
            Self::Full => {
                let later = [(header::RETRY_AFTER, HeaderValue::from_static("1"))];
                (status, later, format!("{}\n", Self::Full)).into_response()
            }
            Self::Folder(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a checkpoint could not be kept or read: {error}"
                );
                (status, "what was cosigned cannot be kept or read now\n").into_response()
            }
            other => (status, format!("{other}\n")).into_response(),
        }
    }
}

impl Witness {
    /// A witness for the logs that these keys sign, which keeps what it has cosigned in a folder.
    pub fn new(keys: Keyring, logs: Vec<VerifierKey>, clock: Arc<dyn Clock>, folder: Folder) -> Self {
        Self {
            keys,
            logs,
            clock,
            folder: Arc::new(tokio::sync::Mutex::new(folder)),
            arriving: Semaphore::new(ARRIVING_BYTES_MAX),
        }
    }

    /// What it is asked by.
    pub fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/add-checkpoint", post(add_checkpoint))
            .route("/checkpoint", get(last_cosigned))
            .route("/healthz", get(async || "ok\n"))
            .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
            .with_state(self)
    }

    /// The keys that sign for an origin: `<name>/<tenant>` is of the log that the name is of.
    fn keys_of(&self, origin: &str) -> Vec<&VerifierKey> {
        let is_of = |key: &&VerifierKey| {
            let tenant = origin
                .strip_prefix(key.name())
                .and_then(|rest| rest.strip_prefix('/'));
            tenant.is_some_and(|tenant| !tenant.is_empty() && !tenant.contains('/'))
        };
        self.logs.iter().filter(is_of).collect()
    }

    /// The body of a request.
    async fn body(&self, request: Request) -> Result<BytesMut, Refused> {
        let announced = request.body().size_hint().upper();
        let bytes = announced
            .and_then(|bytes| usize::try_from(bytes).ok())
            .map_or(REQUEST_BYTES_MAX, |bytes| bytes.min(REQUEST_BYTES_MAX));
        let mut read = pin!(BytesMut::from_request(request, &()));
        // What is there already takes no room either, however long it is.
        if let Some(read) = read.as_mut().now_or_never() {
            return Ok(read?);
        }
        let room = if bytes > SHORT_BYTES_MAX {
            // INVARIANT: it is not more than the largest request, which is a number of 32 bits.
            let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
            let taken = self.arriving.try_acquire_many(permits);
            Some(taken.map_err(|_| Refused::Full)?)
        } else {
            None
        };
        let read = tokio::time::timeout(BODY_TIME_MAX, read).await;
        drop(room);
        Ok(read.map_err(|_| Refused::LateBody)??)
    }

    /// Cosigns a checkpoint that continues the last one, after that is on disk. Returns the signature lines. One that is
    /// on disk is not written again each time: anybody can get it and send it, and everybody waits for the folder.
    async fn cosign(&self, body: &[u8]) -> Result<String, Refused> {
        let request = AddCheckpoint::parse(body)?;
        let note = Note::parse(request.checkpoint.as_bytes()).map_err(Uncosigned::from)?;
        let claimed = Checkpoint::parse(note.text()).map_err(Uncosigned::from)?;
        let log = self.keys_of(&claimed.origin);
        if log.is_empty() {
            return Err(Refused::UnknownOrigin(claimed.origin));
        }
        // Before the folder is taken, for which everybody waits: anybody may send what is to be verified.
        let signed = request.verify(&log)?;
        let mut folder = Arc::clone(&self.folder).lock_owned().await;
        let known = folder.cosigned(&claimed.origin)?;
        let (checkpoint, cosigned) = match signed.check(known) {
            Ok(checked) => checked,
            Err(uncosigned) => {
                if let Some(shown) = shown_by(&claimed, known, &uncosigned) {
                    keep_evidence(&folder, &claimed, shown, body);
                }
                return Err(uncosigned.into());
            }
        };
        // While the folder is held: no later checkpoint has an earlier time.
        let now = self.clock.now();
        if known.size > 0 && cosigned == known && folder.is_just_written(&claimed.origin, now) {
            drop(folder);
            return Ok(self.lines(&checkpoint, now));
        }
        let lines = self.lines(&checkpoint, now);
        let kept = kept_note(&note, &log, &lines)?;
        // Once begun it is finished, also if whoever asks goes away: the folder is held until then.
        let keeping = tokio::task::spawn_blocking(move || folder.keep(&checkpoint, &kept, now));
        keeping.await.map_err(|_| FolderError::Interrupted)??;
        Ok(lines)
    }

    /// The lines with which it signs a checkpoint.
    fn lines(&self, checkpoint: &Checkpoint, now: Timestamp) -> String {
        let seconds = u64::try_from(now.millis() / 1_000).unwrap_or(0);
        let keys: Vec<_> = self.keys.all().collect();
        cosignature_lines(checkpoint, &keys, seconds)
    }
}

/// What is kept of a cosigned note: its text, what the log has signed, each line once, and the cosignatures.
fn kept_note(note: &Note, log: &[&VerifierKey], lines: &str) -> Result<String, Refused> {
    let mut kept = Note::sign(note.text(), &[]).map_err(Uncosigned::from)?;
    let is_known = |signature: &&NoteSignature| {
        let named = |key: &&VerifierKey| key.id() == signature.key_id && key.name() == signature.name;
        log.iter().any(named)
    };
    for signature in note.signatures().iter().filter(is_known) {
        let is_there = kept.signatures().contains(signature);
        if !is_there && kept.signatures().len() < SIGNATURES_KEPT_MAX {
            kept.push(signature.clone());
        }
    }
    Ok(format!("{kept}{lines}"))
}

/// What a request shows that was not cosigned, if anything. Proofs are not signed, so anybody can put a wrong one
/// before a checkpoint of the log: beside the very one that was cosigned, or where nothing was, it shows nothing.
fn shown_by(claimed: &Checkpoint, known: Cosigned, uncosigned: &Uncosigned) -> Option<Evidence> {
    let is_cosigned = claimed.size == known.size && claimed.root == known.root;
    match uncosigned {
        Uncosigned::Fork(_) => Some(Evidence::Forked),
        Uncosigned::Inconsistent(_) if known.size > 0 && !is_cosigned => Some(Evidence::Unproven),
        _ => None,
    }
}

/// Tells of evidence, and keeps it.
fn keep_evidence(folder: &Folder, claimed: &Checkpoint, shown: Evidence, body: &[u8]) {
    let Checkpoint { origin, size, .. } = claimed;
    match shown {
        Evidence::Forked => tracing::error!(
            origin,
            size,
            "`{origin}` has signed another root of the size {size} than the one that was cosigned"
        ),
        Evidence::Unproven => tracing::warn!(
            origin,
            size,
            "a checkpoint of `{origin}` of the size {size} came with a proof that does not lead to it from what was cosigned"
        ),
    }
    if let Err(error) = folder.keep_evidence(claimed, shown, body) {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "the refused checkpoint could not be kept: {error}"
        );
    }
}

/// `POST /add-checkpoint`.
async fn add_checkpoint(State(witness): State<Arc<Witness>>, request: Request) -> Result<String, Refused> {
    let body = witness.body(request).await?;
    witness.cosign(&body).await
}

/// Which log.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    origin: String,
}

/// `GET /checkpoint?origin=`: the last checkpoint that was cosigned of a log, for whoever compares.
async fn last_cosigned(
    State(witness): State<Arc<Witness>>,
    Query(Which { origin }): Query<Which>,
) -> Result<String, Refused> {
    let note = witness.folder.lock().await.last(&origin)?;
    note.ok_or(Refused::UnknownOrigin(origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use bytes::Bytes;
    use canon::Digest;
    use hyper::body::{Frame, SizeHint};
    use ledger::{SignatureKind, SigningKey};
    use model::time::ManualClock;
    use std::convert::Infallible;
    use std::os::unix::fs::MetadataExt;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tempfile::TempDir;

    /// A body of so many bytes, none of which comes.
    struct Missing(usize);

    impl HttpBody for Missing {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0 as u64)
        }
    }

    fn log_key(seed: u8) -> SigningKey {
        SigningKey::from_seed("log.example", SignatureKind::Note, &[seed; 32]).unwrap()
    }

    /// A witness of the log of one key.
    fn witness_of(log: &SigningKey) -> (Witness, TempDir) {
        let home = tempfile::tempdir().unwrap();
        (witness_in(log, &home), home)
    }

    /// The same, in a folder.
    fn witness_in(log: &SigningKey, home: &TempDir) -> Witness {
        let key = SigningKey::from_seed("w.example", SignatureKind::Cosignature, &[7; 32]).unwrap();
        let (logs, clock) = (
            vec![log.verifier().clone()],
            ManualClock::at(Timestamp::from_millis(1_769_851_800_000)),
        );
        let folder = Folder::open(home.path()).unwrap();
        Witness::new(Keyring::of(key), logs, Arc::new(clock), folder)
    }

    /// What shows a witness the first entry of a log that this key signs.
    fn first_of(key: &SigningKey) -> Vec<u8> {
        first_after(0, key)
    }

    /// The same, to a witness that has cosigned so much before.
    fn first_after(old_size: u64, key: &SigningKey) -> Vec<u8> {
        let checkpoint = Checkpoint::new("log.example", "tnt_1", 1, Digest::of(b"root"));
        let request = AddCheckpoint {
            old_size,
            proof: Vec::new(),
            checkpoint: checkpoint.sign(&[key]).unwrap().to_string(),
        };
        request.to_string().into_bytes()
    }

    #[tokio::test]
    async fn signatures_are_verified_while_somebody_else_has_the_folder() {
        let (known, unknown) = (log_key(1), log_key(2));
        let (witness, _home) = witness_of(&known);
        let folder = witness.folder.lock().await;
        let refused = witness.cosign(&first_of(&unknown)).now_or_never();
        let refused = refused.expect("it waits for nothing").unwrap_err();
        assert_eq!(refused.status(), 403, "{refused}");
        let first = first_of(&known);
        let mut cosigning = Box::pin(witness.cosign(&first));
        assert!(cosigning.as_mut().now_or_never().is_none());
        drop(folder);
        assert_eq!(cosigning.await.unwrap().lines().count(), 1);
    }

    /// The number of the only file of a log in a folder: one that is written again has another.
    fn file_number(home: &TempDir) -> u64 {
        let files = std::fs::read_dir(home.path()).unwrap().map(Result::unwrap);
        let mut of_logs = files.filter(|file| file.file_name() != "lock");
        let number = of_logs.next().unwrap().metadata().unwrap().ino();
        assert!(of_logs.next().is_none());
        number
    }

    #[tokio::test]
    async fn what_is_on_disk_is_cosigned_again_and_for_a_minute_not_written_again() {
        let log = log_key(1);
        let (mut witness, home) = witness_of(&log);
        let cosigned = witness.cosign(&first_of(&log)).await.unwrap();
        let (again, number) = (first_after(1, &log), file_number(&home));
        // Nothing is waited for: it is answered at once.
        let repeated = witness.cosign(&again).now_or_never();
        assert_eq!(repeated.expect("nothing is written").unwrap(), cosigned);
        assert_eq!(file_number(&home), number);
        // Later there may be other keys, and back in time it is not known how long ago it was.
        for millis in [60_000, -1] {
            let number = file_number(&home);
            let now = Timestamp::from_millis(witness.clock.now().millis() + millis);
            witness.clock = Arc::new(ManualClock::at(now));
            assert_ne!(witness.cosign(&again).await.unwrap(), "");
            assert_ne!(file_number(&home), number, "{millis}");
        }
        // Nor does another process know.
        drop(witness);
        let (witness, number) = (witness_in(&log, &home), file_number(&home));
        witness.cosign(&again).await.unwrap();
        assert_ne!(file_number(&home), number);
    }

    #[tokio::test]
    async fn long_bodies_that_do_not_come_have_room_together_and_others_need_none() {
        let (witness, _home) = witness_of(&log_key(1));
        let missing = |bytes: usize| Box::pin(witness.body(Request::new(Body::new(Missing(bytes)))));
        let count = ARRIVING_BYTES_MAX / REQUEST_BYTES_MAX;
        let mut waiting: Vec<_> = (0..count).map(|_| missing(REQUEST_BYTES_MAX)).collect();
        for reading in &mut waiting {
            assert!(reading.as_mut().now_or_never().is_none());
        }
        let refused = missing(SHORT_BYTES_MAX + 1).as_mut().now_or_never();
        let refused = refused.expect("it waits for nothing").unwrap_err();
        assert_eq!(refused.status(), 503, "{refused}");
        assert!(missing(SHORT_BYTES_MAX).as_mut().now_or_never().is_none());
        let there = Request::new(Body::from("x".repeat(REQUEST_BYTES_MAX)));
        assert_eq!(witness.body(there).await.unwrap().len(), REQUEST_BYTES_MAX);
        drop(waiting.pop());
        assert!(missing(REQUEST_BYTES_MAX).as_mut().now_or_never().is_none());
    }
}
