//! Health and metrics over HTTP.

use std::collections::{BTreeMap, BTreeSet};

use lately_server::Config;

use crate::common::{NOW_S, Running, Wire, config, standing_clock};

/// Sends a request. Returns the status, head and body of the answer.
fn request(server: &Running, method: &str, path: &str) -> (u16, String, String) {
    let mut wire = Wire::connect(server.http);
    wire.send(format!("{method} {path} HTTP/1.1\r\nHost: lately\r\nConnection: close\r\n\r\n"));
    let answer = String::from_utf8(wire.rest()).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, head.to_lowercase(), body.to_owned())
}

/// The metrics. Checks every line against the text format.
fn metrics(server: &Running) -> BTreeMap<String, f64> {
    let (status, head, body) = request(server, "GET", "/metrics");
    assert_eq!(status, 200);
    assert!(head.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(body.ends_with('\n'));
    let (mut helped, mut typed, mut values) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
    for line in body.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect(line);
            assert!(text.ends_with('.') && helped.insert(name.to_owned()), "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect(line);
            assert!(helped.contains(name) && matches!(kind, "counter" | "gauge"), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            assert!(typed.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
        } else {
            let (sample, value) = line.split_once(' ').expect(line);
            let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
            assert!(labels.ends_with('}') && typed.contains_key(name), "{line}");
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            assert!(name.starts_with("lately_") && name.bytes().all(plain), "{line}");
            assert!(values.insert(name.to_owned(), value.parse().expect(line)).is_none(), "{line}");
        }
    }
    assert_eq!((helped.len(), typed.len()), (values.len(), values.len()));
    values
}

#[test]
fn health_and_readiness() {
    health_and_readiness_of(&Running::start());
}

fn health_and_readiness_of(server: &Running) {
    for (path, body) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let (status, head, got) = request(server, "GET", path);
        assert_eq!((status, got.as_str()), (200, body));
        assert!(head.contains("content-type: text/plain"), "{head}");
    }
}

/// Sends a request with these lines after its first one. Returns the status, head and body of the answer.
fn request_with(server: &Running, first: &str, lines: &str) -> (u16, String, String) {
    let mut wire = Wire::connect(server.http);
    wire.send(format!("{first} HTTP/1.1\r\nConnection: close\r\n{lines}\r\n"));
    let answer = String::from_utf8_lossy(&wire.rest()).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, head.to_lowercase(), body.to_owned())
}

/// A page of any site can make a browser send requests to loopback. If the site's name resolves to loopback, the page can
/// also read the answers.
#[test]
fn cross_site_requests_are_refused() {
    let config = Config { hosts: vec!["lately.example.org".parse().expect("a name")], ..config() };
    let server = Running::with(config, standing_clock());
    server.connect().ask("HIT kept\r\n", ":1\r\n");
    let dump = "GET /v1/dump";
    let restore = "POST /v1/restore?replace=true";
    let own = format!("Host: {}\r\n", server.http);
    for (lines, status, value) in [
        (String::new(), 400, "one header Host"),
        ("Host: evil.example\r\n".to_owned(), 421, "'evil.example'"),
        (format!("Host: evil.example:{}\r\n", server.http.port()), 421, "'evil.example:"),
        (format!("{own}Origin: http://evil.example\r\n"), 403, "'http://evil.example'"),
        (format!("{own}Origin: null\r\n"), 403, "'null'"),
        (format!("{own}Sec-Fetch-Site: cross-site\r\n"), 403, "'cross-site'"),
        (format!("{own}Content-Type: text/plain;charset=UTF-8\r\n"), 403, "'text/plain;charset=UTF-8'"),
        (format!("{own}Content-Type: application/x-www-form-urlencoded\r\n"), 403, "x-www-form-urlencoded'"),
    ] {
        for (first, more) in [(dump, ""), (restore, "Content-Length: 4\r\n\r\nnone")] {
            let (found, head, body) = request_with(&server, first, &format!("{lines}{more}"));
            assert_eq!(found, status, "{first} {lines}: {body}");
            assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
            assert!(body.contains(value) && body.contains(&format!("\"status\":{status}")), "{body}");
        }
    }
    let good = [
        own.clone(),
        "Host: lately.example.org\r\n".to_owned(),
        format!("{own}Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", server.http),
        format!("{own}Content-Type: application/vnd.lately.dump\r\n"),
    ];
    for lines in good {
        assert_eq!(request_with(&server, dump, &lines).0, 200, "{lines}");
        let (status, _, body) =
            request_with(&server, restore, &format!("{lines}Content-Length: 4\r\n\r\nnone"));
        assert_eq!(status, 400, "{body}");
        assert!(body.contains("it is no dump of lately"), "{body}");
    }
    // Monitoring may use any host name.
    assert_eq!(request_with(&server, "GET /metrics", "Host: pod.example\r\n").0, 200);
    server.connect().ask("DBSIZE\r\n", ":1\r\n");
}

