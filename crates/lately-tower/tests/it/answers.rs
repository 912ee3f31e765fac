//! What answers say.

use lately::{milliseconds, minutes};
use lately_tower::{Limits, by_client_address};

use crate::common::{build, serve};

#[tokio::test]
async fn a_denial_is_a_problem_document() {
    let limits = build(Limits::builder().limit("ip", by_client_address(), 1, minutes(1)));
    let web = serve(&limits).await;
    assert_eq!(web.get("").await.status(), 200);
    let denied = web.get("").await;
    assert_eq!((denied.status(), denied.header("retry-after").as_str()), (429, "60"));
    assert_eq!(denied.header("content-type"), "application/problem+json");
    assert_eq!(denied.header("content-length"), denied.body.len().to_string());
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "quota exceeded",
        "status": 429,
        "detail": "the limit is reached: retry after 1m",
        "violated-policies": ["ip"],
    });
    assert_eq!(denied.json(), expected);
}

#[tokio::test]
async fn a_client_waits_for_the_slowest_limit_that_denies() {
    let ip = || by_client_address();
    let limits = build(
        Limits::builder().limit("a", ip(), 1, milliseconds(1_500)).limit("b", ip(), 1, minutes(2)).limit(
            "c",
            ip(),
            2,
            minutes(5),
        ),
    );
    let web = serve(&limits).await;
    assert_eq!(web.get("").await.status(), 200);
    let denied = web.get("").await;
    assert_eq!(denied.header("retry-after"), "120");
    // A window that is no whole number of seconds has no `w`.
    assert_eq!(denied.header("ratelimit-policy"), "\"a\";q=1, \"b\";q=1;w=120, \"c\";q=2;w=300");
    assert_eq!(denied.header("ratelimit"), "\"a\";r=0;t=2, \"b\";r=0;t=120, \"c\";r=1;t=300");
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["a", "b"]));
}

#[tokio::test]
async fn a_limit_of_nothing_has_no_time_to_retry() {
    let limits = build(Limits::builder().limit("ip", by_client_address(), 0, minutes(1)));
    let denied = serve(&limits).await.get("").await;
    assert_eq!((denied.status(), denied.header("retry-after").as_str()), (429, ""));
    assert_eq!(denied.json()["detail"], "the limit allows no requests");
}

#[tokio::test]
async fn headers_can_be_left_out() {
    let limits = build(Limits::builder().limit("ip", by_client_address(), 1, minutes(1)).without_headers());
    let web = serve(&limits).await;
    assert_eq!(web.get("").await.about_limits(), (200, String::new(), String::new(), String::new()));
    assert_eq!(web.get("").await.about_limits(), (429, String::new(), String::new(), "60".to_owned()));
}

#[tokio::test]
async fn a_client_of_grpc_gets_a_status_of_grpc() {
    let limits = build(Limits::builder().limit("ip", by_client_address(), 1, minutes(1)));
    let web = serve(&limits).await;
    assert_eq!(web.get("content-type: application/grpc+proto").await.header("grpc-status"), "");
    let denied = web.get("content-type: application/grpc+proto").await;
    assert_eq!((denied.status(), denied.header("grpc-status").as_str()), (200, "8"));
    assert_eq!(denied.header("grpc-message"), "the limit is reached: retry after 1m");
    assert_eq!((denied.header("content-type").as_str(), denied.body.as_str()), ("application/grpc", ""));
}
