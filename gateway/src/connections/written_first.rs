//! Streams that are read only while what was written to them is taken.
//!
//! Where an answer has no body and its request had one, hyper goes on to the next request before the answer has left,
//! and keeps its head until then: of one request after the other, as long as there is something to read. So whoever
//! asks ahead and takes no answers is not read on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Such a stream. What reads from it and what writes to it are one task, which tries to write whenever it is woken.
pub(super) struct WrittenFirst<S> {
    stream: S,
    progress: Arc<Progress>,
}

/// How far whoever reads such a stream and writes to it has come.
#[derive(Default)]
pub(super) struct Progress {
    /// Whether there was no room for what was written last.
    is_full: AtomicBool,
    /// How many bytes were read.
    read: AtomicUsize,
    /// How many bytes were written.
    written: AtomicUsize,
}

impl Progress {
    /// Whether there was no room for what was written last.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// How many bytes were read in all.
    pub(super) fn read(&self) -> usize {
        self.read.load(Ordering::Relaxed)
    }

    /// How many bytes were written in all.
    pub(super) fn written(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }
}

impl<S> WrittenFirst<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            progress: Arc::default(),
        }
    }

    /// How far it has come, for whoever does not have the stream.
    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Remembers whether there was room, and for how much. Where there is some again, the task is woken: it was not let
    /// read, so nothing else wakes it when something comes.
    fn written(&self, written: Poll<io::Result<usize>>, context: &Context<'_>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.progress.written.fetch_add(*bytes, Ordering::Relaxed);
        }
        let is_full = &self.progress.is_full;
        let was_full = is_full.swap(written.is_pending(), Ordering::Relaxed);
        if was_full && written.is_ready() {
            context.waker().wake_by_ref();
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WrittenFirst<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.progress.is_full() {
            // INVARIANT: whoever makes room, or goes away, wakes the task, because it waits to write.
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        self.progress.read.fetch_add(bytes, Ordering::Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WrittenFirst<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn nothing_is_read_before_what_was_written_is_taken() {
        let (stream, mut other) = tokio::io::duplex(4);
        let mut stream = WrittenFirst::new(stream);
        let mut read = [0; 4];
        other.write_all(b"asks").await.unwrap();
        stream.write_all(b"full").await.unwrap();
        assert!(stream.write(b"more").now_or_never().is_none());
        assert!(stream.read(&mut read).now_or_never().is_none());
        other.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"full");
        stream.write_all(b"more").await.unwrap();
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"asks");
    }

    /// As whoever serves it does: in one task, for both at once.
    #[tokio::test]
    async fn what_came_while_there_was_no_room_is_read_when_there_is_some() {
        let (stream, mut other) = tokio::io::duplex(4);
        let mut stream = WrittenFirst::new(stream);
        stream.write_all(b"full").await.unwrap();
        let serving = tokio::spawn(async move {
            let (mut is_written, mut read) = (false, [0; 3]);
            std::future::poll_fn(|context| {
                let mut buffer = ReadBuf::new(&mut read);
                let reading = Pin::new(&mut stream).poll_read(context, &mut buffer);
                if !is_written {
                    is_written = Pin::new(&mut stream).poll_write(context, b"more").is_ready();
                }
                reading
            })
            .await
            .unwrap();
            read
        });
        let pause = || tokio::time::sleep(Duration::from_millis(20));
        pause().await;
        other.write_all(b"ask").await.unwrap();
        pause().await;
        assert!(!serving.is_finished(), "nothing was to be read");
        let mut taken = [0; 4];
        other.read_exact(&mut taken).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_secs(10), serving).await;
        assert_eq!(heard.unwrap().unwrap(), *b"ask");
    }
}
