//! Tests of the limit state of keys, and of eviction guards.

use super::*;
use crate::gcra::Rate;
use crate::limit::Retry;

/// New keys move other keys of their shard, even those of the same request.
#[test]
fn keys_of_one_request_are_found_while_slots_move() {
    let store = store();
    let keys: Vec<Vec<u8>> = (0_u32..)
        .map(|n| format!("k:{n}").into_bytes())
        .filter(|key| shard_of(store.hash(key)) < 2)
        .take(4_000)
        .collect();
    let mut wanted = vec![0; keys.len()];
    for (round, end) in (8..keys.len()).step_by(4).enumerate() {
        // Four new keys and some older ones, of which some are named twice. Nine of ten requests are allowed.
        let is_allowed = round % 10 != 9;
        let named: Vec<usize> =
            (0..4).flat_map(|n| [end - 1 - n, (end * 7 + n * 13) % end, (end * 5) % end]).collect();
        let limit = |&index: &usize| Limit { key: &keys[index], max: 1 << 40, window: minutes(5) };
        let mut limits: Vec<Limit<'_>> = named.iter().map(limit).collect();
        limits[3].max = if is_allowed { 1 << 40 } else { 0 };
        let decisions = store.decide_all(JointRequest { limits, cost: 1, at: None, is_peek: false }, START);
        assert_eq!(decisions.expect("decided").is_allowed(), is_allowed);
        if is_allowed {
            let distinct: std::collections::BTreeSet<usize> = named.into_iter().collect();
            distinct.into_iter().for_each(|index| wanted[index] += 1);
        }
    }
    store.check_consistency();
    for (key, wanted) in keys.iter().zip(wanted) {
        assert_eq!(store.hits(key, minutes(5), START).estimate, wanted);
    }
}

/// More keys than fit, each with two hits, so that none has a single hit.
fn flood(store: &Store, rounds: std::ops::Range<u32>, now: Timestamp) {
    for n in rounds {
        for _ in 0..2 {
            store.hit(format!("flood:{n}").as_bytes(), now).expect("there is always a key to evict");
        }
    }
}

#[test]
fn a_key_near_its_limit_outlives_a_flood() {
    let store = Store::builder().memory_ceiling(100_000).build().expect("valid");
    let ask = |key: &[u8], max, now| store.limit(key, max, minutes(5), 1, now).expect("decided");
    for n in 0..9 {
        assert_eq!(ask(b"near", 10, START).remaining, 9 - n);
    }
    assert_eq!(ask(b"full", 1, START).remaining, 0);
    let rate = Rate::new(1, 1, minutes(5)).expect("a rate");
    let throttle = Throttle { key: b"throttled", rate, quantity: 1 };
    assert_eq!(store.throttle(throttle, START).expect("decided").remaining, 1);
    assert_eq!(ask(b"far", 1_000, START).remaining, 999);
    let lockout = Request { lockout: Some(minutes(15).into()), ..Request::new(b"locked", 1, minutes(1), 1) };
    (0..2).for_each(|_| _ = store.decide(lockout, START).expect("decided"));
    for step in 1..20 {
        flood(&store, 5_000 * step..5_000 * (step + 1), after(seconds(10 * u64::from(step))));
    }
    store.check_consistency();
    let now = after(seconds(200));
    assert!(!store.contains(b"far", now), "a key must be evicted");
    assert_eq!((ask(b"near", 10, now).remaining, ask(b"near", 10, now).is_allowed()), (0, false));
    assert!(!ask(b"full", 1, now).is_allowed());
    assert_eq!(store.throttle(throttle, now).expect("decided").remaining, 0);
    assert_eq!(store.limited_until(b"locked", now), Some(after(minutes(15))));
    // A key whose window is over is evicted like any other, when newer keys are in the same sample.
    flood(&store, 200_000..230_000, after(seconds(901)));
    for key in ["near", "full", "locked"] {
        assert!(!store.contains(key.as_bytes(), after(minutes(30))), "{key}");
    }
    store.check_consistency();
}

/// Symptom: lockouts of new keys took memory without bound. Cause: a key was created for the lockout even
/// without room. Fix: the request fails.
#[test]
fn lockouts_stay_below_the_ceiling() {
    let store = Store::builder().memory_ceiling(100_000).build().expect("valid");
    let mut refused = 0;
    for n in 0..5_000_u32 {
        let key = n.to_le_bytes();
        let max = u64::from(n % 2);
        let request = Request { lockout: Some(days(1).into()), ..Request::new(&key, max, minutes(1), 2) };
        match store.decide(request, START) {
            Ok(decision) => assert!(!decision.is_allowed()),
            Err(error) => {
                let full = HitError::OutOfMemory { ceiling_bytes: 100_000, other_bytes: 0 };
                assert_eq!(error, crate::LimitError::Hit(full));
                refused += 1;
            }
        }
        assert!(store.memory().used_bytes <= 101_000);
    }
    assert!(refused > 4_000 && store.memory().evicted_keys == 0, "{refused}");
    store.check_consistency();
}

