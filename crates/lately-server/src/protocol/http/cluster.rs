//! `GET /v1/cluster`: the nodes that count together.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lately::Timestamp;
use serde::Serialize;
use serde_json::Number;

use super::counts::{Problem, seconds};
use crate::service::Service;
use crate::service::cluster::Node;

#[derive(Serialize)]
pub(super) struct ClusterAnswer {
    /// The name of this node.
    node: String,
    /// The address of its engine, without its password.
    engine: String,
    as_of: Number,
    /// When the list was read from the engine.
    listed: Option<Number>,
    /// Why the engine refuses the list.
    list_error: Option<String>,
    nodes: Vec<NodeAnswer>,
}

#[derive(Serialize)]
struct NodeAnswer {
    node: String,
    origin: String,
    run_id: String,
    version: String,
    last_seen: Option<Number>,
    /// How long ago it exchanged counts.
    staleness_ms: Option<i64>,
    unsent_keys: usize,
    degraded: Option<String>,
}

/// `GET /v1/cluster`. It does not wait for the engine: the list is the one that was read last.
pub(super) async fn nodes(State(service): State<Arc<Service>>) -> Result<Json<ClusterAnswer>, Problem> {
    let Some(cluster) = &service.cluster else {
        let detail = "this server is not part of a cluster";
        return Err(Problem::new(StatusCode::NOT_FOUND, "no cluster", &detail));
    };
    let now = service.now();
    let (listed, list_error) = cluster.list_state();
    let answer = |Node { name, status, degraded }| NodeAnswer {
        node: name,
        origin: status.origin,
        run_id: status.run_id,
        version: status.version,
        last_seen: Timestamp::from_millis(status.seen_ms).map(seconds),
        staleness_ms: status.reached_ms.map(|at_ms| now.as_millis().saturating_sub(at_ms).max(0)),
        unsent_keys: status.unsent_keys,
        degraded,
    };
    Ok(Json(ClusterAnswer {
        node: cluster.config.node.clone(),
        engine: cluster.config.shown_url(),
        as_of: seconds(now),
        listed: listed.map(seconds),
        list_error,
        nodes: cluster.nodes(&service).into_iter().map(answer).collect(),
    }))
}
