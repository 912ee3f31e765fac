//! Metrics and spans by OTLP, at a receiver that reads them with OpenTelemetry's own definitions.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::common::{has, installed, lately};
use crate::http_clients::curl;
use crate::running::{becomes, serve_with};

/// Killed when dropped.
struct Receiver {
    port: String,
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Receiver {
    fn start() -> Option<Receiver> {
        let python = installed("LATELY_TEST_PYTHON")?;
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/otlp_receiver.py");
        let mut command = Command::new(python);
        let mut child =
            command.arg(program).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it runs");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut receiver = Receiver { port: String::new(), child, out };
        receiver.port = receiver.line();
        Some(receiver)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.out.read_line(&mut line).expect("text") > 0, "the receiver ended");
        line.trim_end().to_owned()
    }

    fn message(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).expect(&line)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The metrics of a message.
fn rows(message: &Value) -> &[Value] {
    message["metrics"].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn a_collector_gets_metrics_and_the_spans_of_requests() {
    let (Some(mut receiver), true) = (Receiver::start(), has("curl")) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (config, call) = (folder.path().join("lately.toml"), folder.path().join("call"));
    let port = &receiver.port;
    let text = format!(
        "[otlp]\nmetrics = \"http://127.0.0.1:{port}/v1/metrics\"\nevery = \"1s\"\ntraces = \"http://127.0.0.1:{port}/v1/traces\"\n\
         [[limit]]\nname = \"login\"\nmax = 1\nwindow = \"1m\"\n"
    );
    std::fs::write(&config, text).expect("room");
    // A message of gRPC without fields.
    std::fs::write(&call, [0; 5]).expect("room");
    let config = config.to_str().expect("text");
    let checked = lately(&["check", config]).out;
    let line = format!(
        "otlp: metrics http://127.0.0.1:{port}/v1/metrics, every 1s, traces http://127.0.0.1:{port}/v1/traces, sample 0\n"
    );
    assert!(checked.contains(&line), "{checked}");
    let server = serve_with(&["--config", config]);
    server.ask::<u64>("HIT k 3");
    let is_counted = |message: &Value| {
        rows(message).iter().any(|row| row["name"] == "lately_hits_total" && row["value"] == 3)
    };
    let mut message = receiver.message();
    while !is_counted(&message) {
        message = receiver.message();
    }
    let expected = json!({"service.name": "lately", "service.version": env!("CARGO_PKG_VERSION"),
        "service.instance.id": server.info("run_id")});
    assert_eq!((&message["resource"], &message["scope"]), (&expected, &json!("lately")));
    // They are those of /metrics.
    let metrics = server.get("/metrics");
    let of_type = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let of_type: BTreeSet<(&str, &str)> = of_type.collect();
    let kind = |row: &Value| if row["kind"] == "sum" { "counter" } else { "gauge" };
    let sent: BTreeSet<(&str, &str)> =
        rows(&message).iter().map(|row| (row["name"].as_str().expect("a name"), kind(row))).collect();
    assert_eq!(sent, of_type);
    let labels = json!({"limit": "login", "decision": "denied"});
    assert!(rows(&message).iter().any(|row| row["labels"] == labels), "{message}");

    // A request has a span when its client has one that is sampled.
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let header = |flags: &str| format!("traceparent: 00-{trace}-{parent}-{flags}");
    let url = |address: &str, path: &str| format!("http://{address}{path}");
    curl(&["-H", &header("00"), &url(&server.http, "/v1/hits/secret")]);
    curl(&[&url(&server.http, "/v1/hits/secret")]);
    curl(&["-H", &header("01"), &url(&server.http, "/v1/hits/secret")]);
    curl(&["-H", &header("01"), "-X", "PURGE", &url(&server.http, "/nowhere/secret")]);
    let body = format!("@{}", call.display());
    let grpc = ["--http2-prior-knowledge", "-H", "content-type: application/grpc", "--data-binary", &body];
    curl(&[&grpc[..], &["-H", &header("01"), &url(&server.grpc, "/grpc.health.v1.Health/Check")]].concat());
    // Without a message: the server answers before it has read one, which this curl may take for an error.
    let unknown = url(&server.grpc, "/lately.v1.Lately/Secret");
    curl(&[&grpc[..3], &["-X", "POST", "-H", &header("01"), &unknown]].concat());
    let mut spans: Vec<Value> = Vec::new();
    while spans.len() < 4 {
        let message = receiver.message();
        if let Some(more) = message["spans"].as_array() {
            assert_eq!(message["resource"], expected);
            spans.extend(more.iter().cloned());
        }
    }
    let span = |name: &str, attributes: Value, status: u64| {
        json!({"name": name, "kind": 2, "trace": trace, "parent": parent, "is_new": true, "flags": 0x301,
            "status": status, "attributes": attributes})
    };
    let method = "http.request.method";
    let expected = [
        span(
            "GET /v1/hits/{*key}",
            json!({method: "GET", "http.route": "/v1/hits/{*key}", "http.response.status_code": 200}),
            0,
        ),
        span("_OTHER", json!({method: "_OTHER", "http.response.status_code": 404}), 0),
        span(
            "grpc.health.v1.Health/Check",
            json!({"rpc.system": "grpc", "rpc.service": "grpc.health.v1.Health", "rpc.method": "Check"}),
            0,
        ),
        span("unknown", json!({"rpc.system": "grpc", "rpc.grpc.status_code": 12}), 2),
    ];
    assert_eq!(spans, expected);
    server.signal("TERM");
    let run = server.ended();
    assert_eq!((run.code, run.err.contains("otlp")), (Some(0), false), "{}", run.err);
}

#[test]
fn a_server_without_its_receiver_counts_and_stops() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    // Nothing listens on port 1.
    std::fs::write(&config, "[otlp]\nmetrics = \"http://127.0.0.1:1/\"\n").expect("room");
    let mut server = serve_with(&["--config", config.to_str().expect("text")]);
    server.wait_for_message("otlp: http://127.0.0.1:1/ did not take a message: ");
    assert_eq!(server.ask::<u64>("HIT k 3"), 3);
    assert!(becomes(|| server.get("/metrics").contains("\nlately_otlp_failures_total 1\n")));
    server.signal("TERM");
    assert_eq!(server.ended().code, Some(0));
}
