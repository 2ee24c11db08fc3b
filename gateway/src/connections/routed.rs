//! Connections of a program that answers by a router and is no gateway, such as a witness. Hyper has all of them, and
//! they have the bounds that it keeps for the gateway.

use super::handed_on::{self, Rewound};
use super::head_time::Times;
use super::{HEAD_TIME_MAX, SILENCE_MAX, places};
use axum::Router;
use axum::body::Body;
use axum::serve::Listener;
use bytes::Bytes;
use hyper::Request;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::Service;

/// Serves whoever connects until told to stop. Then whoever is silent is let go, and a request whose head has come is answered.
pub async fn serve_router<L: Listener>(mut listener: L, router: Router, stop: impl Future<Output = ()>) {
    let connections = places::places_max();
    let room = Arc::new(Semaphore::new(connections));
    let (stopping, told) = watch::channel(false);
    let mut stop = pin!(stop);
    loop {
        let accepted = async {
            // Whoever connects while there is none waits in the system's own queue.
            let place = places::take(&room, connections).await;
            (listener.accept().await.0, place)
        };
        tokio::select! {
            (stream, place) = accepted => {
                tokio::spawn(run(stream, router.clone(), told.clone(), place));
            }
            () = &mut stop => break,
        }
    }
    drop((listener, told));
    stopping.send_replace(true);
    stopping.closed().await;
}

/// Answers what comes on a connection, which has its place until it ends.
async fn run<S>(stream: S, router: Router, mut told: watch::Receiver<bool>, place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stopped = pin!(async {
        // An error means that nobody can say it any more, which is a reason to stop as well.
        let _ = told.wait_for(|stop| *stop).await;
    });
    let answer = move |request: Request<Body>| router.clone().call(request);
    let times = Times {
        head_max: HEAD_TIME_MAX,
        silence_max: SILENCE_MAX,
    };
    handed_on::answer_all(Rewound::new(Bytes::new(), stream), answer, times, stopped).await;
    drop(place);
}
