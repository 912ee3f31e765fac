//! Rates: admitted hits are counted, and the state of the rate is kept with its key.

use lately::{Decision, Rate, Retry, Span, Store, Throttle, Timestamp, days, minutes, seconds};

const START_MS: i64 = 1_700_000_000_000;

fn after(ms: i64) -> Timestamp {
    Timestamp::from_millis(START_MS + ms).expect("a time")
}

fn store() -> Store {
    Store::builder().build().expect("valid")
}

fn ask(store: &Store, rate: Rate, quantity: i64, now: Timestamp) -> Decision {
    store.throttle(Throttle { key: b"k", rate, quantity }, now).expect("decided")
}

#[test]
fn hits_admitted_by_a_rate_are_counted() {
    let store = store();
    // Three at once, and one every two seconds.
    let rate = Rate::new(2, 30, seconds(60)).expect("a rate");
    let mut allowed = 0;
    for ms in (0..60_000).step_by(250) {
        let decision = ask(&store, rate, 1, after(ms));
        allowed += u64::from(decision.is_allowed());
        let counted = store.hits(b"k", minutes(5), after(ms)).estimate;
        let denied = store.denied(b"k", None, None, after(ms)).estimate;
        assert_eq!((counted, counted + denied), (allowed, u64::try_from(ms / 250 + 1).expect("small")));
    }
    assert_eq!(allowed, 3 + 29);
    // Other hits of the key do not change the rate.
    store.hit_n(b"k", 1_000, None, after(60_000)).expect("counted");
    assert!(ask(&store, rate, 1, after(60_000)).is_allowed());
    store.check_consistency();
}

#[test]
fn peeks_change_nothing_and_refunds_free_room() {
    let store = store();
    let rate = Rate::new(4, 1, seconds(10)).expect("a rate");
    let free = Decision { max: 5, remaining: 5, retry: Retry::Now, reset_after: None };
    assert_eq!(ask(&store, rate, 0, after(0)), free);
    assert_eq!(ask(&store, rate, -3, after(0)), free);
    assert!(store.is_empty());
    let taken = ask(&store, rate, 5, after(0));
    assert_eq!(taken, Decision { remaining: 0, reset_after: Some(seconds(50)), ..free });
    assert_eq!(ask(&store, rate, 0, after(0)), taken);
    assert_eq!(ask(&store, rate, 1, after(1)).retry, Retry::After(Span::from_millis(9_999).expect("a span")));
    assert_eq!(ask(&store, rate, 6, after(1)).retry, Retry::Never);
    assert_eq!(ask(&store, rate, -2, after(0)).remaining, 2);
    assert_eq!(ask(&store, rate, 2, after(1)).remaining, 0);
    assert_eq!(store.hits(b"k", minutes(5), after(1)).estimate, 7);
    assert_eq!(store.denied(b"k", None, None, after(1)).estimate, 7);
}

/// One hit a month takes longer than the retention.
#[test]
fn a_key_stays_until_its_rate_has_recovered() {
    let store = store();
    let rate = Rate::new(0, 1, days(30)).expect("a rate");
    assert!(ask(&store, rate, 1, after(0)).is_allowed());
    let day_ms = days(1).as_millis();
    let left = store.time_to_live(b"k", after(10 * day_ms));
    assert_eq!(left, Some(days(20)));
    assert!(!ask(&store, rate, 1, after(30 * day_ms - 1)).is_allowed());
    assert!(ask(&store, rate, 1, after(30 * day_ms)).is_allowed());
    store.check_consistency();
    assert!(!store.contains(b"k", after(61 * day_ms)));
}

/// Threads that request one key at the same time never get more than the rate allows.
#[test]
fn threads_share_a_rate() {
    let store = store();
    let rate = Rate::new(999, 1, days(1)).expect("a rate");
    let allowed: usize = std::thread::scope(|scope| {
        let ask = || (0..1_500).filter(|_| ask(&store, rate, 1, after(0)).is_allowed()).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
    });
    assert_eq!(allowed, 1_000);
    assert_eq!(store.hits(b"k", minutes(5), after(0)).estimate, 1_000);
}
