//! Tests of the counters shared by threads: against the exact model in one thread, and from many threads.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use lately::limits::MAX_STRIPES;
use lately::{
    AtomicCounter, HitError, Settings, SettingsError, Span, StripedCounter, Timestamp, milliseconds, minutes,
    seconds,
};
use lately_classics::strategies::disordered_ops;
use lately_classics::{HitOutcome, ModelCount, ModelSettings, Op, RUNGS_MS, Subject, drive_from};
use proptest::prelude::*;
use proptest::sample::select;

use crate::trace::{for_a_counter, warmed};

/// Both counters, which get the same operations and must agree.
struct Shared {
    atomic: AtomicCounter,
    striped: StripedCounter,
    model: ModelSettings,
    /// The latest time of any call.
    now_ms: i64,
}

fn span(millis: i64) -> Span {
    Span::from_millis(millis).expect("a span")
}

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).expect("a time")
}

/// The settings of a model that keeps hits exactly as long as a counter of `window_ms`.
fn model(resolution_ms: i64, window_ms: i64) -> ModelSettings {
    let asked =
        Settings::builder().resolution(span(resolution_ms)).window(span(window_ms)).retain(Span::MAX).build();
    let exact_ms = asked.expect("valid").exact().as_millis();
    let retain_ms = (exact_ms + resolution_ms - 1) / resolution_ms * resolution_ms;
    ModelSettings { resolution_ms, window_ms, exact_ms: retain_ms, retain_ms, ..ModelSettings::default() }
}

impl Shared {
    fn new(model: ModelSettings) -> Shared {
        let (resolution, window) = (span(model.resolution_ms), span(model.window_ms));
        Shared {
            atomic: AtomicCounter::with_window(resolution, window).expect("valid"),
            striped: StripedCounter::with_stripes(resolution, window, 2).expect("valid"),
            model,
            now_ms: 0,
        }
    }

    fn hits(&self, window_ms: i64, at_ms: i64) -> u64 {
        let (window, at) = (span(window_ms), time(at_ms));
        let hits = self.atomic.hits(window, at);
        assert_eq!(self.striped.hits(window, at), hits);
        assert_eq!(self.atomic.hits(window, at), hits, "asked again");
        hits
    }
}

impl Subject for Shared {
    fn hit(&mut self, _key: u8, at_ms: i64, count: u64, now_ms: i64) -> HitOutcome {
        self.now_ms = self.now_ms.max(now_ms);
        let outcome = self.atomic.hit_n(count, time(at_ms));
        // Every second hit comes from another thread and goes to the other stripe.
        let striped = if count.is_multiple_of(2) {
            self.striped.hit_n(count, time(at_ms))
        } else {
            thread::scope(|scope| {
                scope.spawn(|| self.striped.hit_n(count, time(at_ms))).join().expect("no panic")
            })
        };
        assert_eq!(striped, outcome);
        match outcome {
            Ok(()) => HitOutcome::Hits(self.hits(self.model.window_ms, at_ms)),
            Err(HitError::Late { .. }) => HitOutcome::Late,
            Err(error) => panic!("{error}"),
        }
    }

    fn read(&mut self, _key: u8, at_ms: i64, window_ms: i64, now_ms: i64) -> ModelCount {
        let hits = self.hits(window_ms, at_ms);
        self.now_ms = self.now_ms.max(now_ms);
        let retention = self.model.retain_ms / self.model.resolution_ms;
        let pane = |ms: i64| ms.div_euclid(self.model.resolution_ms);
        let window = (window_ms + self.model.resolution_ms - 1) / self.model.resolution_ms;
        let known = pane(at_ms) - window >= pane(self.now_ms) - retention;
        ModelCount {
            estimate: hits,
            lower: hits,
            upper: known.then_some(hits),
            cell_ms: self.model.resolution_ms,
        }
    }

    fn hit_once(&mut self, _key: u8, _at_ms: i64, _count: u64, _id: u8, _now_ms: i64) -> HitOutcome {
        panic!("a counter has no ids");
    }

    fn hit_member(&mut self, _key: u8, _at_ms: i64, _count: u64, _member: u8, _now_ms: i64) -> HitOutcome {
        panic!("a counter has no members");
    }

    fn unique(&mut self, _key: u8, _window_ms: i64, _now_ms: i64) -> Option<(u64, bool)> {
        panic!("a counter has no members");
    }

    fn forget(&mut self, _key: u8, _now_ms: i64) {
        panic!("a counter cannot forget");
    }

