//! What the server measures of itself. `/metrics` shows it, and OTLP sends it.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use lately::Timestamp;
use lately_engines::PeerNeighbour;
use lately_journal::Journal;

use super::history::HistoryState;
use super::named_limits::LimitAnswer;
use super::owners::Link;
use super::rule_tally::{NamedTally, RuleTally};
use super::{AlertFigures, Service};
use crate::VERSION;
use crate::limits::METRIC_ITEMS_A_PART;
use crate::service::notice::Stage;

/// A metric. The name of a counter ends in `_total`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    Whole(u64),
    Seconds(f64),
}

/// A value of a metric.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) labels: Vec<(&'static str, Cow<'static, str>)>,
    pub(crate) value: Value,
}

/// Some samples of a metric. One with many has several parts, one after the other.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) metric: Metric,
    pub(crate) is_first: bool,
    pub(crate) samples: Vec<Sample>,
}

/// All metrics. Parts are made when they are taken: with a thousand named limits there is much to hold at once.
pub(crate) fn parts(service: &Arc<Service>) -> impl Iterator<Item = Part> + Send + use<> {
    general(service)
        .into_iter()
        .chain(limits(service))
        .chain(ratelimit(service))
        .chain(alerts(service))
        .chain(histories(service))
}

/// Metrics with one value.
#[derive(Default)]
struct Singles(Vec<Part>);

impl Singles {
    fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add(counter(name, help), Vec::new(), Value::Whole(value));
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: impl TryInto<u64>) {
        let value = Value::Whole(value.try_into().unwrap_or(u64::MAX));
        self.add(gauge(name, help), Vec::new(), value);
    }

    /// 1 or 0.
    fn flag(&mut self, name: &'static str, help: &'static str, is_on: bool) {
        self.gauge(name, help, u64::from(is_on));
    }

    /// A time since something. It is -1 if that never was.
    fn since(&mut self, name: &'static str, help: &'static str, ms: Option<i64>) {
        self.add(gauge(name, help), Vec::new(), seconds(ms));
    }

    fn add(&mut self, metric: Metric, labels: Vec<(&'static str, Cow<'static, str>)>, value: Value) {
        self.0.push(Part { metric, is_first: true, samples: vec![Sample { labels, value }] });
    }
}

/// A time since something, -1 if that never was.
fn seconds(ms: Option<i64>) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "a time of 285,000 years loses its milliseconds")]
    let seconds = ms.map_or(-1.0, |ms| ms as f64 / 1_000.0);
    Value::Seconds(seconds)
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Counter }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Gauge }
}

/// What was exchanged with each neighbour.
fn of_peers(neighbours: &[PeerNeighbour]) -> Vec<Part> {
    let part = |metric, value: fn(&PeerNeighbour) -> u64| {
        let sample = |neighbour: &PeerNeighbour| Sample {
            labels: vec![
                ("neighbour", neighbour.name.clone().into()),
                ("role", neighbour.role.as_str().into()),
            ],
            value: Value::Whole(value(neighbour)),
        };
        Part { metric, is_first: true, samples: neighbours.iter().map(sample).collect() }
    };
    vec![
        part(
            gauge(
                "lately_peer_connected",
                "1 while something was exchanged with the neighbour within the last 5 s.",
            ),
            |it| it.is_connected.into(),
        ),
        part(
            counter("lately_peer_changes_sent_total", "Changes of cells that the neighbour was sent."),
            |it| it.traffic.changes_sent,
        ),
        part(
            counter("lately_peer_changes_received_total", "Changes of cells that came from the neighbour."),
            |it| it.traffic.changes_received,
        ),
        part(
            counter(
                "lately_peer_sent_bytes_total",
                "Bytes of messages with changes that the neighbour was sent.",
            ),
            |it| it.traffic.bytes_sent,
        ),
        part(
            counter(
                "lately_peer_received_bytes_total",
                "Bytes of messages with changes that came from the neighbour.",
            ),
            |it| it.traffic.bytes_received,
        ),
        part(
            counter(
                "lately_peer_resyncs_total",
                "How often all that the neighbour has was read from the beginning: at the first contact, and after each start of it.",
            ),
            |it| it.traffic.resyncs,
        ),
    ]
}

