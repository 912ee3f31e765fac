//! Requests with samples, in each protocol.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use prost::Message;

use super::generated::{
    Label, Metadata, MetricType, Sample, SymbolizedRequest, SymbolizedSeries, TimeSeries, WriteRequest,
};
use crate::config::{History, HistoryProtocol};
use crate::otlp::generated::{
    AggregationTemporality, AnyValue, ExportMetricsServiceRequest, InstrumentationScope, KeyValue, Metric,
    NumberDataPoint, Resource, ResourceMetrics, ScopeMetrics, Sum, any_value, metric, number_data_point,
};
use crate::service::history::Pane;

const HELP: &str = "Hits of a key in the pane that ends at this time.";

/// A key and its hits.
pub(super) type KeyHits = (Box<[u8]>, u64);

/// What all requests of a history have.
#[derive(Debug)]
pub(super) struct Template {
    protocol: HistoryProtocol,
    metric: String,
    /// The labels that all samples have, but for the name of the metric.
    labels: Vec<(String, String)>,
    node: Option<String>,
}

impl Template {
    pub(super) fn new(history: &History, node: Option<&str>) -> Template {
        let labels = history.labels.iter().map(|(name, value)| (name.clone(), value.clone()));
        let of_node = node.map(|node| ("node".to_owned(), node.to_owned()));
        Template {
            protocol: history.protocol,
            metric: history.metric.clone(),
            labels: labels.chain(of_node).collect(),
            node: node.map(str::to_owned),
        }
    }

    /// The headers that say what a body is.
    pub(super) fn headers(&self) -> HeaderMap {
        const VERSION: HeaderName = HeaderName::from_static("x-prometheus-remote-write-version");
        let snappy = (CONTENT_ENCODING, HeaderValue::from_static("snappy"));
        let of_type = |name| (CONTENT_TYPE, HeaderValue::from_static(name));
        let version = |number| (VERSION, HeaderValue::from_static(number));
        match self.protocol {
            HistoryProtocol::RemoteWrite => {
                [snappy, of_type("application/x-protobuf"), version("0.1.0")].into_iter().collect()
            }
            HistoryProtocol::RemoteWrite2 => {
                let name = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
                [snappy, of_type(name), version("2.0.0")].into_iter().collect()
            }
            HistoryProtocol::Otlp => [of_type("application/x-protobuf")].into_iter().collect(),
        }
    }

    /// The body of a request with the hits of these keys in a pane.
    pub(super) fn body(&self, samples: &[KeyHits], pane: Pane) -> Vec<u8> {
        match self.protocol {
            HistoryProtocol::RemoteWrite => compressed(&self.write_request(samples, pane)),
            HistoryProtocol::RemoteWrite2 => compressed(&self.symbolized_request(samples, pane)),
            HistoryProtocol::Otlp => self.export_request(samples, pane).encode_to_vec(),
        }
    }

    /// The labels of a key, by name.
    fn labels_of<'t>(&'t self, key: &'t [u8]) -> Vec<(&'t str, Cow<'t, str>)> {
        let name = ("__name__", self.metric.as_str().into());
        let fixed = self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str().into()));
        let mut labels: Vec<(&str, Cow<'_, str>)> = fixed.chain([name, label_of(key)]).collect();
        labels.sort_unstable_by_key(|(name, _)| *name);
        labels
    }

    fn write_request(&self, samples: &[KeyHits], pane: Pane) -> WriteRequest {
        let label =
            |(name, value): (&str, Cow<'_, str>)| Label { name: name.to_owned(), value: value.into() };
        let series = |(key, hits): &KeyHits| TimeSeries {
            labels: self.labels_of(key).into_iter().map(label).collect(),
            samples: vec![sample(*hits, pane)],
        };
        WriteRequest { timeseries: samples.iter().map(series).collect() }
    }

    fn symbolized_request(&self, samples: &[KeyHits], pane: Pane) -> SymbolizedRequest {
        // An empty text comes first.
        let mut symbols = vec![String::new(), HELP.to_owned()];
        let mut places: HashMap<String, u32> = HashMap::new();
        let mut place_of = |text: &str| {
            if let Some(place) = places.get(text) {
                return *place;
            }
            let place = u32::try_from(symbols.len()).unwrap_or(u32::MAX);
            symbols.push(text.to_owned());
            places.insert(text.to_owned(), place);
            place
        };
        let mut timeseries = Vec::with_capacity(samples.len());
        for (key, hits) in samples {
            let labels = self.labels_of(key);
            let labels_refs =
                labels.iter().flat_map(|(name, value)| [place_of(name), place_of(value)]).collect();
            let metadata = Metadata { r#type: MetricType::Gauge.into(), help_ref: 1, unit_ref: 0 };
            timeseries.push(SymbolizedSeries {
                labels_refs,
                samples: vec![sample(*hits, pane)],
                metadata: Some(metadata),
            });
        }
        SymbolizedRequest { symbols, timeseries }
    }

    fn export_request(&self, samples: &[KeyHits], pane: Pane) -> ExportMetricsServiceRequest {
        let text = |name: &str, value: &str| KeyValue {
            key: name.to_owned(),
            value: Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) }),
        };
        // Hits later than the start and not later than the time, as OTLP has it.
        let nanoseconds = |ms: i64| u64::try_from(ms - 1).unwrap_or(0).saturating_mul(1_000_000);
        let point = |(key, hits): &KeyHits| {
            let (name, value) = label_of(key);
            let fixed = self.labels.iter().map(|(name, value)| text(name, value));
            NumberDataPoint {
                start_time_unix_nano: nanoseconds(pane.from.as_millis()),
                time_unix_nano: nanoseconds(pane.to.as_millis()),
                attributes: fixed.chain([text(name, &value)]).collect(),
                value: Some(number_data_point::Value::AsInt(i64::try_from(*hits).unwrap_or(i64::MAX))),
            }
        };
        let sum = Sum {
            data_points: samples.iter().map(point).collect(),
            aggregation_temporality: AggregationTemporality::Delta.into(),
            is_monotonic: true,
        };
        let metric = Metric {
            name: self.metric.clone(),
            description: HELP.to_owned(),
            unit: String::new(),
            data: Some(metric::Data::Sum(sum)),
        };
        let scope = InstrumentationScope { name: "lately".to_owned(), version: String::new() };
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics: vec![metric] }];
        // It does not change with a start or an upgrade: receivers make labels of it, and with them other series.
        let node = self.node.iter().map(|node| text("service.instance.id", node));
        let attributes = [text("service.name", "lately")].into_iter().chain(node).collect();
        let resource_metrics =
            vec![ResourceMetrics { resource: Some(Resource { attributes }), scope_metrics }];
        ExportMetricsServiceRequest { resource_metrics }
    }
}

/// The label of a key. Labels are UTF-8; other keys are in Base64, as in JSON.
fn label_of(key: &[u8]) -> (&'static str, Cow<'_, str>) {
    match std::str::from_utf8(key) {
        Ok(text) => ("key", text.into()),
        Err(_) => ("key_b64", BASE64_STANDARD.encode(key).into()),
    }
}

/// The time of a sample is the last millisecond of its pane: of whole panes, any range has the samples of its hits.
fn sample(hits: u64, pane: Pane) -> Sample {
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
    let value = hits as f64;
    Sample { value, timestamp: pane.to.as_millis() - 1 }
}

fn compressed(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    snap::raw::Encoder::new().compress_vec(&bytes).expect("a request is far below 4 GiB")
}
