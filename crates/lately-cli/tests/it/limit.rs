//! `lately limit`: its output, and its exit code for each decision.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use crate::client_runs::{ask, check, check_refused, words};
use crate::running::{Running, serve};

const HOUR_MS: u64 = 3_600_000;

/// Runs a request. Returns the exit code and the five values.
fn values(server: &Running, line: &str) -> (Option<i32>, [String; 5]) {
    let run = ask(&server.resp, &words(line));
    assert_eq!(run.err, "", "{line}");
    let pairs = run.out.lines().map(|line| line.split_once(' ').expect("a name and a value"));
    let (names, values): (Vec<_>, Vec<_>) =
        pairs.map(|(name, value)| (name, value.trim_start().to_owned())).unzip();
    assert_eq!(names, ["allowed", "max", "remaining", "retry_after_ms", "reset_after_ms"], "{line}");
    (run.code, values.try_into().expect("five"))
}

/// Runs a request with `--json`. Returns the exit code and the object.
fn object(server: &Running, args: &[&OsStr]) -> (Option<i32>, Value) {
    let run = ask(&server.resp, args);
    assert_eq!((run.err.as_str(), run.out.lines().count()), ("", 1));
    (run.code, serde_json::from_str(&run.out).expect("an object"))
}

/// Whether this is a wait of at most `most_ms`.
fn is_wait(wait_ms: &str, most_ms: u64) -> bool {
    wait_ms.parse().is_ok_and(|wait_ms: u64| (1..=most_ms).contains(&wait_ms))
}

#[test]
fn a_request_is_allowed_until_the_limit_is_reached() {
    let server = serve();
    check(
        &server,
        "limit k 3 1h",
        "allowed         yes\nmax             3\nremaining       2\nretry_after_ms  0\nreset_after_ms  3600000\n",
    );
    let (code, [first @ .., reset_after_ms]) = values(&server, "limit k 3 1h --cost 2");
    assert_eq!((code, first.join(" ").as_str()), (Some(0), "yes 3 0 0"));
    assert!(is_wait(&reset_after_ms, HOUR_MS), "{reset_after_ms}");
    let (code, [first @ .., retry_after_ms, reset_after_ms]) = values(&server, "limit k 3 1h");
    assert_eq!((code, first.join(" ").as_str()), (Some(1), "no 3 0"));
    assert!(is_wait(&retry_after_ms, HOUR_MS) && is_wait(&reset_after_ms, HOUR_MS));
    // Denied requests are not counted, so a wider limit has room.
    check(&server, "hits k --window 1h", "3\n");
    assert_eq!(values(&server, "limit k 4 1h").0, Some(0));
}

#[test]
fn a_peek_counts_nothing() {
    let server = serve();
    for _ in 0..3 {
        let (code, [allowed, ..]) = values(&server, "limit k 1 1h --peek --lockout 1d");
        assert_eq!((code, allowed.as_str()), (Some(0), "yes"));
    }
    check(&server, "hits k", "0\n");
    assert_eq!(values(&server, "limit k 1 1h").0, Some(0));
    for _ in 0..3 {
        let (code, [allowed, _, _, retry_after_ms, _]) = values(&server, "limit k 1 1h --peek --lockout 1d");
        assert_eq!((code, allowed.as_str()), (Some(1), "no"));
        assert!(is_wait(&retry_after_ms, HOUR_MS), "it was locked out: {retry_after_ms}");
    }
}

#[test]
fn a_lockout_denies_requests_within_the_limit() {
    let server = serve();
    assert_eq!(values(&server, "limit k 1 1h --lockout 1d").0, Some(0));
    let (code, [.., retry_after_ms, reset_after_ms]) = values(&server, "limit k 1 1h --lockout 1d");
    assert_eq!((code, retry_after_ms.as_str(), reset_after_ms.as_str()), (Some(1), "86400000", "86400000"));
    let (code, [allowed, _, _, retry_after_ms, _]) = values(&server, "limit k 100 1h");
    assert_eq!((code, allowed.as_str()), (Some(1), "no"));
    assert!(
        !is_wait(&retry_after_ms, 23 * HOUR_MS) && is_wait(&retry_after_ms, 24 * HOUR_MS),
        "{retry_after_ms}"
    );
}