/// The limit state of keys counts towards the ceiling.
#[test]
fn denied_hits_count_towards_the_ceiling() {
    let store = Store::builder().memory_ceiling(200_000).build().expect("valid");
    for n in 0..20_000_u32 {
        let now = after(seconds(1 + u64::from(n) / 1_000));
        let key = format!("denied:{n}").into_bytes();
        assert!(!store.limit(&key, 0, minutes(5), 1, now).expect("decided").is_allowed());
        store
            .throttle(
                Throttle { key: &key, rate: Rate::new(9, 1, minutes(1)).expect("a rate"), quantity: 1 },
                now,
            )
            .expect("decided");
        assert!(store.memory().used_bytes <= 201_000);
    }
    assert!(store.memory().evicted_keys > 15_000);
    store.check_consistency();
    sweep(&store, after(days(8)));
    assert_eq!((store.len(), store.memory().used_bytes), (0, 0));
}

/// A cached denial does not answer for another limit, for a key that was locked out since, or for a window
/// longer than the retention.
#[test]
fn a_cached_denial_is_for_its_own_limit_only() {
    let store = store();
    let ask = |max, window| store.limit(b"k", max, window, 1, START);
    let retry = |max, window| ask(max, window).expect("decided").retry;
    let after_minutes = |n| Retry::After(minutes(n));
    assert_eq!(retry(1, minutes(1)), Retry::Now);
    // The first denial takes the general path, those after it are cached.
    (0..3).for_each(|_| assert_eq!(retry(1, minutes(1)), after_minutes(1)));
    assert_eq!(retry(1, minutes(2)), after_minutes(2));
    assert_eq!(retry(2, minutes(1)), Retry::Now);
    for window in [days(8), Span::MAX] {
        for max in [1, 1_000] {
            assert!(matches!(ask(max, window), Err(crate::LimitError::Window { .. })), "{max} in {window}");
        }
    }
    let denied = store.denied(b"k", Some(minutes(5)), None, START).estimate;
    assert_eq!(denied, 4, "invalid requests are not counted as denied");
    (0..2).for_each(|_| assert_eq!(retry(2, minutes(1)), after_minutes(1)));
    let lockout = Request { lockout: Some(minutes(15).into()), ..Request::new(b"k", 0, minutes(1), 1) };
    assert_eq!(store.decide(lockout, START).expect("decided").retry, Retry::Never);
    for max in [2, 1_000] {
        assert_eq!(retry(max, minutes(1)), after_minutes(15), "{max}");
    }
    store.check_consistency();
}

/// A limit is reset only when the newest hit has left the window, even if that hit is in the future.
#[test]
fn a_future_hit_delays_the_reset() {
    for hits in [1, 20, 400] {
        let store = store();
        let ask = |now| store.limit(b"k", 10_000, minutes(1), 1, now).expect("decided");
        let mut now = START;
        for _ in 0..hits {
            now = now.saturating_add(crate::time::milliseconds(5));
            assert_eq!(ask(now).reset_after, Some(minutes(1)));
        }
        let ahead = now.saturating_add(seconds(2));
        store.hit_at(b"k", ahead, now).expect("counted");
        for _ in 0..3 {
            assert_eq!(ask(now).reset_after, Some(seconds(62)), "{hits}");
            let limits = [b"j", b"k"].map(|key| Limit { key, max: 10_000, window: minutes(1) }).to_vec();
            let joint = JointRequest { limits, cost: 1, at: None, is_peek: false };
            let joint = store.decide_all(joint, now).expect("decided");
            let over: Vec<_> = joint.decisions.iter().map(|decision| decision.reset_after).collect();
            assert_eq!(over, [Some(minutes(1)), Some(seconds(62))], "{hits}");
        }
    }
}

/// A sweep changes no answer.
#[test]
fn a_sweep_does_not_change_denied_counts() {
    let settings = || Settings::builder().resolution(crate::time::milliseconds(10)).retain(minutes(10));
    let stores = [(); 2].map(|()| Store::builder().settings(settings()).build().expect("valid"));
    for store in &stores {
        for ms in [1, 700, 1_400] {
            let denied = store.limit(b"k", 0, seconds(1), 1, after(crate::time::milliseconds(ms)));
            assert_eq!(denied.expect("decided").retry, Retry::Never);
        }
        // Denied and counted later, so that the key stays.
        store.limit(b"k", 0, seconds(1), 1, after(minutes(9))).expect("decided");
        store.hit(b"k", after(minutes(9))).expect("counted");
    }
    for step in 0..800 {
        let now = after(minutes(10)).saturating_add(crate::time::milliseconds(10 * step + 1));
        sweep(&stores[0], now);
        let [swept, left] =
            [&stores[0], &stores[1]].map(|store| store.denied(b"k", Some(minutes(10)), None, now));
        assert_eq!(swept, left, "step {step}");
    }
}
