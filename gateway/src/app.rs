//! The application: every route of the table, and a way of their own for asks.
//!
//! A router boxes and clones every layer for every request, and hands on in a map what one layer has found out for the
//! next. Nearly all requests are asks. For an ask that was a twelfth of its cost, and for one that is refused a much
//! larger share. So they go through the same steps as a plain sequence of calls. What is the same for both stands in
//! the steps: [`Reception`] and [`caller`].

use crate::authorize::{self, Received};
use crate::gateway::Gateway;
use crate::http::caller;
use crate::http::request_id::Reception;
use crate::router::router;
use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::Service;

/// The path of an ask.
pub const AUTHORIZE: &str = "/v1/authorize";

/// What answers the requests of a gateway.
#[derive(Clone)]
pub struct App {
    gateway: Arc<Gateway>,
    router: Router,
}

impl App {
    /// The application of this gateway.
    pub fn new(gateway: &Arc<Gateway>) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            router: router(gateway),
        }
    }

    /// What handlers share.
    pub(crate) const fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }
}

impl Service<Request> for App {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if request.uri().path() == AUTHORIZE && request.method() == Method::POST {
            let gateway = Arc::clone(&self.gateway);
            Box::pin(async move { Ok(ask(&gateway, request, Received::HeadOnly).await) })
        } else {
            Box::pin(self.router.call(request))
        }
    }
}

/// The response to an ask of which so much was received.
pub(crate) async fn ask(gateway: &Arc<Gateway>, request: Request, received: Received) -> Response {
    let reception = Reception::of(&request, gateway);
    let outcome = async {
        let (caller, request) = caller::agent(gateway, request).await?;
        let answer = authorize::answer(gateway, caller, request, received).await?;
        Ok(answer.into_response())
    };
    let outcome = outcome.await;
    reception.respond(gateway, outcome).await
}
