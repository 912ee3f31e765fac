//! The HTTP listeners: counting, health, metrics, dumps. Each bounds its connections and the time of a request.
//!
//! Slow clients do not keep others out: when there are too many connections, the oldest that the server is waiting for
//! is closed, except for dumps and restores, which have a bound of their own.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::counts;
use super::dumps;
use super::guard::{refuse_foreign, refuse_remote};
use super::metrics;
use super::pace::{Pace, TooSlow};
use super::places::Transfers;
use super::problem::{problem, raw_problem};
use crate::limits::{
    ACCEPT_RETRY, DRAIN_TIMEOUT, HTTP_LOOK_EVERY, HTTP_SEND_BYTES, LINGER, MAX_HTTP_CONNECTIONS,
    MAX_HTTP_HEAD_BYTES,
};
use crate::protocol::pause;
use crate::service::Service;
use crate::stopper::Stopper;

/// The connection of a request, for its handler.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) pace: Arc<Pace>,
    pub(super) peer: IpAddr,
    /// The address of this machine that the peer connected to.
    pub(super) local: IpAddr,
}

impl Link {
    fn new(peer: SocketAddr, local: SocketAddr) -> Link {
        let [peer, local] = [peer, local].map(|address| address.ip().to_canonical());
        Link { pace: Arc::default(), peer, local }
    }

    /// Whether the peer is on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.peer.is_loopback() || self.peer == self.local
    }
}

/// The routes for monitoring. They read no keys and change nothing.
pub(crate) fn watching(service: Arc<Service>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(service)
}

/// All routes.
pub(crate) fn all(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/dump", get(dumps::dump))
        .route("/v1/restore", post(dumps::restore))
        .method_not_allowed_fallback(wrong_method)
        .route_layer(from_fn(refuse_remote))
        .layer(Extension(Transfers::new(&service)))
        .route("/v1/hit/", post(counts::hit))
        .route("/v1/hits/", get(counts::hits))
        .route("/v1/hit/{*key}", post(counts::hit))
        .route("/v1/hits/{*key}", get(counts::hits))
        .method_not_allowed_fallback(wrong_method)
        // Add routes that change something or read keys above this line.
        .route_layer(from_fn_with_state(Arc::clone(&service), refuse_foreign))
        .with_state(Arc::clone(&service))
        .merge(watching(service))
}

/// Serves until the stop, then finishes the requests under way.
pub(crate) async fn serve(listener: TcpListener, router: Router, stopper: Stopper) {
    let mut connections = Connections::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.running.join_next() => continue,
            () = stopper.stopped() => break,
        };
        // The client has gone, or file descriptors ran out: then the end of a connection frees one.
        let Ok((socket, peer)) = accepted else {
            pause(ACCEPT_RETRY).await;
            continue;
        };
        let Ok(local) = socket.local_addr() else { continue };
        let link = Link::new(peer, local);
        // If this fails, slow clients are only noticed later.
        let _ = socket2::SockRef::from(&socket).set_send_buffer_size(HTTP_SEND_BYTES);
        tokio::select! {
            () = connections.make_room() => connections.add(link, socket, &router, &stopper),
            () = stopper.stopped() => break,
        }
    }
    drop(listener);
    let drained = async { while connections.running.join_next().await.is_some() {} };
    let _ = timeout(DRAIN_TIMEOUT, drained).await;
}

/// The connections of a listener.
#[derive(Default)]
struct Connections {
    running: JoinSet<()>,
    /// The same connections, oldest first. Some may have ended.
    oldest: VecDeque<(AbortHandle, Arc<Pace>)>,
}

impl Connections {
    /// Waits until there is room for another connection. Closes the oldest that the server is waiting for.
    async fn make_room(&mut self) {
        loop {
            self.oldest.retain(|(connection, _)| !connection.is_finished());
            if self.oldest.len() < MAX_HTTP_CONNECTIONS {
                return;
            }
            if let Some(index) = self.oldest.iter().position(|(_, pace)| pace.may_go()) {
                self.oldest.remove(index).iter().for_each(|(connection, _)| connection.abort());
                return;
            }
            // All are at work for their clients: of those that would go on with another request, the oldest does not.
            let _ = self.oldest.iter().any(|(_, pace)| pace.want());
            tokio::select! {
                _ = self.running.join_next() => {}
                () = pause(HTTP_LOOK_EVERY) => {}
            }
        }
    }

    fn add(&mut self, link: Link, socket: TcpStream, router: &Router, stopper: &Stopper) {
        let pace = Arc::clone(&link.pace);
        let service = TowerToHyperService::new(router.clone().layer(from_fn(renew)).layer(Extension(link)));
        let connection = self.running.spawn(serve_one(Arc::clone(&pace), socket, service, stopper.clone()));
        self.oldest.push_back((connection, pace));
    }
}

