//! Bounds: of keys, names and memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use lately::limits::{MAX_KEY_BYTES, MAX_LIMITS};
use lately::minutes;
use lately_tower::limits::MAX_NAME_BYTES;
use lately_tower::{BuildError, DecideError, Limits, by, by_client_address, by_header};

use crate::common::{build, serve};

#[tokio::test]
async fn a_key_that_is_too_long_is_refused() {
    let limits = build(Limits::builder().limit("key", by_header("x-api-key"), 1, minutes(1)));
    let web = serve(&limits).await;
    let most = "k".repeat(MAX_KEY_BYTES - "key:".len());
    assert_eq!(web.get(&format!("x-api-key: {most}")).await.status(), 200);
    let refused = web.get(&format!("x-api-key: {most}k")).await;
    assert_eq!(refused.status(), 400);
    assert_eq!(
        refused.json()["detail"],
        "the key of the limit 'key' has 1025 bytes: at most 1024 are allowed"
    );
}

#[test]
fn names_and_the_number_of_limits_are_bounded() {
    let named = |name: &str| Limits::builder().limit(name, by_client_address(), 1, minutes(1)).build();
    assert!(named(&"n".repeat(MAX_NAME_BYTES)).is_ok());
    assert!(matches!(named(&"n".repeat(MAX_NAME_BYTES + 1)), Err(BuildError::Name { .. })));
    let many = |count: usize| {
        let add = |builder: lately_tower::LimitsBuilder, number: usize| {
            builder.limit(&number.to_string(), by_client_address(), 1, minutes(1))
        };
        (0..count).fold(Limits::builder(), add).build()
    };
    assert!(many(MAX_LIMITS).is_ok());
    assert_eq!(many(MAX_LIMITS + 1).err(), Some(BuildError::Limits { given: MAX_LIMITS + 1 }));
}

/// A key that no request had before.
fn fresh_key() -> lately_tower::Key {
    let next = AtomicU64::new(0);
    by(move |_| Some(next.fetch_add(1, Relaxed).to_string()))
}

#[tokio::test]
async fn keys_stay_within_the_memory_ceiling() {
    const CEILING_BYTES: u64 = 256 << 10;
    let limits =
        build(Limits::builder().limit("key", fresh_key(), 5, minutes(1)).memory_ceiling(CEILING_BYTES));
    let web = serve(&limits).await;
    // At least some twenty bytes a key: these would not fit.
    for _ in 0..200 {
        assert_eq!(web.pipeline(100).await, [200; 100]);
    }
    let stats = limits.store().memory();
    assert!(stats.evicted_keys > 0, "{stats:?}");
    assert!(stats.used_bytes <= CEILING_BYTES, "{stats:?}");
}

#[tokio::test]
async fn a_key_that_has_used_up_its_limit_is_not_evicted() {
    let errors = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&errors);
    let builder = Limits::builder().limit("key", fresh_key(), 1, minutes(1)).memory_ceiling(64 << 10);
    let limits = build(builder.on_error(move |error| {
        assert!(matches!(error, DecideError::Store(_)), "{error}");
        counted.fetch_add(1, Relaxed);
    }));
    let web = serve(&limits).await;
    let mut statuses = Vec::new();
    while !statuses.contains(&503) {
        statuses = web.pipeline(100).await;
        assert!(statuses.iter().all(|status| matches!(status, 200 | 503)), "{statuses:?}");
    }
    assert!(errors.load(Relaxed) > 0);
    let refused = web.get("").await;
    assert_eq!((refused.status(), refused.header("retry-after").as_str()), (503, "1"));
    assert_eq!(limits.store().memory().evicted_keys, 0);
}
