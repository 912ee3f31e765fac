//! Several limits of one service.

use axum::Router;
use axum::routing::get;
use lately::{days, milliseconds, minutes, seconds};
use lately_tower::{Limits, by_client_address, by_header};

use crate::common::{Web, build, build_at, serve, standing_clock};

fn about(status: u16, policy: &str, left: &str, retry: &str) -> (u16, String, String, String) {
    (status, policy.to_owned(), left.to_owned(), retry.to_owned())
}

#[tokio::test]
async fn limits_of_a_service_count_all_or_nothing() {
    let limits = build(Limits::builder().limit("ip", by_client_address(), 3, minutes(1)).limit(
        "key",
        by_header("x-api-key"),
        1,
        days(1),
    ));
    let web = serve(&limits).await;
    let both = "\"ip\";q=3;w=60, \"key\";q=1;w=86400";
    let first = web.get("x-api-key: a").await;
    assert_eq!(first.about_limits(), about(200, both, "\"ip\";r=2;t=60, \"key\";r=0;t=86400", ""));
    assert_eq!(first.body, "hello");
    // The key denies it, so the address is not charged.
    for _ in 0..3 {
        let denied = web.get("x-api-key: a").await.about_limits();
        assert_eq!(denied, about(429, both, "\"ip\";r=2;t=60, \"key\";r=0;t=86400", "86400"));
    }
    // Without the header only the address counts.
    let without = web.get("").await.about_limits();
    assert_eq!(without, about(200, "\"ip\";q=3;w=60", "\"ip\";r=1;t=60", ""));
    assert_eq!(web.statuses(&["x-api-key: b", "x-api-key: c", ""]).await, [200, 429, 429]);
    assert_eq!(limits.denials().collect::<Vec<_>>(), [("ip", 2), ("key", 3)]);
}

#[tokio::test]
async fn a_window_slides() {
    let clock = standing_clock();
    let limits = build_at(Limits::builder().limit("ip", by_client_address(), 2, minutes(1)), &clock);
    let web = serve(&limits).await;
    assert_eq!(web.get("").await.status(), 200);
    clock.advance(seconds(30));
    assert_eq!(web.statuses(&["", ""]).await, [200, 429]);
    // The first has left the window, the second has not.
    clock.advance(seconds(30));
    assert_eq!(web.statuses(&["", ""]).await, [200, 429]);
    clock.advance(milliseconds(29_001));
    let denied = web.get("").await;
    assert_eq!((denied.status(), denied.header("retry-after").as_str()), (429, "1"));
}

#[tokio::test]
async fn layers_of_routes_and_routers_stack() {
    let outer = build(Limits::builder().limit("all", by_client_address(), 5, minutes(1)));
    let inner = build(Limits::builder().limit("login", by_client_address(), 1, minutes(1)));
    let app = Router::new()
        .route("/login", get(|| async { "in" }).layer(inner.layer()))
        .route("/", get(|| async { "hello" }))
        .layer(outer.layer());
    let web = Web::start(app).await;
    let first = web.get_path("/login", "").await;
    assert_eq!(
        (first.status(), first.header("ratelimit").as_str()),
        (200, "\"login\";r=0;t=60 + \"all\";r=4;t=60")
    );
    assert_eq!(web.get_path("/login", "").await.status(), 429);
    // What the inner layer denied has passed the outer one.
    assert_eq!(web.get("").await.header("ratelimit"), "\"all\";r=2;t=60");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_share_a_limit() {
    let limits = build(Limits::builder().limit("ip", by_client_address(), 20, minutes(1)));
    let web = serve(&limits).await;
    let clients: Vec<_> = (0..50).map(|_| tokio::spawn(async move { web.get("").await.status() })).collect();
    let mut allowed = 0;
    for client in clients {
        allowed += usize::from(client.await.expect("it ends") == 200);
    }
    assert_eq!(allowed, 20);
    assert_eq!(limits.denials().collect::<Vec<_>>(), [("ip", 30)]);
}
