//! A store and a counter as subjects of the model's traces.

use lately::{Count, HitCounter, HitError, Settings, Span, Store, Timestamp};
use lately_classics::{HitOutcome, ModelCount, ModelSettings, Subject};

/// A store driven by a trace.
pub(crate) struct StoreSubject {
    store: Store,
    window: Span,
    merge: Merging,
}

/// When panes are merged beside the store's own schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Merging {
    /// As the trace says.
    AsTold,
    /// Before every operation.
    Early,
    /// Only by the store itself.
    Never,
}

fn span(millis: i64) -> Span {
    Span::from_millis(millis).expect("the model keeps spans in range")
}

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).expect("the model keeps times in range")
}

fn model_count(count: &Count) -> ModelCount {
    ModelCount {
        estimate: count.estimate,
        lower: count.lower,
        upper: count.upper,
        cell_ms: count.cell.as_millis(),
    }
}

/// The settings of the model, as a store has them.
#[expect(clippy::cast_precision_loss, reason = "at most a million")]
pub(crate) fn settings(model: &ModelSettings) -> Settings {
    Settings::builder()
        .resolution(span(model.resolution_ms))
        .window(span(model.window_ms))
        .exact(span(model.exact_ms))
        .retain(span(model.retain_ms))
        .max_skew(span(model.max_skew_ms))
        .precision(model.precision_millionths as f64 / 1e6)
        .build()
        .expect("the strategies give settings that hold")
}

impl StoreSubject {
    pub(crate) fn new(model: &ModelSettings, merge: Merging) -> StoreSubject {
        let class = lately::Pattern::new(b"key:*");
        let store = Store::builder().class(class, settings(model)).build().expect("valid settings");
        StoreSubject { store, window: span(model.window_ms), merge }
    }

    fn key(key: u8) -> [u8; 5] {
        [b'k', b'e', b'y', b':', key]
    }

    fn tidy(&self, key: u8, now: Timestamp) {
        if self.merge == Merging::Early {
            self.store.merge(&StoreSubject::key(key), now);
        }
    }
}

impl Subject for StoreSubject {
    fn hit(&mut self, key: u8, at_ms: i64, count: u64, now_ms: i64) -> HitOutcome {
        let (at, now) = (time(at_ms), time(now_ms));
        self.tidy(key, now);
        match self.store.hit_n(&StoreSubject::key(key), count, Some(at), now) {
            Ok(hits) => {
                let read = self.store.hits_at(&StoreSubject::key(key), self.window, at, now);
                assert_eq!(hits, read.estimate.max(count), "a hit answers as a read does");
                HitOutcome::Hits(hits)
            }
            Err(HitError::Late { .. }) => HitOutcome::Late,
            Err(HitError::Future { .. }) => HitOutcome::Future,
            Err(HitError::Overflow { .. }) => HitOutcome::Overflow,
            Err(error) => panic!("{error}"),
        }
    }

    fn read(&mut self, key: u8, at_ms: i64, window_ms: i64, now_ms: i64) -> ModelCount {
        let now = time(now_ms);
        self.tidy(key, now);
        model_count(&self.store.hits_at(&StoreSubject::key(key), span(window_ms), time(at_ms), now))
    }

    fn forget(&mut self, key: u8, now_ms: i64) {
        self.store.forget(&StoreSubject::key(key), time(now_ms));
    }

    fn merge(&mut self, key: u8, now_ms: i64) {
        if self.merge == Merging::Never {
            // The store still sees the time.
            self.store.merge(b"another", time(now_ms));
        } else {
            self.store.merge(&StoreSubject::key(key), time(now_ms));
        }
    }

    fn check(&mut self) {
        self.store.check_consistency();
    }
}

/// A counter driven by a trace of one key, whose clock is the newest hit.
pub(crate) struct CounterSubject {
    counter: HitCounter,
    window: Span,
}

impl CounterSubject {
    pub(crate) fn new(model: &ModelSettings) -> CounterSubject {
        let counter = HitCounter::with_settings(settings(model));
        CounterSubject { counter, window: span(model.window_ms) }
    }
}

impl Subject for CounterSubject {
    fn hit(&mut self, _key: u8, at_ms: i64, count: u64, _now_ms: i64) -> HitOutcome {
        let at = time(at_ms);
        match self.counter.add(at, count) {
            Ok(()) => HitOutcome::Hits(self.counter.count(self.window, at).estimate.max(count)),
            Err(HitError::Late { .. }) => HitOutcome::Late,
            Err(HitError::Overflow { .. }) => HitOutcome::Overflow,
            Err(error) => panic!("{error}"),
        }
    }

    fn read(&mut self, _key: u8, at_ms: i64, window_ms: i64, _now_ms: i64) -> ModelCount {
        model_count(&self.counter.count(span(window_ms), time(at_ms)))
    }

    fn forget(&mut self, _key: u8, _now_ms: i64) {
        panic!("a counter cannot forget");
    }

    /// A counter has nothing to merge by hand.
    fn merge(&mut self, _key: u8, _now_ms: i64) {}
}
