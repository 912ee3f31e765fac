//! The HTTP listener: health, metrics, dumps. It has a bound on connections of its own, and gives each one
//! answer and a short time, so that whoever holds connections holds little, and not for long.

use std::pin::pin;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Extension, Router};
use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::pause;
use super::transfer::{self, Progress};
use crate::engine::Engine;
use crate::limits::{ACCEPT_RETRY, DRAIN_TIMEOUT, HTTP_TIMEOUT, MAX_HTTP_CONNECTIONS, MAX_HTTP_HEAD_BYTES};
use crate::metrics;
use crate::stopper::Stopper;

/// What answers requests.
type Service = TowerToHyperService<Router>;

/// Serves until the stop, then lets requests under way finish.
pub(crate) async fn serve(listener: TcpListener, engine: Arc<Engine>, stopper: Stopper) {
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/dump", get(transfer::dump))
        .route("/v1/restore", post(transfer::restore))
        .with_state(engine);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            // Those there is no room for wait with the system.
            accepted = listener.accept(), if connections.len() < MAX_HTTP_CONNECTIONS => accepted,
            Some(_) = connections.join_next() => continue,
            () = stopper.stopped() => break,
        };
        // The client has gone already, or there are no file descriptors: then an end frees one.
        let Ok((socket, _)) = accepted else {
            pause(ACCEPT_RETRY).await;
            continue;
        };
        let progress = Progress::default();
        let service = TowerToHyperService::new(router.clone().layer(Extension(progress.clone())));
        connections.spawn(while_it_moves(progress, answer(socket, service, stopper.clone())));
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(DRAIN_TIMEOUT, drained).await;
}

/// Waits for an answer that takes longer than usual only as long as something of it moves.
async fn while_it_moves(progress: Progress, answered: impl Future<Output = ()>) {
    let mut answered = pin!(answered);
    let mut before = progress.get();
    while timeout(HTTP_TIMEOUT, answered.as_mut()).await.is_err() {
        let moved = progress.get();
        if std::mem::replace(&mut before, moved) == moved {
            return;
        }
    }
}

/// Answers a request and closes the connection; at a stop, one that has sent nothing is not waited for.
async fn answer(socket: TcpStream, service: Service, stopper: Stopper) {
    let mut builder = Builder::new();
    builder.keep_alive(false).max_header_size(MAX_HTTP_HEAD_BYTES).max_buf_size(MAX_HTTP_HEAD_BYTES);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), service));
    // Errors are the client's: it has gone, or has been told.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stopper.stopped() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Whether the server has its counts.
async fn ready(State(engine): State<Arc<Engine>>) -> (StatusCode, String) {
    if !engine.is_loading() {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    let (done_bytes, total_bytes) = engine.progress.bytes();
    (StatusCode::SERVICE_UNAVAILABLE, format!("loading: {done_bytes} of {total_bytes} bytes\n"))
}

async fn metrics(State(engine): State<Arc<Engine>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::text(&engine))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::loading_engine;
    use super::*;

    #[test]
    fn a_server_says_that_it_loads() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (status, text) = runtime.block_on(ready(State(loading_engine())));
        assert_eq!((status, text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "loading: 0 of 0 bytes\n"));
    }
}
