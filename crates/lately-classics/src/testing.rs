//! What the tests of all classics share: the examples, and random traces against the exact queue.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use crate::{Counter, ExactQueue};

/// A hit or a read, in whole seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Hit { second: i64, count: u64 },
    Read { window_s: i64, at_s: i64 },
}

/// The examples every classic must give to the number.
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

/// Every read of random traces equals that of the exact queue over the `span_s` seconds kept.
pub(crate) fn check_equality<C: Counter>(span_s: i64, make: impl Fn() -> C) {
    for_each_step(make, |counter, exact, step| match *step {
        Step::Hit { .. } => assert_eq!(counter.newest(), exact.newest(), "{step:?}"),
        Step::Read { window_s, at_s } => {
            let newest = exact.newest().unwrap_or(at_s);
            let kept_s = i128::from(at_s) - i128::from(newest) + i128::from(span_s);
            let window_s_kept = i64::try_from(kept_s.min(i128::from(window_s))).unwrap_or(0);
            assert_eq!(counter.load(window_s, at_s), exact.load(window_s_kept, at_s), "{step:?}");
        }
    });
}

/// Runs random traces on a counter and the exact queue; `check` sees both after each hit and at
/// each read.
pub(crate) fn for_each_step<C: Counter>(
    make: impl Fn() -> C,
    check: impl Fn(&mut C, &mut ExactQueue, &Step),
) {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(200) });
    let run = runner.run(&steps(), |steps| {
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

/// A walk forward in time with hits and reads around it, early and late.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let start = select(vec![0, -1_000, 1_700_000_000, i64::MIN, i64::MAX - 1_000]);
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
