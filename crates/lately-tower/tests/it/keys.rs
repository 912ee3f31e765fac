//! Keys from headers, extensions and closures.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use lately::minutes;
use lately_tower::{BuildError, Key, Limits, by, by_async, by_client_address, by_extension, by_header};

use crate::common::{Web, build, serve};

#[derive(Clone)]
struct User {
    id: u64,
}

/// Statuses of requests with these headers, when each key has one request.
async fn check(key: Key, headers: &[&str], expected: &[u16]) {
    let limits = build(Limits::builder().limit("it", key, 1, minutes(1)));
    // What an outer layer knows of the user.
    let with_user = from_fn(async |mut request: Request, next: Next| {
        if let Some(id) = request.headers().get("x-user").and_then(|id| id.to_str().ok()?.parse().ok()) {
            request.extensions_mut().insert(User { id });
        }
        next.run(request).await
    });
    let app = Router::new().route("/", get(|| async { "hello" })).layer(limits.layer()).layer(with_user);
    assert_eq!(Web::start(app).await.statuses(headers).await, expected, "{headers:?}");
}

#[tokio::test]
async fn each_kind_of_key_tells_requests_apart() {
    check(by_header("X-API-Key"), &["x-api-key: a", "x-api-key: b", "x-api-key: a"], &[200, 200, 429]).await;
    // A second value is no new key.
    check(by_header("x-api-key"), &["x-api-key: a\nx-api-key: 1", "x-api-key: a\nx-api-key: 2"], &[200, 429])
        .await;
    let user = || by_extension(|user: &User| user.id.to_string());
    check(user(), &["x-user: 1", "x-user: 2", "x-user: 1"], &[200, 200, 429]).await;
    let agent = |parts: &http::request::Parts| Some(parts.headers.get("user-agent")?.as_bytes().to_vec());
    check(by(agent), &["user-agent: a", "user-agent: b", "user-agent: a"], &[200, 200, 429]).await;
    let later = move |parts: &http::request::Parts| {
        let agent = agent(parts);
        async move {
            tokio::task::yield_now().await;
            agent
        }
    };
    check(by_async(later), &["user-agent: a", "user-agent: b", "user-agent: a"], &[200, 200, 429]).await;
}

#[tokio::test]
async fn a_request_without_a_key_is_not_limited_but_by_another() {
    check(by_header("x-api-key"), &["", ""], &[200, 200]).await;
    check(by_extension(|user: &User| user.id.to_string()), &["", ""], &[200, 200]).await;
    let or = || by_header("x-api-key").or(by_client_address());
    check(or(), &["x-api-key: a", "", "", "x-api-key: a"], &[200, 200, 429, 429]).await;
    // A client cannot use up the limit of an address by writing it into the header.
    check(or(), &["x-api-key: 127.0.0.1", "", "x-api-key: 2:127.0.0.1"], &[200, 200, 200]).await;
}

#[tokio::test]
async fn a_response_without_limits_has_no_headers() {
    let limits = build(Limits::builder().limit("key", by_header("x-api-key"), 1, minutes(1)));
    let web = serve(&limits).await;
    assert_eq!(web.get("").await.about_limits(), (200, String::new(), String::new(), String::new()));
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let check = |builder: lately_tower::LimitsBuilder, expected: &str| {
        let error: BuildError = builder.build().expect_err(expected);
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    let with = |name: &str| Limits::builder().limit(name, by_client_address(), 1, minutes(1));
    check(Limits::builder(), "there is no limit");
    check(with(""), "invalid name of a limit ''");
    check(with("a\"b"), "invalid name of a limit 'a\"b'");
    check(with("a:b"), "invalid name of a limit 'a:b'");
    check(with("*"), "invalid name of a limit '*'");
    check(with("a").shadow("a", by_client_address(), 2, minutes(1)), "two limits are named 'a'");
    let header = Limits::builder().limit("a", by_client_address().or(by_header("x y")), 1, minutes(1));
    check(header, "invalid name of a header 'x y'");
    check(with("a").trusted_proxies(["10.0.0.0/33"]), "trusted_proxies: invalid network '10.0.0.0/33'");
    check(with("a").prefix(33, 64), "invalid prefix of 33 bits of IPv4 and 64 of IPv6");
}
