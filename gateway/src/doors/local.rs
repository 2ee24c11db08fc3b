//! Connections of a Unix socket.
//!
//! Whenever one side of a Unix socket reads, the kernel tells the other side that it can be written to. Nobody waits for that here, because an answer
//! goes into an empty buffer; but a connection that is registered for it, as the runtime's own are, has an event for each message that its caller
//! takes, and a worker that sleeps is woken to find nothing to do. So these are registered for what there is to read, and for more only when a
//! buffer is full.

use axum::serve::Listener;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixListener;
use tokio::net::unix::SocketAddr;

/// A socket that gives such connections.
pub(super) struct LocalListener(pub(super) UnixListener);

impl Listener for LocalListener {
    type Io = LocalStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LocalStream, SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.0).await;
            match stream.into_std().and_then(LocalStream::new) {
                Ok(stream) => return (stream, address),
                Err(error) => tracing::warn!(%error, "a connection to the socket was lost"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A connection.
pub(super) struct LocalStream {
    stream: AsyncFd<UnixStream>,
    /// The same one, to wait until it can be written to; there while its caller does not take what it is sent.
    full: Option<AsyncFd<UnixStream>>,
}

impl LocalStream {
    /// From one that does not block.
    fn new(stream: UnixStream) -> io::Result<Self> {
        Ok(Self {
            stream: register(stream, Interest::READABLE)?,
            full: None,
        })
    }

    /// Writes as soon as there is room. `None` if the room has gone to somebody else.
    fn poll_write_full(
        full: &AsyncFd<UnixStream>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Option<io::Result<usize>>> {
        let mut room = ready!(full.poll_write_ready(context))?;
        Poll::Ready(room.try_io(|full| full.get_ref().write(bytes)).ok())
    }
}

/// Has the runtime wait for it.
#[expect(
    deprecated,
    reason = "what takes its place is unsafe for the sake of types that do not own what they name; this one does"
)]
fn register(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(stream, interest)
}

impl AsyncRead for LocalStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut news = ready!(self.stream.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            let Ok(read) = news.try_io(|stream| stream.get_ref().read(room)) else {
                continue;
            };
            let read = read?;
            // There was no more, so what comes next is news. The end stays known.
            if 0 < read && read < room.len() {
                news.clear_ready();
            }
            buffer.advance(read);
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for LocalStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let written = match &self.full {
                Some(full) => match ready!(Self::poll_write_full(full, context, bytes)) {
                    Some(written) => written,
                    None => continue,
                },
                None => self.stream.get_ref().write(bytes),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let same = self.stream.get_ref().try_clone()?;
                    self.full = Some(register(same, Interest::WRITABLE)?);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => {
                    if matches!(written, Ok(written) if written == bytes.len()) {
                        self.full = None;
                    }
                    return Poll::Ready(written);
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.get_ref().shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// More than a socket's buffer, and not the same byte everywhere.
    fn much() -> Vec<u8> {
        (0..2_000_000_u32).map(|number| number.to_le_bytes()[1]).collect()
    }

    /// Both ends of a connection.
    fn pair() -> (LocalStream, LocalStream) {
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        other.set_nonblocking(true).unwrap();
        (LocalStream::new(one).unwrap(), LocalStream::new(other).unwrap())
    }

    #[tokio::test]
    async fn what_is_written_is_read_in_its_order_and_then_the_end() {
        let (mut one, mut other) = pair();
        for round in 0..3_u8 {
            one.write_all(&[round; 100]).await.unwrap();
            let mut read = [0; 100];
            other.read_exact(&mut read).await.unwrap();
            assert_eq!(read, [round; 100]);
            other.write_all(b"answer").await.unwrap();
            let mut read = [0; 6];
            one.read_exact(&mut read).await.unwrap();
            assert_eq!(&read, b"answer");
        }
        one.shutdown().await.unwrap();
        assert_eq!(other.read(&mut [0; 10]).await.unwrap(), 0);
        other.write_all(b"late").await.unwrap();
        drop(other);
        let mut late = Vec::new();
        one.read_to_end(&mut late).await.unwrap();
        assert_eq!(late, b"late");
    }

    #[tokio::test]
    async fn a_reader_that_is_slow_gets_all_of_it() {
        let (mut one, mut other) = pair();
        let writing = tokio::spawn(async move {
            one.write_all(&much()).await.unwrap();
            let was_registered = one.full.is_some();
            one.shutdown().await.unwrap();
            was_registered
        });
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(!writing.is_finished(), "the buffer was to be full");
        let mut read = Vec::new();
        other.read_to_end(&mut read).await.unwrap();
        assert!(read == much());
        assert!(!writing.await.unwrap(), "nobody waits for room any more");
    }

    #[tokio::test]
    async fn whoever_waits_for_room_hears_that_nobody_reads_any_more() {
        let (mut one, other) = pair();
        let writing = tokio::spawn(async move { one.write_all(&much()).await });
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        drop(other);
        assert_eq!(
            writing.await.unwrap().unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }

    #[tokio::test]
    async fn a_listener_gives_what_connects() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let mut listener = LocalListener(UnixListener::bind(&path).unwrap());
        assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(&*path));
        let mut caller = tokio::net::UnixStream::connect(&path).await.unwrap();
        let (mut stream, _) = listener.accept().await;
        caller.write_all(b"ask").await.unwrap();
        let mut read = [0; 3];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"ask");
    }
}
