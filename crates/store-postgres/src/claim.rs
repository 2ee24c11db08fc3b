//! Who may write the first entries of a database: gateways that begin in it, or one copy, and never both.
//!
//! A commit compares the heads of its own tenants, and a copy begins with others than a gateway does: neither would
//! notice the other before both have written. So a lock of the server keeps them apart. A copy has it alone until it
//! has ended, also behind its last commit: what is found then may be that all of it has to be removed. Gateways share
//! it, each at its start until the system tenant has its first entries, whatever is there already. No commit asks for
//! it.
//!
//! The lock is a transaction's, so a pooler keeps it to one session. It is given back when the connection ends, however
//! the process does. Where only the connection is lost, nobody notices: what is compared in commits still holds, and no
//! gateway begins in a database to which a copy has written.

use crate::address::Address;
use crate::connect::{self, READ_WAIT_MAX};
use crate::connections::look_at;
use crate::open::{OpenError, connect_with, failed};
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Row as _};
use tokio::time::timeout;

/// Takes the lock alone, if nobody has it. The numbers are one that nobody else's program takes, and the table of this
/// ledger: a database can hold several, in a schema each.
const ALONE: &str = "BEGIN; SELECT pg_try_advisory_xact_lock(1668248942, 'tenants'::regclass::oid::int4)";
/// Takes it with others, if nobody has it alone.
const SHARED: &str =
    "BEGIN; SELECT pg_try_advisory_xact_lock_shared(1668248942, 'tenants'::regclass::oid::int4)";

/// Who is about to write to a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimant {
    /// A gateway that starts on it. There may be several.
    Gateway,
    /// A copy, which begins with other tenants.
    Copy,
}

/// Keeps others out of a database, for as long as it lives.
#[derive(Debug)]
pub struct Claim {
    session: PgConnection,
}

impl Claim {
    /// Lets others in. Whoever comes behind this finds the lock free, where the server answered. Without it the lock
    /// is given back when the server notices that nobody is there any more, and its log tells of a connection that
    /// was lost.
    pub async fn give_back(self) {
        // Where this fails the connection ends all the same, and the lock with it.
        if let Ok(Err(error)) = timeout(READ_WAIT_MAX, end(self.session)).await {
            tracing::debug!(%error, "the claim of the database ended with its connection: {error}");
        }
    }
}

/// Gives the lock back, waits until it is free, and takes leave of the server.
async fn end(mut session: PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql("ROLLBACK").execute(&mut session).await?;
    session.close().await
}

/// Claims the database, whose schema is there already.
pub(crate) async fn take(address: &Address, claimant: Claimant) -> Result<Claim, OpenError> {
    let failed = |source| failed(address, source);
    let mut session = connect_with(address, &connect::claim(&address.options)).await?;
    look_at(&mut session).await.map_err(failed)?;
    let statements = match claimant {
        Claimant::Gateway => SHARED,
        Claimant::Copy => ALONE,
    };
    let row = sqlx::raw_sql(statements).fetch_one(&mut session).await;
    let is_taken: bool = row.and_then(|row| row.try_get(0)).map_err(failed)?;
    if is_taken {
        return Ok(Claim { session });
    }
    let database = address.to_string();
    Err(match claimant {
        Claimant::Gateway => OpenError::CopiedTo { database },
        Claimant::Copy => OpenError::Claimed { database },
    })
}
