//! Our store under load, and its clock.

use std::cell::Cell;
use std::hint::black_box;
use std::ops::Range;

use lately::{Op, Outcome, Span, Store, Timestamp};

use super::keys::{Key, Keys, Walk};
use crate::clock::{Both, nanos_of, nanos_of_both};

/// Operations of a batch, as a pipeline of 64 sends them to the server.
pub(crate) const BATCH: usize = 64;
/// The initial time in milliseconds: late in 2023.
pub(crate) const START_MS: i64 = 1_700_000_000_000;
/// Batches per millisecond: a million operations a second.
const BATCHES_PER_MS: usize = 16;

/// A store, its keys, and its time, which depends on the operations so far.
pub(crate) struct Subject<'a> {
    pub(crate) store: Store,
    keys: &'a Keys,
    walk: Walk,
    now_ms: Cell<i64>,
}

impl<'a> Subject<'a> {
    /// An empty store with the default settings.
    pub(crate) fn new(keys: &'a Keys) -> Subject<'a> {
        let store = Store::builder().build().expect("the defaults are valid");
        Subject { store, keys, walk: Walk::new(keys.len()), now_ms: Cell::new(START_MS) }
    }

    /// A store in which every key has one hit.
    pub(crate) fn with_a_hit_each(keys: &'a Keys) -> Subject<'a> {
        let subject = Subject::new(keys);
        let order: Vec<Key> = keys.fill_order().map(|place| keys.bytes()[place]).collect();
        subject.now_ms.set(hit_in_batches(&subject.store, &order, START_MS));
        subject
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ms.get()
    }

    pub(crate) fn now(&self) -> Timestamp {
        timestamp(self.now_ms.get())
    }

    pub(crate) fn advance(&self, by_ms: i64) {
        self.now_ms.set(self.now_ms.get() + by_ms);
    }

    /// The keys of the next `ops` operations.
    pub(crate) fn stride(&self, ops: usize) -> &'a [Key] {
        &self.keys.bytes()[self.walk.stride(ops)]
    }

    /// Nanoseconds per hit, by single calls.
    pub(crate) fn hit_one_by_one(&self, ops: usize) -> f64 {
        self.timed(self.stride(ops), |keys, now_ms| {
            in_batches(keys, now_ms, |batch, now| {
                for key in batch {
                    black_box(self.store.hit(key, now).expect("a hit now is in time"));
                }
            })
        })
    }

    /// Nanoseconds per hit, in batches of 64.
    pub(crate) fn hit_in_batches(&self, ops: usize) -> f64 {
        self.hit_again_in_batches(self.stride(ops))
    }

    /// Nanoseconds per hit of these keys, in batches of 64.
    pub(crate) fn hit_again_in_batches(&self, keys: &[Key]) -> f64 {
        self.timed(keys, |keys, now_ms| hit_in_batches(&self.store, keys, now_ms))
    }

    /// Hits in batches of 64 on one thread, or half of them on each of two. Returns nanoseconds per hit.
    pub(crate) fn hit_on_threads(&self, threads: usize, ops: usize) -> Both {
        let keys = self.stride(ops);
        let (store, now_ms) = (&self.store, self.now_ms());
        let both = share(keys, threads, |keys| {
            hit_in_batches(store, keys, now_ms);
        });
        self.advance(ms_of(keys.len()));
        both
    }

    /// Nanoseconds per read, by single calls.
    pub(crate) fn read_one_by_one(&self, window: Span, ops: usize) -> f64 {
        self.timed(self.stride(ops), |keys, now_ms| {
            in_batches(keys, now_ms, |batch, now| {
                for key in batch {
                    black_box(self.store.hits(key, window, now));
                }
            })
        })
    }

    /// Nanoseconds per read, in batches of 64.
    pub(crate) fn read_in_batches(&self, window: Span, ops: usize) -> f64 {
        let read = |key: &'a Key| Op::Hits { key, window: Some(window), at: None };
        self.timed(self.stride(ops), |keys, now_ms| apply_in_batches(&self.store, keys, now_ms, read))
    }

    /// Hits of all keys in the past `window`.
    pub(crate) fn total(&self, window: Span) -> u64 {
        self.keys.bytes().iter().map(|key| self.store.hits(key, window, self.now()).estimate).sum()
    }

    fn timed<'k>(&self, keys: &'k [Key], work: impl FnOnce(&'k [Key], i64) -> i64) -> f64 {
        let mut end = self.now_ms();
        let nanos = nanos_of(|| end = work(keys, self.now_ms()));
        self.now_ms.set(end);
        nanos / keys.len() as f64
    }
}

/// Runs `work` on all keys on one thread, or on half of them on each of two. Returns nanoseconds per key.
pub(crate) fn share(keys: &[Key], threads: usize, work: impl Fn(&[Key]) + Sync) -> Both {
    let (one, other) = keys.split_at(keys.len() / threads);
    let Both { wall, busy } = nanos_of_both(|| work(one), || work(other));
    let count = keys.len() as f64;
    Both { wall: wall / count, busy: busy / count }
}

/// A hit of now to each of the keys, in batches. Returns the time afterwards.
pub(crate) fn hit_in_batches(store: &Store, keys: &[Key], now_ms: i64) -> i64 {
    apply_in_batches(store, keys, now_ms, hit)
}

/// A hit now.
pub(crate) fn hit(key: &Key) -> Op<'_> {
    Op::Hit { key, weight: 1, at: None }
}

