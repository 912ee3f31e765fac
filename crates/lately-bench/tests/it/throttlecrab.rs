//! Decisions about rates equal those of throttlecrab's library, except where it deviates from GCRA.
//!
//! Both are the generic cell rate algorithm. Its `max_burst` is the most hits at once, which is one more than our burst, as in
//! redis-cell. It computes in nanoseconds, so the interval of a hit is a whole number of them here.
//!
//! It deviates in these cases, which the traces avoid:
//! - A burst of 1 limits nothing: the state of a key expires when it is written.
//! - A key whose burst is free again, and that is still kept, saves up for a second burst. It is kept for the time of its
//!   burst, so the traces wait for that time whenever nothing is used any more.
//! - A request above the burst gets a wait, although no wait is enough.
//! - `reset_after` is longer by the time of the burst. It is not compared.
//! - A negative quantity is an error.
//! - Its server returns waits in whole seconds, rounded down: 0 for less than a second.

use std::time::{Duration, SystemTime};

use lately::{Rate, Retry, Span, Store, Throttle, Timestamp};
use proptest::prelude::*;
use throttlecrab::{CellError, PeriodicStore, RateLimiter};

const START_MS: i64 = 1_700_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;
const MILLISECOND_NS: i64 = 1_000_000;

/// The hits in a period, and the most hits at once.
#[derive(Clone, Copy, Debug)]
struct Limits {
    most: i64,
    count: i64,
    period_s: i64,
}

impl Limits {
    /// The interval between two hits.
    fn interval_ns(self) -> i64 {
        self.period_s * SECOND_NS / self.count
    }

    fn rate(self) -> Rate {
        let [burst, count, period_s] = [self.most - 1, self.count, self.period_s].map(i64::unsigned_abs);
        Rate::new(burst, count, Span::from_seconds(period_s).expect("short")).expect("a rate")
    }
}

fn limits() -> impl Strategy<Value = Limits> {
    let count = prop_oneof![1..50_i64, 1..5_000_i64, Just(1_000_000)];
    let rates =
        (2..60_i64, count, 1..4_000_i64).prop_map(|(most, count, period_s)| Limits { most, count, period_s });
    rates.prop_filter("a hit takes whole nanoseconds", |limits| {
        limits.period_s * SECOND_NS % limits.count == 0
    })
}

/// Our store and their limiter, with the same time.
struct Pair {
    limits: Limits,
    ours: Store,
    theirs: RateLimiter<PeriodicStore>,
    now_ms: i64,
}

impl Pair {
    fn new(limits: Limits) -> Pair {
        let ours = Store::builder().build().expect("valid");
        Pair { limits, ours, theirs: RateLimiter::new(PeriodicStore::new()), now_ms: START_MS }
    }

    fn ours(&self, quantity: i64) -> lately::Decision {
        let now = Timestamp::from_millis(self.now_ms).expect("a time");
        self.ours.throttle(Throttle { key: b"k", rate: self.limits.rate(), quantity }, now).expect("decided")
    }

    fn theirs(&mut self, quantity: i64) -> Result<(bool, throttlecrab::RateLimitResult), CellError> {
        let Limits { most, count, period_s } = self.limits;
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(self.now_ms.unsigned_abs());
        self.theirs.rate_limit("k", most, count, period_s, quantity, now)
    }

    /// Waits for this many thousandths of an interval. Waits longer if nothing is used then.
    fn wait(&mut self, thousandths: i64) {
        self.now_ms += self.limits.interval_ns() * thousandths / 1_000 / MILLISECOND_NS;
        if self.ours(0).reset_after.is_none() {
            self.now_ms += self.limits.interval_ns() * self.limits.most / MILLISECOND_NS + 1;
        }
    }

    fn ask(&mut self, quantity: i64) {
        let ours = self.ours(quantity);
        let (is_allowed, theirs) = self.theirs(quantity).expect("decided");
        assert_eq!((ours.is_allowed(), ours.max), (is_allowed, theirs.limit.unsigned_abs()));
        assert_eq!(ours.remaining, theirs.remaining);
        let waits_ms = theirs.retry_after.as_nanos().div_ceil(u128::from(MILLISECOND_NS.unsigned_abs()));
        match ours.retry {
            Retry::Now => assert_eq!(waits_ms, 0),
            Retry::After(wait) => assert_eq!(u128::from(wait.as_millis().unsigned_abs()), waits_ms),
            Retry::Never => assert!(quantity > self.limits.most, "{quantity}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn rates_are_decided_as_by_throttlecrab(
        limits in limits(),
        steps in prop::collection::vec((prop_oneof![Just(0_i64), 0..3_000_i64, 0..40_000_i64], 0..6_i64, any::<bool>()), 1..200),
    ) {
        let mut pair = Pair::new(limits);
        for (thousandths, quantity, is_many) in steps {
            pair.wait(thousandths);
            pair.ask(if is_many { quantity * limits.most / 4 } else { quantity });
        }
    }
}

#[test]
fn where_throttlecrab_deviates() {
    let of = |most, count, period_s| Pair::new(Limits { most, count, period_s });
    // A burst of 1 limits nothing.
    let mut one = of(1, 1, 60);
    assert!((0..3).all(|_| one.theirs(1).expect("decided").0));
    assert_eq!([(); 3].map(|()| one.ours(1).is_allowed()), [true, false, false]);
    // With a burst of ten, it allows nearly twice as many after a while, and ten after a longer while.
    for (after_ms, expected) in [(17_900, 17), (18_000, 10)] {
        let mut ten = of(10, 60, 60);
        for (wait_ms, expected) in [(0, 10), (after_ms, expected)] {
            ten.now_ms += wait_ms;
            assert_eq!(
                (0..30).filter(|_| ten.theirs(1).expect("decided").0).count(),
                expected,
                "{after_ms} ms"
            );
            assert_eq!((0..30).filter(|_| ten.ours(1).is_allowed()).count(), 10, "{after_ms} ms");
        }
    }
    let mut ten = of(10, 60, 60);
    assert_eq!(
        (ten.theirs(11).expect("decided").1.retry_after.as_secs(), ten.ours(11).retry),
        (1, Retry::Never)
    );
    assert!(matches!(ten.theirs(-1), Err(CellError::NegativeQuantity(-1))));
}