#[test]
fn objects_for_programs() {
    let server = serve();
    let key = OsStr::from_bytes(b"\xff\xfe k");
    let with = |line: &'static str| -> Vec<&OsStr> { words(line).into_iter().chain([key]).collect() };
    let mut expected = json!({ "key": "k", "allowed": true, "max": 10, "remaining": 9, "retry_after_ms": 0, "reset_after_ms": 60_000 });
    assert_eq!(object(&server, &words("limit k 10 1m --json")), (Some(0), expected.clone()));
    let run = ask(&server.resp, &words("limit another 10 60 --json"));
    let text = r#"{"key":"another","allowed":true,"max":10,"remaining":9,"retry_after_ms":0,"reset_after_ms":60000}"#;
    assert_eq!(run.out, format!("{text}\n"));
    expected = json!({ "key": "costly", "allowed": false, "max": 3, "remaining": 3, "retry_after_ms": null, "reset_after_ms": 0 });
    assert_eq!(object(&server, &words("limit costly 3 1m --cost 4 --json")), (Some(1), expected));
    let never = "allowed         no\nmax             3\nremaining       3\nretry_after_ms  never\nreset_after_ms  0\n";
    let run = ask(&server.resp, &words("limit costly 3 1m --cost 4"));
    assert_eq!((run.out.as_str(), run.code), (never, Some(1)));
    let mut args = with("limit --json --");
    args.extend(words("1 250ms"));
    let (code, found) = object(&server, &args);
    assert_eq!(
        (code, &found["key_b64"], &found["reset_after_ms"]),
        (Some(0), &json!("//4gaw=="), &json!(250))
    );
}

#[test]
fn refusals_quote_the_server() {
    let server = serve();
    let (resp, hint) = (&server.resp, "the server refused it and changed nothing");
    let retained =
        "ERR invalid window 30d: hits of this key are kept for 7d (`retain`), a limit can ask for no more";
    check_refused(resp, "limit k 5 30d", &format!("{resp}: {retained}"), hint);
    // Only the server knows the names of its limits.
    check_refused(resp, "limit k @nobody", &format!("{resp}: ERR "), hint);
    check(&server, "hits k", "0\n");
}

#[test]
fn an_http_port_given_for_resp_is_reported() {
    let server = serve();
    let hint = "give the address that lately serve names for RESP; with TLS, add --tls or --cacert FILE";
    let error = format!("{}: what listens there does not speak RESP", server.http);
    check_refused(&server.http, "limit k 5 1m", &error, hint);
}

#[test]
fn mistakes_are_found_before_connecting() {
    let nowhere = "127.0.0.1:1";
    let running = "is the server running there? lately serve starts one";
    // Without a port, the client would connect to a Redis on that host.
    for bad in ["127.0.0.1", "localhost", "127.0.0.1:", "127.0.0.1:65536", "[::1]"] {
        let error = format!("--server: invalid address '{bad}'");
        check_refused(bad, "limit k 5 1m", &error, "give HOST:PORT, such as 127.0.0.1:7379");
    }
    let error = "--server: invalid address ''";
    check_refused(nowhere, "limit k 5 1m --server=", error, "give HOST:PORT, such as 127.0.0.1:7379");
    check_refused(nowhere, "limit k 5 1m", "127.0.0.1:1: Connection refused", running);
    check_refused(nowhere, "limit k @login", "127.0.0.1:1: Connection refused", running);
    let window = "give KEY MAX WINDOW, such as user:42 100 1m";
    check_refused(nowhere, "limit k 5", "limit: a max of 5 needs a window", window);
    check_refused(nowhere, "limit k @login 1m", "limit: @login has a window of its own", "give KEY @login");
    let see = "see lately limit --help";
    let rule = "give a whole number of hits, such as 100, or the name of a limit, such as @login";
    for bad in ["many", "-1", "1.5", "@"] {
        let error = format!("command line: invalid value '{bad}' for '<MAX|@NAME>': {rule}");
        check_refused(nowhere, &format!("limit k {bad} 1m"), &error, see);
    }
    check_refused(nowhere, "limit k 5 0", "command line: [WINDOW]: invalid duration '0'", see);
    check_refused(nowhere, "limit k 5 1m --cost x", "command line: invalid value 'x' for '--cost <N>'", see);
    check_refused(
        nowhere,
        "limit k 5 1m --lockout 0",
        "command line: --lockout <D>: invalid duration '0'",
        see,
    );
    assert_eq!(ask(nowhere, &words("limit k")).code, Some(2));
}