/// Serves a client until it is too slow. A slow upload gets an error.
async fn serve_one(
    pace: Arc<Pace>,
    mut socket: TcpStream,
    service: TowerToHyperService<Router>,
    stopper: Stopper,
) {
    let Err((too_slow, true)) = while_it_keeps_up(&pace, answer(&mut socket, service, stopper)).await else {
        return;
    };
    let detail = format!("the server ended the upload: {too_slow}: nothing was changed");
    // One attempt: the server does not wait for a slow client.
    let _ = socket.try_write(&raw_problem(StatusCode::REQUEST_TIMEOUT, "too slow", &detail));
    let _ = socket.shutdown().await;
    // Closing with unread input would reset the connection, and the client might lose the answer.
    let _ =
        timeout(LINGER, async { while socket.read(&mut [0; 4 << 10]).await.is_ok_and(|count| count > 0) {} })
            .await;
}

/// Waits for `answered` until the client is too slow.
///
/// # Errors
/// The client is too slow. The flag is whether it can still get an error.
async fn while_it_keeps_up(pace: &Pace, answered: impl Future<Output = ()>) -> Result<(), (TooSlow, bool)> {
    let mut answered = pin!(answered);
    while timeout(HTTP_LOOK_EVERY, answered.as_mut()).await.is_err() {
        pace.look().map_err(|too_slow| (too_slow, pace.is_upload()))?;
    }
    Ok(())
}

/// Answers requests until the client ends. At a stop, it does not wait for a client that has sent nothing.
async fn answer(socket: &mut TcpStream, service: TowerToHyperService<Router>, stopper: Stopper) {
    let mut builder = Builder::new();
    builder.max_header_size(MAX_HTTP_HEAD_BYTES).max_buf_size(MAX_HTTP_HEAD_BYTES);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), service));
    // An error is the client's: it has gone, or was answered.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stopper.stopped() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// A client that was answered has all its time again for its next request. One that sent a body has no next request on
/// this connection: most of what it sends may still be to come. Neither has one whose place another waits for.
async fn renew(Extension(link): Extension<Link>, request: Request, next: Next) -> Response {
    let has_body = !request.body().is_end_stream();
    let mut response = next.run(request).await;
    if !link.pace.renew() || has_body {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn not_found(uri: Uri) -> Response {
    let detail = format!("there is nothing at {}", uri.path());
    problem(StatusCode::NOT_FOUND, "not found", &detail)
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let detail = format!("{} does not take {method}", uri.path());
    problem(StatusCode::METHOD_NOT_ALLOWED, "wrong method", &detail)
}

/// Whether all counts are loaded.
async fn ready(State(service): State<Arc<Service>>) -> (StatusCode, String) {
    if !service.is_loading() {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    let (done_bytes, total_bytes) = service.progress.bytes();
    (StatusCode::SERVICE_UNAVAILABLE, format!("loading: {done_bytes} of {total_bytes} bytes\n"))
}

async fn metrics(State(service): State<Arc<Service>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::text(&service))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http;
    use hyper::service::Service;

    use super::*;
    use crate::protocol::fixture::{loading_engine, service};

    /// The status and body of what a peer is answered.
    async fn asked(peer: [u8; 4], local: [u8; 4], path: &str) -> (StatusCode, String) {
        let link = Link { pace: Arc::default(), peer: peer.into(), local: local.into() };
        let request = http::Request::builder().uri(path).header("host", "localhost").body(Body::empty());
        let service = TowerToHyperService::new(all(service()).layer(Extension(link)));
        let response = service.call(request.expect("a request")).await.expect("it does not fail");
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Leave to listen beyond loopback does not give away all keys, nor have them replaced.
    #[test]
    fn dumps_are_for_peers_on_the_same_machine() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (remote, own) = ([192, 0, 2, 9], [192, 0, 2, 7]);
            for path in ["/v1/dump", "/v1/restore"] {
                let (status, body) = asked(remote, own, path).await;
                assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
                assert!(body.contains(path) && body.contains("192.0.2.9 is on another"), "{body}");
            }
            assert_eq!(asked(own, own, "/v1/dump").await.0, StatusCode::OK);
            assert_eq!(asked([127, 0, 0, 1], own, "/v1/dump").await.0, StatusCode::OK);
            for path in ["/healthz", "/metrics"] {
                assert_eq!(asked(remote, own, path).await.0, StatusCode::OK, "{path}");
            }
        });
    }

    #[test]
    fn readyz_reports_the_loading_progress() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (status, text) = runtime.block_on(ready(State(loading_engine())));
        assert_eq!((status, text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "loading: 0 of 0 bytes\n"));
    }
}
