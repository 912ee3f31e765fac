//! `/metrics`, in the Prometheus text format.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use lately_journal::Journal;

use super::rule_metrics;
use crate::VERSION;
use crate::alerts::notice::Stage;
use crate::limits::LIMITS_A_PIECE;
use crate::service::named_limits::{LimitAnswer, Rule};
use crate::service::{AlertFigures, Service};

/// All metrics, in pieces that are written when the client takes them. With a thousand named limits the text is long, and a
/// slow client would have the server hold it.
pub(crate) fn pieces(service: &Arc<Service>) -> impl Iterator<Item = String> + Send + use<> {
    let (service, rules) = (Arc::clone(service), service.rules.get());
    let of_rules = rule_metrics::pieces(&service);
    let of_alerts = Some(alerts(&service)).filter(|text| !text.is_empty());
    let mut next = None;
    let of_limits = std::iter::from_fn(move || {
        let Some(index) = next else {
            next = Some(0);
            return Some(general(&service) + if rules.iter().next().is_some() { LIMITS_HEAD } else { "" });
        };
        let mut text = String::new();
        rules.iter().skip(index).take(LIMITS_A_PIECE).for_each(|rule| limit(rule, &mut text));
        next = Some(index + LIMITS_A_PIECE);
        Some(text).filter(|text| !text.is_empty())
    });
    of_limits.chain(of_rules).chain(of_alerts)
}

