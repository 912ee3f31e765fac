//! Features that users of redis-cell requested: rates above a thousand and above a million a second, peeks, and refunds.

use lately::{Rate, Retry, Store, Throttle, Timestamp, minutes, seconds};

const START_MS: i64 = 1_700_000_000_000;

/// Checks a rate of `(burst, count, period in seconds)`. Each step has the milliseconds since the start, the number of
/// requests, their quantity, the expected number of allowed requests, and the expected remainder after the last one.
fn check(rate: (u64, u64, u64), steps: &[(i64, u64, i64, u64, u64)]) {
    let (burst, count, period_s) = rate;
    let rate = Rate::new(burst, count, seconds(period_s)).expect("a rate");
    let store = Store::builder().build().expect("valid");
    for &(after_ms, requests, quantity, expected, expected_left) in steps {
        let now = Timestamp::from_millis(START_MS + after_ms).expect("a time");
        let ask = |_| store.throttle(Throttle { key: b"k", rate, quantity }, now).expect("decided");
        let decisions: Vec<_> = (0..requests).map(ask).collect();
        let allowed = decisions.iter().filter(|decision| decision.is_allowed()).count() as u64;
        let left = decisions.last().map(lately::Decision::left);
        assert_eq!((allowed, left), (expected, Some(expected_left)), "{rate:?} after {after_ms} ms");
    }
}

#[test]
fn rates_past_a_thousand_a_second_are_kept() {
    // Two hits each millisecond, and two thousand at once.
    check(
        (1_999, 2_000, 1),
        &[(0, 3_000, 1, 2_000, 0), (1, 9, 1, 2, 0), (2, 9, 1, 2, 0), (502, 3_000, 1, 1_000, 0)],
    );
    // 90,000 a minute are 1,500 a second, or three hits in two milliseconds.
    check((2, 90_000, 60), &[(0, 9, 1, 3, 0), (1, 9, 1, 1, 0), (2, 9, 1, 2, 0), (3, 9, 1, 1, 0)]);
}

#[test]
fn rates_past_a_million_a_second_are_kept() {
    check(
        (1_999_999, 2_000_000, 1),
        &[(0, 3_000, 1_000, 2_000, 0), (1, 9_000, 1, 2_000, 0), (501, 3_000, 1_000, 1_000, 0)],
    );
    check(
        (5_999, 3_000_000, 1),
        &[(0, 9_000, 1, 6_000, 0), (1, 9_000, 1, 3_000, 0), (3, 9_000, 1, 6_000, 0)],
    );
}

#[test]
fn a_quantity_of_zero_takes_nothing() {
    check(
        (4, 5, 1),
        &[
            (0, 9, 0, 9, 5),
            (0, 3, 1, 3, 2),
            (0, 9, 0, 9, 2),
            (0, 9, 1, 2, 0),
            (0, 9, 0, 9, 0),
            (200, 9, 0, 9, 1),
        ],
    );
}

#[test]
fn a_negative_quantity_gives_back() {
    check(
        (4, 5, 60),
        &[
            (0, 9, 1, 5, 0),
            (0, 1, -2, 1, 2),
            (0, 9, 1, 2, 0),
            (0, 2, -2, 2, 4),
            (0, 9, -2, 9, 5),
            (0, 9, 1, 5, 0),
        ],
    );
}

#[test]
fn peeks_and_refunds_are_not_counted() {
    let store = Store::builder().build().expect("valid");
    let rate = Rate::new(4, 5, minutes(1)).expect("a rate");
    let now = Timestamp::from_millis(START_MS).expect("a time");
    let ask = |quantity| store.throttle(Throttle { key: b"k", rate, quantity }, now).expect("decided");
    let hits = || store.hits(b"k", minutes(5), now).estimate;
    assert!(ask(0).is_allowed() && hits() == 0);
    assert!(ask(3).is_allowed() && hits() == 3);
    // A refund does not remove hits.
    assert!(ask(-1).is_allowed() && hits() == 3);
    assert!(matches!(ask(4).retry, Retry::After(_)) && hits() == 3);
    assert!(ask(3).is_allowed() && hits() == 6);
    assert_eq!((ask(6).retry, hits()), (Retry::Never, 6));
}