/// The parts of a metric that has samples for each of `items` items.
fn of_items(
    metric: Metric,
    items: usize,
    samples: impl Fn(Range<usize>) -> Vec<Sample>,
) -> impl Iterator<Item = Part> {
    (0..items).step_by(METRIC_ITEMS_A_PART).map(move |start| Part {
        metric,
        is_first: start == 0,
        samples: samples(start..items.min(start + METRIC_ITEMS_A_PART)),
    })
}

/// All metrics but those of named limits, rules and alerts.
fn general(service: &Service) -> Vec<Part> {
    let (stats, memory) = (&service.stats, service.memory());
    let mut all = Singles::default();
    all.gauge(
        "lately_start_time_seconds",
        "When the server started, in Unix seconds.",
        service.started.as_millis() / 1_000,
    );
    all.gauge("lately_keys", "Keys in the store.", service.key_count());
    all.gauge(
        "lately_memory_used_bytes",
        "Bytes of keys, hits, connections, dumps and the journal, as accounted for.",
        memory.used_bytes,
    );
    all.gauge(
        "lately_memory_connections_bytes",
        "Bytes of connections, as accounted for.",
        service.connection_bytes(),
    );
    all.gauge("lately_memory_dumps_bytes", "Bytes held for dumps, restores and other long answers over HTTP: what changed meanwhile, what clients have yet to take, and keys that are checked.",
        stats.dump_bytes.load(Relaxed) + stats.restore_bytes.load(Relaxed),
    );
    all.gauge(
        "lately_memory_ceiling_bytes",
        "The most bytes keys, hits, connections, dumps and the journal may take.",
        memory.ceiling_bytes.unwrap_or(0),
    );
    all.gauge("lately_connected_clients", "RESP clients connected.", service.clients.len());
    all.counter(
        "lately_connections_total",
        "RESP connections taken, refused ones included.",
        stats.connections.load(Relaxed),
    );
    all.counter(
        "lately_connections_refused_total",
        "RESP connections refused because there were too many.",
        stats.refused_connections.load(Relaxed),
    );
    all.counter(
        "lately_http_connections_refused_total",
        "Connections of HTTP and gRPC refused because too many waited for a place.",
        stats.refused_http.load(Relaxed),
    );
    all.counter(
        "lately_connections_evicted_total",
        "RESP connections ended because they held too much memory.",
        stats.evicted_connections.load(Relaxed),
    );
    all.counter(
        "lately_logins_failed_total",
        "Logins with a wrong user or password.",
        stats.failed_logins.load(Relaxed),
    );
    all.counter(
        "lately_requests_forbidden_total",
        "Requests refused because the user may not do that, or not with that key.",
        stats.forbidden_commands.load(Relaxed) + stats.forbidden_keys.load(Relaxed),
    );
    all.counter("lately_commands_total", "Commands answered, errors included.", stats.commands.load(Relaxed));
    all.counter("lately_hits_total", "Hits counted.", stats.hits.load(Relaxed));
    all.counter(
        "lately_hits_refused_total",
        "Hits refused: late, too far ahead, out of room or over the bound.",
        stats.refused_hits.load(Relaxed),
    );
    all.counter("lately_hits_denied_total", "Hits denied by limits.", stats.denied_hits.load(Relaxed));
    all.counter(
        "lately_hits_repeated_total",
        "Hits that had been counted before, by their id.",
        stats.repeated_hits.load(Relaxed),
    );
    all.gauge("lately_ids", "Ids of hits that are known.", memory.ids);
    all.gauge(
        "lately_memory_ids_bytes",
        "Bytes of the ids of hits, which are among those of the keys.",
        memory.id_bytes,
    );
    all.counter(
        "lately_forgotten_ids_total",
        "Ids of hits forgotten before their dedupe was over, because ids took half of the memory.",
        memory.forgotten_ids,
    );
    all.counter(
        "lately_evicted_keys_total",
        "Keys evicted with hits within their retention.",
        memory.evicted_keys,
    );
    all.counter(
        "lately_expired_keys_total",
        "Keys removed after their last hit left the retention.",
        memory.expired_keys,
    );
    if let Some(stats) = service.journal().map(Journal::stats) {
        all.gauge("lately_journal_log_bytes", "Bytes of the log since the last checkpoint.", stats.log_bytes);
        all.gauge("lately_journal_checkpoint_bytes", "Bytes of the last checkpoint.", stats.checkpoint_bytes);
        all.counter("lately_journal_checkpoints_total", "Checkpoints made.", stats.checkpoints);
        all.counter("lately_journal_syncs_total", "How often the disk was waited for.", stats.syncs);
        all.flag(
            "lately_journal_failing",
            "1 while the journal cannot be written and hits are refused.",
            stats.fault.is_some(),
        );
        all.counter(
            "lately_journal_failures_total",
            "How often the journal could not be written or synced.",
            stats.failures,
        );
    }
    if let Some(cluster) = &service.cluster {
        let state = cluster.state();
        all.flag(
            "lately_cluster_failing",
            "1 while the engine of the cluster cannot be reached.",
            state.contact.failure.is_some(),
        );
        all.since(
            "lately_cluster_staleness_seconds",
            "How long ago the engine of the cluster was reached, -1 if it never was.",
            state.contact.staleness_ms(service.now()),
        );
        all.since(
            "lately_cluster_lag_seconds",
            "The age of the oldest hits that this node may not have sent, -1 if it never reached the engine.",
            cluster.lag_ms(service.now()),
        );
        all.gauge(
            "lately_cluster_unsent_keys",
            "Keys with counts that other nodes do not have yet.",
            service.unsent_keys(),
        );
        all.gauge(
            "lately_cluster_unsent_deletions",
            "Keys that were deleted here, and whose deletion the engine does not have yet.",
            cluster.unsent_deletions(),
        );
        all.counter(
            "lately_cluster_resent_hits_total",
            "Hits of this node that the engine lacked, and that were sent again.",
            state.resent_hits,
        );
        all.flag(
            "lately_cluster_reconciled",
            "1 once all keys were compared with what the engine has, since it may have lost some.",
            state.is_reconciled,
        );
        if cluster.config.kafka.is_some() {
            let kafka = &cluster.kafka_stats;
            all.counter(
                "lately_kafka_records_total",
                "Records of the hits topic that were read.",
                kafka.records(),
            );
            all.counter(
                "lately_kafka_written_records_total",
                "Records that this node wrote for hits of its clients.",
                kafka.written(),
            );
            all.counter("lately_kafka_hits_total", "Hits of these records that count.", kafka.hits());
            all.counter(
                "lately_kafka_repeated_hits_total",
                "Hits of these records that had been counted before, by their id.",
                kafka.repeated(),
            );
            all.counter(
                "lately_kafka_forgotten_ids_total",
                "Ids of these hits forgotten before their dedupe was over, because they took their part of the memory.",
                kafka.forgotten_ids(),
            );
            all.counter(
                "lately_kafka_dead_letters_total",
                "Records that were no hits, and are in the topic for dead letters.",
                kafka.dead_letters(),
            );
            all.counter(
                "lately_kafka_lost_records_total",
                "Records that were deleted from the topic before they were counted.",
                kafka.lost(),
            );
            let lags = kafka.lags().into_iter();
            let lag = |(partition, lag): (i32, u64)| Sample {
                labels: vec![("partition", partition.to_string().into())],
                value: Value::Whole(lag),
            };
            let metric = gauge(
                "lately_kafka_lag_records",
                "Records of the partitions of this node that are not counted yet, by the end that the brokers report.",
            );
            all.0.push(Part { metric, is_first: true, samples: lags.map(lag).collect() });
        }
        if cluster.config.is_mesh() {
            all.0.extend(of_peers(&cluster.peer_stats.neighbours(service.now())));
        }
        if let Some(upstream) = &cluster.upstream {
            let state = upstream.state();
            all.flag(
                "lately_cluster_upstream_failing",
                "1 while counts cannot be exchanged with the upstream engine.",
                state.problem().is_some(),
            );
            all.since(
                "lately_cluster_upstream_staleness_seconds",
                "How long ago the upstream engine was reached, -1 if it never was.",
                state.contact.staleness_ms(service.now()),
            );
            all.gauge(
                "lately_cluster_upstream_waiting_blocks",
                "Blocks of counts of this data centre that the upstream engine does not have yet.",
                state.waiting_blocks,
            );
            all.gauge(
                "lately_cluster_upstream_unsent_deletions",
                "Keys that were deleted here, and whose deletion the upstream engine does not have yet.",
                upstream.unsent_deletions(),
            );
        }
    }
    if let Some(owners) = &service.owners {
        all.counter(
            "lately_owner_requests_total",
            "Requests of exact limits that other nodes have decided for this one.",
            stats.asked_owners.load(Relaxed),
        );
        all.counter(
            "lately_owner_away_total",
            "Requests of exact limits for which on_owner_down held, because the node that decides was away.",
            stats.owners_away.load(Relaxed),
        );
        let sample = |link: &Link| Sample {
            labels: vec![("node", link.node.clone().into())],
            value: Value::Whole(u64::from(link.is_reached())),
        };
        let metric = gauge("lately_owner_up", "1 while a node decides the exact limits of its keys.");
        all.0.push(Part { metric, is_first: true, samples: owners.links().map(sample).collect() });
    }
    if service.config.otlp.is_some() {
        all.counter(
            "lately_otlp_failures_total",
            "Messages of OTLP that a receiver did not take.",
            stats.failed_exports.load(Relaxed),
        );
    }
    if let Some(tracer) = &service.tracer {
        all.counter(
            "lately_otlp_dropped_spans_total",
            "Spans of requests that were not sent: the receiver did not take them, or too many waited.",
            tracer.dropped.load(Relaxed),
        );
    }
    let metric = gauge("lately_build_info", "The version that runs.");
    all.add(metric, vec![("version", VERSION.into())], Value::Whole(1));
    all.0
}