/// All metrics but those of named limits.
fn general(service: &Service) -> String {
    let (stats, memory) = (&service.stats, service.memory());
    let started_s = service.started.as_millis() / 1_000;
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    let gauge = "gauge";
    let counter = "counter";
    metric("lately_start_time_seconds", gauge, "When the server started, in Unix seconds.", &started_s);
    metric("lately_keys", gauge, "Keys in the store.", &service.key_count());
    metric(
        "lately_memory_used_bytes",
        gauge,
        "Bytes of keys, hits, connections, dumps and the journal, as accounted for.",
        &memory.used_bytes,
    );
    let connection_bytes = stats.connection_bytes.load(Relaxed);
    metric(
        "lately_memory_connections_bytes",
        gauge,
        "Bytes of connections, as accounted for.",
        &connection_bytes,
    );
    metric(
        "lately_memory_dumps_bytes",
        gauge,
        "Bytes held for dumps, restores and other long answers over HTTP: what changed meanwhile, what clients have yet to take, and keys that are checked.",
        &(stats.dump_bytes.load(Relaxed) + stats.restore_bytes.load(Relaxed)),
    );
    let ceiling_bytes = memory.ceiling_bytes.unwrap_or(0);
    metric(
        "lately_memory_ceiling_bytes",
        gauge,
        "The most bytes keys, hits, connections, dumps and the journal may take.",
        &ceiling_bytes,
    );
    metric("lately_connected_clients", gauge, "RESP clients connected.", &service.clients.len());
    metric(
        "lately_connections_total",
        counter,
        "RESP connections taken, refused ones included.",
        &stats.connections.load(Relaxed),
    );
    metric(
        "lately_connections_refused_total",
        counter,
        "RESP connections refused because there were too many.",
        &stats.refused_connections.load(Relaxed),
    );
    metric(
        "lately_connections_evicted_total",
        counter,
        "RESP connections ended because they held too much memory.",
        &stats.evicted_connections.load(Relaxed),
    );
    metric(
        "lately_logins_failed_total",
        counter,
        "Logins with a wrong user or password.",
        &stats.failed_logins.load(Relaxed),
    );
    metric(
        "lately_requests_forbidden_total",
        counter,
        "Requests refused because the user may not do that, or not with that key.",
        &(stats.forbidden_commands.load(Relaxed) + stats.forbidden_keys.load(Relaxed)),
    );
    metric(
        "lately_commands_total",
        counter,
        "Commands answered, errors included.",
        &stats.commands.load(Relaxed),
    );
    metric("lately_hits_total", counter, "Hits counted.", &stats.hits.load(Relaxed));
    metric(
        "lately_hits_refused_total",
        counter,
        "Hits refused: late, too far ahead, out of room or over the bound.",
        &stats.refused_hits.load(Relaxed),
    );
    metric("lately_hits_denied_total", counter, "Hits denied by limits.", &stats.denied_hits.load(Relaxed));
    metric(
        "lately_hits_repeated_total",
        counter,
        "Hits that had been counted before, by their id.",
        &stats.repeated_hits.load(Relaxed),
    );
    metric("lately_ids", gauge, "Ids of hits that are known.", &memory.ids);
    metric(
        "lately_memory_ids_bytes",
        gauge,
        "Bytes of the ids of hits, which are among those of the keys.",
        &memory.id_bytes,
    );
    metric(
        "lately_forgotten_ids_total",
        counter,
        "Ids of hits forgotten before their dedupe was over, because they took half of the ceiling.",
        &memory.forgotten_ids,
    );
    metric(
        "lately_evicted_keys_total",
        counter,
        "Keys evicted with hits within their retention.",
        &memory.evicted_keys,
    );
    metric(
        "lately_expired_keys_total",
        counter,
        "Keys removed after their last hit left the retention.",
        &memory.expired_keys,
    );
    if let Some(stats) = service.journal().map(Journal::stats) {
        metric(
            "lately_journal_log_bytes",
            gauge,
            "Bytes of the log since the last checkpoint.",
            &stats.log_bytes,
        );
        metric(
            "lately_journal_checkpoint_bytes",
            gauge,
            "Bytes of the last checkpoint.",
            &stats.checkpoint_bytes,
        );
        metric("lately_journal_checkpoints_total", counter, "Checkpoints made.", &stats.checkpoints);
        metric("lately_journal_syncs_total", counter, "How often the disk was waited for.", &stats.syncs);
        let failing = u8::from(stats.fault.is_some());
        metric(
            "lately_journal_failing",
            gauge,
            "1 while the journal cannot be written and hits are refused.",
            &failing,
        );
        metric(
            "lately_journal_failures_total",
            counter,
            "How often the journal could not be written or synced.",
            &stats.failures,
        );
    }
    if let Some(cluster) = &service.cluster {
        let state = cluster.state();
        let staleness_ms = state.contact.staleness_ms(service.now()).unwrap_or(-1);
        let failing = u8::from(state.contact.failure.is_some());
        metric(
            "lately_cluster_failing",
            gauge,
            "1 while the engine of the cluster cannot be reached.",
            &failing,
        );
        metric(
            "lately_cluster_staleness_milliseconds",
            gauge,
            "How long ago the engine of the cluster was reached, -1 if it never was.",
            &staleness_ms,
        );
        metric(
            "lately_cluster_lag_milliseconds",
            gauge,
            "The age of the oldest hits that this node may not have sent, -1 if it never reached the engine.",
            &cluster.lag_ms(service.now()).unwrap_or(-1),
        );
        metric(
            "lately_cluster_unsent_keys",
            gauge,
            "Keys with counts that other nodes do not have yet.",
            &service.unsent_keys(),
        );
        metric(
            "lately_cluster_unsent_deletions",
            gauge,
            "Keys that were deleted here, and whose deletion the engine does not have yet.",
            &cluster.unsent_deletions(),
        );
        metric(
            "lately_cluster_resent_hits_total",
            counter,
            "Hits of this node that the engine lacked, and that were sent again.",
            &state.resent_hits,
        );
        metric(
            "lately_cluster_reconciled",
            gauge,
            "1 once all keys were compared with what the engine has, since it may have lost some.",
            &u8::from(state.is_reconciled),
        );
        if let Some(upstream) = &cluster.upstream {
            let state = upstream.state();
            metric(
                "lately_cluster_upstream_failing",
                gauge,
                "1 while counts cannot be exchanged with the upstream engine.",
                &u8::from(state.problem().is_some()),
            );
            metric(
                "lately_cluster_upstream_staleness_milliseconds",
                gauge,
                "How long ago the upstream engine was reached, -1 if it never was.",
                &state.contact.staleness_ms(service.now()).unwrap_or(-1),
            );
            metric(
                "lately_cluster_upstream_waiting_blocks",
                gauge,
                "Blocks of counts of this data centre that the upstream engine does not have yet.",
                &state.waiting_blocks,
            );
            metric(
                "lately_cluster_upstream_unsent_deletions",
                gauge,
                "Keys that were deleted here, and whose deletion the upstream engine does not have yet.",
                &upstream.unsent_deletions(),
            );
        }
    }
    let _ = writeln!(
        text,
        "# HELP lately_build_info The version that runs.\n# TYPE lately_build_info gauge\nlately_build_info{{version=\"{VERSION}\"}} 1"
    );
    text
}

