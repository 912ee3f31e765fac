//! `/metrics`, in the text format of Prometheus. Its library writes the text; the pieces are ours, because it writes all of a registry
//! at once.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::limits::METRICS_PIECE_BYTES;
use crate::service::Service;
use crate::service::metrics::{Kind, Part, Value, parts};

pub(super) use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;

/// All metrics, in pieces that are written when the client takes them. With a thousand named limits the text is long, and a
/// slow client would have the server hold it.
pub(crate) fn pieces(service: &Arc<Service>) -> impl Iterator<Item = String> + Send + use<> {
    let mut parts = parts(service);
    std::iter::from_fn(move || {
        let mut piece = String::new();
        while piece.len() < METRICS_PIECE_BYTES
            && let Some(part) = parts.next()
        {
            write(part, &mut piece);
        }
        Some(piece).filter(|piece| !piece.is_empty())
    })
}

fn write(part: Part, piece: &mut String) {
    let (begin, is_first) = (piece.len(), part.is_first);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(part)));
    prometheus_text::encode(piece, &registry).expect("a text takes all");
    // The lines of the help and the type come once.
    if !is_first {
        let head = piece[begin..].split_inclusive('\n').take(2).map(str::len).sum::<usize>();
        piece.drain(begin..begin + head);
    }
}

#[derive(Debug)]
struct Collected(Part);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Part { metric, samples, .. } = &self.0;
        // The library adds the end of a counter's name.
        let (name, kind) = match metric.kind {
            Kind::Counter => (metric.name.trim_end_matches("_total"), MetricType::Counter),
            Kind::Gauge => (metric.name, MetricType::Gauge),
        };
        let mut encoder = encoder.encode_descriptor(name, metric.help, None, kind)?;
        for sample in samples {
            let encoder = encoder.encode_family(&sample.labels)?;
            match (metric.kind, sample.value) {
                (Kind::Counter, Value::Whole(value)) => ConstCounter::new(value).encode(encoder)?,
                (Kind::Counter, Value::Seconds(value)) => ConstCounter::new(value).encode(encoder)?,
                (Kind::Gauge, Value::Whole(value)) => ConstGauge::new(value).encode(encoder)?,
                (Kind::Gauge, Value::Seconds(value)) => ConstGauge::new(value).encode(encoder)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lately::{ManualClock, Timestamp};

    use super::*;
    use crate::config::Config;
    use crate::service::metrics::{Metric, Sample};
    use crate::service::named_limits::LimitAnswer;
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
        assert!(pieces.iter().all(|piece| piece.len() < 2 * METRICS_PIECE_BYTES));
        let lines = pieces.iter().flat_map(|piece| piece.lines());
        assert_eq!(
            lines.filter(|line| line.starts_with("lately_limit")).count(),
            3 * crate::limits::MAX_LIMITS
        );
    }

    #[test]
    fn labels_are_escaped() {
        let text = |value: &'static str| {
            let metric = Metric { name: "a_total", help: "A.", kind: Kind::Counter };
            let samples = vec![Sample { labels: vec![("b", value.into())], value: Value::Whole(u64::MAX) }];
            let mut text = String::new();
            write(Part { metric, is_first: false, samples }, &mut text);
            text
        };
        assert_eq!(text("a:b-c.d_E"), "a_total{b=\"a:b-c.d_E\"} 18446744073709551615\n");
        assert_eq!(text("a\"b\\c\nd"), "a_total{b=\"a\\\"b\\\\c\\nd\"} 18446744073709551615\n");
    }
}
