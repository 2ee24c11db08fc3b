//! How each kind of connection is set up: those that write, those that read, the listener, the one that migrates.
//!
//! Every setting that durability or boundedness rests on is set here and nowhere else, and explicitly: what the server, the
//! database or the role have as their default must not weaken a promise. The settings travel with the start of a
//! connection, so they cost no round trip, and they take precedence over those of the URL. One that older servers do not
//! know is set by [`look_at`], which goes first over every connection that holds transactions.

use crate::connections::{Connections, look_at};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use std::sync::Arc;
use std::time::Duration;

/// How long a connection may take to be made, TLS and password included.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// Turns at once in this process. Each has a connection; whoever has none yet waits in memory and not in the server.
const TURNS_MAX: usize = 8;
/// Leases of tokens at once in this process. They have connections of their own: a lease must not wait behind a commit that
/// waits for another gateway.
const LEASES_MAX: usize = 4;
/// Readers at once. They share the server with the commits of all gateways.
pub(crate) const READERS_MAX: usize = 6;
/// Loads at once: a gateway catches up with a few at a time, with what is everybody's beside them.
const LOADS_MAX: usize = 4;
/// Looks at revisions at once. They have a connection of their own: finding out whether a directory has to be loaded
/// must not wait behind loads.
const LOOKS_MAX: usize = 1;
/// Sweeps at once: the jobs of a gateway take turns.
const SWEEPS_MAX: usize = 1;
/// Connections of each kind for what nobody waits for: that is done on one thread.
const BACKGROUND_MAX: usize = 1;
/// The one connection that is told of changes; and room for the next one, because one that has fallen silent is given
/// up by the system, and not at once.
const LISTENERS_MAX: u32 = 2;
/// How long whoever wants a connection waits for one.
pub(crate) const CONNECTION_WAIT_MAX: Duration = Duration::from_secs(5);
/// What the program is called in `pg_stat_activity` unless the URL says otherwise.
const NAME: &str = "countersign";

/// A gateway that stops between the steps of a turn, by SIGSTOP or with its network gone, holds up the tenants of
/// its batch for no longer than this: then the server ends its transaction.
const IDLE_IN_TURN_MAX: &str = "2s";
/// The same where an answer is on its way to it that it does not take, in milliseconds. The server is not idle while it
/// sends, and no other limit ends that: it is in the middle of a statement that a cancel does not reach, and keepalives
/// are not sent while something is not acknowledged. Longer than the other one, because a network that loses a few
/// packets is as quiet as one that is gone.
const UNTAKEN_IN_TURN_MILLIS_MAX: &str = "5000";
/// The same where nobody waits for a lock: whoever loads does not always read as fast as the server sends.
const UNTAKEN_MILLIS_MAX: &str = "15000";
/// How long a turn waits for another one with the same tenants: longer than a gateway is waited for that has stopped
/// between its steps, so that the others go on without an error.
const LOCK_WAIT_MAX: &str = "3s";
/// How long any statement of a turn may run. It does not bound the wait for the disk or a standby in COMMIT: the server stops
/// the clock before that, as it must, because there is no way back from there.
const WRITE_TIME_MAX: &str = "5s";
/// How long any statement of a turn is waited for here, where the server may be out of reach and not only slow. It
/// bounds COMMIT too.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(6);
/// How long a read may run.
const READ_TIME_MAX: &str = "10s";
/// After how long it is given up here, should the server be out of reach.
pub(crate) const READ_WAIT_MAX: Duration = Duration::from_secs(11);
/// How long one statement of a read is waited for: longer than the server lets it run, and not until all of the read is
/// given up. So it is known that a connection has fallen silent, and the next read is not lent another such.
const READ_STATEMENT_WAIT_MAX: Duration = Duration::from_millis(10_500);
/// How long a load may run: all nouns of all tenants are a lot, and without them a gateway cannot start.
const LOAD_TIME_MAX: &str = "120s";
/// After how long it is given up here, should the server be out of reach.
const LOAD_WAIT_MAX: Duration = Duration::from_secs(121);
/// How long a look at the revisions of all tenants may run, which are few bytes each: nobody is answered by a gateway
/// that has not seen them for five seconds, and in these it has to ask again on another connection where one has fallen
/// silent. The server gives it up then, too, so that those that wait for a lock do not pile up there.
const LOOK_TIME_MAX: &str = "2s";
/// After how long it is given up here, should the server be out of reach.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long a step of a migration may run, and how long one waits for a gateway that is migrating already.
const MIGRATION_TIME_MAX: &str = "10min";

