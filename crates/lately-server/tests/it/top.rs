//! The keys with the most hits: RESP, HTTP and gRPC give the same answers and errors for one table of questions.

use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::common::{NOW_S, Running};
use crate::grpc::messages::lately::v1::{TopRequest, TopResponse};
use crate::grpc::{ask, client};
use crate::interfaces::{Http, resp};

const TOP: &str = "/lately.v1.Lately/Top";

/// The answer over gRPC, in the form of RESP.
fn rows(answer: &TopResponse) -> Value {
    let upper = |upper: Option<u64>| upper.map_or(json!(-1), |upper| json!(upper));
    let row = |row: &crate::grpc::messages::lately::v1::top_response::Row| {
        json!([String::from_utf8_lossy(&row.key), row.hits, row.lower, upper(row.upper)])
    };
    answer.rows.iter().map(row).chain([upper(answer.others_upper)]).collect()
}

/// The answer over HTTP, in the form of RESP.
fn rows_of_http(body: &Value) -> Value {
    let upper = |upper: &Value| if upper.is_null() { json!(-1) } else { upper.clone() };
    let row = |row: &Value| json!([row["key"], row["hits"], row["lower"], upper(&row["upper"])]);
    let keys = body["keys"].as_array().expect("an array");
    keys.iter().map(row).chain([upper(&body["others_upper"])]).collect()
}

fn grpc(server: &Running, asked: TopRequest) -> Result<TopResponse, Status> {
    server.block_on(async { ask(&mut client(server).await, TOP, asked).await })
}

#[test]
fn top_is_the_same_by_resp_http_and_grpc() {
    let server = Running::start();
    let (mut wire, mut http) = (server.connect(), Http::connect(&server));
    for n in 0..40 {
        resp(&mut wire, &format!("HIT page:{n} {}", 1 + n * 7 % 13)).expect("a number");
        resp(&mut wire, &format!("HIT page:{n} {} AT {}", 1 + n * 5 % 11, NOW_S - 100)).expect("a number");
        resp(&mut wire, &format!("HIT old:{n} 2 AT {}", NOW_S - 3_590)).expect("a number");
    }
    for (k, window, prefix) in [
        (Some(3), Some("1m"), None),
        (Some(0), None, None),
        (None, None, None),
        (Some(100), Some("5m"), Some("page:1")),
        (Some(100), Some("1h"), None),
        (Some(100), Some("3595"), Some("old:")),
        (Some(5), Some("30d"), None),
        (Some(5), Some("1s"), Some("none")),
        (Some(10_000), Some("7d"), None),
    ] {
        let mut command = format!("TOP {}", k.unwrap_or(10));
        let mut query = Vec::new();
        if let Some(k) = k {
            query.push(format!("k={k}"));
        }
        if let Some(window) = window {
            command += &format!(" {window}");
            query.push(format!("window={window}"));
        }
        if let Some(prefix) = prefix {
            command += &format!(" PREFIX {prefix}");
            query.push(format!("prefix={}", prefix.replace(':', "%3A")));
        }
        let replied = resp(&mut wire, &format!("{command} BOUNDS")).expect("an array");
        let (status, body) = http.ask(&format!("GET /v1/top?{}", query.join("&")));
        assert_eq!((status, rows_of_http(&body)), (200, replied.clone()), "{command}");
        let window_ms = window.map(|window| window.parse::<lately::Span>().expect("a span").as_millis());
        let prefix = prefix.unwrap_or_default().into();
        let answer = grpc(&server, TopRequest { k, window_ms, prefix }).expect("answered");
        assert_eq!(rows(&answer), replied, "{command}");
        assert_eq!(body["as_of"], json!(NOW_S));
        assert_eq!(answer.as_of_ms.unsigned_abs(), NOW_S * 1_000);
        // Each key as the other commands have it.
        let keys = body["keys"].as_array().expect("an array");
        let without_bounds: Value = keys.iter().map(|row| json!([row["key"], row["hits"]])).collect();
        assert_eq!(resp(&mut wire, &command), Ok(without_bounds), "{command}");
        for (row, of_grpc) in keys.iter().zip(&answer.rows) {
            let key = row["key"].as_str().expect("text");
            let (_, hits) = http.ask(&format!("GET /v1/hits/{key}?window={}", window.unwrap_or("5m")));
            let mut same = row.clone();
            same.as_object_mut().expect("an object").remove("key");
            assert_eq!(same, hits["windows"][0], "{command} {key}");
            let span = row["window"].as_str().expect("text").parse::<lately::Span>().expect("a span");
            assert_eq!(of_grpc.window_ms, span.as_millis());
            let rate = row["rate"].as_f64().expect("a number");
            assert!((of_grpc.rate - rate).abs() <= rate * 1e-12, "{} {rate}", of_grpc.rate);
        }
    }
}

#[test]
fn an_error_about_top_names_the_value() {
    let server = Running::start();
    let (mut wire, mut http) = (server.connect(), Http::connect(&server));
    let long = "p".repeat(1_025);
    let how_many = |k: &str| format!("invalid k '{k}': give how many keys are wanted, 0 to 10000");
    for (query, command, expected) in [
        ("k=ten", "TOP ten", how_many("ten")),
        ("k=10001", "TOP 10001", how_many("10001")),
        ("k=-1", "TOP -1", how_many("-1")),
        ("window=5x", "TOP 1 5x", "invalid duration '5x': ".to_owned()),
        ("prefix=", "TOP 1 PREFIX \"\"", "invalid prefix '': give 1 to 1024 bytes".to_owned()),
        (
            &format!("prefix={long}"),
            &format!("TOP 1 PREFIX {long}"),
            format!("invalid prefix '{}", &long[..128]),
        ),
    ] {
        let (status, body) = http.ask(&format!("GET /v1/top?{query}"));
        let detail = body["detail"].as_str().expect("a text");
        assert!(status == 400 && detail.contains(&expected), "{query:.40}: {status} {detail}");
        let replied = resp(&mut wire, command).expect_err("an error");
        assert!(replied.starts_with("ERR ") && replied.contains(&expected), "{command:.40}: {replied}");
    }
    let (status, body) = http.ask("GET /v1/top?limit=5");
    assert_eq!(
        (status, &body["detail"]),
        (400, &json!("unknown parameter 'limit': this path takes k, window and prefix"))
    );
    let refused = |asked: TopRequest, expected: &str| {
        let status = grpc(&server, asked).expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().starts_with(expected), "{status}");
    };
    let asked = TopRequest::default;
    refused(TopRequest { k: Some(10_001), ..asked() }, "invalid k 10001: give how many keys");
    refused(TopRequest { window_ms: Some(0), ..asked() }, "invalid duration 0: give");
    refused(TopRequest { prefix: long.into(), ..asked() }, "invalid prefix of 1025 bytes: give");
}
