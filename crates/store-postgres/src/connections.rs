//! Connections: lent one at a time, and only ever lent again when they are known to be clean.
//!
//! This is not the pool of the driver, for four reasons. A connection whose transaction is open must never be lent to the
//! next one, whatever becomes of whoever held it; the driver's pool does not look. It asks every connection that comes back
//! whether it is well, which is a round trip a commit, and waits without a limit for the answer of a server that is out of
//! reach. And it waits for a server that is away, where a caller is better told at once.

use crate::connect::{CONNECT_TIME_MAX, CONNECTION_WAIT_MAX};
use crate::{unavailable, unread};
use futures_util::future::join_all;
use futures_util::{Stream, TryStreamExt};
use sqlx::error::DatabaseError;
use sqlx::postgres::{
    PgArguments, PgConnectOptions, PgConnection, PgDatabaseError, PgRow, PgSeverity, Postgres,
};
use sqlx::query::{Map, Query};
use sqlx::{ConnectOptions, Connection, Row};
use std::future::Future;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{Room, Source, StoreError, TurnOver};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long it may take to make a connection clean or to close it: undoing, or the rest of an answer that nobody waits
/// for any more. After that it is given up instead, which undoes just as well.
pub(crate) const CLEANING_TIME_MAX: Duration = Duration::from_secs(1);
/// How often a connection is lent again behind a statement that nobody waited for to its end. One that was still being
/// prepared stays prepared in the server for as long as the session lasts, and the driver does not know of it.
pub(crate) const ABANDONED_MAX: u32 = 256;
/// What PostgreSQL calls the end of a session whose transaction stood idle for too long (`idle_in_transaction_session_timeout`).
const IDLE_IN_TRANSACTION: &str = "25P03";

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotLent {
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// All are in use, and none came back in time.
    #[error("all connections are in use")]
    AllInUse,
    /// The server did not take another one in time.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The server did not take another one.
    #[error("the server cannot be reached")]
    Connect(#[source] sqlx::Error),
    /// The server follows another one.
    #[error("the server is a standby, which takes no commits and may be behind")]
    Standby,
    /// Somebody between has dropped the settings that were sent with the start of the connection.
    #[error(
        "the server was reached without the settings of the connection, as through a pooler that drops `options`"
    )]
    SettingsLost,
}

/// A session of the server, so that another one can have it ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session {
    /// The process that serves it.
    pub(crate) process: i32,
    /// When it began, in microseconds: numbers of processes are given again.
    pub(crate) since: i64,
}

/// Which session a connection is.
#[derive(Debug, Clone, Copy)]
enum Identity {
    /// Nobody has asked.
    NotAsked,
    /// The server does not tell, because the role may not see its own sessions.
    Hidden,
    Known(Session),
}

/// A connection, and what is known of its session.
struct Kept {
    connection: PgConnection,
    identity: Identity,
    /// How many of its statements nobody has waited for to their ends.
    abandoned: u32,
}

impl From<PgConnection> for Kept {
    fn from(connection: PgConnection) -> Self {
        Self {
            connection,
            identity: Identity::NotAsked,
            abandoned: 0,
        }
    }
}

/// So many connections at most, made when they are needed and kept.
pub(crate) struct Connections {
    options: PgConnectOptions,
    permits: Arc<Semaphore>,
    most: usize,
    /// How long a statement is waited for.
    time_max: Duration,
    /// Last in, first out: what was used last is the likeliest to be alive, and has its plans made. Locked for a push or a pop
    /// only. None when closed.
    idle: Mutex<Option<Vec<Kept>>>,
}

impl Connections {
    pub(crate) fn new(options: PgConnectOptions, most: usize, time_max: Duration) -> Arc<Self> {
        Arc::new(Self {
            options,
            permits: Arc::new(Semaphore::new(most)),
            most,
            time_max,
            idle: Mutex::new(Some(Vec::new())),
        })
    }

