//! One counter hit from two threads at once.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use governor::RateLimiter;
use governor::clock::FakeRelativeClock;
use lately::{HitCounter, Store};

use super::rivals::quota;
use super::scale::Scale;
use super::subject::{START_MS, hit_in_batches, timestamp};
use crate::clock::nanos_of_both;
use crate::rounds::{Contender, interleave, median};
use crate::row::{Must, Row};

/// Hits between looks at the time.
const PER_SECOND: usize = 1_000;
const START_S: u64 = 1_700_000_000;
/// The key both threads hit.
const HOT: [u8; 16] = *b"key:000000000000";

/// A row for each: nanoseconds of a hit on either thread.
pub(crate) fn rows(scale: &Scale) -> Vec<Row> {
    let ops = scale.steps;
    let number = AtomicU64::new(0);
    let limiter = RateLimiter::direct_with_clock(quota(), FakeRelativeClock::default());
    let locked = Mutex::new(HitCounter::new());
    let store = Store::builder().build().expect("the defaults are valid");
    let hot = vec![HOT; ops];
    let mut contenders = [
        Contender::new("fetch_add, no window", || {
            on_both(ops, |_| {
                number.fetch_add(1, Relaxed);
            })
        }),
        Contender::new("governor", || {
            on_both(ops, |_| {
                black_box(limiter.check().is_ok());
            })
        }),
        Contender::new("HitCounter in a mutex", || {
            on_both(ops, |second| {
                locked.lock().expect("nobody panics with the lock").hit(second);
            })
        }),
        Contender::new("Store, one key, one at a time", || {
            on_both(ops, |second| {
                let now = timestamp(START_MS + second.cast_signed() - START_S.cast_signed());
                black_box(store.hit(&HOT, now).is_ok());
            })
        }),
        Contender::new("Store, one key, batches of 64", || {
            let hit = || {
                hit_in_batches(&store, &hot, START_MS);
            };
            nanos_of_both(hit, hit).wall / ops as f64
        }),
    ];
    let figures = interleave(&mut contenders, scale.rounds);
    let row = |(contender, figures): (&Contender<'_>, &Vec<f64>)| {
        let name = format!("two threads on one counter: {}", contender.name);
        Row::new("library", name, median(figures), "ns", Must::Nothing)
    };
    contenders.iter().zip(&figures).map(row).collect()
}

/// `ops` hits on each thread; nanoseconds from one hit of a thread to its next.
fn on_both(ops: usize, hit: impl Fn(u64) + Sync) -> f64 {
    let work = || {
        for (second, first) in (START_S..).zip((0..ops).step_by(PER_SECOND)) {
            (first..ops.min(first + PER_SECOND)).for_each(|_| hit(black_box(second)));
        }
    };
    nanos_of_both(work, work).wall / ops as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_threads_hit() {
        let hits = AtomicU64::new(0);
        let last = AtomicU64::new(0);
        on_both(2_500, |second| {
            hits.fetch_add(1, Relaxed);
            last.fetch_max(second, Relaxed);
        });
        assert_eq!((hits.into_inner(), last.into_inner()), (5_000, START_S + 2));
    }
}
