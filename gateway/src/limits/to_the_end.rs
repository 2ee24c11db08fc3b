//! Futures that go on to their end when whoever waits for them goes away.
//!
//! They run where they are waited for, so that whoever waits goes on at once when they are through; a task of their own
//! would have to wake it first. Only what is given up becomes a task.

use futures_util::future::BoxFuture;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// Such a future.
pub(super) struct ToTheEnd<T: Send + 'static> {
    /// None when it is through.
    rest: Option<BoxFuture<'static, T>>,
}

impl<T: Send + 'static> ToTheEnd<T> {
    pub(super) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            rest: Some(Box::pin(future)),
        }
    }
}

impl<T: Send + 'static> Future for ToTheEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let rest = self.rest.as_mut().expect("nobody polls what is through");
        let polled = rest.as_mut().poll(context);
        if polled.is_ready() {
            self.rest = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for ToTheEnd<T> {
    fn drop(&mut self) {
        // Without a runtime the program ends.
        if let (Some(rest), Ok(runtime)) = (self.rest.take(), Handle::try_current()) {
            runtime.spawn(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn what_is_given_up_goes_on() {
        let (go, let_go) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        let mut future = ToTheEnd::new(async move {
            let_go.await.unwrap();
            done.send(()).unwrap();
        });
        assert!((&mut future).now_or_never().is_none());
        drop(future);
        go.send(()).unwrap();
        is_done.await.unwrap();
    }

    #[tokio::test]
    async fn what_is_through_is_given_to_whoever_waits() {
        assert_eq!(ToTheEnd::new(async { 7 }).now_or_never(), Some(7));
    }
}