    /// Lends a connection: one that was used before, if there is one.
    pub(crate) async fn lend(self: &Arc<Self>) -> Result<Lent, NotLent> {
        let permit = timeout(CONNECTION_WAIT_MAX, Arc::clone(&self.permits).acquire_owned()).await;
        let permit = permit
            .map_err(|_| NotLent::AllInUse)?
            .map_err(|_| NotLent::Closed)?;
        let idle = self.with_idle(Vec::pop).ok_or(NotLent::Closed)?;
        let is_new = idle.is_none();
        let kept = match idle {
            Some(kept) => kept,
            None => self.connect().await?.into(),
        };
        Ok(Lent {
            kept: Some(kept),
            is_new,
            state: State::Clean,
            home: Arc::clone(self),
            permit: Some(permit),
        })
    }

    /// The rows that a query gives which may be asked twice, as one may that changes nothing. It is made anew if it has
    /// to be asked again.
    pub(crate) async fn read<O: Send + Unpin, F: FnMut(PgRow) -> Result<O, sqlx::Error> + Send>(
        self: &Arc<Self>,
        query: impl Fn() -> Map<'static, Postgres, F, PgArguments> + Send,
    ) -> Result<Vec<O>, StoreError> {
        let mut lent = self.lend().await.map_err(unavailable)?;
        loop {
            let rows = in_time(
                lent.time_max(),
                query().fetch_all(lent.start().map_err(unavailable)?),
            )
            .await;
            match lent.settle_clean(rows) {
                Ok(rows) => return Ok(rows),
                Err(error) if lent.replace(&error).await.map_err(unavailable)? => {}
                Err(error) => return Err(unread(error)),
            }
        }
    }

    /// Runs a statement that may be run twice, because a second time does no harm: the first may have arrived although
    /// nobody has heard so. It is made anew if it has to be run again. Returns how many rows were written the last time.
    pub(crate) async fn write(
        self: &Arc<Self>,
        statement: impl Fn() -> Query<'static, Postgres, PgArguments> + Send,
    ) -> Result<u64, StoreError> {
        let mut lent = self.lend().await.map_err(unavailable)?;
        loop {
            let done = in_time(
                lent.time_max(),
                statement().execute(lent.start().map_err(unavailable)?),
            )
            .await;
            match lent.settle_clean(done) {
                Ok(done) => return Ok(done.rows_affected()),
                Err(error) if lent.replace(&error).await.map_err(unavailable)? => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
    }

    /// The rows that a query gives, as [`Self::read`] has it, as long as there is room for rows, of which each has so
    /// many bytes. Then the connection is closed: the rest is on its way, and nobody waits for it.
    pub(crate) async fn read_in_room<O, F>(
        self: &Arc<Self>,
        query: impl Fn() -> Map<'static, Postgres, F, PgArguments> + Send,
        room: &mut Room,
        bytes: fn(&O) -> usize,
    ) -> Result<Vec<O>, StoreError>
    where
        O: Send + Unpin,
        F: FnMut(PgRow) -> Result<O, sqlx::Error> + Send,
    {
        let mut lent = self.lend().await.map_err(unavailable)?;
        loop {
            let mut tried = *room;
            let time_max = lent.time_max();
            let rows = query().fetch(lent.start().map_err(unavailable)?);
            let rows = in_time(time_max, in_room(rows, &mut tried, bytes)).await;
            let rows = if tried.is_left() {
                lent.settle_clean(rows)
            } else {
                lent.hang_up();
                rows
            };
            match rows {
                Ok(rows) => {
                    *room = tried;
                    return Ok(rows);
                }
                Err(error) if lent.replace(&error).await.map_err(unavailable)? => {}
                Err(error) => return Err(unread(error)),
            }
        }
    }

    /// Makes a connection. Whoever asks for one holds a permit and no other connection with it, so that there are never
    /// more than `most`.
    pub(crate) async fn connect(&self) -> Result<PgConnection, NotLent> {
        let connecting = connect_to_primary(&self.options);
        timeout(CONNECT_TIME_MAX, connecting)
            .await
            .unwrap_or(Err(NotLent::TimedOut))
    }

    /// Waits for what is lent, then closes all. What is asked for afterwards is refused.
    pub(crate) async fn close(&self) {
        let all = u32::try_from(self.most).unwrap_or(u32::MAX);
        let _all = timeout(CONNECTION_WAIT_MAX, self.permits.acquire_many(all)).await;
        self.permits.close();
        let idle = self.lock().take().into_iter().flatten();
        let closing = idle.map(|kept| timeout(CLEANING_TIME_MAX, kept.connection.close()));
        // Whether the server heard the good-byes does not matter.
        drop(join_all(closing).await);
    }

    /// Forgets the idle connections: one turned out to be dead, and what has closed it or cut it off has likely done so
    /// to all.
    fn forget_idle(&self) {
        drop(self.with_idle(std::mem::take));
    }

    fn with_idle<T>(&self, look: impl FnOnce(&mut Vec<Kept>) -> T) -> Option<T> {
        self.lock().as_mut().map(look)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<Kept>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Others like these that wait only so long for a statement, for tests of what falls silent.
    #[cfg(test)]
    pub(crate) fn with_time_max(&self, time_max: Duration) -> Arc<Self> {
        Self::new(self.options.clone(), self.most, time_max)
    }

    /// How many can be lent at this moment, for tests of who holds one.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.permits.available_permits()
    }
}

/// What is known of a connection that is lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is open: it can be lent again.
    Clean,
    /// A transaction is open and no statement is running: it can be lent again after ROLLBACK.
    InTransaction,
    /// A statement was sent and its end was not seen yet. It can be lent again when the server has answered, and behind
    /// ROLLBACK where a transaction may be open then.
    Running { may_be_open: bool },
    /// It failed, or was waited for in vain: nobody knows. It is closed.
    Broken,
}

/// A connection, until it is dropped. Whoever drops it in the middle of something leaves neither transaction nor lock behind.
pub(crate) struct Lent {
    /// None only while it is being dropped or replaced.
    kept: Option<Kept>,
    /// Whether it was made for this.
    is_new: bool,
    state: State,
    home: Arc<Connections>,
    /// Given back with the connection.
    permit: Option<OwnedSemaphorePermit>,
}

impl Lent {
    /// The connection, to run a statement on. Until [`settle`](Self::settle) or [`settle_clean`](Self::settle_clean) says
    /// how it ended, it counts as running.
    pub(crate) fn start(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        self.run(self.state != State::Clean)
    }