/// The answers of named limits.
fn limits(service: &Service) -> impl Iterator<Item = Part> + Send + use<> {
    let rules = service.rules.get();
    let metric = counter("lately_limit_requests_total", "Requests by a limit with a name, by what it said.");
    let items = rules.iter().len();
    of_items(metric, items, move |range| {
        let rules = rules.iter().skip(range.start).take(range.len());
        let samples = rules.flat_map(|rule| {
            LimitAnswer::ALL.map(|(said, decision)| Sample {
                labels: vec![("limit", rule.limit.name.clone().into()), ("decision", decision.into())],
                value: Value::Whole(rule.tally.get(said)),
            })
        });
        samples.collect()
    })
}

/// The rules of envoyproxy/ratelimit: nothing without `--ratelimit-config`.
fn ratelimit(service: &Service) -> impl Iterator<Item = Part> + Send + use<> {
    let mut all = Singles::default();
    if service.config.rule_folder.is_some() {
        let stats = &service.stats;
        all.counter(
            "lately_ratelimit_config_reloads_total",
            "How often the rules were reloaded.",
            stats.rule_reloads.load(Relaxed),
        );
        all.counter(
            "lately_ratelimit_config_errors_total",
            "How often the rules were not reloaded, because of a mistake in their files.",
            stats.rule_errors.load(Relaxed),
        );
        all.flag(
            "lately_ratelimit_config_failing",
            "1 while the files have a mistake, and the old rules stay.",
            stats.are_rules_failing.load(Relaxed),
        );
    }
    let rules = service.rate_limits.get();
    let counters = RuleTally::ALL.into_iter().enumerate().flat_map(move |(index, (name, help))| {
        rules.pages(METRIC_ITEMS_A_PART).enumerate().map(move |(number, page)| {
            let sample = |NamedTally { domain, name, tally, .. }: &NamedTally| Sample {
                labels: vec![("domain", domain.to_string().into()), ("rule", name.to_string().into())],
                value: Value::Whole(tally.get(index)),
            };
            let samples = page.iter().map(sample).collect();
            Part { metric: counter(name, help), is_first: number == 0, samples }
        })
    });
    all.0.into_iter().chain(counters)
}

