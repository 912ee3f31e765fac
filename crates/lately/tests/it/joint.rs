//! Joint requests: either every limit allows and counts, or nothing is counted.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use lately::limits::MAX_LIMITS;
use lately::{
    Decision, HitError, JointRequest, Limit, LimitError, Lockout, Op, Outcome, Request, Retry, Span, Store,
    Timestamp,
};
use proptest::prelude::*;

use crate::exact_log::ExactLog;

const START_MS: i64 = 1_700_000_000_000;
const KEYS: [&[u8]; 4] = [b"ip", b"user", b"all", b"a key that is too long for its slot"];

fn time(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms).expect("a time")
}

fn span(ms: i64) -> Span {
    Span::from_millis(ms).expect("a span")
}

fn store() -> Store {
    Store::builder().build().expect("valid")
}

fn request(limits: &[(usize, u64, i64)], cost: u64) -> JointRequest<'static> {
    let limits = limits.iter();
    let limits = limits.map(|&(key, max, window_ms)| Limit { key: KEYS[key], max, window: span(window_ms) });
    JointRequest { limits: limits.collect(), cost, at: None, is_peek: false }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// An exact log of each key makes the same decisions. A key that is named twice counts once.
    #[test]
    fn all_or_none_are_counted(
        steps in prop::collection::vec(
            (
                prop::collection::vec((0..4_usize, 0..9_u64, prop::sample::select(vec![1_i64, 700, 1_000, 60_000])), 1..5),
                0..4_u64,
                (0..2_500_i64, prop::bool::weighted(0.2), prop::option::weighted(0.2, -3_000..3_000_i64)),
            ),
            1..60,
        ),
    ) {
        let store = store();
        let mut logs = [const { ExactLog::new() }; 4];
        let (mut denied, mut denied_hits) = ([0; 4], 0);
        let mut now_ms = START_MS;
        for (limits, cost, (gap_ms, is_peek, after_ms)) in steps {
            now_ms += gap_ms;
            let at_ms = now_ms + after_ms.unwrap_or(0);
            let at = after_ms.map(|_| time(at_ms));
            let joint = JointRequest { at, is_peek, ..request(&limits, cost) };
            let mut wanted: Vec<Decision> = limits
                .iter()
                .map(|&(key, max, window_ms)| logs[key].peek(&Request::new(KEYS[key], max, span(window_ms), cost), at_ms))
                .collect();
            let is_allowed = wanted.iter().all(Decision::is_allowed);
            for key in (0..4).filter(|_| !is_peek) {
                let mut its = limits.iter().zip(&wanted).filter(|((named, ..), _)| *named == key).peekable();
                let is_named = its.peek().is_some();
                if is_allowed && is_named {
                    logs[key].push(at_ms, cost);
                } else if its.any(|(_, decision)| !decision.is_allowed()) {
                    denied[key] += cost;
                }
            }
            for (decision, &(key, max, window_ms)) in wanted.iter_mut().zip(&limits) {
                decision.remaining = logs[key].left(max, window_ms, at_ms).cast_signed();
                if is_allowed && !is_peek && cost > 0 {
                    decision.reset_after = logs[key].until(0, at_ms, window_ms);
                }
            }
            let decided = store.decide_all(joint, time(now_ms)).expect("decided");
            prop_assert_eq!(decided.decisions, wanted);
            denied_hits += decided.denied_hits;
        }
        store.check_consistency();
        prop_assert_eq!(denied_hits, denied.iter().sum::<u64>());
        for (key, (log, denied)) in KEYS.iter().zip(logs.iter().zip(denied)) {
            let (now, week) = (time(now_ms + 3_000), span(86_400_000));
            prop_assert_eq!(store.hits(key, week, now).estimate, log.total());
            prop_assert_eq!(store.denied(key, Some(week), None, now).estimate, denied);
        }
    }
}

#[test]
fn a_request_that_cannot_be_decided_changes_nothing() {
    let store = store();
    let now = time(START_MS);
    let refused = |joint: JointRequest<'_>| match store.decide_all(joint, now).expect_err("it is refused") {
        LimitError::Each { index, error } => (Some(index), *error),
        error => (None, error),
    };
    let week = span(8 * 86_400_000);
    let error = refused(request(&[(0, 5, 1_000), (1, 5, week.as_millis())], 1));
    assert!(matches!(error, (Some(1), LimitError::Window { window, .. }) if window == week), "{error:?}");
    let late = JointRequest { at: Some(Timestamp::MIN), ..request(&[(0, 5, 1_000), (1, 5, 1_000)], 1) };
    assert!(matches!(refused(late), (Some(0), LimitError::Hit(HitError::Late { .. }))));
    let mut empty = request(&[(0, 5, 1_000), (1, 5, 1_000)], 1);
    empty.limits[1].key = b"";
    assert!(matches!(refused(empty), (Some(1), LimitError::Hit(HitError::KeyLength { bytes: 0 }))));
    let most = u64::MAX >> 1;
    store.hit_n(KEYS[1], most, None, now).expect("it fits");
    let overflow = refused(request(&[(0, u64::MAX, 1_000), (1, u64::MAX, 1_000)], 1));
    assert!(
        matches!(overflow, (Some(1), LimitError::Hit(HitError::Overflow { total, weight: 1 })) if total == most)
    );
    let huge = refused(request(&[(0, u64::MAX, 1_000), (2, u64::MAX, 1_000)], u64::MAX));
    assert!(matches!(huge, (Some(0), LimitError::Hit(HitError::Overflow { total: 0, .. }))));
    let mut many = request(&[], 1);
    many.limits = vec![Limit { key: KEYS[0], max: 5, window: span(1_000) }; MAX_LIMITS + 1];
    assert_eq!(refused(many.clone()), (None, LimitError::Limits { given: MAX_LIMITS + 1 }));
    assert_eq!(store.len(), 1);
    many.limits.pop();
    assert_eq!(store.decide_all(many, now).expect("decided").decisions.len(), MAX_LIMITS);
    assert_eq!(store.hits(KEYS[0], span(1_000), now).estimate, 1);
}

