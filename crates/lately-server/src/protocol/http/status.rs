//! `GET /v1/status`: the numbers of the server, as JSON.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use lately_journal::Journal;
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use super::problem::Problem;
use super::query::Query;
use crate::VERSION;
use crate::json::seconds;
use crate::service::{Service, process};

/// The state of a server. Counters are since its start.
#[derive(Serialize, ToSchema)]
pub(super) struct StatusAnswer {
    version: &'static str,
    run_id: String,
    /// The name of this node in its cluster.
    node: Option<String>,
    #[schema(value_type = f64)]
    as_of: Number,
    #[schema(value_type = f64)]
    started: Number,
    /// While the counts are being loaded: the bytes done and in all.
    loading: Option<LoadingAnswer>,
    /// What is wrong, a sentence each.
    problems: Vec<String>,
    keys: usize,
    clients: usize,
    commands: u64,
    commands_per_s: u64,
    /// Hits counted, by weight, as all counts of hits here.
    hits: u64,
    /// Hits denied by limits.
    denied_hits: u64,
    /// Hits refused: late, too far ahead, or without room.
    refused_hits: u64,
    /// Hits whose id was known.
    repeated_hits: u64,
    memory: MemoryAnswer,
    /// The journal, if counts are kept.
    journal: Option<JournalAnswer>,
}

#[derive(Serialize, ToSchema)]
struct LoadingAnswer {
    done_bytes: u64,
    total_bytes: u64,
}

#[derive(Serialize, ToSchema)]
struct MemoryAnswer {
    /// All that is charged to the ceiling. The parts below add up to it, but for changes meanwhile.
    used_bytes: u64,
    ceiling_bytes: u64,
    /// Keys and their hits, with the ids of hits.
    keys_bytes: u64,
    /// The part of them that ids of hits take.
    id_bytes: u64,
    connection_bytes: u64,
    journal_bytes: u64,
    /// Dumps, restores and long answers.
    dump_bytes: u64,
    /// Counts for other nodes, and for the databases of the history.
    cluster_bytes: u64,
    fragmented_bytes: u64,
    /// Resident memory of the process, where the system tells.
    resident_bytes: Option<u64>,
    /// Keys evicted with hits within their retention.
    evicted_keys: u64,
    /// Keys removed after their last hit left the retention.
    expired_keys: u64,
    /// Ids forgotten early, because there was no room.
    forgotten_ids: u64,
}

#[derive(Serialize, ToSchema)]
struct JournalAnswer {
    /// Bytes of the log since the last checkpoint.
    log_bytes: u64,
    checkpoint_bytes: u64,
    checkpoints: u64,
    failures: u64,
}

impl StatusAnswer {
    pub(super) fn of(service: &Service) -> StatusAnswer {
        let (stats, memory, now) = (&service.stats, service.memory(), service.now());
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        let connection_bytes = service.connection_bytes();
        let [journal_bytes, fragmented_bytes] = [&stats.journal_bytes, &stats.fragmented_bytes].map(load);
        let cluster_bytes = load(&stats.cluster_bytes) + load(&stats.history_bytes);
        let dump_bytes = load(&stats.dump_bytes) + load(&stats.restore_bytes);
        let other_bytes = connection_bytes + journal_bytes + dump_bytes + cluster_bytes + fragmented_bytes;
        let journal = service.journal().map(Journal::stats);
        let loading = service.is_loading().then(|| {
            let (done_bytes, total_bytes) = service.progress.bytes();
            LoadingAnswer { done_bytes, total_bytes }
        });
        StatusAnswer {
            version: VERSION,
            run_id: service.run_id.clone(),
            node: service.cluster.as_ref().map(|cluster| cluster.config.node.clone()),
            as_of: seconds(now),
            started: seconds(service.started),
            loading,
            problems: problems(service),
            keys: service.key_count(),
            clients: service.clients.len(),
            commands: load(&stats.commands),
            commands_per_s: service.commands_per_second(now),
            hits: load(&stats.hits),
            denied_hits: load(&stats.denied_hits),
            refused_hits: load(&stats.refused_hits),
            repeated_hits: load(&stats.repeated_hits),
            memory: MemoryAnswer {
                used_bytes: memory.used_bytes,
                ceiling_bytes: memory.ceiling_bytes.unwrap_or(0),
                keys_bytes: memory.used_bytes.saturating_sub(other_bytes),
                id_bytes: memory.id_bytes,
                connection_bytes,
                journal_bytes,
                dump_bytes,
                cluster_bytes,
                fragmented_bytes,
                resident_bytes: process::resident_bytes(),
                evicted_keys: memory.evicted_keys,
                expired_keys: memory.expired_keys,
                forgotten_ids: memory.forgotten_ids,
            },
            journal: journal.map(|stats| JournalAnswer {
                log_bytes: stats.log_bytes,
                checkpoint_bytes: stats.checkpoint_bytes,
                checkpoints: stats.checkpoints,
                failures: stats.failures,
            }),
        }
    }
}

/// What is wrong with a server.
fn problems(service: &Service) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(fault) = service.journal().map(Journal::stats).and_then(|stats| stats.fault) {
        problems.push(format!("hits are refused: the journal cannot be written: {fault}"));
    }
    if let Some(cluster) = &service.cluster {
        let state = cluster.state();
        if state.waits_for_name || state.shares_name {
            problems.push(format!("another server has the name of this node, {}", cluster.config.node));
        }
        if let Some(why) = &state.contact.failure {
            problems.push(format!("the engine of the cluster cannot be reached: {why}"));
        }
        if let Some(why) = cluster.upstream.as_ref().and_then(|it| it.state().problem().map(str::to_owned)) {
            problems.push(format!("counts are not exchanged with the upstream engine: {why}"));
        }
    }
    problems
}

/// The numbers of the server: memory, counters, and what is wrong.
#[utoipa::path(
    get, path = "/v1/status", tag = "server",
    responses((status = 200, description = "The numbers.", body = StatusAnswer)),
)]
pub(super) async fn status(
    State(service): State<Arc<Service>>,
    uri: Uri,
) -> Result<Json<StatusAnswer>, Problem> {
    Query::of(&uri, "none")?.end()?;
    Ok(Json(StatusAnswer::of(&service)))
}
