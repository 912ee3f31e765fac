//! Lockouts and exemptions.

use lately::{minutes, seconds};
use lately_tower::{BuildError, Limits, LimitsBuilder, Lockout, by_client_address, by_header};

use crate::common::{build, build_at, now, serve, standing_clock};

/// A limit of one a minute by the key of an API, and one of an address.
fn two_limits() -> LimitsBuilder {
    let builder = Limits::builder().limit("key", by_header("x-api-key"), 1, minutes(1));
    builder.limit("ip", by_client_address(), 100, minutes(1))
}

fn growing() -> Lockout {
    Lockout::growing(minutes(5), "2".parse().expect("a factor"), Some(minutes(60))).expect("it fits")
}

#[tokio::test]
async fn a_denial_locks_the_key_out_and_the_next_one_for_longer() {
    // Alone, and beside another limit.
    for builder in [Limits::builder().limit("key", by_header("x-api-key"), 1, minutes(1)), two_limits()] {
        let clock = standing_clock();
        let web = serve(&build_at(builder.lockout("key", growing()), &clock)).await;
        let denied = async || {
            let answer = web.get("x-api-key: a").await;
            (answer.status(), answer.header("retry-after"))
        };
        assert_eq!(web.statuses(&["x-api-key: a"]).await, [200]);
        assert_eq!(denied().await, (429, "300".to_owned()));
        // A request during a lockout does not extend it, and the window alone would have let this one through.
        clock.advance(minutes(4));
        assert_eq!(denied().await, (429, "60".to_owned()));
        assert_eq!(web.statuses(&["x-api-key: b"]).await, [200]);
        clock.advance(minutes(1));
        assert_eq!(web.statuses(&["x-api-key: a"]).await, [200]);
        assert_eq!(denied().await, (429, "600".to_owned()));
    }
}

/// All or nothing: a lockout counts nothing, and the other limit starts none.
#[tokio::test]
async fn a_lockout_is_of_the_limit_that_denies() {
    let clock = standing_clock();
    let builder = two_limits().lockout("key", minutes(5)).lockout("ip", minutes(50));
    let limits = build_at(builder, &clock);
    let web = serve(&limits).await;
    assert_eq!(web.statuses(&["x-api-key: a", "x-api-key: a", "x-api-key: a"]).await, [200, 429, 429]);
    let hits = |key: &[u8]| limits.store().hits(key, minutes(1), now()).estimate;
    assert_eq!([hits(b"key:a"), hits(b"ip:127.0.0.1")], [1, 1]);
    assert_eq!(web.statuses(&["", "x-api-key: b"]).await, [200, 200]);
    assert_eq!(limits.denials().collect::<Vec<_>>(), [("key", 2), ("ip", 0)]);
}

#[tokio::test]
async fn a_limit_in_shadow_starts_no_lockouts() {
    let clock = standing_clock();
    let builder =
        Limits::builder().shadow("ip", by_client_address(), 1, minutes(1)).lockout("ip", minutes(5));
    let limits = build_at(builder, &clock);
    let web = serve(&limits).await;
    assert_eq!(web.statuses(&["", ""]).await, [200; 2]);
    clock.advance(seconds(60));
    assert_eq!(web.statuses(&[""]).await, [200]);
    assert_eq!(limits.denials().collect::<Vec<_>>(), [("ip", 1)]);
}

#[tokio::test]
async fn exempt_clients_and_keys_are_left_out() {
    let builder =
        || two_limits().trusted_proxies(["127.0.0.1"]).exempt("key", ["198.51.100.0/24", "key:monitor*"]);
    let limits = build(builder());
    let web = serve(&limits).await;
    let statuses = web.statuses(&["x-api-key: a", "x-api-key: a"]).await;
    assert_eq!(statuses, [200, 429]);
    // By the client's address, by the key, and by neither.
    let inside = "x-api-key: a\nx-forwarded-for: 198.51.100.7";
    assert_eq!(web.statuses(&[inside, inside]).await, [200, 200]);
    let monitor = "x-api-key: monitor-1";
    assert_eq!(web.statuses(&[monitor, monitor]).await, [200, 200]);
    assert_eq!(web.statuses(&["x-api-key: a\nx-forwarded-for: 198.51.101.7"]).await, [429]);
    // The other limit counts them and alone is shown, and a forged address exempts nobody.
    let answer = web.get(inside).await;
    assert_eq!(answer.header("ratelimit-policy"), "\"ip\";q=100;w=60");
    assert_eq!(answer.header("ratelimit"), "\"ip\";r=97;t=60");
    let forged = "x-api-key: a\nx-forwarded-for: 198.51.100.7, 203.0.113.9";
    assert_eq!(web.statuses(&[forged]).await, [429]);
    // All of the address counts, also where the key is its network.
    let builder =
        Limits::builder().trusted_proxies(["127.0.0.1"]).limit("ip", by_client_address(), 1, minutes(1));
    let web = serve(&build(builder.exempt("ip", ["2001:db8::1"]))).await;
    let [one, other] = ["x-forwarded-for: 2001:db8::1", "x-forwarded-for: 2001:db8::2"];
    assert_eq!(web.statuses(&[one, one, other, other, one]).await, [200, 200, 200, 429, 200]);
}

#[test]
fn lockouts_and_exemptions_of_no_limit_are_refused() {
    let check = |builder: LimitsBuilder, expected: &str| {
        let error: BuildError = builder.build().expect_err(expected);
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    check(two_limits().lockout("kex", minutes(1)), "no limit is named 'kex'");
    check(two_limits().exempt("kex", ["10.0.0.0/8"]), "no limit is named 'kex'");
    check(two_limits().exempt("key", ["10.0.0.0/33"]), "exempt: invalid network '10.0.0.0/33'");
}