/// The alerts of the config: whether each fires, what it read last, and how often it started.
fn alerts(service: &Service) -> impl Iterator<Item = Part> + Send + use<> {
    type Get = fn(&AlertFigures) -> u64;
    const METRICS: [(Metric, Get); 3] = [
        (gauge("lately_alert_firing", "1 while the alert fires."), |alert| {
            (alert.stage == Stage::Firing).into()
        }),
        (gauge("lately_alert_hits", "Hits in the window of the alert."), |alert| alert.reading.hits),
        (counter("lately_alert_starts_total", "How often the alert started."), |alert| alert.starts),
    ];
    let alerts: Arc<[_]> = service.alert_figures().into();
    let mut all = Singles::default();
    if !alerts.is_empty() {
        all.counter(
            "lately_alert_delivery_failures_total",
            "Messages about alerts that a webhook or an Alertmanager did not take.",
            service.stats.failed_deliveries.load(Relaxed),
        );
    }
    let of_each = METRICS.into_iter().flat_map(move |(metric, get)| {
        let alerts = Arc::clone(&alerts);
        of_items(metric, alerts.len(), move |range| {
            let sample = |alert: &AlertFigures| Sample {
                labels: vec![("alert", alert.alert.rule.name.clone().into())],
                value: Value::Whole(get(alert)),
            };
            alerts[range].iter().map(sample).collect()
        })
    });
    all.0.into_iter().chain(of_each)
}

