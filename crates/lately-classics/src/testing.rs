//! Shared parts of the tests of all classics: the examples, random traces against the exact queue, and
//! threads.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use crate::{Counter, ExactQueue, SharedCounter};

/// A hit or a read, in whole seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Hit { second: i64, count: u64 },
    Read { window_s: i64, at_s: i64 },
}

/// The starts of traces: around the epoch, now, and at both ends of the range of seconds.
const STARTS: [i64; 5] = [0, -1_000, 1_700_000_000, i64::MIN, i64::MAX - 1_000];

/// The examples, which every classic must answer exactly.
pub(crate) fn check_examples<C: Counter>(make: impl Fn() -> C) {
    let mut counter = make();
    assert_eq!((counter.newest(), counter.hits(0), counter.hits(300)), (None, 0, 0));
    assert_eq!((counter.load_latest(300), counter.rate(300)), (0, 0.0));
    for second in [1, 2, 3] {
        assert!(counter.hit(second, 1));
    }
    assert_eq!(counter.hits(4), 3);
    assert!(counter.hit(300, 1));
    assert_eq!((counter.hits(300), counter.hits(301)), (4, 3));

    let mut counter = make();
    for second in [1, 2, 2, 3, 150, 301] {
        assert!(counter.hit(second, 1));
    }
    assert_eq!((counter.load(300, 301), counter.load(200, 301)), (5, 2));
    assert_eq!((counter.load_latest(300), counter.load_latest(200)), (5, 2));
    assert_eq!(counter.rate(300), 5.0 / 300.0);

    let mut counter = make();
    assert!(counter.hit(7, 0));
    assert_eq!((counter.newest(), counter.hits(7)), (None, 0), "a count of 0 changes nothing");
}

/// Every read of random traces equals that of the exact queue over `span_s` seconds.
pub(crate) fn check_equality<C: Counter>(span_s: i64, make: impl Fn() -> C) {
    check_equality_from(&STARTS, span_s, make);
}

fn check_equality_from<C: Counter>(starts: &[i64], span_s: i64, make: impl Fn() -> C) {
    for_each_step_from(starts, make, |counter, exact, step| match *step {
        Step::Hit { .. } => assert_eq!(counter.newest(), exact.newest(), "{step:?}"),
        Step::Read { window_s, at_s } => {
            let newest = exact.newest().unwrap_or(at_s);
            let kept_s = i128::from(at_s) - i128::from(newest) + i128::from(span_s);
            let window_s_kept = i64::try_from(kept_s.min(i128::from(window_s))).unwrap_or(0);
            assert_eq!(counter.load(window_s, at_s), exact.load(window_s_kept, at_s), "{step:?}");
        }
    });
}

/// Runs random traces on a counter and the exact queue. Calls `check` with both after each hit and at each
/// read.
pub(crate) fn for_each_step<C: Counter>(
    make: impl Fn() -> C,
    check: impl Fn(&mut C, &mut ExactQueue, &Step),
) {
    for_each_step_from(&STARTS, make, check);
}

fn for_each_step_from<C: Counter>(
    starts: &[i64],
    make: impl Fn() -> C,
    check: impl Fn(&mut C, &mut ExactQueue, &Step),
) {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(200) });
    let run = runner.run(&steps(starts), |steps| {
        let (mut counter, mut exact) = (make(), ExactQueue::new());
        for step in &steps {
            if let Step::Hit { second, count } = *step {
                counter.hit(second, count);
                exact.hit(second, count);
            }
            check(&mut counter, &mut exact, step);
        }
        Ok(())
    });
    if let Err(failure) = run {
        panic!("{failure}");
    }
}