    fn merge(&mut self, _key: u8, _now_ms: i64) {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn traces_of_shared_counters(
        resolution_ms in prop_oneof![Just(1_000), select(RUNGS_MS[..19].to_vec())],
        panes in prop_oneof![Just(300_i64), 1_i64..400],
        warm_up in prop::collection::vec(0_i64..5_000, 0..300),
        ops in disordered_ops(),
        start_ms in select(vec![0, 1_000_123, 1_700_000_000_123, Timestamp::MAX.as_millis() - 1_000_123]),
    ) {
        let model = model(resolution_ms, (panes * resolution_ms).min(Span::MAX.as_millis() / 2));
        let light = |op: Op| match op {
            Op::Hit { key, offset_ms, count } => Op::Hit { key, offset_ms, count: count.min(300) },
            // A counter has neither ids nor members.
            Op::HitOnce { key, offset_ms, count, .. } | Op::HitMember { key, offset_ms, count, .. } => Op::Hit { key, offset_ms, count: count.min(300) },
            op => op,
        };
        let ops = for_a_counter(&warmed(&warm_up, ops.into_iter().map(light).collect()), &model);
        drive_from(start_ms, &mut Shared::new(model), &model, &ops).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn the_examples_on_shared_counters() {
    let second = |second| Timestamp::from_seconds(second).expect("a time");
    let counter = AtomicCounter::new();
    assert_eq!((counter.newest(), counter.hits(minutes(5), second(0))), (None, 0));
    for at in [1, 2, 3] {
        assert_eq!(counter.hit(second(at)), Ok(()));
    }
    assert_eq!(counter.hits(minutes(5), second(4)), 3);
    assert_eq!(counter.hit(second(300)), Ok(()));
    assert_eq!((counter.hits(minutes(5), second(300)), counter.hits(minutes(5), second(301))), (4, 3));
    assert_eq!(counter.hits(minutes(5), second(2)), 2, "a hit does not count before it happened");
    assert_eq!(counter.newest(), Some(second(300)));
}

#[test]
fn a_refused_hit_changes_no_shared_counter() {
    let second = |second| Timestamp::from_seconds(second).expect("a time");
    let counter = AtomicCounter::new();
    assert_eq!(counter.hit_n(5, second(1_000)), Ok(()));
    assert_eq!(counter.hit(second(641)), Ok(()), "the oldest of 360 seconds");
    let late = Err(HitError::Late { at: second(640), oldest: second(641) });
    assert_eq!((counter.hit(second(640)), counter.hit_n(0, second(640))), (late.clone(), late));
    let most = 1 << 33;
    let full = |hits, weight| Err(HitError::PaneFull { hits, weight, most });
    assert_eq!(counter.hit_n(most - 4, second(1_000)), full(5, most - 4));
    assert_eq!(counter.hit_n(u64::MAX, second(1_001)), full(0, u64::MAX));
    assert_eq!(counter.newest(), Some(second(1_000)));
    assert_eq!(counter.hit_n(most - 5, second(1_000)), Ok(()));
    assert_eq!(counter.hit(second(1_000)), full(most, 1));
    assert_eq!(counter.hits(minutes(6), second(1_000)), most + 1);
    assert_eq!(counter.hit_n(0, second(2_000)), Ok(()));
    assert_eq!(counter.newest(), Some(second(1_000)), "a weight of 0 changes nothing");
}

#[test]
fn the_window_and_the_stripes_have_bounds() {
    let window = |panes: u64| AtomicCounter::with_window(milliseconds(1), milliseconds(panes));
    assert!(window((1 << 20) - 60).is_ok());
    assert!(matches!(window((1 << 20) - 59), Err(SettingsError::ExactTooLong { .. })));
    assert!(matches!(
        AtomicCounter::with_window(seconds(3), minutes(5)),
        Err(SettingsError::Resolution { .. })
    ));
    let stripes = |stripes| StripedCounter::with_stripes(seconds(1), minutes(5), stripes);
    assert_eq!(stripes(MAX_STRIPES).map(|counter| counter.stripes()).ok(), Some(MAX_STRIPES));
    assert_eq!(stripes(3).map(|counter| counter.stripes()).ok(), Some(3));
    for given in [0, MAX_STRIPES + 1] {
        let error = stripes(given).expect_err("out of range");
        assert_eq!(error.to_string(), format!("{given} stripes are out of range: give 1 to {MAX_STRIPES}"));
    }
}

const WRITERS: u64 = 4;
const READERS: u64 = 2;
const HITS_PER_WRITER: u64 = 60_000;

/// The common methods of both counters, for the tests with threads.
trait Count: Sync {
    fn hit_n(&self, weight: u64, at: Timestamp) -> Result<(), HitError>;
    fn hits(&self, window: Span, at: Timestamp) -> u64;
}

impl Count for AtomicCounter {
    fn hit_n(&self, weight: u64, at: Timestamp) -> Result<(), HitError> {
        AtomicCounter::hit_n(self, weight, at)
    }

    fn hits(&self, window: Span, at: Timestamp) -> u64 {
        AtomicCounter::hits(self, window, at)
    }
}

impl Count for StripedCounter {
    fn hit_n(&self, weight: u64, at: Timestamp) -> Result<(), HitError> {
        StripedCounter::hit_n(self, weight, at)
    }

    fn hits(&self, window: Span, at: Timestamp) -> u64 {
        StripedCounter::hits(self, window, at)
    }
}

/// Writers move a clock through a few minutes; each is behind it by a fixed offset of up to two seconds. Readers ask
/// for a window that contains all hits.
fn check_bounds(counter: &impl Count) {
    let at = |millis: u64| time(1_700_000_000_000 + i64::try_from(millis).expect("small"));
    let (sent, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
    let (clock_ms, writing) = (AtomicU64::new(5_000), AtomicU64::new(WRITERS));
    let end = at(290_000);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (sent, acknowledged, clock_ms, writing) = (&sent, &acknowledged, &clock_ms, &writing);
            scope.spawn(move || {
                for n in 0..HITS_PER_WRITER {
                    let now_ms = clock_ms.fetch_add(n % 2, SeqCst) - writer * 500;
                    let weight = 1 + n % 3;
                    sent.fetch_add(weight, SeqCst);
                    counter.hit_n(weight, at(now_ms)).expect("counted");
                    acknowledged.fetch_add(weight, SeqCst);
                }
                writing.fetch_sub(1, SeqCst);
            });
        }
        for reader in 0..READERS {
            let (sent, acknowledged, writing) = (&sent, &acknowledged, &writing);
            scope.spawn(move || {
                let mut n = reader;
                while writing.load(SeqCst) > 0 {
                    let before = acknowledged.load(SeqCst);
                    // Reads by the running total, at two different times, and by a scan.
                    let hits = match n % 8 {
                        0 => counter.hits(minutes(6), end),
                        1..4 => counter.hits(minutes(5), end),
                        _ => counter.hits(minutes(5), end.saturating_sub(seconds(1))),
                    };
                    let after = sent.load(SeqCst);
                    assert!((before..=after).contains(&hits), "{before} <= {hits} <= {after}");
                    n += 1;
                }
            });
        }
    });
    assert_eq!(counter.hits(minutes(5), end), sent.load(SeqCst));
    assert_eq!(counter.hits(minutes(6), end), sent.load(SeqCst));
}

#[test]
fn every_shared_read_lies_between_acknowledged_and_sent_hits() {
    check_bounds(&AtomicCounter::new());
    check_bounds(&StripedCounter::new());
    let more_threads_than_stripes = StripedCounter::with_stripes(seconds(1), minutes(5), 2);
    check_bounds(&more_threads_than_stripes.expect("valid"));
}

/// Threads run through many turns of the ring, far apart. Each pane that is kept has exactly the acknowledged hits.
fn check_rolls(counter: &impl Count) {
    const PANES: u64 = 20_000;
    let at = |pane: u64| time(i64::try_from(pane).expect("small"));
    let threads: Vec<Vec<u64>> = thread::scope(|scope| {
        let threads = [(); 4].map(|()| {
            scope.spawn(|| {
                let counted = |pane| (0..8).filter(|_| counter.hit_n(1, at(pane)).is_ok()).count() as u64;
                (0..PANES).map(counted).collect::<Vec<u64>>()
            })
        });
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut kept = 0;
    for pane in PANES - 70..PANES {
        let counted: u64 = threads.iter().map(|panes| panes[usize::try_from(pane).expect("small")]).sum();
        assert_eq!(counter.hits(milliseconds(1), at(pane)), counted, "pane {pane}");
        kept += counted;
    }
    assert_eq!(counter.hits(milliseconds(70), at(PANES - 1)), kept);
}

#[test]
fn no_hit_is_lost_while_slots_roll() {
    let window = milliseconds(70);
    check_rolls(&AtomicCounter::with_window(milliseconds(1), window).expect("valid"));
    check_rolls(&StripedCounter::with_stripes(milliseconds(1), window, 4).expect("valid"));
}
