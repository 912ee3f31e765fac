//! Receivers that take messages, refuse them, or hang. Time is that of tokio, and passes when all wait.

use std::sync::Mutex;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use lately::{ManualClock, Timestamp};
use tokio::net::TcpListener;

use super::generated::{
    ExportMetricsServiceRequest, ExportTraceServiceRequest, Metric, Span as Sent, any_value, metric,
    number_data_point,
};
use super::*;
use crate::config::Config;
use crate::limits::{MAX_LIMITS, METRIC_ITEMS_A_PART, POINTS_A_MESSAGE};
use crate::pause::pause;
use crate::protocol::fixture::service_at;
use crate::service::named_limits::tests::limit;
use crate::service::tracer::{Span, TracedRequest};

/// What a receiver answers; it hangs without an answer. And the messages that it got.
#[derive(Clone)]
struct Fake {
    answer: Arc<Mutex<Option<StatusCode>>>,
    got: Arc<Mutex<Vec<Bytes>>>,
    url: String,
}

impl Fake {
    async fn new(answer: Option<StatusCode>) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let fake = Fake { answer: Arc::new(Mutex::new(answer)), got: Arc::default(), url };
        let router = Router::new().fallback(post(Fake::take)).with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        fake
    }

    async fn take(State(fake): State<Fake>, headers: HeaderMap, body: Bytes) -> StatusCode {
        assert_eq!(headers[CONTENT_TYPE], "application/x-protobuf");
        fake.got.lock().expect("no panic").push(body);
        let answer = *fake.answer.lock().expect("no panic");
        match answer {
            Some(status) => status,
            None => std::future::pending().await,
        }
    }

    fn answer(&self, status: StatusCode) {
        *self.answer.lock().expect("no panic") = Some(status);
    }

    /// The messages that came, once there are that many.
    async fn first<M: Message + Default>(&self, count: usize) -> Vec<M> {
        while self.got.lock().expect("no panic").len() < count {
            pause(Duration::from_millis(10)).await;
        }
        let got = self.got.lock().expect("no panic");
        got.iter().map(|body| M::decode(body.clone()).expect("a message")).collect()
    }
}

struct Fixture {
    service: Arc<Service>,
    lines: Arc<Mutex<Vec<String>>>,
    stopper: Stopper,
    task: tokio::task::JoinHandle<()>,
}

impl Fixture {
    fn new(otlp: &str, limits: usize) -> Fixture {
        let Config { otlp, .. } = Config::parse(&format!("[otlp]\n{otlp}")).expect("valid");
        let limits = (0..limits).map(|number| limit(&format!("n{number}"))).collect();
        let clock = Arc::new(ManualClock::new(Timestamp::from_seconds(1_700_000_000).expect("a time")));
        let service = service_at(Config { otlp, limits, ..Config::default() }, clock);
        let (lines, stopper) = (Arc::<Mutex<Vec<String>>>::default(), Stopper::new());
        let written = Arc::clone(&lines);
        let log: Log = Arc::new(move |line| written.lock().expect("no panic").push(line.to_owned()));
        let task = tokio::spawn(keep(Arc::clone(&service), stopper.clone(), log));
        Fixture { service, lines, stopper, task }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no panic").clone()
    }

    fn failures(&self) -> u64 {
        self.service.stats.failed_exports.load(Relaxed)
    }

    fn end_spans(&self, count: usize) {
        let tracer = self.service.tracer.as_ref().expect("spans are sent");
        for _ in 0..count {
            let request = TracedRequest::Http { method: "GET", route: None, status: 503 };
            let context = tracer.begin(None).expect("all have spans");
            tracer.end(Span { context, start: self.service.now(), took_ns: 7, request });
        }
    }
}

fn metrics_of(message: &ExportMetricsServiceRequest) -> &[Metric] {
    &message.resource_metrics[0].scope_metrics[0].metrics
}

fn spans_of(message: &ExportTraceServiceRequest) -> &[Sent] {
    &message.resource_spans[0].scope_spans[0].spans
}

