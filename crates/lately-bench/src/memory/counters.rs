//! The memory of one counter without a key, after five minutes of hits.

use std::any::Any;
use std::sync::Mutex;

use lately::{AtomicCounter, HitCounter, StripedCounter, Timestamp};
use lately_classics::{
    AtomicRing, BucketLocked, Cached, CountedQueue, Counter, ExactQueue, Locked, MultiLevel, ReadWriteLocked,
    Ring, RunningTotal, SequenceLocked, SharedCounter, Sparse,
};

/// The number of counters that are made, so that one is measured to a few bytes.
pub(crate) const COUNT: u32 = 2_000;

const START_S: i64 = 1_700_000_000;
const SECONDS: i64 = 300;
/// Hits in each second, for the counter that stores every hit.
const HITS_A_SECOND: u32 = 3;

/// Makes a counter with its hits; and its name in the tables.
pub(crate) type Make = (&'static str, fn() -> Box<dyn Any>);

/// The counters, one line each.
pub(crate) const COUNTERS: [Make; 16] = [
    ("HitCounter", || hit(HitCounter::new(), |counter, second| _ = counter.hit(second.cast_unsigned()))),
    ("HitCounter in a mutex", || {
        hit(Mutex::new(HitCounter::new()), |counter, second| {
            _ = counter.get_mut().map(|counter| counter.hit(second.cast_unsigned()));
        })
    }),
    ("AtomicCounter", || hit(AtomicCounter::new(), |counter, second| _ = counter.hit(at(second)))),
    ("StripedCounter", || hit(StripedCounter::new(), |counter, second| _ = counter.hit(at(second)))),
    ("exact queue", || classic(ExactQueue::keeping(SECONDS))),
    ("counted queue", || classic(CountedQueue::new(SECONDS))),
    ("ring", || classic(Ring::new(300))),
    ("running total", || classic(RunningTotal::new(300))),
    ("cached ring", || classic(Cached::new(Ring::new(300)))),
    ("multi-level", || classic(MultiLevel::new())),
    ("sparse", || classic(Sparse::new(SECONDS))),
    ("global mutex, classic", || shared(Locked::new(RunningTotal::new(300)))),
    ("reader-writer lock, classic", || shared(ReadWriteLocked::new(300))),
    ("sequence lock, classic", || shared(SequenceLocked::new(300))),
    ("lock per bucket, classic", || shared(BucketLocked::new(300))),
    ("atomic ring, classic", || shared(AtomicRing::new(300))),
];

fn classic(counter: impl Counter + 'static) -> Box<dyn Any> {
    hit(counter, |counter, second| _ = counter.hit(second, 1))
}

fn shared(counter: impl SharedCounter + 'static) -> Box<dyn Any> {
    hit(counter, |counter, second| _ = counter.hit(second, 1))
}

/// Five minutes of hits.
fn hit<C: 'static>(mut counter: C, hit: impl Fn(&mut C, i64)) -> Box<dyn Any> {
    for second in START_S..START_S + SECONDS {
        (0..HITS_A_SECOND).for_each(|_| hit(&mut counter, second));
    }
    Box::new(counter)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1_000).expect("a time of this century")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_filled_with_their_hits() {
        let of = |name: &str| COUNTERS.iter().find(|(other, _)| *other == name).expect("in the table").1();
        let mut ring = of("ring").downcast::<Ring>().expect("a ring");
        assert_eq!(ring.hits(START_S + SECONDS - 1), 900);
        let striped = of("StripedCounter").downcast::<StripedCounter>().expect("a striped counter");
        assert_eq!(striped.hits(lately::minutes(5), at(START_S + SECONDS - 1)), 900);
    }
}
