//! The HTTP listener: health and metrics.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use super::pause;
use crate::engine::Engine;
use crate::limits::DRAIN_TIMEOUT;
use crate::metrics;
use crate::stopper::Stopper;

/// Serves until the stop, then lets requests under way finish.
pub(crate) async fn serve(listener: TcpListener, engine: Arc<Engine>, stopper: Stopper) {
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        // There is nothing to load: a server that answers is ready.
        .route("/readyz", get(async || "ready\n"))
        .route("/metrics", get(metrics))
        .with_state(engine);
    let stop = stopper.clone();
    let server = axum::serve(listener, router)
        .with_graceful_shutdown(async move { stop.stopped().await })
        .into_future();
    let late = async {
        stopper.stopped().await;
        pause(DRAIN_TIMEOUT).await;
    };
    tokio::select! {
        // It only ends by the stop: accept errors are retried inside.
        _ = server => {}
        () = late => {}
    }
}

async fn metrics(State(engine): State<Arc<Engine>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::text(&engine))
}