/// What all connections have in common. The server looks after clients that have gone without a word, because it is
/// their transactions that hold locks: it asks after 5 quiet seconds and gives them up after 15, or after 10 those that
/// write, because an unanswered question counts as an answer that nobody takes. One that answers and takes nothing any
/// more is given up as well. On a Unix socket, whose other end is on the same machine, none of this counts.
fn common(base: &PgConnectOptions) -> PgConnectOptions {
    let named = match base.get_application_name() {
        Some(_) => base.clone(),
        None => base.clone().application_name(NAME),
    };
    named
        .options([
            ("tcp_keepalives_idle", "5"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "2"),
            ("tcp_user_timeout", UNTAKEN_MILLIS_MAX),
            // Connections are kept for as long as they are well, and the one that listens is idle most of the time.
            ("idle_session_timeout", "0"),
            // Compiling a statement takes longer than running any of ours.
            ("jit", "off"),
            // The rows of a turn come as text, of which the driver reads bytes in this form only.
            ("bytea_output", "hex"),
            // By this is seen that all of them have arrived.
            ("countersign.settings", "sent"),
        ])
        // The log of the gateway has one line for what went wrong; statements, slow ones too, are not it.
        .disable_statement_logging()
}

/// The connections that turns are taken on.
pub(crate) fn turns(base: &PgConnectOptions) -> Arc<Connections> {
    Connections::new(writer(base), TURNS_MAX, WRITE_WAIT_MAX)
}

/// The connections that tokens are lent on.
pub(crate) fn leases(base: &PgConnectOptions) -> Arc<Connections> {
    Connections::new(writer(base), LEASES_MAX, WRITE_WAIT_MAX)
}

/// The connections that records are read on.
pub(crate) fn readers(base: &PgConnectOptions) -> Arc<Connections> {
    Connections::new(reader(base, READ_TIME_MAX), READERS_MAX, READ_STATEMENT_WAIT_MAX)
}

/// The connection that is read on for nobody who waits. It belongs to the runtime that reads on it first.
pub(crate) fn background_readers(base: &PgConnectOptions) -> Arc<Connections> {
    Connections::new(
        reader(base, READ_TIME_MAX),
        BACKGROUND_MAX,
        READ_STATEMENT_WAIT_MAX,
    )
}

/// The connection that is written on for nobody who waits: the search index, and sweeps. It belongs to the runtime that
/// writes on it first.
pub(crate) fn background_writer(base: &PgConnectOptions) -> Arc<Connections> {
    Connections::new(writer(base), BACKGROUND_MAX, WRITE_WAIT_MAX)
}

/// The connections that directories are loaded on.
pub(crate) fn loads(base: &PgConnectOptions) -> Arc<Connections> {
    Connections::new(reader(base, LOAD_TIME_MAX), LOADS_MAX, LOAD_WAIT_MAX)
}

/// The connection for comparing revisions: whether any directory has to be loaded.
pub(crate) fn looks(base: &PgConnectOptions) -> Arc<Connections> {
    // The pages of `tenants` that a long transaction of somebody else has left stay, full or empty, because the rows
    // that are alive stand behind them. What goes by the key does not read them any more once they are vacuumed.
    let options = reader(base, LOOK_TIME_MAX).options([("enable_seqscan", "off")]);
    Connections::new(options, LOOKS_MAX, LOOK_WAIT_MAX)
}

