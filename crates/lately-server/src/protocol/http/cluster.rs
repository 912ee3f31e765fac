//! `GET /v1/cluster`: the nodes that count together.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lately::Timestamp;
use lately_engines::Server;
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use super::problem::{Document, Problem};
use crate::json::seconds;
use crate::service::Service;
use crate::service::cluster::Node;

#[derive(Serialize, ToSchema)]
pub(super) struct ClusterAnswer {
    /// The name of this node.
    node: String,
    /// The address of its engine, without its password.
    engine: String,
    #[schema(value_type = f64)]
    as_of: Number,
    /// When the list was read from the engine.
    #[schema(value_type = Option<f64>)]
    listed: Option<Number>,
    /// Why the engine refuses the list.
    list_error: Option<String>,
    /// The engine that all data centres share.
    upstream: Option<UpstreamAnswer>,
    nodes: Vec<NodeAnswer>,
    /// The servers of the engine, as they were last known.
    engine_servers: Vec<ServerAnswer>,
}

#[derive(Serialize, ToSchema)]
struct ServerAnswer {
    server: String,
    /// Its hash slots, such as `0-5460`.
    slots: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct UpstreamAnswer {
    /// Its address, without its password.
    engine: String,
    /// The node that copies the counts of this data centre to it.
    aggregator: Option<String>,
    /// How long ago it was reached.
    staleness_ms: Option<i64>,
    /// Since when it cannot be reached.
    #[schema(value_type = Option<f64>)]
    away_since: Option<Number>,
    /// Blocks of counts of this data centre that it does not have yet.
    waiting_blocks: usize,
    degraded: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct NodeAnswer {
    node: String,
    origin: String,
    run_id: String,
    version: String,
    #[schema(value_type = Option<f64>)]
    last_seen: Option<Number>,
    /// How long ago it exchanged counts.
    staleness_ms: Option<i64>,
    /// The age of the oldest hits that it may not have sent.
    lag_ms: Option<i64>,
    unsent_keys: usize,
    degraded: Option<String>,
}

/// The nodes that count together.
///
/// It does not wait for the engine: the list is the one that was read last.
#[utoipa::path(
    get, path = "/v1/cluster", tag = "server",
    responses(
        (status = 200, description = "The nodes.", body = ClusterAnswer),
        (status = 404, description = "The server counts alone.", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn nodes(State(service): State<Arc<Service>>) -> Result<Json<ClusterAnswer>, Problem> {
    let Some(cluster) = &service.cluster else {
        let detail = "this server is not part of a cluster";
        return Err(Problem::new(StatusCode::NOT_FOUND, "no cluster", &detail));
    };
    let now = service.now();
    let (listed, list_error) = cluster.list_state();
    let age_ms = |at_ms: i64| now.as_millis().saturating_sub(at_ms).max(0);
    let answer = |Node { name, status, degraded }| NodeAnswer {
        node: name,
        origin: status.origin,
        run_id: status.run_id,
        version: status.version,
        last_seen: Timestamp::from_millis(status.seen_ms).map(seconds),
        staleness_ms: status.reached_ms.map(age_ms),
        lag_ms: status.sent_until_ms.map(age_ms),
        unsent_keys: status.unsent_keys,
        degraded,
    };
    let range = |(first, last): (u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let server =
        |Server { name, slots }| ServerAnswer { server: name, slots: slots.into_iter().map(range).collect() };
    let upstream = cluster.upstream.as_ref().map(|upstream| {
        let state = upstream.state();
        UpstreamAnswer {
            engine: cluster.config.shown_upstream().join(" "),
            staleness_ms: state.contact.staleness_ms(now),
            away_since: state.contact.away_since.map(seconds),
            waiting_blocks: state.waiting_blocks,
            degraded: match state.problem() {
                None if state.contact.reached.is_none() => Some("it was not reached yet".to_owned()),
                problem => problem.map(str::to_owned),
            },
            aggregator: state.aggregator,
        }
    });
    Ok(Json(ClusterAnswer {
        node: cluster.config.node.clone(),
        engine: cluster.config.through(),
        as_of: seconds(now),
        listed: listed.map(seconds),
        list_error,
        upstream,
        nodes: cluster.nodes(&service).into_iter().map(answer).collect(),
        engine_servers: cluster.engine_servers().into_iter().map(server).collect(),
    }))
}
