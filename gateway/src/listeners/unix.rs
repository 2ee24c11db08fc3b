//! Connections of a Unix socket.
//!
//! Whenever one side of a Unix socket reads, the kernel tells the other side that it can be written to. Nobody waits
//! for that here, because an answer goes into an empty buffer; but a connection that is registered for it, as the
//! runtime's own are, has an event for each message that its caller takes, and a worker that sleeps is woken to find
//! nothing to do. So these are registered for what there is to read, and for more only while a buffer is full. A
//! connection is one file all the while, so its place counts for it whatever its caller does.

use axum::serve::Listener;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixListener;
use tokio::net::unix::SocketAddr;
use tokio::runtime::Handle;

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

/// A connection. One task reads from it and writes to it, so when it is registered anew, waking that task is enough.
pub(super) struct LocalStream {
    /// None only after it could not be registered anew. Nothing comes of it then.
    stream: Option<AsyncFd<UnixStream>>,
    /// Whether it is registered for room, too: while its caller does not take what it is sent.
    is_full: bool,
    /// Where it is registered, whatever thread writes to it.
    home: Handle,
}

impl LocalStream {
    /// From one that does not block.
    fn new(stream: UnixStream) -> io::Result<Self> {
        Ok(Self {
            stream: Some(register(stream, Interest::READABLE)?),
            is_full: false,
            home: Handle::current(),
        })
    }

    fn stream(&self) -> io::Result<&AsyncFd<UnixStream>> {
        self.stream
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Registers it anew, for this. The registration before took with it who was to be woken when something comes: so
    /// its task is woken now, and looks at everything again.
    fn register_for(&mut self, interest: Interest, context: &Context<'_>) -> io::Result<()> {
        let stream = self.stream.take().map(AsyncFd::into_inner);
        let stream = stream.ok_or(io::ErrorKind::NotConnected)?;
        let _home = self.home.enter();
        self.stream = Some(register(stream, interest)?);
        self.is_full = interest.is_writable();
        context.waker().wake_by_ref();
        Ok(())
    }

    /// Writes up to so many bytes like this.
    fn poll_write_by(
        &mut self,
        context: &mut Context<'_>,
        length: usize,
        write: impl Fn(&UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let stream = self.stream()?;
            let written = if self.is_full {
                match ready!(Self::poll_write_full(stream, context, &write)) {
                    Some(written) => written,
                    None => continue,
                }
            } else {
                write(stream.get_ref())
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.register_for(Interest::READABLE | Interest::WRITABLE, context)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => {
                    if self.is_full && matches!(written, Ok(written) if written == length) {
                        self.register_for(Interest::READABLE, context)?;
                    }
                    return Poll::Ready(written);
                }
            }
        }
    }

    /// Writes as soon as there is room. `None` if the room has gone to somebody else.
    fn poll_write_full(
        stream: &AsyncFd<UnixStream>,
        context: &mut Context<'_>,
        write: impl Fn(&UnixStream) -> io::Result<usize>,
    ) -> Poll<Option<io::Result<usize>>> {
        let mut room = ready!(stream.poll_write_ready(context))?;
        Poll::Ready(room.try_io(|stream| write(stream.get_ref())).ok())
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
        let stream = self.stream()?;
        loop {
            let mut news = ready!(stream.poll_read_ready(context))?;
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
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let write = |mut stream: &UnixStream| stream.write(bytes);
        self.get_mut().poll_write_by(context, bytes.len(), write)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        let write = |mut stream: &UnixStream| stream.write_vectored(slices);
        self.get_mut().poll_write_by(context, length, write)
    }

    /// Or hyper would copy long answers into a buffer of its own, where they have no room of all answers any more.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream()?.get_ref().shutdown(Shutdown::Write))
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
    async fn parts_are_written_as_they_are_and_read_in_their_order() {
        let (mut one, mut other) = pair();
        assert!(one.is_write_vectored());
        let writing = tokio::spawn(async move {
            let bytes = much();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (first, second) = rest.split_at(rest.len() / 2);
                let parts = [IoSlice::new(first), IoSlice::new(second)];
                let written = one.write_vectored(&parts).await.unwrap();
                rest = &rest[written..];
            }
        });
        let mut read = Vec::new();
        other.read_to_end(&mut read).await.unwrap();
        assert!(read == much());
        writing.await.unwrap();
    }

    #[tokio::test]
    async fn a_reader_that_is_slow_gets_all_of_it() {
        let (mut one, mut other) = pair();
        let writing = tokio::spawn(async move {
            one.write_all(&much()).await.unwrap();
            let waits = one.is_full;
            one.shutdown().await.unwrap();
            waits
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

    /// As whoever serves it does: in one task, for both at once.
    #[tokio::test]
    async fn what_comes_while_there_is_no_room_is_heard() {
        let (mut one, mut other) = pair();
        let serving = tokio::spawn(async move {
            let (bytes, mut written, mut read) = (much(), 0, [0; 3]);
            std::future::poll_fn(|context| {
                let mut buffer = ReadBuf::new(&mut read);
                let reading = Pin::new(&mut one).poll_read(context, &mut buffer);
                while let Poll::Ready(more) = Pin::new(&mut one).poll_write(context, &bytes[written..]) {
                    written += more.unwrap();
                }
                reading
            })
            .await
            .unwrap();
            (read, one.is_full)
        });
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        other.write_all(b"ask").await.unwrap();
        let patience = std::time::Duration::from_secs(10);
        let heard = tokio::time::timeout(patience, serving).await.unwrap();
        assert_eq!(heard.unwrap(), (*b"ask", true));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_caller_that_does_not_read_costs_no_file_more() {
        use std::os::fd::AsRawFd;

        let (mut one, _other) = pair();
        let bytes = much();
        let writing = one.write_all(&bytes);
        let early = tokio::time::timeout(std::time::Duration::from_millis(50), writing).await;
        assert!(early.is_err() && one.is_full, "the buffer was to be full");
        // Every descriptor of a socket has the name of that.
        let folder = std::path::Path::new("/proc/self/fd");
        let number = one.stream().unwrap().as_raw_fd().to_string();
        let itself = std::fs::read_link(folder.join(number)).unwrap();
        let files = std::fs::read_dir(folder).unwrap().filter_map(Result::ok);
        let same = files.filter(|file| std::fs::read_link(file.path()).is_ok_and(|name| name == itself));
        assert_eq!(same.count(), 1);
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