    /// The connection, to begin a transaction on.
    pub(crate) fn start_transaction(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        self.run(true)
    }

    fn run(&mut self, may_be_open: bool) -> Result<&mut PgConnection, sqlx::Error> {
        self.state = State::Running { may_be_open };
        let kept = self.kept.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        Ok(&mut kept.connection)
    }

    /// Finds out which session it is, and returns whether that is known; a connection is asked once.
    pub(crate) async fn identify(&mut self) -> Result<bool, sqlx::Error> {
        match self.kept.as_ref().map(|kept| kept.identity) {
            Some(Identity::Known(_)) => return Ok(true),
            Some(Identity::Hidden) => return Ok(false),
            Some(Identity::NotAsked) | None => {}
        }
        let asked = sqlx::query!(
            r#"SELECT
                   pid AS "process!",
                   (extract(epoch FROM backend_start) * 1000000)::bigint AS "since?"
               FROM pg_stat_activity
               WHERE pid = pg_backend_pid()"#,
        );
        let found = in_time(self.time_max(), asked.fetch_one(self.start()?)).await;
        let found = self.settle_clean(found)?;
        if let Some(kept) = &mut self.kept {
            kept.identity = found.since.map_or(Identity::Hidden, |since| {
                Identity::Known(Session {
                    process: found.process,
                    since,
                })
            });
        }
        Ok(found.since.is_some())
    }

    /// Notes how a statement ended that was to leave a transaction open.
    pub(crate) fn settle<T>(&mut self, outcome: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        self.doubt_idle(&outcome);
        // An error of the statement leaves the transaction open, as one that can only be rolled back. After any other error,
        // of the network or FATAL, the connection is not to be trusted.
        let is_open = outcome
            .as_ref()
            .err()
            .is_none_or(|error| severity(error) == Some(PgSeverity::Error));
        self.state = if is_open {
            State::InTransaction
        } else {
            State::Broken
        };
        outcome
    }

    /// Notes how a statement ended that was to leave nothing open.
    pub(crate) fn settle_clean<T>(&mut self, outcome: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        self.doubt_idle(&outcome);
        self.state = if outcome.is_ok() {
            State::Clean
        } else {
            State::Broken
        };
        outcome
    }

