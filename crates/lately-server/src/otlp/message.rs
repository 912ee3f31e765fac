//! The messages of OTLP.

use std::borrow::Cow;
use std::iter::Peekable;

use lately::Timestamp;

use super::generated::{
    AggregationTemporality, AnyValue, ExportMetricsServiceRequest, ExportTraceServiceRequest, Gauge,
    InstrumentationScope, KeyValue, Metric, NumberDataPoint, Resource, ResourceMetrics, ResourceSpans,
    ScopeMetrics, ScopeSpans, Span, Status, Sum, any_value, metric, number_data_point, span, status,
};
use crate::VERSION;
use crate::limits::POINTS_A_MESSAGE;
use crate::service::Service;
use crate::service::metrics::{self, Kind, Part, Sample, Value};
use crate::service::tracer::{Span as Traced, TracedRequest};

/// The trace is sampled, and it is known whether its parent is remote.
const SAMPLED: u32 = 0x101;
/// The parent is remote.
const REMOTE: u32 = 0x200;

/// The statuses of gRPC that are the fault of a server.
const SERVER_ERRORS: [u16; 6] = [2, 4, 12, 13, 14, 15];

/// Some of the metrics: the next parts, until there are enough points.
pub(super) fn metrics(
    service: &Service,
    parts: &mut Peekable<impl Iterator<Item = Part>>,
    now: Timestamp,
) -> ExportMetricsServiceRequest {
    let (start_ns, now_ns) = (nanoseconds(service.started), nanoseconds(now));
    let mut metrics: Vec<Metric> = Vec::new();
    let mut count = 0;
    while count < POINTS_A_MESSAGE
        && let Some(part) = parts.next()
    {
        count += part.samples.len();
        if metrics.last().is_none_or(|last| last.name != part.metric.name) {
            metrics.push(empty(part.metric));
        }
        let points = part.samples.into_iter().map(|sample| point(sample, start_ns, now_ns));
        match metrics.last_mut().and_then(|last| last.data.as_mut()) {
            Some(metric::Data::Sum(sum)) => sum.data_points.extend(points),
            Some(metric::Data::Gauge(gauge)) => gauge.data_points.extend(points),
            None => {}
        }
    }
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics }];
    let resource_metrics = vec![ResourceMetrics { resource: Some(resource(service)), scope_metrics }];
    ExportMetricsServiceRequest { resource_metrics }
}

/// A metric without points. It has the name that it has in `/metrics`.
fn empty(metric: metrics::Metric) -> Metric {
    let data = match metric.kind {
        Kind::Counter => metric::Data::Sum(Sum {
            data_points: Vec::new(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
        Kind::Gauge => metric::Data::Gauge(Gauge { data_points: Vec::new() }),
    };
    let (name, description) = (metric.name.to_owned(), metric.help.to_owned());
    Metric { name, description, unit: String::new(), data: Some(data) }
}

fn point(sample: Sample, start_time_unix_nano: u64, time_unix_nano: u64) -> NumberDataPoint {
    let value = match sample.value {
        Value::Whole(value) => number_data_point::Value::AsInt(value.try_into().unwrap_or(i64::MAX)),
        Value::Seconds(value) => number_data_point::Value::AsDouble(value),
    };
    let attributes = sample.labels.into_iter().map(|(name, value)| text(name, value)).collect();
    NumberDataPoint { start_time_unix_nano, time_unix_nano, attributes, value: Some(value) }
}

/// Spans of requests.
pub(super) fn spans(service: &Service, spans: &[Traced]) -> ExportTraceServiceRequest {
    let spans = spans.iter().map(span_of).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans }];
    let resource_spans = vec![ResourceSpans { resource: Some(resource(service)), scope_spans }];
    ExportTraceServiceRequest { resource_spans }
}

/// Names of attributes are those of OpenTelemetry's semantic conventions.
fn span_of(traced: &Traced) -> Span {
    let Traced { context, start, took_ns, request } = traced;
    let start_time_unix_nano = nanoseconds(*start);
    let (name, attributes, is_error) = match request {
        TracedRequest::Http { method, route, status } => {
            let mut attributes =
                vec![text("http.request.method", *method), whole("http.response.status_code", *status)];
            let name =
                route.as_ref().map_or_else(|| (*method).to_owned(), |route| format!("{method} {route}"));
            attributes.extend(route.as_ref().map(|route| text("http.route", route.to_string())));
            (name, attributes, *status >= 500)
        }
        TracedRequest::Grpc { path, status } => {
            let mut attributes = vec![text("rpc.system", "grpc")];
            let name = path.as_ref().map_or("unknown", |path| path.trim_start_matches('/'));
            if let Some((service, method)) = name.split_once('/') {
                attributes.push(text("rpc.service", service.to_owned()));
                attributes.push(text("rpc.method", method.to_owned()));
            }
            attributes.extend(status.map(|status| whole("rpc.grpc.status_code", status)));
            let is_error = status.is_some_and(|status| SERVER_ERRORS.contains(&status));
            (name.to_owned(), attributes, is_error)
        }
    };
    Span {
        trace_id: context.trace_id.to_vec(),
        span_id: context.span_id.to_vec(),
        parent_span_id: context.parent_id.map(Vec::from).unwrap_or_default(),
        name,
        kind: span::SpanKind::Server.into(),
        start_time_unix_nano,
        end_time_unix_nano: start_time_unix_nano.saturating_add(*took_ns),
        attributes,
        status: is_error.then_some(Status { code: status::StatusCode::Error.into() }),
        flags: if context.parent_id.is_some() { SAMPLED | REMOTE } else { SAMPLED },
    }
}

/// What sends: the node of a cluster, or this start of a server.
fn resource(service: &Service) -> Resource {
    let node = service.config.cluster.as_ref().map(|cluster| &cluster.node);
    let instance = node.unwrap_or(&service.run_id).clone();
    let attributes = vec![
        text("service.name", "lately"),
        text("service.version", VERSION),
        text("service.instance.id", instance),
    ];
    Resource { attributes }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope { name: "lately".to_owned(), version: VERSION.to_owned() }
}

fn text(name: &str, value: impl Into<Cow<'static, str>>) -> KeyValue {
    let value = any_value::Value::StringValue(value.into().into_owned());
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn whole(name: &str, value: u16) -> KeyValue {
    let value = any_value::Value::IntValue(value.into());
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(0).saturating_mul(1_000_000)
}
