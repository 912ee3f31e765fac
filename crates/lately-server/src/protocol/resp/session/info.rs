//! `INFO`, in the format that Redis clients and exporters read.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use lately::Timestamp;
use lately_journal::Journal;
use lately_resp::ArgList;

use crate::config::{NamedLimit, info_name};
use crate::service::named_limits::{LimitAnswer, Rule};
use crate::service::process;
use crate::service::{AlertFigures, Service};
use crate::{REDIS_VERSION, VERSION};

/// Sections about all keys. They are for clients that may read these.
const ABOUT_KEYS: [&str; 3] = ["Limits", "Alerts", "Keyspace"];

/// The named sections, or all.
pub(super) fn text(
    service: &Service,
    (sections, may_read_all): (ArgList<'_>, bool),
    now: Timestamp,
) -> String {
    let wanted = |name: &str| {
        if !may_read_all && ABOUT_KEYS.contains(&name) {
            return false;
        }
        sections.is_empty()
            || sections.iter().any(|section| {
                ["all", "default", "everything", name]
                    .iter()
                    .any(|known| section.eq_ignore_ascii_case(known.as_bytes()))
            })
    };
    let mut text = String::new();
    for (name, fields) in all(service, now) {
        if wanted(name) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {name}\r\n");
            for (field, value) in fields {
                let _ = write!(text, "{field}:{value}\r\n");
            }
        }
    }
    text
}

/// The journal, in fields of Redis where there are any: the log is its append-only file, a checkpoint its snapshot.
fn persistence(service: &Service) -> Vec<Field> {
    let loading = field("loading", &u8::from(service.is_loading()));
    let Some(stats) = service.journal().map(Journal::stats) else {
        let (done_bytes, total_bytes) = service.progress.bytes();
        let progress =
            [field("loading_total_bytes", &total_bytes), field("loading_loaded_bytes", &done_bytes)];
        let progress = progress.into_iter().filter(|_| service.is_loading());
        let idle = [field("aof_enabled", &0), field("rdb_bgsave_in_progress", &0)];
        return [loading].into_iter().chain(idle).chain(progress).collect();
    };
    let status = if stats.fault.is_some() { "err" } else { "ok" };
    vec![
        loading,
        field("durability", &stats.durability),
        field("aof_enabled", &1),
        field("aof_last_write_status", &status),
        field("aof_current_size", &stats.log_bytes),
        field("rdb_last_save_time", &(stats.checkpoint_at.unwrap_or(service.started).as_millis() / 1_000)),
        field("rdb_saves", &stats.checkpoints),
        field("rdb_bgsave_in_progress", &u8::from(stats.is_checkpointing)),
        field("rdb_last_bgsave_status", &if stats.checkpoint_error.is_some() { "err" } else { "ok" }),
        field("journal_checkpoint_bytes", &stats.checkpoint_bytes),
        field("journal_records", &stats.records),
        field("journal_syncs", &stats.syncs),
        field("journal_failures", &stats.failures),
        field("journal_trouble", &stats.fault.unwrap_or_default()),
    ]
}

/// Processor seconds, in the order of Redis.
fn processors() -> Vec<Field> {
    let process::ProcessorTimes { user, system, children_user, children_system } = process::processor_times();
    let seconds = |name, time: Duration| field(name, &format!("{:.6}", time.as_secs_f64()));
    vec![
        seconds("used_cpu_sys", system),
        seconds("used_cpu_user", user),
        seconds("used_cpu_sys_children", children_system),
        seconds("used_cpu_user_children", children_user),
    ]
}

/// Bytes as Redis shows them to people: `512B`, `1.50M`.
#[expect(clippy::cast_precision_loss, reason = "it is rounded to two decimals")]
fn human(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes}B"),
        1_024..0x10_0000 => format!("{:.2}K", bytes as f64 / 1_024.0),
        0x10_0000..0x4000_0000 => format!("{:.2}M", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2}G", bytes as f64 / 1_073_741_824.0),
    }
}

/// Named limits, each a line like the command statistics of Redis.
fn limits(service: &Service) -> Vec<Field> {
    let line = |rule: &Rule| {
        let NamedLimit { name, max, window, lockout, is_shadow, .. } = &rule.limit;
        // A colon ends the name of a field, so it is replaced, as in Redis.
        let field = format!("limit_{}", info_name(name));
        let (window_ms, lockout_ms) =
            (window.as_millis(), lockout.map_or(0, |lockout| lockout.first().as_millis()));
        let shadow = u8::from(*is_shadow);
        let mut value = format!("max={max},window_ms={window_ms},lockout_ms={lockout_ms},shadow={shadow}");
        for (said, name) in LimitAnswer::ALL {
            let _ = write!(value, ",{name}={}", rule.tally.get(said));
        }
        (Cow::Owned(field), value)
    };
    service.rules.get().iter().map(line).collect()
}

/// Alerts, each a line like those of limits.
fn alerts(service: &Service) -> Vec<Field> {
    let line = |AlertFigures { alert, stage, reading, starts }| {
        let (state, hits) = (stage.name(), reading.hits);
        (
            Cow::Owned(format!("alert_{}", alert.rule.name)),
            format!("state={state},hits={hits},starts={starts}"),
        )
    };
    service.alert_figures().into_iter().map(line).collect()
}

