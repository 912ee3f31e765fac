//! Decisions of limits equal those of an exact log where that is promised. No window ever has more hits than
//! the limit.

use lately::{
    Admission, Decision, LimitError, Lockout, Request, Retry, Settings, Span, Store, Timestamp, hours,
};
use proptest::prelude::*;

use crate::exact_log::ExactLog;

const START_MS: i64 = 1_700_000_000_000;

fn time(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms).expect("a time")
}

fn span(ms: i64) -> Span {
    Span::from_millis(ms).expect("a span")
}

/// A request for the key that counts, at the current time.
fn request(max: u64, window_ms: i64, cost: u64) -> Request<'static> {
    Request::new(b"k", max, span(window_ms), cost)
}

/// Another store with the keys of a store.
fn read_again(store: &Store, again: Store, now_ms: i64) -> Store {
    for part in 0..Store::PARTS {
        let mut bytes = Vec::new();
        let written = store.write_part(part, time(now_ms), &mut bytes);
        assert_eq!(again.read_part(&bytes, written.now), Ok(Vec::new()));
    }
    again
}

/// A step of a test.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait { ms: i64 },
    Ask { cost: u64, back_ms: i64, is_peek: bool, admission: Admission },
    Hit { hits: u64, back_ms: i64 },
    Refund { hits: u64, back_ms: i64, admission: Admission },
}

fn steps(len: usize) -> impl Strategy<Value = Vec<Step>> {
    let wait = prop::sample::select(vec![1_i64, 9, 250, 1_000, 7_321, 60_000, 3_600_000]);
    let back = prop_oneof![4 => Just(0_i64), 1 => -5_000..20_000_i64];
    let admission = prop_oneof![6 => Just(Admission::Whole), 2 => Just(Admission::Overdraft), 1 => Just(Admission::Exempt), 1 => Just(Admission::Spent)];
    let step = prop_oneof![
        3 => (wait, 1_i64..=10).prop_map(|(most, share)| Step::Wait { ms: (most * share / 10).max(1) }),
        5 => (0_u64..4, back.clone(), prop::bool::weighted(0.2), admission.clone())
            .prop_map(|(cost, back_ms, is_peek, admission)| Step::Ask { cost, back_ms, is_peek, admission }),
        1 => (1_u64..3, back.clone()).prop_map(|(hits, back_ms)| Step::Hit { hits, back_ms }),
        1 => (0_u64..5, back, admission)
            .prop_map(|(hits, back_ms, admission)| Step::Refund { hits, back_ms, admission }),
    ];
    prop::collection::vec(step, 1..len)
}