/// Symptom: a dump with a content encoding was read as if it had none. Fix: it is refused, and nothing changes.
#[test]
fn a_body_with_a_content_encoding_is_refused() {
    let server = Running::start();
    server.connect().ask("HIT kept\r\n", ":1\r\n");
    let (chunked, plain) = ("\r\n4\r\nnone\r\n0\r\n\r\n", "Content-Length: 4\r\n\r\nnone");
    for (lines, body, status, detail) in [
        (
            "Transfer-Encoding: gzip, chunked\r\n",
            chunked,
            501,
            "transfer-encoding 'gzip, chunked' is not supported",
        ),
        (
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            chunked,
            501,
            "transfer-encoding 'gzip, chunked' is not supported",
        ),
        ("Transfer-Encoding: chunked, chunked\r\n", chunked, 501, "transfer-encoding 'chunked, chunked'"),
        (
            "Content-Encoding: gzip\r\n",
            plain,
            415,
            "content-encoding 'gzip' is not supported: send the dump as it is",
        ),
        ("Content-Encoding: identity\r\nContent-Encoding: zstd\r\n", plain, 415, "'identity, zstd'"),
        ("Content-Encoding: Identity\r\n", plain, 400, "it is no dump of lately"),
        ("Transfer-Encoding: Chunked\r\n", chunked, 400, "it is no dump of lately"),
    ] {
        let lines = format!("Host: localhost\r\n{lines}{body}");
        let (found, head, body) = request_with(&server, "POST /v1/restore?replace=true", &lines);
        assert_eq!(found, status, "{lines}: {body}");
        assert!(body.contains(detail), "{body}");
        assert_eq!(head.contains("\r\naccept-encoding: identity"), status == 415, "{head}");
    }
    server.connect().ask("DBSIZE\r\n", ":1\r\n");
}

#[test]
fn health_and_metrics_have_a_listener_of_their_own() {
    let config = Config { metrics: Some(config().http), ..config() };
    let mut server = Running::with(config, standing_clock());
    let http = server.http;
    server.http = server.metrics.expect("it has one");
    assert_ne!(server.http, http);
    health_and_readiness_of(&server);
    assert_eq!(metrics(&server)["lately_keys"], 0.0);
    for path in ["/v1/dump", "/v1/restore", "/"] {
        assert_eq!(request(&server, "GET", path).0, 404, "{path}");
        assert_eq!(request(&server, "POST", path).0, 404, "{path}");
    }
    server.http = http;
    health_and_readiness_of(&server);
    server.stopper.stop();
    server.ended();
}

#[test]
fn unknown_paths_are_404() {
    let server = Running::start();
    for path in ["/", "/nosuch", "/healthz/", "/metrics/x"] {
        assert_eq!(request(&server, "GET", path).0, 404, "{path}");
    }
    assert_eq!(request(&server, "POST", "/metrics").0, 405);
}

#[test]
fn metrics_follow_requests() {
    let server = Running::start();
    let at_first = metrics(&server);
    let value = |values: &BTreeMap<String, f64>, name: &str| values[&format!("lately_{name}")];
    assert_eq!(value(&at_first, "start_time_seconds"), NOW_S as f64);
    assert_eq!(value(&at_first, "memory_ceiling_bytes"), f64::from(1 << 30));
    assert_eq!(value(&at_first, "build_info"), 1.0);
    for name in ["keys", "connected_clients", "connections_total", "commands_total", "hits_total"] {
        assert_eq!(value(&at_first, name), 0.0, "{name}");
    }
    let mut client = server.connect();
    client.ask("MHIT a 1 b 2\r\n", "*2\r\n:1\r\n:2\r\n");
    client.send("HIT a 5 AT 1\r\n");
    assert!(client.line().starts_with("-LATE "));
    // The counters include a batch once the next one is answered.
    client.ask("PING\r\n", "+PONG\r\n");
    let then = metrics(&server);
    for (name, expected) in [
        ("keys", 2.0),
        ("connected_clients", 1.0),
        ("connections_total", 1.0),
        ("connections_refused_total", 0.0),
        ("hits_total", 3.0),
        ("hits_refused_total", 5.0),
        ("commands_total", 3.0),
    ] {
        assert_eq!(value(&then, name), expected, "{name}");
    }
    assert!(value(&then, "memory_used_bytes") > value(&at_first, "memory_used_bytes"));
}

#[test]
fn every_refusal_is_a_problem_document() {
    let server = Running::start();
    for (method, path, status, detail) in [
        ("GET", "/nowhere", 404, "there is nothing at /nowhere"),
        ("GET", "/v1/nowhere", 404, "there is nothing at /v1/nowhere"),
        ("POST", "/healthz", 405, "/healthz does not take POST"),
    ] {
        let (found, head, body) = request(&server, method, path);
        assert_eq!(found, status, "{path}");
        assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
        assert!(body.contains(detail), "{body}");
    }
    for (method, path, status) in
        [("GET", "/v1/dump?x=1", 400), ("PUT", "/v1/dump", 405), ("GET", "/v1/restore", 405)]
    {
        let mut wire = Wire::connect(server.http);
        wire.send(format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"));
        let answer = String::from_utf8(wire.rest()).expect("text");
        assert!(answer.starts_with(&format!("HTTP/1.0 {status} ")), "{answer}");
        assert!(answer.contains("\r\ncontent-type: application/problem+json\r\n"), "{answer}");
    }
}
