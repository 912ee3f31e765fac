//! Health and metrics over HTTP.

use std::collections::{BTreeMap, BTreeSet};

use lately::{Pattern, Settings, minutes};
use lately_server::Config;
use lately_server::limits::{MAX_HTTP_BODY_BYTES, MAX_REJECTED_LINES};

use crate::common::{NOW_S, Running, Wire, config, standing_clock};

/// Sends a request. Returns the status, head and body of the answer.
pub(crate) fn request(server: &Running, method: &str, path: &str) -> (u16, String, String) {
    request_to(server, "lately", method, path)
}

/// Sends a request to a name of the server.
pub(crate) fn request_to(server: &Running, host: &str, method: &str, path: &str) -> (u16, String, String) {
    let mut wire = Wire::connect(server.http);
    wire.send(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
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

/// Symptom: a client that closed its sending half after the request got no answer from a call that waits, although its hits
/// counted. Cause: hyper takes that for the end of the client. Fix: it is said not to.
#[test]
fn a_client_that_sends_no_more_gets_its_answer() {
    let server = Running::start();
    let mut resp = server.connect();
    resp.send("HIT k 3\r\n");
    resp.expect(":3\r\n");
    for (call, wanted) in
        [("GET /v1/dump", "lately"), ("GET /v1/top?k=1", "\"k\""), ("POST /v1/hit/other", "\"hits\"")]
    {
        let mut client = Wire::connect(server.http);
        client.send(format!("{call} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"));
        client.finish();
        let answer = client.rest();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(wanted), "{call}: {answer}");
    }
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

/// A bookmark opens the dashboard, and so does a page of this server. Pages of other sites cannot, and cannot frame it.
#[test]
fn the_dashboard_is_for_this_server_only() {
    let server = Running::start();
    let own = format!("Host: {}\r\n", server.http);
    for (lines, status) in [
        (own.clone(), 200),
        (format!("{own}Sec-Fetch-Site: none\r\n"), 200),
        (format!("{own}Sec-Fetch-Site: same-origin\r\n"), 200),
        (format!("{own}Sec-Fetch-Site: cross-site\r\n"), 403),
        ("Host: evil.example\r\n".to_owned(), 421),
    ] {
        for path in ["/", "/page/main.js"] {
            let (found, head, body) = request_with(&server, &format!("GET {path}"), &lines);
            assert_eq!(found, status, "{path} {lines}: {body}");
            let headers = [
                "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                "x-content-type-options: nosniff",
                "referrer-policy: no-referrer",
                "etag: \"",
            ];
            assert!(headers.iter().all(|line| head.contains(line)) == (status == 200), "{head}");
        }
    }
    assert_eq!(request_with(&server, "POST /", &own).0, 405);
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
            "content-encoding 'gzip' is not supported: send the body as it is",
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
    for path in ["/page", "/page/", "/page/x.js", "/nosuch", "/healthz/", "/metrics/x"] {
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

/// Sends a request with a body. Returns the status, head and body of the answer.
fn sent(server: &Running, first: &str, lines: &str, body: &[u8]) -> (u16, String, serde_json::Value) {
    let lines = format!("Host: localhost\r\n{lines}Content-Length: {}\r\n\r\n", body.len());
    let mut wire = Wire::connect(server.http);
    wire.send(format!("{first} HTTP/1.1\r\nConnection: close\r\n{lines}"));
    wire.send(body);
    let answer = String::from_utf8_lossy(&wire.rest()).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, head.to_lowercase(), serde_json::from_str(body).unwrap_or_default())
}

/// Symptom: a count in the body of `POST /v1/hit/k` was ignored, and one hit counted. Cause: nothing looked at the body. Fix: a body is
/// refused where arguments are in the query.
#[test]
fn a_body_is_refused_where_arguments_are_in_the_query() {
    let server = Running::start();
    let json = "Content-Type: application/json\r\n";
    for (path, right) in [("/v1/hit/k", "/v1/hit/KEY"), ("/v1/limit/k?max=1&window=1m", "/v1/limit/KEY")] {
        let (status, _, answer) = sent(&server, &format!("POST {path}"), json, br#"{"n":5}"#);
        let detail = answer["detail"].as_str().unwrap_or_default();
        let expected = format!("{right} takes no body: give arguments in the query");
        assert!(status == 400 && detail.starts_with(&expected), "{status} {answer}");
    }
    let mut chunked = Wire::connect(server.http);
    chunked.send(
        "POST /v1/hit/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n5\r\n0\r\n\r\n",
    );
    let answer = chunked.rest();
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));
    server.connect().ask("HITS k\r\n", ":0\r\n");
    assert_eq!(sent(&server, "POST /v1/hit/k", json, b"").0, 200);
    let mut empty = Wire::connect(server.http);
    empty.send("POST /v1/hit/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    empty.expect("HTTP/1.1 200 OK\r\n");
}

#[test]
fn hits_of_many_keys_come_as_lines() {
    let server = Running::start();
    let lines = [
        r#"{"key":"a","n":2}"#,
        "",
        "no",
        r#"{"key":"a","at":1}"#,
        r#"{"key":"b","id":"7"}"#,
        r#"{"key_b64":"/wA="}"#,
        &format!(r#"{{"key":"{}"}}"#, "x".repeat(9_000)),
        r#"{"key":"a","n":5}"#,
    ];
    let (status, _, answer) = sent(&server, "POST /v1/hits", "", lines.join("\n").as_bytes());
    assert_eq!(
        (status, &answer["accepted"], &answer["rejected_lines"]),
        (200, &3.into(), &4.into()),
        "{answer}"
    );
    let rejected: Vec<_> = answer["rejected"].as_array().expect("a list").iter().collect();
    let starts = [
        (3, "invalid JSON at column 2: "),
        (4, "LATE "),
        (5, "ERR hits of this key have no ids: its class has no `dedupe`"),
        (7, "the line is longer than 8192 bytes"),
    ];
    assert_eq!(rejected.len(), starts.len());
    for (rejected, (line, start)) in rejected.iter().zip(starts) {
        assert_eq!(rejected["line"], line);
        assert!(rejected["error"].as_str().is_some_and(|error| error.starts_with(start)), "{rejected}");
    }
    server.connect().ask("HITS a\r\n", ":7\r\n");
    assert_eq!(sent(&server, "POST /v1/hits", "", b"").2["accepted"], 0);
    let (status, _, answer) = sent(&server, "POST /v1/hits?n=1", "", b"{}");
    assert_eq!((status, &answer["detail"]), (400, &"unknown parameter 'n': this path takes none".into()));
    assert_eq!(sent(&server, "POST /v1/hits", "Content-Encoding: gzip\r\n", b"x").0, 415);
}

#[test]
fn distinct_members_are_counted_over_http() {
    let settings = Settings::builder().unique(true).build().expect("valid");
    let classes = vec![(Pattern::new(b"seen:*"), settings)];
    let server = Running::with(Config { classes, ..config() }, standing_clock());
    for member in ["%C3%A9%20%FF", "b", "b"] {
        assert_eq!(sent(&server, &format!("POST /v1/hit/seen:a?member={member}"), "", b"").0, 200);
    }
    let lines = [
        r#"{"key":"seen:a","member":"c","n":3}"#,
        r#"{"member":"b","key":"seen:b"}"#,
        r#"{"key":"seen:a","member":""}"#,
        r#"{"key":"seen:a","member":7}"#,
        r#"{"key":"k","member":"x"}"#,
    ];
    let (status, _, answer) = sent(&server, "POST /v1/hits", "", lines.join("\n").as_bytes());
    assert_eq!((status, &answer["accepted"], &answer["rejected_lines"]), (200, &2.into(), &3.into()));
    let no_members = "ERR hits of this key have no members: its class has no `unique = true`";
    assert_eq!(answer["rejected"][2]["error"], no_members);
    let (status, _, answer) = sent(&server, "GET /v1/unique/seen:a", "", b"");
    let wanted = serde_json::json!({
        "key": "seen:a", "as_of": NOW_S, "window": "5m", "unique": 3, "lower": 3, "upper": 3
    });
    assert_eq!((status, answer), (200, wanted));
    let (_, _, answer) = sent(&server, "GET /v1/unique/seen:b?window=30d", "", b"");
    assert_eq!(
        (&answer["window"], &answer["unique"], &answer["upper"]),
        (&"30d".into(), &1.into(), &().into())
    );
    let long = "m".repeat(257);
    for (path, status_of, start) in [
        ("POST /v1/hit/k?member=1", 422, "hits of this key have no members"),
        ("GET /v1/unique/k", 422, "hits of this key have no members"),
        ("GET /v1/unique/seen:a?window=x", 400, ""),
        ("GET /v1/unique/seen:a?at=1", 400, "unknown parameter 'at': this path takes window"),
        ("POST /v1/hit/seen:a?member=", 400, "invalid member of 0 bytes: a member has 1 to 256 bytes"),
        (&format!("POST /v1/hit/seen:a?member={long}"), 400, "invalid member of 257 bytes"),
        ("POST /v1/hit/seen:a?member=1&member=2", 400, "member is given twice"),
    ] {
        let (status, _, answer) = sent(&server, path, "", b"");
        assert_eq!(status, status_of, "{path}: {answer}");
        assert!(answer["detail"].as_str().is_some_and(|detail| detail.starts_with(start)), "{answer}");
    }
    server.connect().ask("UNIQ seen:a\r\n", ":3\r\n");
}

/// A config with a class whose ids count once within ten minutes.
fn with_ids() -> Running {
    let settings = Settings::builder().dedupe(minutes(10)).build().expect("valid");
    let classes = vec![(Pattern::new(b"once:*"), settings)];
    Running::with(Config { classes, ..config() }, standing_clock())
}

#[test]
fn hits_with_an_id_count_once_over_http() {
    let server = with_ids();
    let (hit, key) = ("POST /v1/hit/once:a?id=%C3%A9%20%FF", "once:a");
    for _ in 0..2 {
        let (status, _, answer) = sent(&server, hit, "", b"");
        assert_eq!((status, answer), (200, serde_json::json!({"key": key, "hits": 1})));
    }
    let at = NOW_S - 599;
    assert_eq!(sent(&server, &format!("{hit}&at={at}"), "", b"").2["hits"], 0, "the window then has none");
    let at = NOW_S - 600;
    assert_eq!(sent(&server, &format!("{hit}&at={at}&n=2"), "", b"").2["hits"], 2);
    let lines = [
        r#"{"key":"once:a","id":"7","n":3}"#,
        r#"{"key":"once:a","id":"7","n":3}"#,
        r#"{"id":"7","key":"once:b"}"#,
        r#"{"key":"once:a","id":""}"#,
        r#"{"key":"once:a","id":7}"#,
    ];
    let (status, _, answer) = sent(&server, "POST /v1/hits", "", lines.join("\n").as_bytes());
    // A hit that was counted before is accepted.
    assert_eq!((status, &answer["accepted"], &answer["rejected_lines"]), (200, &3.into(), &2.into()));
    server.connect().ask("HITS once:a 1h\r\n", ":6\r\n");
    server.connect().ask("HITS once:b\r\n", ":1\r\n");
    let long = "i".repeat(257);
    for (path, status_of, start) in [
        ("/v1/hit/k?id=1", 422, "hits of this key have no ids: its class has no `dedupe`"),
        ("/v1/hit/once:a?id=", 400, "invalid id of 0 bytes: an id has 1 to 256 bytes"),
        (&format!("/v1/hit/once:a?id={long}"), 400, "invalid id of 257 bytes"),
        ("/v1/hit/once:a?id=1&id=2", 400, "id is given twice"),
    ] {
        let (status, _, answer) = sent(&server, &format!("POST {path}"), "", b"");
        assert_eq!(status, status_of, "{path}: {answer}");
        assert!(answer["detail"].as_str().is_some_and(|detail| detail.starts_with(start)), "{answer}");
    }
    let metrics = metrics(&server);
    assert_eq!(metrics["lately_ids"], 4.0);
    assert_eq!(metrics["lately_hits_repeated_total"], 5.0);
    assert_eq!(metrics["lately_forgotten_ids_total"], 0.0);
    assert!(metrics["lately_memory_ids_bytes"] > 0.0);
}

/// More lines than are counted at once, and more rejected ones than are named.
#[test]
fn a_long_body_of_lines_is_counted_whole() {
    let server = Running::start();
    let body: String =
        (0..30_000)
            .map(|number| {
                if number % 10 == 0 {
                    "{}\n".to_owned()
                } else {
                    format!("{{\"key\":\"k{}\"}}\n", number % 7)
                }
            })
            .collect();
    let (status, _, answer) = sent(&server, "POST /v1/hits", "", body.as_bytes());
    assert_eq!(
        (status, &answer["accepted"], &answer["rejected_lines"]),
        (200, &27_000.into(), &3_000.into())
    );
    let rejected = answer["rejected"].as_array().expect("a list");
    assert_eq!((rejected.len(), &rejected[999]["line"]), (MAX_REJECTED_LINES, &9_991.into()));
    let mut client = server.connect();
    let hits: u64 = (0..7).map(|number| client.number(&format!("HITS k{number}\r\n"))).sum();
    assert_eq!(hits, 27_000);
}

#[test]
fn the_size_of_a_body_of_lines_is_bounded() {
    let server = Running::start();
    let length = MAX_HTTP_BODY_BYTES + 1;
    let (status, head, body) = request_with(
        &server,
        "POST /v1/hits",
        &format!("Host: localhost\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n"),
    );
    assert_eq!(status, 413, "{body}");
    assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
    assert!(body.contains("the body is longer than 1073741824 bytes"), "{body}");
}

/// A body without an end is counted line by line as it comes.
#[test]
fn lines_are_counted_as_they_come() {
    let server = Running::start();
    let mut wire = Wire::connect(server.http);
    wire.send("POST /v1/hits HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    let line = "{\"key\":\"a\"}\n{\"ke";
    wire.send(format!("{:x}\r\n{line}\r\n", line.len()));
    let mut client = server.connect();
    while client.number("HITS a\r\n") == 0 {}
    wire.send("6\r\ny\":\"a\"\r\n1\r\n}\r\n0\r\n\r\n");
    assert!(wire.line().starts_with("HTTP/1.1 200 "));
    let answer = String::from_utf8(wire.rest()).expect("text");
    assert!(answer.ends_with(r#"{"accepted":2,"rejected_lines":0,"rejected":[]}"#), "{answer}");
    assert_eq!(client.number("HITS a\r\n"), 2);
    // Trailers say nothing here.
    let mut wire = Wire::connect(server.http);
    wire.send("POST /v1/hits HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    wire.send("b\r\n{\"key\":\"a\"}\r\n0\r\nX-Checksum: 7\r\n\r\n");
    assert!(wire.line().starts_with("HTTP/1.1 200 "));
    let answer = String::from_utf8(wire.rest()).expect("text");
    assert!(answer.ends_with(r#"{"accepted":1,"rejected_lines":0,"rejected":[]}"#), "{answer}");
    assert_eq!(client.number("HITS a\r\n"), 3);
}

#[test]
fn a_wrong_method_is_answered_with_those_there_are() {
    let server = Running::start();
    for (method, path, allow) in [
        ("GET", "/v1/hits", "post"),
        ("GET", "/v1/limit/k", "post"),
        ("POST", "/v1/auth", "get,head"),
        ("PUT", "/v1/key/k", "delete,get,head"),
        ("DELETE", "/v1/series/k", "get,head"),
        ("PUT", "/v1/dump", "get,head"),
        ("POST", "/openapi.json", "get,head"),
    ] {
        let (status, head, _) = request_with(&server, &format!("{method} {path}"), "Host: localhost\r\n");
        assert_eq!(status, 405, "{path}");
        assert!(head.contains(&format!("\r\nallow: {allow}\r\n")), "{path}: {head}");
        assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
    }
}

#[test]
fn what_is_not_utf8_is_refused_by_name() {
    let server = Running::start();
    for (target, detail) in [
        ("/v1/hits/k?at=%ff", "at is not UTF-8"),
        ("/v1/hits/k?%ff=1", "invalid query: the name of a parameter is not UTF-8"),
        ("/v1/hits/k?at=%f", "invalid query: '%f' is no percent-encoded byte, %25 is a percent sign"),
        ("/v1/hits/%zz", "invalid key: '%zz' is no percent-encoded byte, %25 is a percent sign"),
        ("/v1/series/k?step=1500ms", "invalid step 1500ms: give a multiple of the key's resolution, 1s"),
        ("/v1/auth?limit=a%20b", "no such limit 'a b': the config has none"),
        ("/v1/auth?max=1&window=1", "key is missing"),
        ("/v1/auth?key=k", "limit, or max and window, is missing"),
        ("/v1/auth?key=k&max=1", "window is missing"),
        ("/v1/auth?key=k&window=1", "max is missing"),
        ("/v1/auth?limit=x&max=1", "limit takes max, window, lockout and overdraft from the config"),
        ("/v1/auth?key=k&max=1&window=1&deny=404", "invalid deny '404': give 403 (for nginx) or 429"),
        ("/v1/auth?key=&max=1&window=1", "invalid key of 0 bytes: a key has 1 to 1024 bytes"),
    ] {
        let (status, _, body) = request_with(&server, &format!("GET {target}"), "Host: localhost\r\n");
        assert_eq!(status, 400, "{target}: {body}");
        let answer: serde_json::Value = serde_json::from_str(&body).expect("an object");
        let found = answer["detail"].as_str().expect("a text");
        assert!(found.starts_with(detail), "{target}: {found}");
    }
    server.connect().ask("DBSIZE\r\n", ":0\r\n");
}

#[test]
fn a_key_is_deleted_over_http() {
    let server = Running::start();
    server.connect().ask("MHIT a/b 3 c 1\r\n", "*2\r\n:3\r\n:1\r\n");
    for _ in 0..2 {
        let (status, _, body) = request_with(&server, "DELETE /v1/key/a/b", "Host: localhost\r\n");
        assert_eq!((status, body.as_str()), (204, ""));
    }
    server.connect().ask("HITS a/b\r\n", ":0\r\n");
    server.connect().ask("DBSIZE\r\n", ":1\r\n");
    assert_eq!(request_with(&server, "DELETE /v1/key/c?all=1", "Host: localhost\r\n").0, 400);
    server.connect().ask("DBSIZE\r\n", ":1\r\n");
}

/// A series of more points than are written at once.
#[test]
fn a_long_series_is_whole() {
    let server = Running::start();
    server.connect().ask("MHIT k 3\r\n", "*1\r\n:3\r\n");
    let (status, head, body) =
        request_with(&server, "GET /v1/series/k?window=2h&step=1", "Host: localhost\r\n");
    assert_eq!(status, 200);
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    let text: String = body.split("\r\n").skip(1).step_by(2).collect();
    let answer: serde_json::Value = serde_json::from_str(&text).expect("an object");
    let points = answer["points"].as_array().expect("a list");
    assert_eq!(
        (points.len(), &points[7_199]["hits"], &points[7_199]["start"]),
        (7_200, &3.into(), &NOW_S.into())
    );
    assert_eq!((&answer["window"], &answer["step"]), (&"2h".into(), &"1s".into()));
}