/// What became of the panes of each history.
fn histories(service: &Service) -> impl Iterator<Item = Part> + Send + use<> {
    type Get = fn(&HistoryState, Timestamp) -> Value;
    const METRICS: [(Metric, Get); 9] = [
        (counter("lately_history_samples_total", "Samples that the receiver took."), |it, _| {
            Value::Whole(it.samples.load(Relaxed))
        }),
        (counter("lately_history_refused_samples_total", "Samples that the receiver refused."), |it, _| {
            Value::Whole(it.refused_samples.load(Relaxed))
        }),
        (
            counter(
                "lately_history_failures_total",
                "Requests to the receiver that failed and were sent again.",
            ),
            |it, _| Value::Whole(it.failures.load(Relaxed)),
        ),
        (
            gauge(
                "lately_history_lag_seconds",
                "How long ago the oldest pane was closed that the receiver does not have, 0 if it has all, -1 while that is not known.",
            ),
            |it, now| seconds(it.lag_ms(now)),
        ),
        (gauge("lately_history_keys", "Keys that had samples within the last hour."), |it, _| {
            Value::Whole(it.keys.load(Relaxed) as u64)
        }),
        (
            counter("lately_history_left_out_hits_total", "Hits that were not sent, of keys past max_keys."),
            |it, _| Value::Whole(it.left_out_hits.load(Relaxed)),
        ),
        (
            counter("lately_history_late_hits_total", "Hits that were counted in panes that had been sent."),
            |it, _| Value::Whole(it.late_hits.load(Relaxed)),
        ),
        (
            counter(
                "lately_history_skipped_seconds_total",
                "Time that was not sent, because its panes were merged into wider ones first.",
            ),
            |it, _| Value::Whole(it.skipped_ms.load(Relaxed) / 1_000),
        ),
        (
            counter(
                "lately_history_skipped_panes_total",
                "Panes of single keys that were not sent, because their hits were not known exactly.",
            ),
            |it, _| Value::Whole(it.skipped_panes.load(Relaxed)),
        ),
    ];
    let (histories, now) = (service.histories.clone(), service.now());
    METRICS.into_iter().flat_map(move |(metric, get)| {
        let histories = histories.clone();
        of_items(metric, histories.len(), move |range| {
            let sample = |history: &Arc<HistoryState>| Sample {
                labels: vec![("history", history.name.clone().into())],
                value: get(history, now),
            };
            histories[range].iter().map(sample).collect()
        })
    })
}