const WINDOWS_MS: [i64; 6] = [1, 900, 1_000, 60_000, 299_999, 86_400_000];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Two hundred requests have at most as many different milliseconds.
    #[test]
    fn few_milliseconds_are_decided_as_by_an_exact_log(
        steps in steps(200),
        window_ms in prop::sample::select(WINDOWS_MS.to_vec()),
        max in 0_u64..12,
    ) {
        let store = Store::builder().build().expect("valid");
        let (mut log, mut now_ms) = (ExactLog::new(), START_MS);
        for step in steps {
            match step {
                Step::Wait { ms } => now_ms += ms,
                Step::Hit { hits, back_ms } => {
                    let at_ms = now_ms - back_ms;
                    store.hit_n(b"k", hits, Some(time(at_ms)), time(now_ms)).expect("it is kept");
                    log.push(at_ms, hits);
                }
                Step::Refund { hits, back_ms, admission } => {
                    let at = (back_ms != 0).then(|| time(now_ms - back_ms));
                    let request = Request { at, admission, ..request(max, window_ms, hits) };
                    let decided = store.refund(request, time(now_ms)).expect("it can be decided");
                    prop_assert_eq!(decided, log.refund(&request, now_ms), "{:?} at {}", step, now_ms);
                }
                Step::Ask { cost, back_ms, is_peek, admission } => {
                    let at = (back_ms != 0).then(|| time(now_ms - back_ms));
                    let request = Request { at, is_peek, admission, ..request(max, window_ms, cost) };
                    let decided = store.decide(request, time(now_ms)).expect("it can be decided");
                    prop_assert_eq!(decided, log.decide(&request, now_ms), "{:?} at {}", step, now_ms);
                }
            }
            // These hits have left every window.
            log.forget_before(now_ms - 604_000_000);
        }
        store.check_consistency();
    }

    /// Many requests, and hits without a decision between them. Only a few are in the window.
    #[test]
    fn the_newest_milliseconds_of_a_hot_key_are_decided_as_by_an_exact_log(
        gaps_ms in prop::collection::vec(0_i64..12, 600..1_500),
        window_ms in prop::sample::select(vec![1_i64, 100, 999, 1_200]),
        max in 1_u64..300,
        hits_each in prop::sample::select(vec![2_usize, 5, 1_000_000]),
    ) {
        let store = Store::builder().build().expect("valid");
        let (mut log, mut now_ms) = (ExactLog::new(), START_MS);
        for (index, gap_ms) in gaps_ms.into_iter().enumerate() {
            now_ms += gap_ms;
            if log.milliseconds(now_ms, window_ms) > 256 {
                break;
            }
            if index % hits_each == 1 {
                store.hit(b"k", time(now_ms)).expect("it is counted");
                log.push(now_ms, 1);
            } else {
                let cost = 1 + index as u64 % 3;
                let request = request(max, window_ms, cost);
                let decided = store.decide(request, time(now_ms)).expect("it can be decided");
                prop_assert_eq!(decided, log.decide(&request, now_ms), "request {} at {}", index, now_ms);
            }
            log.forget_before(now_ms - 2 * window_ms);
            if index % 100 == 0 {
                store.merge_panes(b"k", time(now_ms));
            }
        }
        store.check_consistency();
    }

    /// With any number of requests, and panes merged at any time.
    #[test]
    fn no_window_ever_has_more_than_the_limit(
        gaps_ms in prop::collection::vec(0_i64..40, 400..1_200),
        scale in prop::sample::select(vec![1_i64, 30, 1_000, 40_000]),
        window_ms in prop::sample::select(WINDOWS_MS.to_vec()),
        max in prop::sample::select(vec![1_u64, 5, 40, 300, 700]),
    ) {
        let store = Store::builder().build().expect("valid");
        let (mut admitted, mut now_ms) = (ExactLog::new(), START_MS);
        for (index, gap_ms) in gaps_ms.into_iter().enumerate() {
            now_ms += gap_ms * scale;
            let request = request(max, window_ms, 1 + index as u64 % 2);
            let decision = store.decide(request, time(now_ms)).expect("it can be decided");
            if decision.is_allowed() {
                admitted.push(now_ms, request.cost);
                let used = admitted.used(now_ms, window_ms);
                prop_assert!(used <= max, "{used} in the window that ends at {now_ms}");
            }
            if index % 50 == 0 {
                store.merge_panes(b"k", time(now_ms));
            }
            if let Retry::After(wait) = decision.retry && index % 7 == 0 {
                let peek = Request { is_peek: true, ..request };
                if wait.as_millis() > 1 {
                    let early = time(now_ms + wait.as_millis() - 1);
                    let decided = store.decide(peek, early).expect("it can be decided");
                    prop_assert!(!decided.is_allowed(), "allowed a millisecond before {wait}");
                }
                if index % 14 == 0 {
                    store.merge_panes(b"k", time(now_ms + wait.as_millis() - 1));
                }
                now_ms += wait.as_millis();
                let decided = store.decide(peek, time(now_ms)).expect("it can be decided");
                prop_assert!(decided.is_allowed(), "denied after {wait}: {decided:?}");
            }
        }
        store.check_consistency();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Requests have explicit times in any order, or none, and come in bursts. The clock is set back and ahead.
    #[test]
    fn no_times_and_no_clock_steps_exceed_the_limit(
        steps in prop::collection::vec((-9_000_i64..12_000, 1_u64..4, prop::option::of(-40_000_i64..10_000)), 100..700),
        scale in prop::sample::select(vec![1_i64, 10, 100]),
        window_ms in prop::sample::select(vec![1_i64, 900, 1_000, 30_000, 400_000]),
        max in prop::sample::select(vec![1_u64, 5, 40, 300]),
    ) {
        let store = Store::builder().build().expect("valid");
        let (mut admitted, mut clock_ms, mut latest_ms) = (ExactLog::new(), START_MS, 0);
        for (index, (gap_ms, cost, after_ms)) in steps.into_iter().enumerate() {
            clock_ms += gap_ms / 1_000 * scale;
            latest_ms = latest_ms.max(clock_ms);
            // The store's time does not go back.
            let at_ms = after_ms.map(|after_ms| latest_ms + after_ms / 10 * scale.min(10));
            let request = Request { at: at_ms.map(time), ..request(max, window_ms, cost) };
            if store.decide(request, time(clock_ms)).expect("it can be decided").is_allowed() {
                admitted.push(at_ms.unwrap_or(latest_ms), cost);
            }
            if index % 60 == 0 {
                store.merge_panes(b"k", time(clock_ms));
            }
        }
        prop_assert!(admitted.fullest(window_ms) <= max);
        store.check_consistency();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A window may be as long as the retention, and ends at any millisecond. A window in the past that begins before
    /// the retention is refused.
    #[test]
    fn windows_of_the_whole_retention_are_decided_as_by_an_exact_log(
        steps in prop::collection::vec((0_i64..500, 0_u64..3, prop::option::of(-50_i64..300), any::<bool>()), 1..100),
        resolution_ms in prop::sample::select(vec![1_i64, 10, 1_000, 10_000, 86_400_000]),
        panes in prop::sample::select(vec![1_i64, 3, 60, 500]),
        shorter in 0_i64..4,
        max in 1_u64..6,
    ) {
        let (resolution, retain_ms) = (span(resolution_ms), panes * resolution_ms);
        let settings = Settings::builder().resolution(resolution).window(resolution).retain(span(retain_ms));
        let settings = settings.max_skew(span(resolution_ms));
        let store = Store::builder().settings(settings).build().expect("valid");
        let window_ms = (retain_ms - shorter * resolution_ms / 3).max(1);
        let (mut log, mut now_ms) = (ExactLog::new(), START_MS);
        for (index, (gap, cost, back, sweeps)) in steps.into_iter().enumerate() {
            // A few steps add up to a window.
            now_ms += gap * window_ms / 1_000 + i64::from(gap % 3 == 1);
            let at = back.map(|back| (now_ms - back * resolution_ms / 50).max(now_ms - retain_ms + resolution_ms));
            let request = Request { at: at.map(time), ..request(max, window_ms, cost) };
            let decided = store.decide(request, time(now_ms));
            if at.is_some_and(|at_ms| window_ms + (now_ms - at_ms) > retain_ms) {
                let is_refused = matches!(decided, Err(LimitError::WindowThen { .. }));
                prop_assert!(is_refused, "{} {:?}: {:?}", index, request, decided);
            } else {
                prop_assert_eq!(decided, Ok(log.decide(&request, now_ms)), "{} at {}", index, now_ms);
            }
            if sweeps {
                store.sweep(lately::Cursor::START, 10_000, time(now_ms));
            }
        }
        store.check_consistency();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// At any rate, with hits without a decision and late ones between them. The key has had a request from the start.
    #[test]
    fn a_window_of_a_second_is_decided_as_by_an_exact_log(
        gaps_ms in prop::collection::vec((0_i64..4, 0_i64..8_000), 600..1_500),
        window_ms in prop::sample::select(vec![1_i64, 100, 700, 999, 1_000]),
        max in 1_u64..1_500,
        (hits_each, late_each) in prop::sample::select(vec![(2_usize, 1_000_000_usize), (5, 7), (1_000_000, 3), (1_000_000, 1_000_000)]),
        pause_each in prop::sample::select(vec![70_usize, 900, 1_000_000]),
    ) {
        let mut store = Store::builder().build().expect("valid");
        let (mut log, mut now_ms) = (ExactLog::new(), START_MS);
        for (index, (gap_ms, more)) in gaps_ms.into_iter().enumerate() {
            now_ms += if index % pause_each == pause_each - 1 { more } else { gap_ms };
            if index % hits_each == 1 {
                let late_ms = if index % late_each == 1 { more % 1_000 } else { 0 };
                store.hit_n(b"k", 1, Some(time(now_ms - late_ms)), time(now_ms)).expect("it is counted");
                log.push(now_ms - late_ms, 1);
            } else {
                let request = request(max, window_ms, 1 + index as u64 % 3);
                let decided = store.decide(request, time(now_ms)).expect("it can be decided");
                prop_assert_eq!(decided, log.decide(&request, now_ms), "request {} at {}", index, now_ms);
            }
            log.forget_before(now_ms - 2 * window_ms);
            if index % 100 == 0 {
                store.merge_panes(b"k", time(now_ms));
            }
            // The next request comes before any hit, which need no exact times.
            if index % 700 == 600 && (index + 1) % hits_each != 1 {
                store = read_again(&store, Store::builder().build().expect("valid"), now_ms);
            }
        }
        store.check_consistency();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The window is nearly as long as the retention. Hits come from limits and on their own, late and early, and the
    /// store is sometimes loaded from its parts.
    #[test]
    fn few_milliseconds_near_the_retention_are_decided_as_by_an_exact_log(
        steps in prop::collection::vec((0_i64..1_000, 0_u8..8, 0_u64..4, -1_000_i64..1_000, 0_u8..80), 1..1_200),
        resolution_ms in prop::sample::select(vec![1_i64, 10, 100, 1_000, 10_000, 60_000]),
        panes in prop::sample::select(vec![1_i64, 2, 3, 60, 500, 5_000]),
        (shorter, per_window) in (0_i64..100, prop::sample::select(vec![3_i64, 30, 200, 300, 400])),
        exact in prop::sample::select(vec![0_i64, 1, 5, 10]),
        max in prop::sample::select(vec![1_u64, 5, 100, 400]),
    ) {
        let (resolution, retain_ms) = (span(resolution_ms), panes * resolution_ms);
        let skew_ms = (retain_ms / 4).max(1);
        let settings = Settings::builder().resolution(resolution).window(resolution).retain(span(retain_ms));
        // The shortest valid exact span, or a share of the retention.
        let exact_ms = (retain_ms * exact / 10).max(61 * resolution_ms).min(retain_ms);
        let settings = settings.exact(span(exact_ms)).max_skew(span(skew_ms));
        let new_store = || Store::builder().settings(settings.clone()).build().expect("valid");
        let mut store = new_store();
        let window_ms = (retain_ms - retain_ms * shorter / 1_000).max(1);
        let (mut log, mut now_ms) = (ExactLog::new(), START_MS);
        for (index, (gap, what, cost, back, then)) in steps.into_iter().enumerate() {
            now_ms += gap * 2 * window_ms / per_window / 1_000;
            let is_hit = what < 2;
            let decidable_ms = if is_hit { retain_ms } else { retain_ms - window_ms };
            let late_ms = (retain_ms - resolution_ms).min(decidable_ms);
            let at_ms = now_ms - if back < 0 { back * skew_ms / 1_000 } else { back * late_ms / 1_000 };
            let at = (what % 2 == 1).then_some(at_ms);
            let from_ms = if is_hit { now_ms } else { now_ms.min(at_ms) };
            if log.milliseconds(from_ms, window_ms) >= 256 {
                continue;
            }
            if is_hit {
                store.hit_n(b"k", cost, at.map(time), time(now_ms)).expect("it is kept");
                log.push(at.unwrap_or(now_ms), cost);
            } else {
                let request = Request { at: at.map(time), is_peek: what == 2, ..request(max, window_ms, cost) };
                let decided = store.decide(request, time(now_ms)).expect("it can be decided");
                prop_assert_eq!(decided, log.decide(&request, now_ms), "{} {:?} at {}", index, request, now_ms);
            }
            match then {
                0 => _ = store.sweep(lately::Cursor::START, 10_000, time(now_ms)),
                1 => store = read_again(&store, new_store(), now_ms),
                _ => {}
            }
        }
        store.check_consistency();
    }
}

#[test]
fn a_limit_longer_than_the_retention_is_refused() {
    let store = Store::builder().build().expect("valid");
    let retain = Settings::default().retain();
    let window = span(retain.as_millis() + 1);
    let error = store.limit(b"k", 5, window, 1, time(START_MS)).expect_err("it asks for too much");
    assert_eq!(error, LimitError::Window { window, retain });
    assert!(store.is_empty());
    assert!(store.limit(b"k", 5, retain, 1, time(START_MS)).expect("it is kept").is_allowed());
    let at = time(START_MS - 1);
    let late = |window| store.decide(Request { at: Some(at), window, ..request(5, 1, 1) }, time(START_MS));
    let most = span(retain.as_millis() - 1);
    let error = late(retain).expect_err("a millisecond of it is not kept");
    assert_eq!(error, LimitError::WindowThen { window: retain, at, most: Some(most) });
    assert!(error.to_string().contains("a limit can ask for 604799999ms then"), "{error}");
    assert!(late(most).expect("it is kept").is_allowed());
}

#[test]
fn a_peek_makes_no_key() {
    let store = Store::builder().build().expect("valid");
    let peek = Request { is_peek: true, ..request(5, 1_000, 1) };
    assert!(store.decide(peek, time(START_MS)).expect("decided").is_allowed());
    assert!(store.is_empty());
}

#[test]
fn denied_hits_are_counted_separately() {
    let store = Store::builder().build().expect("valid");
    let week = span(7 * 86_400_000);
    let ask = |max, cost, after_ms: i64| {
        store.limit(b"k", max, span(1_000), cost, time(START_MS + after_ms)).expect("decided")
    };
    let never = Decision { max: 5, remaining: 5, retry: Retry::Never, reset_after: None };
    assert_eq!(ask(5, 6, 0), never);
    let counts = |window: Span, after_ms: i64| {
        let now = time(START_MS + after_ms);
        (store.hits(b"k", window, now).estimate, store.denied(b"k", Some(window), None, now).estimate)
    };
    assert_eq!(counts(week, 0), (0, 6));
    assert!(ask(5, 4, 0).is_allowed());
    for after_ms in 1..1_000 {
        assert!(!ask(5, 2, after_ms).is_allowed());
        let peek = Request { is_peek: true, ..request(5, 1_000, 2) };
        assert!(!store.decide(peek, time(START_MS + after_ms)).expect("decided").is_allowed());
    }
    assert_eq!(counts(week, 1_000), (4, 6 + 2 * 999));
    assert_eq!(counts(span(1_000), 1_500), (0, 0));
    store.check_consistency();
    // Denied hits keep the key as long as hits do, and no longer.
    assert!(store.contains(b"k", time(START_MS + week.as_millis() - 1)));
    assert!(!store.contains(b"k", time(START_MS + week.as_millis() + 1_000)));
    assert!(!ask(0, 1, 0).is_allowed());
    assert!(store.forget(b"k", time(START_MS)));
    assert_eq!(counts(week, 0), (0, 0));
}

/// A shadow limit returns the decisions of an enforced one.
#[test]
fn shadow_denials_are_not_counted() {
    let store = Store::builder().build().expect("valid");
    let shadow = Request { is_shadow: true, ..request(2, 1_000, 1) };
    let ask = |after_ms| store.decide(shadow, time(START_MS + after_ms)).expect("decided").is_allowed();
    assert_eq!([0, 1, 2, 3, 1_000, 1_001, 1_002].map(ask), [true, true, false, false, true, true, false]);
    let now = time(START_MS + 1_002);
    let counted = store.hits(b"k", span(60_000), now).estimate;
    assert_eq!((counted, store.denied(b"k", None, None, now).estimate), (4, 0));
}

/// Threads that request one key at the same time never get more than the limit.
#[test]
fn threads_share_a_limit() {
    let store = Store::builder().build().expect("valid");
    let allowed: usize = std::thread::scope(|scope| {
        let ask = || {
            let ask =
                |n: i64| store.limit(b"k", 1_000, span(60_000), 1, time(START_MS + n)).expect("decided");
            (0..1_500).filter(|&n| ask(n).is_allowed()).count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
    });
    assert_eq!(allowed, 1_000);
}

#[test]
fn hits_of_256_milliseconds_are_decided_as_by_an_exact_log() {
    for window_ms in [2_559, 2_560, 2_561, 2_569, 2_570] {
        let store = Store::builder().build().expect("valid");
        let mut log = ExactLog::new();
        for number in 0..1_000 {
            let now_ms = START_MS + 10 * number;
            assert!(log.milliseconds(now_ms, window_ms) <= 256);
            for max in [255, 256, 257, 1_000] {
                let peek = Request { is_peek: true, ..request(max, window_ms, 1) };
                let decision = store.decide(peek, time(now_ms)).expect("decided");
                assert_eq!(decision, log.decide(&peek, now_ms), "{max} in {window_ms} ms, request {number}");
            }
            let request = request(1_000, window_ms, 1);
            assert_eq!(store.decide(request, time(now_ms)).expect("decided"), log.decide(&request, now_ms));
            log.forget_before(now_ms - 2 * window_ms);
        }
    }
}

/// Symptom: `LIMIT k 600 1s` let 318 of 450 requests a second pass. Cause: the times of 257 hits were kept, and those before them had
/// panes as wide as the window. Fix: all times of the last second are kept.
#[test]
fn a_limit_of_a_second_lets_all_pass_that_it_may() {
    for (rate, max, per_second) in
        [(450, 600, 450), (900, 600, 600), (1_000, 1_000, 1_000), (3_000, 1_500, 1_500)]
    {
        let store = Store::builder().build().expect("valid");
        let requests = (0..8 * rate).map(|number| START_MS + number * 1_000 / rate);
        let decide = |now_ms: &i64| store.limit(b"k", max, span(1_000), 1, time(*now_ms)).expect("decided");
        let allowed = requests.filter(|now_ms| decide(now_ms).is_allowed()).count();
        assert_eq!(allowed, 8 * per_second, "{max} at {rate} requests a second");
    }
}

#[test]
fn the_longest_lockout_also_denies_requests_in_the_past() {
    let store = Store::builder().build().expect("valid");
    let lock = Request { lockout: Some(Span::MAX.into()), ..request(0, 1_000, 1) };
    assert!(!store.decide(lock, time(START_MS)).expect("decided").is_allowed());
    for at_ms in [START_MS - 1_000, START_MS - 1, START_MS, START_MS + 1_000] {
        let late = Request { at: Some(time(at_ms)), ..request(5, 1_000, 1) };
        let decision = store.decide(late, time(START_MS)).expect("decided");
        let left = span((START_MS + Span::MAX.as_millis() - at_ms.min(START_MS)).min(Span::MAX.as_millis()));
        assert_eq!((decision.retry, decision.reset_after), (Retry::After(left), Some(left)), "{at_ms}");
    }
}

/// Symptom: during a lockout, a request with a time ahead of the clock and past the end was allowed. Cause: the end was
/// compared with the time of the request. Fix: the clock must have passed the end, too.
#[test]
fn a_lockout_denies_requests_ahead_of_the_clock() {
    let store = Store::builder().build().expect("valid");
    let lock = Request { lockout: Some(span(5_000).into()), ..request(0, 1_000, 1) };
    assert_eq!(store.decide(lock, time(START_MS)).expect("decided").retry, Retry::Never);
    let ask = |at_ms: i64, now_ms: i64, lockout| {
        let request = Request { at: Some(time(START_MS + at_ms)), lockout, ..request(5, 1_000, 1) };
        store.decide(request, time(START_MS + now_ms)).expect("decided").retry
    };
    // The wait is that of the clock. It is not prolonged.
    for at_ms in [1_000, 4_999, 5_000, 9_000] {
        assert_eq!(ask(at_ms, 1_000, Some(span(60_000).into())), Retry::After(span(4_000)), "{at_ms}");
    }
    assert_eq!(ask(9_000, 4_999, None), Retry::After(span(1)));
    assert_eq!(ask(9_000, 5_000, None), Retry::Now);
}

#[test]
fn a_lockout_outlives_the_window() {
    let store = Store::builder().build().expect("valid");
    let lockout = Some(Lockout::of(span(60_000)));
    let ask = |after_ms: i64, is_peek: bool| {
        let request = Request { is_peek, lockout, ..request(2, 1_000, 1) };
        store.decide(request, time(START_MS + after_ms)).expect("decided").retry
    };
    assert_eq!([ask(0, false), ask(1, false)], [Retry::Now; 2]);
    // A peek starts no lockout.
    assert_eq!(ask(2, true), Retry::After(span(998)));
    assert_eq!(ask(3, false), Retry::After(span(60_000)));
    // Further requests do not extend it, and it ends to the millisecond.
    assert_eq!(ask(5_000, false), Retry::After(span(55_003)));
    assert_eq!(ask(60_002, false), Retry::After(span(1)));
    assert_eq!(ask(60_003, false), Retry::Now);
    assert_eq!(store.limit(b"k", 2, span(1_000), 1, time(START_MS + 60_003)).expect("decided").remaining, 0);
}

#[test]
fn an_overdraft_admits_while_there_is_room_for_one() {
    let store = Store::builder().build().expect("valid");
    let ask = |cost: u64, after_ms: i64| {
        let request = Request { admission: Admission::Overdraft, ..request(10, 1_000, cost) };
        let Decision { remaining, retry, .. } =
            store.decide(request, time(START_MS + after_ms)).expect("decided");
        (remaining, retry)
    };
    let wait = |ms| Retry::After(span(ms));
    assert_eq!(ask(9, 0), (1, Retry::Now));
    assert_eq!(ask(0, 1), (1, Retry::Now));
    assert_eq!(ask(500, 2), (-499, Retry::Now));
    // The limit is exceeded until these 500 leave the window, whatever the cost.
    for cost in [0, 1, 500, u64::MAX] {
        assert_eq!(ask(cost, 3), (-499, wait(999)), "{cost}");
    }
    let whole = store.decide(request(10, 1_000, 1), time(START_MS + 3)).expect("decided");
    assert_eq!((whole.remaining, whole.retry), (0, wait(999)), "other requests have no negative rest");
    assert_eq!(store.hits(b"k", span(1_000), time(START_MS + 3)).estimate, 509);
    assert_eq!(ask(1, 1_001), (-499 + 9, wait(1)));
    assert_eq!(ask(11, 1_002), (-1, Retry::Now));
    let none = Request { admission: Admission::Overdraft, ..request(0, 1_000, 0) };
    assert_eq!(store.decide(none, time(START_MS)).expect("decided").retry, Retry::Never);
}

/// Requests that ran at the same time were all admitted, and the last ones report their costs when no room is left.
#[test]
fn what_was_spent_counts_without_room_and_during_a_lockout() {
    let store = Store::builder().build().expect("valid");
    let ask = |admission, cost: u64, lockout_ms: Option<i64>| {
        let lockout = lockout_ms.map(|ms| span(ms).into());
        let request = Request { admission, lockout, ..request(10, 1_000, cost) };
        let Decision { remaining, retry, .. } = store.decide(request, time(START_MS)).expect("decided");
        (remaining, retry)
    };
    assert_eq!(ask(Admission::Spent, 9, None), (1, Retry::Now));
    assert_eq!(ask(Admission::Spent, 5, None), (-4, Retry::Now));
    assert_eq!(ask(Admission::Spent, 6, None), (-10, Retry::Now));
    assert_eq!(ask(Admission::Overdraft, 1, Some(60_000)), (-10, Retry::After(span(60_000))));
    assert_eq!(ask(Admission::Spent, 7, Some(60_000)), (-17, Retry::Now));
    assert_eq!(store.hits(b"k", span(1_000), time(START_MS)).estimate, 27);
    assert_eq!(store.denied(b"k", None, None, time(START_MS)).estimate, 1);
    assert!(!store.decide(request(100, 1_000, 1), time(START_MS + 2_000)).expect("decided").is_allowed());
}

#[test]
fn an_exempt_key_is_never_denied_and_counts() {
    let store = Store::builder().build().expect("valid");
    let lock = Request { lockout: Some(span(60_000).into()), ..request(0, 1_000, 1) };
    assert!(!store.decide(lock, time(START_MS)).expect("decided").is_allowed());
    let exempt = Request { admission: Admission::Exempt, ..lock };
    for number in 1..=5_u64 {
        let decision = store.decide(exempt, time(START_MS + 1)).expect("decided");
        assert_eq!((decision.remaining, decision.retry), (0, Retry::Now), "during the lockout");
        assert_eq!(store.hits(b"k", span(1_000), time(START_MS + 1)).estimate, number);
    }
    assert_eq!(store.denied(b"k", None, None, time(START_MS + 1)).estimate, 1, "the first request");
    let others = store.decide(request(100, 1_000, 1), time(START_MS + 2)).expect("decided");
    assert!(!others.is_allowed(), "other limits of the key still deny");
}

#[test]
fn lockouts_of_a_key_grow_and_are_forgotten() {
    let store = Store::builder().build().expect("valid");
    let growing = |longest_ms| {
        Lockout::growing(span(10_000), "2".parse().expect("a factor"), Some(span(longest_ms)))
            .expect("it fits")
    };
    // Each request is denied.
    let lock = |at_ms: i64, lockout: Lockout| {
        let request = Request { lockout: Some(lockout), ..request(0, 1_000, 1) };
        let decision = store.decide(request, time(START_MS + at_ms)).expect("decided");
        decision.reset_after.map_or(0, Span::as_millis)
    };
    let lockout = growing(60_000);
    assert_eq!([lock(0, lockout), lock(9_999, lockout)], [10_000, 1], "no growth during a lockout");
    assert_eq!(lock(10_000, lockout), 20_000);
    assert_eq!(lock(50_000, lockout), 40_000);
    assert_eq!(lock(90_000, lockout), 60_000, "the longest");
    // It ended at 150 s. What does not grow lasts as long as ever.
    assert_eq!(lock(160_000, Lockout::of(span(1_000))), 1_000);
    assert_eq!(lock(209_999, lockout), 60_000);
    assert_eq!(lock(329_999, lockout), 10_000, "a minute without a lockout");
    // A key lives while its last lockout is remembered, even if its hits have left the retention.
    let (lockout, day_ms) = (growing(30 * 86_400_000), 86_400_000);
    assert_eq!(lock(day_ms, lockout), 10_000);
    store.sweep(lately::Cursor::START, 10_000, time(START_MS + 20 * day_ms));
    assert_eq!(lock(20 * day_ms, lockout), 20_000);
    store.sweep(lately::Cursor::START, 10_000, time(START_MS + 51 * day_ms));
    assert!(store.is_empty(), "it was forgotten");
}

#[test]
fn a_refund_gives_back_what_the_window_has() {
    let store = Store::builder().build().expect("valid");
    let now = time(START_MS + 5_000);
    let used = |window_ms| store.hits(b"k", span(window_ms), now).estimate;
    store.hit_n(b"k", 7, Some(time(START_MS)), now).expect("counted");
    store.hit_n(b"k", 4, Some(now), now).expect("counted");
    let peek = Request { is_peek: true, ..request(9, 2_000, 3) };
    assert_eq!((store.refund(peek, now).expect("decided").remaining, used(60_000)), (5, 11));
    assert_eq!((store.refund(request(9, 2_000, 3), now).expect("decided").remaining, used(60_000)), (8, 8));
    // The seven are not in the window.
    let decision = store.refund(request(9, 2_000, u64::MAX), now).expect("decided");
    assert_eq!((decision.remaining, decision.reset_after, used(60_000)), (9, None, 7));
    let overdrawn = Request { admission: Admission::Overdraft, ..request(2, 60_000, 1) };
    assert_eq!(store.refund(overdrawn, now).expect("decided").remaining, -4);
    store.refund(request(9, 60_000, 6), now).expect("decided");
    assert!(store.is_empty(), "a key without hits is gone");
    assert_eq!(store.refund(request(9, 60_000, 6), now).expect("no key").remaining, 9);
    assert!(store.is_empty());
}

/// Symptom: a refund at an earlier time took hits that came after it, and the limit admitted as many again. Cause: the window of a limit
/// has all later hits, so that it never admits too many, and a refund took from that window. Fix: it takes what came by then.
#[test]
fn a_refund_of_the_past_takes_no_later_hit() {
    for resolution in [span(1_000), hours(1)] {
        for before in [0_i64, 5, 700] {
            let store = Store::builder().resolution(resolution).build().expect("valid");
            let (then, now) = (time(START_MS), time(START_MS + 86_400_000));
            for ms in 0..before {
                store.hit_n(b"k", 1, Some(time(START_MS - before + ms)), then).expect("counted");
            }
            for _ in 0..5 {
                assert!(store.limit(b"k", 5, span(60_000), 1, now).expect("decided").is_allowed());
            }
            let refund = Request { at: Some(then), ..request(5, 60_000, 3) };
            store.refund(refund, now).expect("decided");
            assert!(!store.limit(b"k", 5, span(60_000), 1, now).expect("decided").is_allowed());
            // Those of the 700 are in panes, which may reach past the window.
            let (all, left) =
                (store.hits(b"k", span(604_800_000), now).estimate, (before - 3).max(0).unsigned_abs() + 5);
            assert!(all == left || (before == 700 && (left..=705).contains(&all)), "{all} of {before}");
            store.check_consistency();
        }
    }
}

/// Symptom: a refund took hits that were not in its window, so that the day had fewer than there were. Cause: it took as
/// many as may be in the window. Fix: it takes those that are certainly in it.
#[test]
fn a_refund_takes_no_hit_from_before_its_window() {
    for resolution in [span(1_000), hours(1)] {
        let store = Store::builder().resolution(resolution).build().expect("valid");
        let now = time(START_MS + 400_000);
        // More different milliseconds than are kept, and a hit of now.
        for ms in 0..900 {
            store.hit_n(b"k", 1, Some(time(START_MS + 2_000 + ms)), now).expect("counted");
        }
        store.hit_n(b"k", 1, Some(now), now).expect("counted");
        for (window_ms, most) in [(60_000, 1), (397_500, 500), (397_500, 500)] {
            let before = store.hits(b"k", span(86_400_000), now).estimate;
            store.refund(request(0, window_ms, u64::MAX), now).expect("decided");
            let day = store.hits(b"k", span(86_400_000), now);
            assert!(before - day.lower <= most, "{window_ms}: {before} before, now {day:?}");
        }
        let day = store.hits(b"k", span(86_400_000), now);
        assert!(day.upper.is_none_or(|upper| upper >= 401), "{day:?}: 401 hits are older than all windows");
    }
}

/// Symptom: after a restore into a class with narrower panes, a refund left the newest hits. Cause: it took first from the pane that ends
/// last, and a wide pane of before ends after now. Fix: it takes first from the pane that begins last.
#[test]
fn a_refund_takes_hits_of_now_before_those_of_a_wide_pane() {
    let coarse = Store::builder().resolution(span(1_800_000)).build().expect("valid");
    for ms in 0..600 {
        coarse.hit_n(b"k", 1, Some(time(START_MS + ms)), time(START_MS + 1_000)).expect("counted");
    }
    let now = time(START_MS + 5_000);
    let store = read_again(&coarse, Store::builder().build().expect("valid"), START_MS + 5_000);
    store.hit_n(b"k", 5, Some(now), now).expect("counted");
    let lower = |window_ms| store.hits(b"k", span(window_ms), now).lower;
    assert_eq!((lower(1_000), lower(86_400_000)), (5, 605));
    store.refund(request(1_000, 86_400_000, 4), now).expect("decided");
    assert_eq!((lower(1_000), lower(86_400_000)), (1, 601));
    store.refund(request(1_000, 86_400_000, 4), now).expect("decided");
    assert_eq!((lower(1_000), lower(86_400_000)), (0, 597));
    store.check_consistency();
}

#[test]
fn a_refund_ends_no_lockout() {
    let store = Store::builder().build().expect("valid");
    let lock = Request { lockout: Some(span(60_000).into()), ..request(1, 1_000, 1) };
    let ask = |request| store.decide(request, time(START_MS)).expect("decided").is_allowed();
    assert_eq!([ask(lock), ask(lock)], [true, false]);
    assert_eq!(store.refund(request(1, 1_000, 1), time(START_MS)).expect("decided").remaining, 1);
    assert!(!ask(request(1, 1_000, 1)));
    store.check_consistency();
}
