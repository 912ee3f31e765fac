//! A store and a counter that run the traces of the model.

use lately::{Count, HitCounter, HitError, HitOnce, MemberHit, Settings, Span, Store, Timestamp};
use lately_classics::{HitOutcome, ModelCount, ModelSettings, Subject};

/// A store driven by a trace.
pub(crate) struct StoreSubject {
    store: Store,
    settings: Settings,
    merge: Merging,
}

/// When panes are merged, in addition to the store's own schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Merging {
    /// Where the trace has a merge.
    FromTrace,
    /// Before every operation.
    Early,
    /// Only by the store itself.
    Never,
    /// At each merge of the trace, everything moves to a new store, the way a checkpoint and a start do it.
    Restarted,
    /// The same, by way of a store that keeps the settings of all classes. A dump and a restore of folders do that.
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

/// The settings of the model for a store.
#[expect(clippy::cast_precision_loss, reason = "at most a million")]
pub(crate) fn settings(model: &ModelSettings) -> Settings {
    let mut builder = Settings::builder();
    if let Some(dedupe_ms) = model.dedupe_ms {
        builder = builder.dedupe(span(dedupe_ms));
    }
    builder
        .unique(model.unique)
        .resolution(span(model.resolution_ms))
        .window(span(model.window_ms))
        .exact(span(model.exact_ms))
        .retain(span(model.retain_ms))
        .max_skew(span(model.max_skew_ms))
        .precision(model.precision_millionths as f64 / 1e6)
        .build()
        .expect("the strategies give valid settings")
}

/// A store whose keys have these settings.
fn store(settings: Settings) -> Store {
    let builder = Store::builder().class(lately::Pattern::new(b"key:*"), settings);
    builder.build().expect("valid settings")
}

/// Copies the content of a store to another.
fn hand_over(from: &Store, to: &Store, now: Timestamp) {
    // The store's time does not go back with the clock.
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

    /// Moves everything to a new store.
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

    fn hit_once(&mut self, key: u8, at_ms: i64, count: u64, id: u8, now_ms: i64) -> HitOutcome {
        let (at, now, name) = (time(at_ms), time(now_ms), StoreSubject::key(key));
        self.tidy(key, now);
        let id = [b'i', b'd', id];
        match self.store.hit_once(HitOnce { key: &name, weight: count, at: Some(at), id: &id }, now) {
            Ok(hits) => HitOutcome::Hits(hits),
            Err(HitError::Late { .. }) => HitOutcome::Late,
            Err(HitError::Future { .. }) => HitOutcome::Future,
            Err(HitError::Overflow { .. }) => HitOutcome::Overflow,
            Err(HitError::NoDedupe) => HitOutcome::NoDedupe,
            Err(error) => panic!("{error}"),
        }
    }

    fn hit_member(&mut self, key: u8, at_ms: i64, count: u64, member: u8, now_ms: i64) -> HitOutcome {
        let (at, now, name) = (time(at_ms), time(now_ms), StoreSubject::key(key));
        self.tidy(key, now);
        let member = [b'm', member];
        let hit = MemberHit { key: &name, weight: count, at: Some(at), id: None, member: &member };
        match self.store.hit_member(hit, now) {
            Ok(hits) => HitOutcome::Hits(hits),
            Err(HitError::Late { .. }) => HitOutcome::Late,
            Err(HitError::Future { .. }) => HitOutcome::Future,
            Err(HitError::Overflow { .. }) => HitOutcome::Overflow,
            Err(HitError::NoMembers) => HitOutcome::NoMembers,
            Err(error) => panic!("{error}"),
        }
    }

    fn unique(&mut self, key: u8, window_ms: i64, now_ms: i64) -> Option<(u64, bool)> {
        let now = time(now_ms);
        self.tidy(key, now);
        let count = self.store.unique(&StoreSubject::key(key), Some(span(window_ms)), now).ok()?;
        assert!(count.lower == count.estimate && count.upper.is_none_or(|upper| upper == count.estimate));
        Some((count.estimate, count.upper.is_some()))
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
            Merging::FromTrace | Merging::Early => self.store.merge_panes(&StoreSubject::key(key), now),
            // The store must still see the time.
            Merging::Never => self.store.merge_panes(b"another", now),
            Merging::Restarted | Merging::Carried => self.restart(now),
        }
    }

    fn check(&mut self) {
        self.store.check_consistency();
    }
}

/// A counter that runs a trace of one key. Its clock is the newest hit.
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

    fn hit_once(&mut self, _key: u8, _at_ms: i64, _count: u64, _id: u8, _now_ms: i64) -> HitOutcome {
        panic!("a counter has no ids");
    }

    fn hit_member(&mut self, _key: u8, _at_ms: i64, _count: u64, _member: u8, _now_ms: i64) -> HitOutcome {
        panic!("a counter has no members");
    }

    fn unique(&mut self, _key: u8, _window_ms: i64, _now_ms: i64) -> Option<(u64, bool)> {
        panic!("a counter has no members");
    }

    fn read(&mut self, _key: u8, at_ms: i64, window_ms: i64, _now_ms: i64) -> ModelCount {
        model_count(&self.counter.count(span(window_ms), time(at_ms)))
    }

    fn forget(&mut self, _key: u8, _now_ms: i64) {
        panic!("a counter cannot forget");
    }

    /// A counter merges by itself only.
    fn merge(&mut self, _key: u8, _now_ms: i64) {}
}