/// One batch has more keys than are prefetched together, and their hits are on the heap.
#[test]
fn a_batch_of_joint_requests_with_many_keys_is_decided() {
    const REQUESTS: usize = 4;
    let store = store();
    let keys: Vec<String> = (0..REQUESTS * MAX_LIMITS).map(|key| format!("key:{key}")).collect();
    for second in 0..300_u64 {
        let ops: Vec<Op<'_>> = keys
            .chunks(MAX_LIMITS)
            .map(|keys| {
                let limits =
                    keys.iter().map(|key| Limit { key: key.as_bytes(), max: 200, window: span(100_000_000) });
                Op::LimitAll(Box::new(JointRequest {
                    limits: limits.collect(),
                    cost: 1,
                    at: None,
                    is_peek: false,
                }))
            })
            .collect();
        let mut outcomes = Vec::new();
        store.apply(&ops, time(START_MS + second.cast_signed() * 1_000), &mut outcomes);
        for outcome in outcomes {
            let Outcome::LimitAll(Ok(decision)) = outcome else { panic!("{outcome:?}") };
            let left: Vec<u64> = decision.decisions.iter().map(Decision::left).collect();
            assert_eq!(left, [199_u64.saturating_sub(second); MAX_LIMITS]);
        }
    }
}

/// Some threads request several keys, in different orders; others request one of these keys.
#[test]
fn threads_share_keys_without_a_deadlock() {
    const MAX: u64 = 3_000;
    let store = store();
    let (barrier, singles) = (Barrier::new(6), AtomicU64::new(0));
    let sets: [[usize; 3]; 4] = [[0, 1, 2], [2, 1, 0], [1, 3, 0], [3, 2, 1]];
    let window = span(600_000);
    let allowed: Vec<(usize, u64)> = std::thread::scope(|scope| {
        let joint = sets.iter().enumerate().map(|(index, set)| {
            let (store, barrier) = (&store, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let limits: Vec<_> = set.iter().map(|&key| (key, MAX, window.as_millis())).collect();
                let ask = |n: i64| {
                    let decisions = store.decide_all(request(&limits, 1), time(START_MS + n));
                    decisions.expect("decided").is_allowed()
                };
                (index, (0..2_000).filter(|&n| ask(n)).count() as u64)
            })
        });
        let threads: Vec<_> = joint.collect();
        for key in [0, 2] {
            let (store, barrier, singles) = (&store, &barrier, &singles);
            scope.spawn(move || {
                barrier.wait();
                for n in 0..1_000 {
                    let decision = store.limit(KEYS[key], MAX, window, 1, time(START_MS + n));
                    if key == 0 && decision.expect("decided").is_allowed() {
                        singles.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let now = time(START_MS + 2_000);
    let counted = KEYS.map(|key| store.hits(key, window, now).estimate);
    assert!(counted.iter().all(|&hits| hits <= MAX), "{counted:?}");
    // The threads request more than the limits allow, so at least one key is used up.
    assert!(counted.contains(&MAX), "{counted:?}");
    let joint = |key: usize| -> u64 {
        allowed.iter().filter(|(index, _)| sets[*index].contains(&key)).map(|(_, allowed)| allowed).sum()
    };
    assert_eq!(counted[0], joint(0) + singles.into_inner());
    assert_eq!(counted[1], joint(1));
    assert_eq!(counted[3], joint(3));
    store.check_consistency();
}

#[test]
fn a_key_that_is_locked_out_denies_all() {
    let store = store();
    let lockout = Some(Lockout::of(span(60_000)));
    let ask = Request { lockout, ..Request::new(KEYS[0], 1, span(1_000), 2) };
    // A request above the limit starts the lockout, although it can never be allowed.
    assert_eq!(store.decide(ask, time(START_MS)).expect("decided").retry, Retry::Never);
    let joint = store.decide_all(request(&[(0, 9, 1_000), (1, 9, 1_000)], 1), time(START_MS));
    let retries: Vec<Retry> =
        joint.expect("decided").decisions.iter().map(|decision| decision.retry).collect();
    assert_eq!(retries, [Retry::After(span(60_000)), Retry::Now]);
    assert_eq!(store.hits(KEYS[1], span(1_000), time(START_MS)).estimate, 0);
}