#[tokio::test(start_paused = true)]
async fn a_receiver_gets_all_metrics_in_short_messages() {
    let fake = Fake::new(Some(StatusCode::OK)).await;
    let it = Fixture::new(&format!("metrics = \"{}\"\nevery = \"1s\"", fake.url), MAX_LIMITS);
    let expected: usize = parts(&it.service).map(|part| part.samples.len()).sum();
    let round = expected.div_ceil(POINTS_A_MESSAGE + 3 * METRIC_ITEMS_A_PART);
    let messages: Vec<ExportMetricsServiceRequest> = fake.first(2 * round).await;
    let points = |metric: &Metric| match &metric.data {
        Some(metric::Data::Sum(sum)) => sum.data_points.len(),
        Some(metric::Data::Gauge(gauge)) => gauge.data_points.len(),
        None => 0,
    };
    let mut found = 0;
    for message in &messages {
        let count: usize = metrics_of(message).iter().map(points).sum();
        assert!(count <= POINTS_A_MESSAGE + 3 * METRIC_ITEMS_A_PART, "{count}");
        found += count;
        if found >= expected {
            break;
        }
    }
    assert_eq!(found, expected);
    // A metric of the first message.
    let hits = metrics_of(&messages[0]).iter().find(|metric| metric.name == "lately_hits_total");
    let Some(metric::Data::Sum(sum)) = hits.and_then(|hits| hits.data.as_ref()) else { panic!("{hits:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
    let point = &sum.data_points[0];
    assert_eq!(point.time_unix_nano, 1_700_000_000_000_000_000);
    assert_eq!(point.value, Some(number_data_point::Value::AsInt(0)));
    assert_eq!((it.failures(), it.lines()), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_takes_nothing_is_logged_once() {
    let fake = Fake::new(Some(StatusCode::SERVICE_UNAVAILABLE)).await;
    let it = Fixture::new(&format!("metrics = \"{}\"\nevery = \"1s\"", fake.url), 0);
    fake.first::<ExportMetricsServiceRequest>(3).await;
    let url = &fake.url;
    let refused = format!("otlp: {url} did not take a message: it answered 503 Service Unavailable");
    pause(Duration::from_millis(10)).await;
    assert_eq!((it.failures(), it.lines()), (3, vec![refused.clone()]));
    fake.answer(StatusCode::OK);
    fake.first::<ExportMetricsServiceRequest>(4).await;
    pause(Duration::from_millis(10)).await;
    assert_eq!(it.lines(), [refused, format!("otlp: {url} takes messages again")]);
}

#[tokio::test(start_paused = true)]
async fn spans_are_sent_soon_and_in_short_messages() {
    let fake = Fake::new(Some(StatusCode::OK)).await;
    let it = Fixture::new(&format!("traces = \"{}\"\nsample = 1", fake.url), 0);
    it.end_spans(SPANS_A_MESSAGE + 1);
    let messages: Vec<ExportTraceServiceRequest> = fake.first(2).await;
    let counts: Vec<usize> = messages.iter().map(|message| spans_of(message).len()).collect();
    assert_eq!(counts, [SPANS_A_MESSAGE, 1]);
    let span = &spans_of(&messages[0])[0];
    assert_eq!((span.name.as_str(), span.kind, span.trace_id.len(), span.span_id.len()), ("GET", 2, 16, 8));
    assert_eq!(span.end_time_unix_nano - span.start_time_unix_nano, 7);
    // It is an error of the server.
    assert_eq!(span.status.as_ref().map(|status| status.code), Some(2));
    let status = span.attributes.iter().find(|it| it.key == "http.response.status_code");
    let status = status.and_then(|status| status.value.as_ref()?.value.clone());
    assert_eq!(status, Some(any_value::Value::IntValue(503)));
}

/// Spans that a receiver does not take are lost, and counted. A stop does not wait long for it.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_holds_up_nothing() {
    let fake = Fake::new(None).await;
    let it = Fixture::new(&format!("traces = \"{}\"\nsample = 1", fake.url), 0);
    it.end_spans(SPANS_A_MESSAGE + 1);
    fake.first::<ExportTraceServiceRequest>(1).await;
    while it.failures() == 0 {
        pause(Duration::from_millis(100)).await;
    }
    pause(Duration::from_millis(10)).await;
    let tracer = it.service.tracer.as_ref().expect("spans are sent");
    assert_eq!(tracer.dropped.load(Relaxed), (SPANS_A_MESSAGE + 1) as u64);
    assert!(it.lines()[0].ends_with("did not take a message: no answer within 10 s"), "{:?}", it.lines());
    it.end_spans(1);
    let begun = tokio::time::Instant::now();
    it.stopper.stop();
    it.task.await.expect("it ends");
    assert!(begun.elapsed() <= LAST_EXPORT_TIMEOUT + Duration::from_millis(100), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_last_metrics_are_sent_at_the_stop() {
    let fake = Fake::new(Some(StatusCode::OK)).await;
    let it = Fixture::new(&format!("metrics = \"{}\"\nevery = \"1h\"", fake.url), 0);
    fake.first::<ExportMetricsServiceRequest>(1).await;
    it.service.stats.hits.fetch_add(5, Relaxed);
    it.stopper.stop();
    it.task.await.expect("it ends");
    let messages: Vec<ExportMetricsServiceRequest> = fake.first(2).await;
    let hits = metrics_of(&messages[1]).iter().find(|metric| metric.name == "lately_hits_total");
    let Some(metric::Data::Sum(sum)) = hits.and_then(|hits| hits.data.as_ref()) else { panic!("{hits:?}") };
    assert_eq!(sum.data_points[0].value, Some(number_data_point::Value::AsInt(5)));
}
