//! Finding out whether a batch is there after its COMMIT was sent and the answer was lost.
//!
//! The transaction may still be running: the server can be slower to commit than a new connection is to ask. So the
//! question is asked under the lock that the lost transaction holds until its end. A batch that was appended has no
//! lock until it arrives, and it may be on its way for longer than anybody wants to wait: the session that it was sent
//! in is ended, under the lock, before it is said not to be there. One that is there may have been committed without
//! the standby that commits wait for, because somebody broke off that wait: so whoever has found it waits for the
//! standby.

use crate::connections::{Connections, NotLent, Session};
use crate::decode::uuid;
use canon::Digest;
use model::TenantId;
use sqlx::PgConnection;
use std::time::Duration;
use store::Batch;
use tokio::time::{Instant, sleep, timeout_at};

/// How long the answer is looked for: a little longer than the server lets a transaction idle whose client is gone, so that
/// a COMMIT that never arrived is known to be none.
const LOOK_TIME_MAX: Duration = Duration::from_millis(2_500);
/// How long a session may take to end.
const END_TIME_MAX: Duration = Duration::from_secs(1);
/// How long to wait before the server is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// An entry of a batch: if it is there, the batch is, because a batch is there whole or not at all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    tenant: TenantId,
    seq: i64,
    hash: Digest,
}

impl Mark {
    /// The last entry of a batch.
    pub(crate) fn of(batch: &Batch) -> Option<Self> {
        let last = batch.entries.last()?;
        Some(Self {
            tenant: last.tenant,
            seq: i64::try_from(last.seq).ok()?,
            hash: last.hash,
        })
    }
}

/// Why one attempt to find out gave no answer. The next one may.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error(transparent)]
    NotLent(#[from] NotLent),
    #[error(transparent)]
    Statement(#[from] sqlx::Error),
    #[error("the session that it was sent in does not end, or may not be seen")]
    SessionGoesOn,
}

/// Whether the batch is there, and if it is not, that it never will be; none if the server does not say in time. `sender` is
/// the session that it was sent in if it was appended; one that was sent in a turn had the lock already.
pub(crate) async fn look(
    connections: &Connections,
    mark: Option<Mark>,
    sender: Option<Session>,
) -> Option<bool> {
    let mark = mark?;
    let end = Instant::now() + LOOK_TIME_MAX;
    loop {
        match timeout_at(end, is_there(connections, mark, sender)).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => tracing::debug!(%error, "what became of a commit is not known yet: {error}"),
            Err(_) => return None,
        }
        timeout_at(end, sleep(PAUSE)).await.ok()?;
    }
}

/// Asks on a connection of its own, in the place of the one that was lost: that one is closed, and whoever was lent it
/// holds its permit until it is known.
async fn is_there(connections: &Connections, mark: Mark, sender: Option<Session>) -> Result<bool, NoAnswer> {
    let mut connection = connections.connect().await?;
    sqlx::raw_sql("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        .execute(&mut connection)
        .await?;
    let zero = &Digest::ZERO.as_bytes()[..];
    // Waits for whoever is moving this head or making this tenant. It changes nothing.
    sqlx::query!(
        "INSERT INTO tenants AS tenant (tenant_id, head_seq, head_hash, head_at, revision, edge)
         VALUES ($1, 0, $2, 0, 0, '')
         ON CONFLICT (tenant_id) DO UPDATE
         SET revision = tenant.revision",
        uuid(mark.tenant),
        zero,
    )
    .execute(&mut connection)
    .await?;
    // A statement of its own: it sees what was committed while the one before waited.
    let found = sqlx::query_scalar!(
        r#"SELECT EXISTS (
               SELECT
               FROM audit_events
               WHERE tenant_id = $1
                 AND seq = $2
                 AND hash = $3
           ) AS "found!""#,
        uuid(mark.tenant),
        mark.seq,
        &mark.hash.as_bytes()[..],
    )
    .fetch_one(&mut connection)
    .await?;
    if let (false, Some(sender)) = (found, sender) {
        end(&mut connection, sender).await?;
    }
    if found {
        // INVARIANT: what is found is where a commit has to be. It is seen also if its wait for a synchronous standby
        // was broken off, and then on this server's disk only. The server has written the row above behind it, so this
        // waits for the standby to have both.
        sqlx::raw_sql("COMMIT").execute(&mut connection).await?;
    } else {
        // If this fails, closing the connection does the same.
        drop(sqlx::raw_sql("ROLLBACK").execute(&mut connection).await);
    }
    Ok(found)
}

/// Ends a session and waits until it has.
async fn end(connection: &mut PgConnection, session: Session) -> Result<(), NoAnswer> {
    let time_max = i64::try_from(END_TIME_MAX.as_millis()).unwrap_or(i64::MAX);
    let ended = sqlx::query_scalar!(
        r#"SELECT CASE WHEN backend_start IS NULL THEN false ELSE pg_terminate_backend(pid, $3) END AS "ended!"
           FROM pg_stat_activity
           WHERE pid = $1
             AND (
                 (extract(epoch FROM backend_start) * 1000000)::bigint = $2
                 OR (backend_start IS NULL AND usename = session_user)
             )"#,
        session.process,
        session.since,
        time_max,
    )
    .fetch_optional(connection)
    .await?;
    // One that is not there any more has ended by itself. One of the same user whose start is hidden, because the role
    // was changed meanwhile, may be it.
    match ended {
        None | Some(true) => Ok(()),
        Some(false) => Err(NoAnswer::SessionGoesOn),
    }
}