/// Builds the batches without applying them: the cost of the loop.
pub(crate) fn build_batches(keys: &[Key]) -> f64 {
    let mut ops = Vec::with_capacity(BATCH);
    let nanos = nanos_of(|| {
        in_batches(keys, START_MS, |batch, now| {
            ops.clear();
            ops.extend(batch.iter().map(hit));
            black_box((&ops, now));
        });
    });
    nanos / keys.len() as f64
}

fn apply_in_batches<'a>(store: &Store, keys: &'a [Key], now_ms: i64, op: impl Fn(&'a Key) -> Op<'a>) -> i64 {
    let mut ops = Vec::with_capacity(BATCH);
    let mut outcomes: Vec<Outcome> = Vec::with_capacity(BATCH);
    in_batches(keys, now_ms, |batch, now| {
        ops.clear();
        ops.extend(batch.iter().map(&op));
        outcomes.clear();
        store.apply(&ops, now, &mut outcomes);
        black_box(&outcomes);
    })
}

/// Calls `each` for every 64 keys, with their time, which advances. Returns the time afterwards.
fn in_batches<'a>(keys: &'a [Key], now_ms: i64, mut each: impl FnMut(&'a [Key], Timestamp)) -> i64 {
    for (index, batch) in keys.chunks(BATCH).enumerate() {
        each(batch, timestamp(now_ms + ms_of(index * BATCH)));
    }
    now_ms + ms_of(keys.len())
}

/// The time of `ops` operations by the benchmark's clock.
pub(crate) fn ms_of(ops: usize) -> i64 {
    i64::try_from(ops / BATCH / BATCHES_PER_MS).expect("a benchmark is short")
}

/// `ops` places from 0, a batch of them for each time. Not inlined: inlined in its caller, governor takes
/// twice as long in some builds, and the surrounding code should not slow down a rival.
#[inline(never)]
pub(crate) fn places_in_batches(
    places: Range<usize>,
    now_ms: i64,
    mut each: impl FnMut(Range<usize>, i64),
) -> i64 {
    let count = places.len();
    for done in (0..count).step_by(BATCH) {
        let start = places.start + done;
        each(start..(start + BATCH).min(places.end), now_ms + ms_of(done));
    }
    now_ms + ms_of(count)
}

pub(crate) fn timestamp(now_ms: i64) -> Timestamp {
    Timestamp::from_millis(now_ms).expect("a benchmark does not outlast the calendar")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lately::minutes;

    #[test]
    fn every_hit_is_counted() {
        let keys = Keys::shuffled(1_000);
        let subject = Subject::with_a_hit_each(&keys);
        subject.hit_one_by_one(100);
        subject.hit_in_batches(100);
        subject.hit_on_threads(2, 201);
        subject.read_in_batches(minutes(5), 64);
        assert_eq!(subject.total(minutes(5)), 1_401);
    }

    #[test]
    fn time_runs_with_the_operations() {
        assert_eq!((ms_of(1_023), ms_of(1_024), ms_of(1_000_000)), (0, 1, 976));
        let mut seen = Vec::new();
        let end = places_in_batches(5..5 + 1_100, START_MS, |places, now_ms| seen.push((places, now_ms)));
        assert_eq!(end, START_MS + 1);
        assert_eq!(seen.len(), 18);
        assert_eq!(seen[0], (5..69, START_MS));
        assert_eq!(seen[17], (1_093..1_105, START_MS + 1));
    }
}