    /// Has the idle connections forgotten where a statement got no answer: whoever is lent the next one would wait for
    /// it as long once more.
    fn doubt_idle<T>(&self, outcome: &Result<T, sqlx::Error>) {
        if outcome.as_ref().is_err_and(|error| !has_answered(error)) {
            self.home.forget_idle();
        }
    }

    /// After the first statement failed on a connection that was used before: whether it is worth another try on a new one. The
    /// server may have been restarted since, and nothing has happened yet.
    pub(crate) async fn replace(&mut self, error: &sqlx::Error) -> Result<bool, NotLent> {
        if self.is_new || has_answered(error) {
            return Ok(false);
        }
        self.kept = None;
        self.kept = Some(self.home.connect().await?.into());
        self.is_new = true;
        self.state = State::Clean;
        Ok(true)
    }

    /// Undoes what was done, and returns when the locks are given back or the connection is closed.
    pub(crate) async fn roll_back(&mut self) {
        if self.state == State::InTransaction
            && let Some(kept) = &mut self.kept
            && roll_back(&mut kept.connection).await
        {
            self.state = State::Clean;
        }
        // What still runs, or was not undone, has been waited for already, and the idle ones may be as silent.
        if !matches!(self.state, State::Clean | State::Broken) {
            self.home.forget_idle();
        }
        if self.state != State::Clean {
            self.kept = None;
        }
    }

    /// Closes it, because nobody knows what became of the last statement, or nobody takes the rest of its answer. Returns
    /// which session it was, if it is known.
    pub(crate) fn hang_up(&mut self) -> Option<Session> {
        match self.kept.take()?.identity {
            Identity::Known(session) => Some(session),
            Identity::NotAsked | Identity::Hidden => None,
        }
    }

    /// How long a statement on it is waited for.
    pub(crate) fn time_max(&self) -> Duration {
        self.home.time_max
    }

    /// Where it belongs.
    pub(crate) const fn home(&self) -> &Arc<Connections> {
        &self.home
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else {
            return;
        };
        match self.state {
            State::Clean => keep(&self.home, kept),
            // Closing it ends the transaction too: the server notices at the latest when the statement ends.
            State::Broken => drop(kept),
            State::InTransaction | State::Running { .. } => {
                // Without a runtime, as when a program ends, the connection is closed, which undoes as well.
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    let cleaning = clean(Arc::clone(&self.home), kept, self.state);
                    let permit = self.permit.take();
                    runtime.spawn(async move {
                        cleaning.await;
                        drop(permit);
                    });
                }
            }
        }
    }
}

/// Keeps a connection whose holder has dropped it in a transaction or in the middle of a statement, once nothing is
/// running and nothing is open on it. Whoever hangs up often would otherwise have the next one wait each time until a
/// connection is made.
async fn clean(home: Arc<Connections>, mut kept: Kept, state: State) {
    if matches!(state, State::Running { .. }) {
        kept.abandoned += 1;
        if kept.abandoned > ABANDONED_MAX || !is_answered(&mut kept.connection).await {
            return;
        }
    }
    let nothing_is_open = state == State::Running { may_be_open: false };
    if nothing_is_open || roll_back(&mut kept.connection).await {
        keep(&home, kept);
    }
}

/// INVARIANT: no connection to a standby is lent, so whoever is refused by one connects anew, wherever the address
/// leads by then. It is asked once: a primary becomes a standby only by being started anew, and then its connections
/// are gone. Nor is one lent without its settings, by which a commit is on the disk and a turn that hangs ends.
async fn connect_to_primary(options: &PgConnectOptions) -> Result<PgConnection, NotLent> {
    let mut connection = options.connect().await.map_err(NotLent::Connect)?;
    let reached = look_at(&mut connection).await.map_err(NotLent::Connect)?;
    if reached.is_standby {
        Err(NotLent::Standby)
    } else if !reached.has_settings {
        Err(NotLent::SettingsLost)
    } else {
        Ok(connection)
    }
}

/// Where a new connection leads, and how.
pub(crate) struct Reached {
    /// Whether the server follows another one.
    pub(crate) is_standby: bool,
    /// Whether what [`crate::connect`] sets has arrived.
    pub(crate) has_settings: bool,
}

