//! RESP, HTTP and the library give the same answers and errors for one table of requests.

use lately::{
    HitError, LimitError, Pattern, Request, Retry, Settings, Store, Timestamp, hours, milliseconds, seconds,
};
use lately_journal::Durability;
use lately_server::{Config, Storage};
use serde_json::{Value, json};

use crate::common::{NOW_S, Running, Wire, config, standing_clock};

/// An HTTP client with one connection for all its requests.
pub(crate) struct Http(Wire);

impl Http {
    pub(crate) fn connect(server: &Running) -> Http {
        Http(Wire::connect(server.http))
    }

    /// Sends a request. Returns the status and body of the answer.
    pub(crate) fn ask(&mut self, request: &str) -> (u16, Value) {
        self.0.send(format!("{request} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let status = self.0.line();
        let mut length = 0;
        loop {
            let line = self.0.line().to_lowercase();
            if line.is_empty() {
                break;
            }
            assert_ne!(line, "connection: close", "{request}");
            if let Some(bytes) = line.strip_prefix("content-length: ") {
                length = bytes.parse().expect("a number");
            }
        }
        let body = serde_json::from_slice(&self.0.take(length)).expect("an object");
        (status[9..12].parse().expect("a status"), body)
    }
}

fn classes() -> Vec<(Pattern, Settings)> {
    let fine = Settings::builder().resolution(milliseconds(100)).window(seconds(10)).retain(hours(1));
    vec![(Pattern::new(b"fine:*"), fine.build().expect("valid"))]
}

fn now() -> Timestamp {
    Timestamp::from_seconds(NOW_S).expect("a time")
}

/// The reply of RESP: integers, texts and arrays, or an error, without the first character.
pub(crate) fn resp(wire: &mut Wire, command: &str) -> Result<Value, String> {
    wire.send(format!("{command}\r\n"));
    reply(wire)
}

fn reply(wire: &mut Wire) -> Result<Value, String> {
    let line = wire.line();
    match line.split_at(1) {
        (":", integer) => Ok(json!(integer.parse::<i64>().expect("a number"))),
        ("$", "-1") => Ok(Value::Null),
        ("$", _) => Ok(json!(wire.line())),
        ("-", error) => Err(error.to_owned()),
        ("*", len) => (0..len.parse().expect("a length")).map(|_| reply(wire)).collect(),
        _ => panic!("{line}"),
    }
}

/// Each hit, written as `key count at`, is sent over RESP and HTTP and counted in a store.
#[test]
fn hits_are_answered_the_same_by_resp_http_and_library() {
    let servers =
        [(); 2].map(|()| Running::with(Config { classes: classes(), ..config() }, standing_clock()));
    let (mut wire, mut http) = (servers[0].connect(), Http::connect(&servers[1]));
    let builder =
        classes().into_iter().fold(Store::builder(), |it, (pattern, settings)| it.class(pattern, settings));
    let store = builder.build().expect("valid");
    let long = "k".repeat(1_025);
    let table = [
        ("user:42", None, None),
        ("user:42", Some(3), None),
        ("user:42", Some(0), None),
        ("fine:a", Some(2), Some(format!("{}.25", NOW_S - 5))),
        ("fine:a", None, Some(format!("{}", NOW_S - 4_000))),
        ("user:42", None, Some(format!("{}", NOW_S + 11))),
        ("user:42", None, Some("1".to_owned())),
        ("full", Some(i64::MAX as u64), None),
        ("full", Some(1), None),
        (&long, None, None),
        ("a/b c%", Some(1), None),
    ];
    for (key, count, at) in &table {
        let mut command = format!("HIT \"{key}\"");
        let mut query: Vec<String> = Vec::new();
        if let Some(count) = count {
            command += &format!(" {count}");
            query.push(format!("n={count}"));
        }
        if let Some(at) = at {
            command += &format!(" AT {at}");
            query.push(format!("at={at}"));
        }
        let escaped = key.replace('%', "%25").replace(' ', "%20");
        let (status, body) = http.ask(&format!("POST /v1/hit/{escaped}?{}", query.join("&")));
        let time = at.as_ref().map(|at| at.parse().expect("a time"));
        let wanted = store.hit_n(key.as_bytes(), count.unwrap_or(1), time, now());
        let replied = resp(&mut wire, &command);
        match wanted {
            Ok(hits) => {
                assert_eq!(replied, Ok(json!(hits)), "{command}");
                assert_eq!((status, body), (200, json!({"key": key, "hits": hits})), "{command}");
            }
            Err(error) => {
                let (code, status_of) = match error {
                    HitError::KeyLength { .. } => ("ERR", 400),
                    HitError::Late { .. } => ("LATE", 422),
                    HitError::Future { .. } => ("FUTURE", 422),
                    _ => ("ERR", 422),
                };
                let replied = replied.expect_err("an error");
                assert!(replied.starts_with(&format!("{code} {error}")), "{replied}");
                assert_eq!((status, &body["title"]), (status_of, &json!(code)), "{command}");
                assert_eq!(body["detail"], json!(error.to_string()), "{command}");
            }
        }
    }
    for key in ["user:42", "fine:a", "full", "a/b c%", "none"] {
        let escaped = key.replace('%', "%25").replace(' ', "%20");
        for (window, at) in [("5m", NOW_S), ("1s", NOW_S - 5), ("7d", NOW_S), ("30d", NOW_S)] {
            let time = Timestamp::from_seconds(at).expect("a time");
            let span = window.parse().expect("a span");
            let wanted = store.hits_at(key.as_bytes(), span, time, now());
            let bounds = [
                Some(wanted.estimate),
                Some(wanted.lower),
                wanted.upper,
                Some(wanted.cell.as_millis().cast_unsigned()),
            ];
            let bounds: Value = bounds.iter().map(|it| it.map_or(json!(-1), |it| json!(it))).collect();
            assert_eq!(
                resp(&mut wire, &format!("HITS \"{key}\" {window} BOUNDS AT {at}")),
                Ok(bounds),
                "{key}"
            );
            let (status, body) = http.ask(&format!("GET /v1/hits/{escaped}?window={window}&at={at}"));
            let answer = &body["windows"][0];
            assert_eq!((status, &body["key"], &body["as_of"]), (200, &json!(key), &json!(at)));
            assert_eq!(answer["hits"], json!(wanted.estimate), "{key} {window}");
            assert_eq!(answer["lower"], json!(wanted.lower));
            assert_eq!(answer["upper"], wanted.upper.map_or(Value::Null, |upper| json!(upper)));
            assert_eq!((&body["staleness_ms"], &answer["origins"]), (&json!(0), &Value::Null));
            let staleness = resp(&mut wire, &format!("HITS \"{key}\" {window} STALENESS AT {at}"));
            assert_eq!(staleness, Ok(json!([wanted.estimate, 0])), "{key} {window}");
            // A server that counts alone is one origin.
            let (resp_rows, http_rows) = match wanted.estimate {
                0 => (json!([]), json!([])),
                hits => (json!([["local", hits]]), json!([{"origin": "local", "hits": hits}])),
            };
            let rows = resp(&mut wire, &format!("HITS \"{key}\" {window} BY ORIGIN AT {at}"));
            assert_eq!(rows, Ok(resp_rows), "{key} {window}");
            let (_, body) = http.ask(&format!("GET /v1/hits/{escaped}?window={window}&at={at}&origins=true"));
            let with_origins = &body["windows"][0];
            assert_eq!(with_origins["origins"], http_rows, "{key} {window}");
            for field in ["hits", "lower", "upper", "rate"] {
                assert_eq!(with_origins[field], answer[field], "{key} {window} {field}");
            }
        }
    }
}

/// Overdrafts, refunds and lockouts that grow are decided over RESP, over HTTP and by a store.
#[test]
fn overdrafts_refunds_and_growing_lockouts_are_the_same_by_resp_http_and_library() {
    let servers = [(); 2].map(|()| Running::with(config(), standing_clock()));
    let (mut wire, mut http) = (servers[0].connect(), Http::connect(&servers[1]));
    let store = Store::builder().build().expect("valid");
    let growing = |first: &str| {
        let factor = lately::Factor::new(1.5).expect("a factor");
        lately::Lockout::growing(first.parse().expect("a span"), factor, Some(lately::hours(9)))
            .expect("it fits")
    };
    // Key, max, cost, whether it is an overdraft, the first lockout.
    let table = [
        ("a", 5, 4, true, None),
        ("a", 5, 700, true, None),
        ("a", 5, 0, true, None),
        ("a", 5, -1, true, None),
        ("a", 5, -702, false, None),
        ("a", 5, -9, true, None),
        ("b", 0, 1, false, Some("1h")),
        ("b", 0, 1, true, Some("1h")),
        ("b", 0, -1, false, None),
    ];
    for (key, max, cost, is_overdraft, lockout) in table {
        let mut command = format!("LIMIT {key} {max} 1m COST {cost}");
        let mut target =
            format!("POST /v1/limit/{key}?max={max}&window=1m&cost={cost}&overdraft={is_overdraft}");
        command += if is_overdraft { " OVERDRAFT" } else { "" };
        if let Some(lockout) = lockout {
            command += &format!(" LOCKOUT {lockout} FACTOR 1.5 MAX 9h");
            target += &format!("&lockout={lockout}&lockout_factor=1.5&lockout_max=9h");
        }
        let admission = if is_overdraft { lately::Admission::Overdraft } else { lately::Admission::Whole };
        let request = Request::new(key.as_bytes(), max, lately::minutes(1), i64::unsigned_abs(cost));
        let request = Request { admission, lockout: lockout.map(growing), ..request };
        let decided = if cost < 0 { store.refund(request, now()) } else { store.decide(request, now()) };
        let decision = decided.expect("decided");
        let (status, body) = http.ask(&target);
        let found = ["allowed", "remaining"].map(|field| body[field].clone());
        assert_eq!(found, [json!(decision.is_allowed()), json!(decision.remaining)], "{command}");
        assert_eq!(status, if decision.is_allowed() { 200 } else { 429 }, "{command}");
        let reset_ms = decision.reset_after.map_or(0, lately::Span::as_millis);
        assert_eq!(body["reset_after_ms"], json!(reset_ms), "{command}");
        let five = resp(&mut wire, &command).expect("decided");
        let [allowed, remaining] = [json!(i32::from(decision.is_allowed())), json!(decision.remaining)];
        assert_eq!([&five[0], &five[2], &five[4]], [&allowed, &remaining, &json!(reset_ms)], "{command}");
    }
    let mut refused = |query: &str, expected: &str| {
        let (status, body) = http.ask(&format!("POST /v1/limit/a?{query}"));
        let detail = body["detail"].as_str().expect("a text");
        assert!(status == 400 && detail.starts_with(expected), "{query}: {status} {detail}");
    };
    refused(
        "max=1&window=1m&cost=-x",
        "invalid cost '-x': cost is a whole number from 0 to 9223372036854775807, or",
    );
    refused("max=1&window=1m&overdraft=1", "invalid overdraft '1': give true or false");
    refused("max=1&window=1m&lockout_factor=2", "lockout_factor goes with lockout, which is missing");
    refused(
        "max=1&window=1m&lockout=1m&lockout_factor=0.5",
        "lockout_factor: invalid factor '0.5': give a number",
    );
    refused(
        "max=1&window=1m&lockout=1m&lockout_max=1s",
        "the longest lockout, 1s, is shorter than the first, 1m",
    );
    refused("limit=x&overdraft=true", "limit takes max, window, lockout and overdraft from the config");
}

/// Each request of a limit is decided over RESP, over HTTP and by a store.
#[test]
fn limits_are_decided_the_same_by_resp_http_and_library() {
    let servers =
        [(); 2].map(|()| Running::with(Config { classes: classes(), ..config() }, standing_clock()));
    let (mut wire, mut http) = (servers[0].connect(), Http::connect(&servers[1]));
    let builder =
        classes().into_iter().fold(Store::builder(), |it, (pattern, settings)| it.class(pattern, settings));
    let store = builder.build().expect("valid");
    let past = (NOW_S - 20).to_string();
    let past = Some(past.as_str());
    let table = [
        // Key, max, window, cost, whether to peek, lockout, time.
        ("a", 3, "1m", 1, false, None, None),
        ("a", 3, "1m", 2, true, None, None),
        ("a", 3, "1m", 0, false, None, None),
        ("a", 3, "1m", 2, false, None, past),
        ("a", 3, "1m", 1, false, None, None),
        ("a", 3, "1m", 4, false, None, None),
        ("a", 9, "250ms", 1, false, None, None),
        ("fine:b", 0, "10s", 1, true, Some("1h"), None),
        ("fine:b", 0, "10s", 1, false, Some("1h"), None),
        ("fine:b", 5, "10s", 1, false, None, None),
        ("fine:b", 5, "2h", 1, false, None, None),
        ("a", 5, "1m", 1, false, None, Some("1")),
    ];
    for (key, max, window, cost, is_peek, lockout, at) in table {
        let mut command = format!("LIMIT {key} {max} {window} COST {cost}");
        let mut target = format!("POST /v1/limit/{key}?max={max}&window={window}&cost={cost}&peek={is_peek}");
        command += if is_peek { " PEEK" } else { "" };
        for (word, name, value) in [("LOCKOUT", "lockout", lockout), ("AT", "at", at)] {
            if let Some(value) = value {
                command += &format!(" {word} {value}");
                target += &format!("&{name}={value}");
            }
        }
        let request = Request::new(key.as_bytes(), max, window.parse().expect("a span"), cost);
        let request = Request {
            is_peek,
            lockout: lockout.map(|lockout| lately::Lockout::of(lockout.parse().expect("a span"))),
            at: at.map(|at| at.parse().expect("a time")),
            ..request
        };
        let replied = resp(&mut wire, &command);
        let (status, body) = http.ask(&target);
        match store.decide(request, now()) {
            Ok(decision) => {
                let retry_ms = match decision.retry {
                    Retry::Now => 0,
                    Retry::After(wait) => wait.as_millis(),
                    Retry::Never => -1,
                };
                let reset_ms = decision.reset_after.map_or(0, lately::Span::as_millis);
                let five =
                    json!([i32::from(decision.is_allowed()), max, decision.remaining, retry_ms, reset_ms]);
                assert_eq!(replied, Ok(five), "{command}");
                assert_eq!(status, if decision.is_allowed() { 200 } else { 429 }, "{command}");
                let retry_ms = if retry_ms < 0 { Value::Null } else { json!(retry_ms) };
                let fields = ["key", "allowed", "max", "remaining", "retry_after_ms", "reset_after_ms"];
                let found: Vec<_> = fields.iter().map(|field| body[field].clone()).collect();
                let remaining = decision.remaining;
                let expected = json!([key, decision.is_allowed(), max, remaining, retry_ms, reset_ms]);
                assert_eq!(json!(found), expected, "{command}");
            }
            Err(error) => {
                assert!(replied.expect_err("an error").contains(&error.to_string()), "{command}");
                let expected = if matches!(error, LimitError::Hit(_)) { 422 } else { 400 };
                assert_eq!((status, &body["detail"]), (expected, &json!(error.to_string())), "{command}");
            }
        }
    }
}

#[test]
fn series_are_the_same_by_resp_http_and_library() {
    let server = Running::with(Config { classes: classes(), ..config() }, standing_clock());
    let (mut wire, mut http) = (server.connect(), Http::connect(&server));
    let store =
        Store::builder().class(classes()[0].0.clone(), classes()[0].1.clone()).build().expect("valid");
    for (key, at) in [("a", NOW_S), ("a", NOW_S - 61), ("fine:b", NOW_S)] {
        let time = Timestamp::from_seconds(at).expect("a time");
        store.hit_n(key.as_bytes(), 2, Some(time), now()).expect("room");
        resp(&mut wire, &format!("HIT {key} 2 AT {at}")).expect("a number");
    }
    for (key, window, step) in [("a", "5m", "10s"), ("fine:b", "1s", "100ms"), ("none", "1m", "1m")] {
        let [span, step_span] = [window, step].map(|text| text.parse().expect("a span"));
        let points = store.series(key.as_bytes(), span, step_span, None, now()).expect("valid");
        let seconds = |at: Timestamp| match at.as_millis() % 1_000 {
            0 => json!(at.as_millis() / 1_000),
            _ => json!(at.as_millis() as f64 / 1_000.0),
        };
        let expected: Value =
            points.iter().map(|point| json!({"start": seconds(point.start), "hits": point.hits})).collect();
        let (status, body) = http.ask(&format!("GET /v1/series/{key}?window={window}&step={step}"));
        assert_eq!((status, &body["points"]), (200, &expected), "{key}");
        let replied = resp(&mut wire, &format!("SERIES {key} {window} {step}")).expect("a series");
        let hits: Value = points.iter().map(|point| json!(point.hits)).collect();
        let found: Value =
            replied.as_array().expect("an array").iter().map(|point| point[1].clone()).collect();
        assert_eq!(found, hits, "{key}");
    }
    let (_, body) = http.ask("GET /v1/series/a?step=5m");
    assert_eq!((&body["window"], &body["as_of"]), (&json!("5m"), &json!(NOW_S)));
}

#[test]
fn http_connections_are_kept_alive() {
    let server = Running::start();
    let mut http = Http::connect(&server);
    for hits in 1..=50 {
        assert_eq!(http.ask("POST /v1/hit/k"), (200, json!({"key": "k", "hits": hits})));
    }
    let windows = json!([
        {"window": "5m", "hits": 50, "lower": 50, "upper": 50, "rate": 50.0 / 300.0},
        {"window": "10s", "hits": 50, "lower": 50, "upper": 50, "rate": 5.0},
    ]);
    let (status, body) = http.ask("GET /v1/hits/k?window=5m&window=10s");
    assert_eq!(
        (status, body),
        (200, json!({"key": "k", "as_of": NOW_S, "staleness_ms": 0, "windows": windows}))
    );
    let (_, body) = http.ask("GET /v1/hits/%ff%00");
    assert_eq!(body["key_b64"], json!("/wA="));
}

#[test]
fn an_error_over_http_names_the_mistake() {
    let server = Running::start();
    let mut http = Http::connect(&server);
    for (request, detail) in [
        ("POST /v1/hit/k?n=abc", "invalid n 'abc': n is a whole number from 0 to 9223372036854775807"),
        ("POST /v1/hit/k?n=-1", "invalid n '-1': n is a whole number from 0 to 9223372036854775807"),
        ("POST /v1/hit/k?n=1&n=2", "n is given twice"),
        ("POST /v1/hit/k?members=7", "unknown parameter 'members': this path takes n, at, id and member"),
        ("POST /v1/hit/k?at=soon", "at: invalid time 'soon': "),
        ("GET /v1/hits/k?window=5x", "window: invalid duration '5x': "),
        (
            "GET /v1/hits/k?windows=5m",
            "unknown parameter 'windows': this path takes window, which may be given several times, at and origins",
        ),
        ("GET /v1/hits/k?origins=1", "invalid origins '1': give true or false"),
        ("GET /v1/hits/k?origins=true&origins=true", "origins is given twice"),
    ] {
        let (status, body) = http.ask(request);
        assert_eq!(status, 400, "{request}");
        let got = body["detail"].as_str().expect("a text");
        assert!(got.starts_with(detail), "{request}: {got}");
    }
    for (request, expected) in [
        ("GET /v1/hit/k", 405),
        ("POST /v1/hits/k", 405),
        ("POST /v1/hit/", 400),
        ("GET /v1/hits/", 400),
        ("POST /v1/hit/%zz", 400),
        ("POST /v1/hit/%4", 400),
    ] {
        assert_eq!(http.ask(request).0, expected, "{request}");
    }
    server.connect().ask("DBSIZE\r\n", ":0\r\n");
}

/// As over RESP, a hit over HTTP is on the disk before it is answered.
#[test]
fn a_hit_over_http_is_answered_after_its_commit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let storage = Storage { path, durability: Durability::Always, ..Storage::default() };
    let loading = json!({
        "title": "LOADING",
        "status": 503,
        "detail": "the server is loading its counts: try again in a second",
    });
    let start = || Running::with(Config { storage: Some(storage.clone()), ..config() }, standing_clock());
    let server = start();
    let mut http = Http::connect(&server);
    while http.ask("POST /v1/hit/k") == (503, loading.clone()) {}
    for hits in 2..=20 {
        assert_eq!(http.ask("POST /v1/hit/k").1["hits"], json!(hits));
    }
    server.stopper.stop();
    server.ended();
    let server = start();
    let mut http = Http::connect(&server);
    let hits = loop {
        match http.ask("GET /v1/hits/k?window=1h") {
            (503, _) => {}
            (_, body) => break body["windows"][0]["hits"].clone(),
        }
    };
    assert_eq!(hits, json!(20));
}
