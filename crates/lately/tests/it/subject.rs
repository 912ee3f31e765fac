//! A store and a counter as subjects of the model's traces.

use lately::{Count, HitCounter, HitError, Settings, Span, Store, Timestamp};
use lately_classics::{HitOutcome, ModelCount, ModelSettings, Subject};

/// A store driven by a trace.
pub(crate) struct StoreSubject {
    store: Store,
    settings: Settings,
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
    /// At the steps that the trace names, all goes to another store, as with a checkpoint and a start.
    Restarted,
    /// The same by way of a store that carries all classes, as with a dump and a restore of folders.
    Carried,
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

/// A store whose keys have these settings.
fn store(settings: Settings) -> Store {
    let builder = Store::builder().class(lately::Pattern::new(b"key:*"), settings);
    builder.build().expect("valid settings")
}

/// Puts all that a store has into another.
fn hand_over(from: &Store, to: &Store, now: Timestamp) {
    // Where the clock was set back the store's time was not.
    let (mut bytes, now) = (Vec::new(), now.max(from.now()));
    for part in 0..Store::PARTS {
        bytes.clear();
        from.write_part(part, now, &mut bytes);
        to.read_part(&bytes, now).expect("it was written so");
    }
    to.set_now(now);
}

impl StoreSubject {
    pub(crate) fn new(model: &ModelSettings, merge: Merging) -> StoreSubject {
        let settings = settings(model);
        StoreSubject { store: store(settings.clone()), settings, merge }
    }

    /// Goes over to another store.
    fn restart(&mut self, now: Timestamp) {
        let mut from = std::mem::replace(&mut self.store, store(self.settings.clone()));
        if self.merge == Merging::Carried {
            let carrier = store(Settings::to_carry());
            hand_over(&from, &carrier, now);
            from = carrier;
        }
        hand_over(&from, &self.store, now);
    }

    fn key(key: u8) -> [u8; 5] {
        [b'k', b'e', b'y', b':', key]
    }

    fn tidy(&self, key: u8, now: Timestamp) {
        if self.merge == Merging::Early {
            self.store.merge_panes(&StoreSubject::key(key), now);
        }
    }
}

impl Subject for StoreSubject {
    fn hit(&mut self, key: u8, at_ms: i64, count: u64, now_ms: i64) -> HitOutcome {
        let (at, now) = (time(at_ms), time(now_ms));
        self.tidy(key, now);
        match self.store.hit_n(&StoreSubject::key(key), count, Some(at), now) {
            Ok(hits) => {
                let read = self.store.hits_at(&StoreSubject::key(key), self.settings.window(), at, now);
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
        let now = time(now_ms);
        match self.merge {
            Merging::AsTold | Merging::Early => self.store.merge_panes(&StoreSubject::key(key), now),
            // The store still sees the time.
            Merging::Never => self.store.merge_panes(b"another", now),
            Merging::Restarted | Merging::Carried => self.restart(now),
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