/// Asks a new connection where it leads, and sets on the way what cannot travel with its start: a server older than 17
/// does not know this limit, and would refuse the connection.
pub(crate) async fn look_at(connection: &mut PgConnection) -> Result<Reached, sqlx::Error> {
    let row = sqlx::raw_sql(
        "SELECT
             pg_is_in_recovery(),
             coalesce(current_setting('countersign.settings', true), '') = 'sent',
             CASE
                 WHEN current_setting('server_version_num')::int >= 170000
                 THEN set_config('transaction_timeout', '0', false)
             END",
    )
    .fetch_one(connection)
    .await?;
    Ok(Reached {
        is_standby: row.try_get(0)?,
        has_settings: row.try_get(1)?,
    })
}

fn keep(home: &Connections, kept: Kept) {
    home.with_idle(|idle| idle.push(kept));
}

/// Undoes what was done, and returns whether it is undone.
async fn roll_back(connection: &mut PgConnection) -> bool {
    let done = timeout(CLEANING_TIME_MAX, sqlx::raw_sql("ROLLBACK").execute(connection)).await;
    matches!(done, Ok(Ok(_)))
}

/// Reads the rest of what the server answers, and returns whether there was no error in it. The driver counts the answers
/// that it has not read, and sends the rest of a statement of which only a part was sent.
async fn is_answered(connection: &mut PgConnection) -> bool {
    let done = timeout(CLEANING_TIME_MAX, connection.ping()).await;
    matches!(done, Ok(Ok(())))
}

/// Waits for a statement, but not for ever. One that was not waited for has to count as broken off.
pub(crate) async fn in_time<T>(
    time_max: Duration,
    statement: impl Future<Output = Result<T, sqlx::Error>> + Send,
) -> Result<T, sqlx::Error> {
    let too_slow = |_| Err(sqlx::Error::Io(ErrorKind::TimedOut.into()));
    timeout(time_max, statement).await.unwrap_or_else(too_slow)
}

/// Rows as long as there are any and there is room for them.
async fn in_room<O>(
    mut rows: impl Stream<Item = Result<O, sqlx::Error>> + Unpin,
    room: &mut Room,
    bytes: fn(&O) -> usize,
) -> Result<Vec<O>, sqlx::Error> {
    let mut found = Vec::new();
    while room.is_left()
        && let Some(row) = rows.try_next().await?
    {
        room.take(bytes(&row));
        found.push(row);
    }
    Ok(found)
}

/// Whether the server has answered a statement that failed, and goes on living.
fn has_answered(error: &sqlx::Error) -> bool {
    severity(error) == Some(PgSeverity::Error) || matches!(error, sqlx::Error::ColumnDecode { .. })
}

/// How bad an error is that the server sent; none if it sent none.
pub(crate) fn severity(error: &sqlx::Error) -> Option<PgSeverity> {
    let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    Some(error.severity())
}

/// Why a statement before COMMIT has failed in a turn. It may be that the turn is over: the server has ended its session,
/// for whatever reason, or the connection is gone.
pub(crate) fn broken_off(error: sqlx::Error) -> Source {
    let ends_session = matches!(severity(&error), Some(PgSeverity::Fatal | PgSeverity::Panic));
    if ends_session || is_closed(&error) {
        Box::new(TurnOver(error.into()))
    } else {
        error.into()
    }
}

/// Whether the server has ended a turn that stood idle: it has read nothing that was sent to it since.
pub(crate) fn is_ended(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.as_deref() == Some(IDLE_IN_TRANSACTION)
}

/// Whether a statement has found a table or an index damaged: `data_corrupted`, `index_corrupted`. Where the server has
/// ended the session over it, the next one may find nothing.
pub(crate) fn is_damage(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    severity(error) == Some(PgSeverity::Error) && matches!(code.as_deref(), Some("XX001" | "XX002"))
}

fn is_closed(error: &sqlx::Error) -> bool {
    let kind = match error {
        sqlx::Error::Io(error) => error.kind(),
        _ => return false,
    };
    matches!(
        kind,
        ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::UnexpectedEof
    )
}
