//! A network that breaks at the worst moment: it forwards everything between a store and its server, until a COMMIT or the
//! statement that is one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// COMMIT as it travels: a simple query. Connections are not encrypted here, and a statement is one write.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// How the values of a statement end: a Sync message. With [`ENTRY`] among them it is a batch.
const SYNC: &[u8] = b"S\0\0\0\x04";
/// A kind of entry that every batch of the tests has.
const ENTRY: &[u8] = b"decision";

/// The name that settings have in the first message of a connection, up to where they begin.
const SETTINGS: &[u8] = b"\0options\0";

/// What is forwarded at once.
const CHUNK_BYTES: usize = 65_536;

/// What becomes of a COMMIT, or of a batch that is appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It goes through.
    Pass,
    /// It arrives, and its answer does not come back.
    AfterCommit,
    /// The connection breaks on its way, and it never arrives.
    BeforeCommit,
    /// The connection breaks, and the server hears of the COMMIT only so much later.
    LateCommit(Duration),
    /// The connection breaks for the client only: the server goes on waiting for it.
    Silence,
}

#[derive(Debug, Default)]
struct Plans {
    commits: Mutex<VecDeque<Cut>>,
    appends: Mutex<VecDeque<Cut>>,
    /// How often all connections that were there have fallen silent.
    silences: AtomicUsize,
    /// On how many of these something was said since.
    unheard: AtomicUsize,
    /// Whether new connections come without their settings.
    drops_settings: AtomicBool,
}

impl Plans {
    /// What becomes of these bytes.
    fn next(&self, asked: &[u8]) -> Cut {
        let is_batch = || asked.ends_with(SYNC) && asked.windows(ENTRY.len()).any(|part| part == ENTRY);
        let plan = match asked {
            asked if asked.ends_with(COMMIT) => &self.commits,
            _ if is_batch() => &self.appends,
            _ => return Cut::Pass,
        };
        plan.lock().unwrap().pop_front().unwrap_or(Cut::Pass)
    }
}

/// The network; gone when this is dropped, with all that was connected through it.
#[derive(Debug)]
pub struct Network {
    place: SocketAddr,
    plans: Arc<Plans>,
    is_closed: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Network {
    /// A network before the server of a URL.
    pub async fn before(url: &str) -> Self {
        Self::at("127.0.0.1:0", url).await
    }

    /// A network before the server of a URL, which is reached at this address.
    pub async fn at(place: &str, url: &str) -> Self {
        let server = authority(url).to_owned();
        let listener = TcpListener::bind(place).await.unwrap();
        let place = listener.local_addr().unwrap();
        let plans = Arc::new(Plans::default());
        let is_closed = Arc::new(AtomicBool::new(false));
        let (cuts, closed) = (Arc::clone(&plans), Arc::clone(&is_closed));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                if !closed.load(Ordering::SeqCst) {
                    connections.spawn(forward(client, server.clone(), Arc::clone(&cuts)));
                }
            }
        });
        Self {
            place,
            plans,
            is_closed,
            task,
        }
    }

    /// The URL through the network.
    pub fn url(&self, url: &str) -> String {
        url.replace(authority(url), &self.place.to_string())
    }

    /// What is to become of the next COMMITs, one after the other. The ones after that pass.
    pub fn plan(&self, cuts: impl IntoIterator<Item = Cut>) {
        self.plans.commits.lock().unwrap().extend(cuts);
    }

    /// What is to become of the next batches that are sent, in a turn or without one. A statement that a connection has not
    /// seen before travels in two parts: there has to have been one.
    pub fn plan_appends(&self, cuts: impl IntoIterator<Item = Cut>) {
        self.plans.appends.lock().unwrap().extend(cuts);
    }

    /// Lets nothing through any more on the connections that are there. Nobody is told, and new ones work.
    pub fn fall_silent(&self) {
        self.plans.silences.fetch_add(1, Ordering::SeqCst);
    }

    /// On how many of the connections that fell silent something was said since.
    pub fn unheard(&self) -> usize {
        self.plans.unheard.load(Ordering::SeqCst)
    }

    /// Lets new connections through without their settings, as a pooler does that ignores them.
    pub fn drop_settings(&self) {
        self.plans.drops_settings.store(true, Ordering::SeqCst);
    }

    /// Lets new connections through, or none. Those that are there go on.
    pub fn close(&self, close: bool) {
        self.is_closed.store(close, Ordering::SeqCst);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The host and the port in a URL.
fn authority(url: &str) -> &str {
    let (_, rest) = url.split_once('@').unwrap();
    rest.split_once('/').unwrap().0
}

/// Forwards one connection until it is closed or cut.
async fn forward(mut client: TcpStream, server: String, plans: Arc<Plans>) -> std::io::Result<()> {
    let silences = plans.silences.load(Ordering::SeqCst);
    let mut server = TcpStream::connect(server).await?;
    let (mut asked, mut answered) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        tokio::select! {
            bytes = server.read(&mut answered) => match bytes? {
                0 => return Ok(()),
                bytes => client.write_all(&answered[..bytes]).await?,
            },
            bytes = client.read(&mut asked) => match bytes? {
                0 => return Ok(()),
                bytes => {
                    if plans.silences.load(Ordering::SeqCst) > silences {
                        plans.unheard.fetch_add(1, Ordering::SeqCst);
                        return std::future::pending().await;
                    }
                    let asked = &mut asked[..bytes];
                    if plans.drops_settings.load(Ordering::SeqCst) {
                        blank_settings(asked);
                    }
                    match plans.next(asked) {
                        Cut::Pass => server.write_all(asked).await?,
                        cut => return break_off(cut, client, server, asked).await,
                    }
                }
            },
        }
    }
}

/// Writes spaces over the settings in the first message of a connection.
fn blank_settings(asked: &mut [u8]) {
    let name = asked.windows(SETTINGS.len()).position(|part| part == SETTINGS);
    if let Some(name) = name {
        let values = asked[name + SETTINGS.len()..].iter_mut();
        values
            .take_while(|byte| **byte != 0)
            .for_each(|byte| *byte = b' ');
    }
}

async fn break_off(cut: Cut, client: TcpStream, mut server: TcpStream, commit: &[u8]) -> std::io::Result<()> {
    let mut answer = [0; 64];
    match cut {
        Cut::Pass | Cut::BeforeCommit => {}
        Cut::AfterCommit => {
            server.write_all(commit).await?;
            assert!(server.read(&mut answer).await? > 0, "the server has hung up");
        }
        Cut::LateCommit(time) => {
            drop(client);
            tokio::time::sleep(time).await;
            // The server may have hung up in the meantime.
            server.write_all(commit).await?;
            let _answered = server.read(&mut answer).await?;
        }
        Cut::Silence => {
            drop(client);
            std::future::pending::<()>().await;
        }
    }
    Ok(())
}
