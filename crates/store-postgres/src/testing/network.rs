//! A network that breaks at the worst moment: it forwards everything between a store and its server, until a COMMIT.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// COMMIT as it travels: a simple query. Connections are not encrypted here, and a statement is one write.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// What is forwarded at once.
const CHUNK_BYTES: usize = 65_536;

/// What becomes of a COMMIT.
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

/// The network; gone when this is dropped, with all that was connected through it.
#[derive(Debug)]
pub struct Network {
    port: u16,
    plan: Arc<Mutex<VecDeque<Cut>>>,
    is_closed: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Network {
    /// A network before the server of a URL.
    pub async fn before(url: &str) -> Self {
        let server = authority(url).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let plan = Arc::new(Mutex::new(VecDeque::new()));
        let is_closed = Arc::new(AtomicBool::new(false));
        let (cuts, closed) = (Arc::clone(&plan), Arc::clone(&is_closed));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                if !closed.load(Ordering::SeqCst) {
                    connections.spawn(forward(client, server.clone(), Arc::clone(&cuts)));
                }
            }
        });
        Self {
            port,
            plan,
            is_closed,
            task,
        }
    }

    /// The URL through the network.
    pub fn url(&self, url: &str) -> String {
        url.replace(authority(url), &format!("127.0.0.1:{}", self.port))
    }

    /// What is to become of the next COMMITs, one after the other. The ones after that pass.
    pub fn plan(&self, cuts: impl IntoIterator<Item = Cut>) {
        self.plan.lock().unwrap().extend(cuts);
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
async fn forward(
    mut client: TcpStream,
    server: String,
    plan: Arc<Mutex<VecDeque<Cut>>>,
) -> std::io::Result<()> {
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
                    let asked = &asked[..bytes];
                    let next = if asked.ends_with(COMMIT) { plan.lock().unwrap().pop_front() } else { None };
                    match next {
                        None | Some(Cut::Pass) => server.write_all(asked).await?,
                        Some(cut) => return break_off(cut, client, server, asked).await,
                    }
                }
            },
        }
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
            server.write_all(commit).await?;
            assert!(server.read(&mut answer).await? > 0, "the server has hung up");
        }
        Cut::Silence => {
            drop(client);
            std::future::pending::<()>().await;
        }
    }
    Ok(())
}