/// A trace that moves forward in time, with early and late hits and reads around it.
fn steps(starts: &[i64]) -> impl Strategy<Value = Vec<Step>> {
    let start = select(starts.to_vec());
    let gap = prop_oneof![6 => 0_i64..4, 3 => 0_i64..400, 1 => 0_i64..100_000];
    let back = prop_oneof![6 => Just(0_i64), 3 => -20_i64..20, 3 => -10_i64..400, 1 => 0_i64..700_000];
    let window = prop_oneof![
        2 => select(vec![i64::MIN, 0, 1, 7, 300, 301, 86_400, 604_800, i64::MAX]),
        2 => 1_i64..20,
        2 => 1_i64..400,
        2 => 1_i64..1_000_000,
    ];
    let step = (gap, back, window, 0_u64..4, any::<bool>());
    (start, prop::collection::vec(step, 1..200)).prop_map(|(start, steps)| {
        let mut now: i64 = start;
        let walk = steps.into_iter().map(|(gap, back, window_s, count, is_read)| {
            now = now.saturating_add(gap);
            let second = now.saturating_sub(back);
            if is_read { Step::Read { window_s, at_s: second } } else { Step::Hit { second, count } }
        });
        walk.collect()
    })
}

/// Makes a thread-safe counter a [`Counter`].
struct Alone<S>(S);

impl<S: SharedCounter> Counter for Alone<S> {
    fn hit(&mut self, second: i64, count: u64) -> bool {
        self.0.hit(second, count)
    }

    fn load(&mut self, window_s: i64, at_s: i64) -> u64 {
        self.0.load(window_s, at_s)
    }

    fn newest(&self) -> Option<i64> {
        self.0.newest()
    }
}

/// [`check_equality`] of a thread-safe counter in one thread; and the examples, if it keeps their span.
pub(crate) fn check_shared<S: SharedCounter>(span_s: i64, make: impl Fn() -> S) {
    check_shared_from(&STARTS, span_s, make);
}

/// [`check_shared`] with traces that start at `starts`, for counters that do not support all seconds.
pub(crate) fn check_shared_from<S: SharedCounter>(starts: &[i64], span_s: i64, make: impl Fn() -> S) {
    check_equality_from(starts, span_s, || Alone(make()));
    if span_s >= 300 {
        check_examples(|| Alone(make()));
        let counter = make();
        assert!(counter.hit(1, 2) && counter.hit(300, 1));
        assert_eq!((counter.hits(300), counter.hits(301)), (3, 1));
    }
}

/// Four threads lose no hit and double none. `make` gets the number of slots.
pub(crate) fn check_threads<S: SharedCounter>(make: impl Fn(usize) -> S) {
    check_bounds(&make(300));
    check_rolls(&make(7), 7);
}

/// Every read is between the hits acknowledged before it started and the hits sent before it ended.
fn check_bounds(counter: &impl SharedCounter) {
    const HITS: u64 = 20_000;
    let (sent, acknowledged, running) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(4));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (sent, acknowledged, running) = (&sent, &acknowledged, &running);
            scope.spawn(move || {
                for hit in 0..HITS {
                    let second = i64::try_from(hit * 250 / HITS + thread).expect("small");
                    sent.fetch_add(1, SeqCst);
                    assert!(counter.hit(second, 1));
                    acknowledged.fetch_add(1, SeqCst);
                    if hit % 64 == 0 {
                        let before = acknowledged.load(SeqCst);
                        let load = counter.load(300, 299);
                        let after = sent.load(SeqCst);
                        assert!((before..=after).contains(&load), "{before} <= {load} <= {after}");
                    }
                }
                running.fetch_sub(1, SeqCst);
            });
        }
        // A thread that only reads.
        while running.load(SeqCst) > 0 {
            let before = acknowledged.load(SeqCst);
            assert!(counter.load(300, 299) >= before);
        }
    });
    assert_eq!(counter.load(300, 299), 4 * HITS);
}

/// After thousands of rounds of the ring, each second that is kept has the hits that were acknowledged.
fn check_rolls(counter: &impl SharedCounter, slots: i64) {
    const SECONDS: i64 = 5_000;
    let threads: Vec<Vec<u64>> = thread::scope(|scope| {
        let threads = [(); 4].map(|()| {
            scope.spawn(|| {
                let counted = |second| (0..8).filter(|_| counter.hit(second, 1)).count() as u64;
                (0..SECONDS).map(counted).collect::<Vec<u64>>()
            })
        });
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for second in SECONDS - slots..SECONDS {
        let counted: u64 =
            threads.iter().map(|seconds| seconds[usize::try_from(second).expect("small")]).sum();
        assert_eq!(counter.load(1, second), counted, "second {second}");
    }
    assert_eq!(counter.newest(), Some(SECONDS - 1));
}