/// The alerts of the config: whether each fires, what it read last, and how often it started.
fn alerts(service: &Service) -> String {
    let mut text = String::new();
    let figures = service.alert_figures();
    if figures.is_empty() {
        return text;
    }
    type Value = fn(&AlertFigures) -> u64;
    let metrics: [(&str, &str, &str, Value); 3] = [
        ("lately_alert_firing", "gauge", "1 while the alert fires.", |it| {
            u64::from(it.stage == Stage::Firing)
        }),
        ("lately_alert_hits", "gauge", "Hits in the window of the alert.", |it| it.reading.hits),
        ("lately_alert_starts_total", "counter", "How often the alert started.", |it| it.starts),
    ];
    for (name, kind, help, value) in metrics {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for of in &figures {
            let _ = writeln!(text, "{name}{{alert=\"{}\"}} {}", escaped(&of.alert.rule.name), value(of));
        }
    }
    let name = "lately_alert_delivery_failures_total";
    let failures = service.stats.failed_deliveries.load(Relaxed);
    let _ = writeln!(
        text,
        "# HELP {name} Messages about alerts that a webhook or an Alertmanager did not take.\n# TYPE {name} counter\n{name} {failures}"
    );
    text
}

const LIMITS_HEAD: &str = "\
# HELP lately_limit_requests_total Requests by a limit with a name, by what it said.
# TYPE lately_limit_requests_total counter
";

/// The answers of a named limit.
fn limit(rule: &Rule, text: &mut String) {
    let limit = escaped(&rule.limit.name);
    for (said, decision) in LimitAnswer::ALL {
        let value = rule.tally.get(said);
        let _ = writeln!(
            text,
            "lately_limit_requests_total{{limit=\"{limit}\",decision=\"{decision}\"}} {value}"
        );
    }
}

/// A label value, escaped for the text format.
pub(super) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lately::{ManualClock, Timestamp};

    use super::*;
    use crate::config::Config;
    use crate::service::named_limits::tests::limit;

    #[test]
    fn limits_have_a_line_for_each_decision() {
        let text_of = |limits| {
            let config = Config { limits, ..Config::default() };
            let service = Service::new(config, Arc::new(ManualClock::new(Timestamp::MIN))).expect("valid");
            let rules = service.rules.get();
            rules.iter().take(1).for_each(|rule| rule.tally.count(LimitAnswer::Denied));
            pieces(&Arc::new(service)).collect::<String>()
        };
        let expected = "\
# HELP lately_limit_requests_total Requests by a limit with a name, by what it said.
# TYPE lately_limit_requests_total counter
lately_limit_requests_total{limit=\"a:1\",decision=\"allowed\"} 0
lately_limit_requests_total{limit=\"a:1\",decision=\"denied\"} 1
lately_limit_requests_total{limit=\"a:1\",decision=\"would_deny\"} 0
lately_limit_requests_total{limit=\"b\",decision=\"allowed\"} 0
lately_limit_requests_total{limit=\"b\",decision=\"denied\"} 0
lately_limit_requests_total{limit=\"b\",decision=\"would_deny\"} 0
";
        let with_limits = text_of(vec![limit("a:1"), limit("b")]);
        assert!(with_limits.contains(expected), "{with_limits}");
        assert!(!text_of(Vec::new()).contains("lately_limit"));
    }

    #[test]
    fn a_long_text_comes_in_short_pieces() {
        let limits = (0..crate::limits::MAX_LIMITS)
            .map(|number| limit(&format!("{number:\"<width$}", width = crate::limits::MAX_LIMIT_NAME_BYTES)));
        let config = Config { limits: limits.collect(), ..Config::default() };
        let service = Service::new(config, Arc::new(ManualClock::new(Timestamp::MIN))).expect("valid");
        let pieces: Vec<String> = pieces(&Arc::new(service)).collect();
        let all: usize = pieces.iter().map(String::len).sum();
        assert!(all > 300_000, "{all}");
        assert!(pieces.iter().all(|piece| piece.len() < 16 << 10));
        let lines = pieces.iter().flat_map(|piece| piece.lines());
        assert_eq!(
            lines.filter(|line| line.starts_with("lately_limit")).count(),
            3 * crate::limits::MAX_LIMITS
        );
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a:b-c.d_E"), "a:b-c.d_E");
        assert_eq!(escaped("a\"b\\c\nd"), r#"a\"b\\c\nd"#);
    }
}
