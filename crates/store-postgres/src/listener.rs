//! What other gateways have changed: a connection that listens for their announcements.
//!
//! An announcement is only a hint to look. One that is made while the connection is down is lost, so a connection that was
//! made anew counts as an announcement.

use crate::commit::CHANNEL;
use crate::connections::CLEANING_TIME_MAX;
use crate::unavailable;
use sqlx::PgPool;
use sqlx::postgres::PgListener;
use sqlx::types::Uuid;
use std::time::Duration;
use store::StoreError;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long the connection may be silent before it is asked whether it is alive: a firewall that has forgotten it says
/// nothing.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long it may take to answer, and to be made.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// The one connection that listens, made when somebody first waits.
pub(crate) struct Listener {
    pool: PgPool,
    /// Whose announcements are its own.
    store: String,
    /// Held by whoever waits. None until then, and after a failure.
    listening: Mutex<Option<PgListener>>,
}

impl Listener {
    pub(crate) fn new(pool: PgPool, store: Uuid) -> Self {
        Self {
            pool,
            store: store.to_string(),
            listening: Mutex::new(None),
        }
    }

    /// Returns when another store has announced a change, or when one may have been missed.
    pub(crate) async fn changed(&self) -> Result<(), StoreError> {
        let mut listening = self.listening.lock().await;
        if let Some(listener) = listening.as_mut() {
            match self.announced(listener).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::debug!(%error, "the connection that listens for changes is made anew: {error}");
                    *listening = None;
                }
            }
        }
        let connected = timeout(ANSWER_TIME_MAX, self.connect()).await;
        let connected = connected.map_err(|elapsed| StoreError::Unavailable(Box::new(elapsed)))?;
        *listening = Some(connected.map_err(unavailable)?);
        Ok(())
    }

    /// Closes the connection. Whoever waits is told that the database is not available.
    pub(crate) async fn close(&self) {
        // Marks it as closed at once, which wakes whoever waits; then waits for the connection itself.
        let closed = self.pool.close();
        let closing = async {
            *self.listening.lock().await = None;
            closed.await;
        };
        // The driver takes leave without a limit, and the server may be out of reach.
        drop(timeout(CLEANING_TIME_MAX, closing).await);
    }

    async fn connect(&self) -> Result<PgListener, sqlx::Error> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        // It is for this file to notice that a connection is new.
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        Ok(listener)
    }

    async fn announced(&self, listener: &mut PgListener) -> Result<(), sqlx::Error> {
        loop {
            match timeout(SILENCE_MAX, listener.try_recv()).await {
                Ok(Ok(Some(announcement))) if announcement.payload() == self.store => {}
                Ok(Ok(Some(_))) => return Ok(()),
                // The connection is lost.
                Ok(Ok(None)) => return Err(sqlx::Error::Io(std::io::ErrorKind::ConnectionAborted.into())),
                Ok(Err(error)) => return Err(error),
                Err(_) => is_alive(listener).await?,
            }
        }
    }
}

async fn is_alive(listener: &mut PgListener) -> Result<(), sqlx::Error> {
    let answer = sqlx::raw_sql("SELECT").execute(listener);
    match timeout(ANSWER_TIME_MAX, answer).await {
        Ok(answer) => answer.map(drop),
        Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
    }
}