type Field = (Cow<'static, str>, String);
type Section = (&'static str, Vec<Field>);

/// The exchange with other nodes. `cluster_enabled` is about Redis Cluster, which this is not.
fn cluster(service: &Service, now: Timestamp) -> Vec<Field> {
    let mut fields = vec![field("cluster_enabled", &0)];
    if let Some(cluster) = &service.cluster {
        let state = cluster.state();
        fields.extend([
            field("lately_node", &cluster.config.node),
            field("lately_engine_ok", &u8::from(state.contact.is_ok())),
            field("lately_staleness_ms", &state.contact.staleness_ms(now).unwrap_or(-1)),
            field("lately_lag_ms", &cluster.lag_ms(now).unwrap_or(-1)),
            field("lately_unsent_keys", &service.unsent_keys()),
            field("lately_unsent_deletions", &cluster.unsent_deletions()),
            field("lately_resent_hits", &state.resent_hits),
            field("lately_reconciled", &u8::from(state.is_reconciled)),
        ]);
        if let Some(upstream) = &cluster.upstream {
            let state = upstream.state();
            fields.extend([
                field("lately_upstream_ok", &u8::from(state.is_ok())),
                field("lately_upstream_staleness_ms", &state.contact.staleness_ms(now).unwrap_or(-1)),
                field("lately_upstream_aggregator", &state.aggregator.as_deref().unwrap_or_default()),
                field("lately_upstream_waiting_blocks", &state.waiting_blocks),
                field("lately_upstream_unsent_deletions", &upstream.unsent_deletions()),
            ]);
        }
    }
    fields
}

fn field(name: &'static str, value: &dyn ToString) -> Field {
    (Cow::Borrowed(name), value.to_string())
}

fn all(service: &Service, now: Timestamp) -> Vec<Section> {
    let (config, stats, memory) = (&service.config, &service.stats, service.memory());
    let uptime_s = (now.as_millis() - service.started.as_millis()) / 1_000;
    let keys = service.key_count();
    let connection_bytes = service.connection_bytes();
    let journal_bytes = stats.journal_bytes.load(Relaxed);
    let (resident_bytes, ceiling_bytes) =
        (process::resident_bytes().unwrap_or(0), memory.ceiling_bytes.unwrap_or(0));
    let fragmented_bytes = stats.fragmented_bytes.load(Relaxed);
    let dump_bytes = stats.dump_bytes.load(Relaxed) + stats.restore_bytes.load(Relaxed);
    let cluster_bytes = stats.cluster_bytes.load(Relaxed) + stats.history_bytes.load(Relaxed);
    let other_bytes = connection_bytes + journal_bytes + dump_bytes + cluster_bytes + fragmented_bytes;
    vec![
        (
            "Server",
            vec![
                field("redis_version", &REDIS_VERSION),
                field("lately_version", &VERSION),
                field("redis_mode", &"standalone"),
                field("os", &std::env::consts::OS),
                field("arch_bits", &usize::BITS),
                field("process_id", &std::process::id()),
                field("run_id", &service.run_id),
                field("tcp_port", &config.resp.port()),
                field("http_port", &config.http.port()),
                field("uptime_in_seconds", &uptime_s),
                field("uptime_in_days", &(uptime_s / 86_400)),
            ],
        ),
        (
            "Clients",
            vec![
                field("connected_clients", &service.clients.len()),
                field("maxclients", &service.most_clients()),
                // No command blocks.
                field("blocked_clients", &0),
            ],
        ),
        (
            "Memory",
            vec![
                // All memory that is accounted for. The process itself is in `used_memory_rss`.
                field("used_memory", &memory.used_bytes),
                field("used_memory_human", &human(memory.used_bytes)),
                field("used_memory_keys", &memory.used_bytes.saturating_sub(other_bytes)),
                field("used_memory_ids", &memory.id_bytes),
                field("used_memory_connections", &connection_bytes),
                field("used_memory_journal", &journal_bytes),
                field("used_memory_fragmentation", &fragmented_bytes),
                field("used_memory_rss", &resident_bytes),
                field("used_memory_rss_human", &human(resident_bytes)),
                field("maxmemory", &ceiling_bytes),
                field("maxmemory_human", &human(ceiling_bytes)),
            ],
        ),
        ("Persistence", persistence(service)),
        (
            "Stats",
            vec![
                field("total_connections_received", &stats.connections.load(Relaxed)),
                field("rejected_connections", &stats.refused_connections.load(Relaxed)),
                field("acl_access_denied_auth", &stats.failed_logins.load(Relaxed)),
                field("acl_access_denied_cmd", &stats.forbidden_commands.load(Relaxed)),
                field("acl_access_denied_key", &stats.forbidden_keys.load(Relaxed)),
                field("total_commands_processed", &stats.commands.load(Relaxed)),
                field("instantaneous_ops_per_sec", &service.commands_per_second(now)),
                field("total_hits", &stats.hits.load(Relaxed)),
                field("refused_hits", &stats.refused_hits.load(Relaxed)),
                field("repeated_hits", &stats.repeated_hits.load(Relaxed)),
                field("denied_hits", &stats.denied_hits.load(Relaxed)),
                field("evicted_keys", &memory.evicted_keys),
                field("forgotten_ids", &memory.forgotten_ids),
                field("evicted_clients", &stats.evicted_connections.load(Relaxed)),
                field("expired_keys", &memory.expired_keys),
            ],
        ),
        ("CPU", processors()),
        ("Limits", limits(service)),
        ("Alerts", alerts(service)),
        ("Replication", vec![field("role", &"master"), field("connected_slaves", &0)]),
        ("Cluster", cluster(service, now)),
        (
            "Keyspace",
            if keys == 0 { vec![] } else { vec![field("db0", &format!("keys={keys},expires={keys}"))] },
        ),
    ]
}
