//! Whose request it is: addresses of peers and clients.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use lately::minutes;
use lately_tower::{Limits, LimitsBuilder, by_client_address, by_peer_address};

use crate::common::{Web, build, now, serve};

/// Statuses of requests with these values of `X-Forwarded-For`, each alone, when each client has one request.
async fn check(builder: LimitsBuilder, forwarded: &[&str], expected: &[u16]) {
    let limits = build(builder.limit("ip", by_client_address(), 1, minutes(1)));
    let web = serve(&limits).await;
    let headers: Vec<_> = forwarded.iter().map(|value| format!("x-forwarded-for: {value}")).collect();
    let headers: Vec<_> = headers.iter().map(String::as_str).collect();
    assert_eq!(web.statuses(&headers).await, expected, "{forwarded:?}");
}

#[tokio::test]
async fn a_forged_forwarded_header_changes_nothing() {
    // No proxy is trusted: the peer is the client.
    check(Limits::builder(), &["198.51.100.1", "198.51.100.2"], &[200, 429]).await;
    let elsewhere = || Limits::builder().trusted_proxies(["10.0.0.0/8"]);
    check(elsewhere(), &["198.51.100.1", "198.51.100.2"], &[200, 429]).await;
    // The proxy appends the address of its peer to what the client forged.
    let proxy = || Limits::builder().trusted_proxies(["127.0.0.1", "10.0.0.0/8"]);
    check(proxy(), &["1.1.1.1, 198.51.100.1", "2.2.2.2, 198.51.100.1"], &[200, 429]).await;
    check(proxy(), &["198.51.100.1, 10.0.0.7", "198.51.100.1,10.9.9.9"], &[200, 429]).await;
    check(proxy(), &["1.1.1.1\nx-forwarded-for: 198.51.100.1", "198.51.100.1"], &[200, 429]).await;
    // Each client behind the proxy counts on its own.
    check(proxy(), &["198.51.100.1", "198.51.100.2", "198.51.100.1"], &[200, 200, 429]).await;
    // What is no address cannot name another client.
    check(proxy(), &["198.51.100.1, x", "198.51.100.2, y"], &[200, 429]).await;
}

#[tokio::test]
async fn clients_with_ipv6_are_their_networks() {
    let proxy = || Limits::builder().trusted_proxies(["127.0.0.1"]);
    check(proxy(), &["2001:db8::1", "2001:db8::2:3", "2001:db8:0:1::1"], &[200, 429, 200]).await;
    check(proxy(), &["::ffff:192.0.2.1", "192.0.2.1"], &[200, 429]).await;
    check(proxy().prefix(24, 128), &["2001:db8::1", "2001:db8::2"], &[200, 200]).await;
    check(proxy().prefix(24, 128), &["192.0.2.1", "192.0.2.2", "192.0.3.1"], &[200, 429, 200]).await;
}

#[tokio::test]
async fn a_peer_is_the_proxy() {
    let limits = build(
        Limits::builder().limit("proxy", by_peer_address(), 1, minutes(1)).trusted_proxies(["127.0.0.1"]),
    );
    let web = serve(&limits).await;
    let statuses = web.statuses(&["x-forwarded-for: 192.0.2.1", "x-forwarded-for: 192.0.2.2"]).await;
    assert_eq!(statuses, [200, 429]);
    assert_eq!(limits.store().hits(b"proxy:127.0.0.1", minutes(1), now()).estimate, 1);
}

/// A service that does not know its peers says so, at the first request.
#[tokio::test]
async fn a_peer_without_an_address_is_an_error() {
    let unknown = || Limits::builder().peer_by(|_| None);
    let web = serve(&build(unknown().limit("ip", by_client_address(), 1, minutes(1)))).await;
    let answer = web.get("").await;
    assert_eq!(answer.status(), 500);
    let detail = answer.json()["detail"].to_string();
    assert!(detail.contains("into_make_service_with_connect_info"), "{detail}");
    // A shadow refuses nothing.
    let web = serve(&build(unknown().shadow("ip", by_client_address(), 1, minutes(1)))).await;
    assert_eq!(web.statuses(&["", ""]).await, [200, 200]);
}

#[tokio::test]
async fn peers_are_found_elsewhere_too() {
    let peer = SocketAddr::from(([192, 0, 2, 1], 9));
    let limits = build(
        Limits::builder()
            .limit("ip", by_client_address(), 5, minutes(1))
            .peer_by(|parts| parts.headers.get("x-peer")?.to_str().ok()?.parse().ok()),
    );
    assert_eq!(serve(&limits).await.get("x-peer: 192.0.2.9").await.status(), 200);
    assert_eq!(limits.store().hits(b"ip:192.0.2.9", minutes(1), now()).estimate, 1);
    // As tests of axum services have it: there is no connection.
    let limits = build(Limits::builder().limit("ip", by_client_address(), 5, minutes(1)));
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limits.layer())
        .layer(MockConnectInfo(peer));
    assert_eq!(Web::start_without_peers(app).await.get("").await.status(), 200);
    assert_eq!(limits.store().hits(b"ip:192.0.2.1", minutes(1), now()).estimate, 1);
}