/// The connection on which rows are deleted that nobody asks for any more. A statement is planned anew each time: how
/// many rows are looked at is known only then, and a plan for any number would read far more of a large table.
pub(crate) fn sweeps(base: &PgConnectOptions) -> Arc<Connections> {
    let options = writer(base).options([("plan_cache_mode", "force_custom_plan")]);
    Connections::new(options, SWEEPS_MAX, WRITE_WAIT_MAX)
}

fn writer(base: &PgConnectOptions) -> PgConnectOptions {
    common(base).options([
        // INVARIANT: an `Ok` from COMMIT means that the write-ahead log is on the disk, and on the standby's where the server
        // has a synchronous one.
        ("synchronous_commit", "on"),
        // For statements that are a transaction of their own.
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_read_only", "off"),
        ("statement_timeout", WRITE_TIME_MAX),
        ("lock_timeout", LOCK_WAIT_MAX),
        ("idle_in_transaction_session_timeout", IDLE_IN_TURN_MAX),
        ("tcp_user_timeout", UNTAKEN_IN_TURN_MILLIS_MAX),
        // A commit is planned once a connection and not with every batch: planning takes longer than running it.
        ("plan_cache_mode", "force_generic_plan"),
        // Everything that a turn looks up, it looks up by key. Without this a plan that was made while a table was small
        // would go on reading all of it when it has grown.
        ("enable_seqscan", "off"),
    ])
}

fn reader(base: &PgConnectOptions, time_max: &str) -> PgConnectOptions {
    common(base).options([
        ("default_transaction_read_only", "on"),
        ("statement_timeout", time_max),
    ])
}

/// The connection that is told of changes. One to a standby cannot listen, and is not taken again.
pub(crate) fn listener(base: &PgConnectOptions) -> PgPool {
    pool(LISTENERS_MAX)
        .before_acquire(|connection, _| Box::pin(async move { Ok(!look_at(connection).await?.is_standby) }))
        .connect_lazy_with(common(base))
}

/// The one connection that looks at the schema and brings it up to date.
pub(crate) fn migrator(base: &PgConnectOptions) -> PgConnectOptions {
    common(base).options([
        ("synchronous_commit", "on"),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_read_only", "off"),
        ("statement_timeout", MIGRATION_TIME_MAX),
        ("lock_timeout", MIGRATION_TIME_MAX),
    ])
}

/// The connection that claims a database. Its transaction stands idle for as long as a copy goes on or a gateway
/// begins.
pub(crate) fn claim(base: &PgConnectOptions) -> PgConnectOptions {
    common(base).options([
        // Else it would keep a snapshot for as long, and rows that are dead by then would not be vacuumed.
        ("default_transaction_isolation", "read committed"),
        ("statement_timeout", READ_TIME_MAX),
        ("idle_in_transaction_session_timeout", "0"),
    ])
}

/// A pool of so many connections.
pub(crate) fn pool(connections_max: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(CONNECTION_WAIT_MAX)
        // Nothing is logged of a shorter wait, in words that are in no guide: a longer one fails, and is told as that.
        .acquire_slow_threshold(CONNECTION_WAIT_MAX)
        // With either of these the pool starts a task that counts idle connections, and that count can run below zero while
        // one is handed back: the task then never ends and keeps a core busy. A few idle connections do no harm.
        .idle_timeout(None)
        .max_lifetime(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_says_how_many_connections_a_gateway_opens_at_most() {
        let asked_for = TURNS_MAX + LEASES_MAX + READERS_MAX + LOADS_MAX + LOOKS_MAX;
        let most = asked_for + SWEEPS_MAX + 2 * BACKGROUND_MAX + LISTENERS_MAX as usize;
        let sentence = format!("a gateway opens {most} to the server at most");
        let guide = include_str!("../../../docs/operations.md");
        assert!(guide.contains(&sentence), "{sentence}");
    }
}
