//! How long hyper waits for a head.
//!
//! Hyper has one time for that, from the end of the request before, whether something of the next one has come or
//! nothing. It is that of a head here, and less where hyper may have made its buffer large, which it keeps that large.
//! What becomes of a connection then is not decided here, but it is not hyper's any more, and with hyper goes what the
//! caller has not taken yet of the answer before. So the time is not over while there is some of that, unless nothing
//! of it was taken for minutes, or the time is as long as anybody may be silent.

use super::written_first::Progress;
use hyper::rt::{Sleep, Timer};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// How much hyper reads at once before it takes more than that at a time, in bytes.
const SMALL_BYTES_MAX: usize = 8 * 1024;
/// How long hyper is silent with a buffer that may be larger.
const LARGE_SILENCE_MAX: Duration = Duration::from_secs(1);
/// How long a caller may take nothing of an answer. It is that of what is streamed, for the same reason.
const LEFT_MAX: Duration = Duration::from_mins(5);

/// How long callers may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// For a head of which something has come.
    pub(super) head_max: Duration,
    /// To begin one, from the end of the request before.
    pub(super) silence_max: Duration,
}

impl Times {
    /// How long hyper waits for the next head at first, where it has read so much.
    pub(super) fn first(self, read: usize) -> Duration {
        if read < SMALL_BYTES_MAX {
            self.head_max
        } else {
            self.head_max.min(LARGE_SILENCE_MAX)
        }
    }
}

/// Hyper's clock for the heads of a connection.
pub(super) struct HeadTimer {
    /// How far hyper has come with the connection.
    progress: Arc<Progress>,
    times: Times,
}

/// The time of one head.
struct HeadTime {
    sleep: Pin<Box<tokio::time::Sleep>>,
    /// As of the timer.
    progress: Arc<Progress>,
    /// How much was written when that was looked at last.
    written: usize,
    /// Since when it is so much, as far as that was looked at.
    written_at: Instant,
    /// After which time that is looked at again.
    again_after: Duration,
    /// When the time is over in any case.
    end: Instant,
}

impl HeadTimer {
    pub(super) const fn new(progress: Arc<Progress>, times: Times) -> Self {
        Self { progress, times }
    }

    /// The time of a head that is to have come by then, as hyper counts.
    fn time(&self, deadline: Instant, now: Instant) -> HeadTime {
        let Times {
            head_max,
            silence_max,
        } = self.times;
        let first = deadline.min(now + self.times.first(self.progress.read()));
        HeadTime {
            sleep: Box::pin(tokio::time::sleep_until(first)),
            progress: Arc::clone(&self.progress),
            written: self.progress.written(),
            written_at: now,
            again_after: head_max,
            end: deadline + silence_max.saturating_sub(head_max),
        }
    }
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(self.time(Instant::from_std(deadline), Instant::now()))
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }
}

impl HeadTime {
    /// Whether it is over, when it was slept.
    fn is_over(&mut self, now: Instant) -> bool {
        if now >= self.end || !self.progress.is_full() {
            return true;
        }
        let written = self.progress.written();
        if written != self.written {
            self.written = written;
            self.written_at = now;
        }
        now.saturating_duration_since(self.written_at) >= LEFT_MAX
    }
}

impl Future for HeadTime {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(context));
            let now = Instant::now();
            if self.is_over(now) {
                return Poll::Ready(());
            }
            let again = (now + self.again_after).min(self.end);
            self.sleep.as_mut().reset(again);
        }
    }
}

impl Sleep for HeadTime {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::written_first::WrittenFirst;
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    const HEAD_MAX: Duration = Duration::from_secs(30);
    const SILENCE_MAX: Duration = Duration::from_mins(11);

    /// A stream, its other end, which takes so much at once, and the clock of its heads.
    fn timed(bytes: usize) -> (WrittenFirst<DuplexStream>, DuplexStream, HeadTimer) {
        let (stream, other) = tokio::io::duplex(bytes);
        let stream = WrittenFirst::new(stream);
        let bounds = Times {
            head_max: HEAD_MAX,
            silence_max: SILENCE_MAX,
        };
        let timer = HeadTimer::new(stream.progress(), bounds);
        (stream, other, timer)
    }

    #[tokio::test]
    async fn hyper_is_silent_for_a_second_only_when_it_has_read_much() {
        let (mut stream, mut other, timer) = timed(2 * SMALL_BYTES_MAX);
        let mut read = vec![0; SMALL_BYTES_MAX - 1];
        let now = Instant::now();
        let first = || timer.time(now + HEAD_MAX, now).sleep.deadline() - now;
        assert_eq!(first(), HEAD_MAX);
        other.write_all(&read).await.unwrap();
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(first(), HEAD_MAX);
        other.write_all(b"x").await.unwrap();
        stream.read_exact(&mut read[..1]).await.unwrap();
        assert_eq!(first(), LARGE_SILENCE_MAX);
    }

    #[tokio::test]
    async fn an_answer_of_which_something_is_taken_is_waited_for_and_another_for_minutes() {
        let (mut stream, mut other, timer) = timed(4);
        let began = Instant::now();
        stream.write_all(b"full").await.unwrap();
        let mut time = timer.time(began + HEAD_MAX, began);
        assert!(time.is_over(began), "everything has been written");
        assert!(stream.write(b"more").now_or_never().is_none());
        let taken_at = began + LEFT_MAX - HEAD_MAX;
        assert!(!time.is_over(taken_at));
        let mut taken = [0; 4];
        other.read_exact(&mut taken).await.unwrap();
        stream.write_all(b"more").await.unwrap();
        assert!(stream.write(b"rest").now_or_never().is_none());
        assert!(!time.is_over(taken_at));
        let left = taken_at + LEFT_MAX;
        assert!(!time.is_over(left - HEAD_MAX));
        assert!(time.is_over(left));
    }
}
