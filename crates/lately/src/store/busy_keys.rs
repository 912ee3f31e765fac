//! The busy keys of a store: epochs begin and are merged, and keys are added and found. See `busy.rs`.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Store;
use super::busy::{BusyKeys, KEY_BYTES, NONE, Note, OfClass, Set, Sets};
use super::key::shard_of;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};
use crate::window::Window;

/// Two old epochs are merged when both together are at most this part of their age.
const AGE_PARTS: i64 = 4;
/// A set that late hits make this many times as large as it may be is given up.
const OVERFULL: usize = 4;

impl OfClass {
    /// Begins the epoch of `now`, if it has not begun.
    fn keep_current(&self, store: &Store, now: Timestamp) {
        let settings = store.classes.settings(self.id);
        let epoch = self.epoch_of(now, settings);
        if self.epoch.load(Acquire) < epoch {
            self.begin(store, (epoch, now), settings);
        }
    }

    #[cold]
    fn begin(&self, store: &Store, (epoch, now): (i64, Timestamp), settings: &Settings) {
        let mut sets = self.lock();
        let before = self.epoch.load(Relaxed);
        if before >= epoch {
            return;
        }
        let (first, end) = (epoch * self.panes, (epoch + 1) * self.panes);
        if before == NONE {
            let charged_bytes = sets.charged_bytes;
            // Nothing is known of the keys that are there. They may have hits ahead of the clock.
            let latest = self.epoch_of(now.saturating_add(settings.max_skew()), settings);
            let known_from = if store.is_empty() { NONE } else { (latest + 1) * self.panes };
            *sets = Sets { charged_bytes, ..Sets::new(known_from, Set::new(first, end, 1)) };
            let oldest = settings.pane_of(settings.retention_edge_ms(now));
            sets.closed.push_front(Set::new(oldest.min(first - 1), first, 1));
        } else {
            let is_full = sets.current.bytes >= self.set_bytes / 4;
            let under = if is_full { sets.current.under } else { (sets.current.under / 2).max(1) };
            let last = std::mem::replace(&mut sets.current, Set::new(first, end, under));
            let gap = Set::new(last.end, first, 1);
            sets.closed.push_front(last);
            if gap.len() > 0 {
                sets.closed.push_front(gap);
            }
            let later = sets.ahead.split_off(&(end, Box::default()));
            for (pane, key) in std::mem::replace(&mut sets.ahead, later) {
                let Sets { current, closed, .. } = &mut *sets;
                let mut all = std::iter::once(current).chain(closed);
                if let Some(set) = all.find(|set| (set.first..set.end).contains(&pane)) {
                    set.add(key);
                }
            }
            self.merge(store, &mut sets, now, settings);
        }
        self.clear_marks();
        self.from.store(sets.current.under, Release);
        // After the threshold: see `Busy::from`.
        self.epoch.store(epoch, Release);
        self.charge(store, &mut sets);
    }

    /// Drops sets from before the retention, and merges old ones.
    fn merge(&self, store: &Store, sets: &mut Sets, now: Timestamp, settings: &Settings) {
        let oldest = settings.pane_of(settings.retention_edge_ms(now));
        while sets.closed.back().is_some_and(|last| last.end <= oldest) {
            sets.closed.pop_back();
        }
        let mut index = 0;
        while index + 1 < sets.closed.len() {
            let (newer, older) = (&sets.closed[index], &sets.closed[index + 1]);
            if newer.end - older.first > (sets.current.first - newer.end) / AGE_PARTS {
                index += 1;
                continue;
            }
            let mut merged = Set::new(older.first, newer.end, 1);
            merged.under = match (older.under, newer.under) {
                (u64::MAX, _) | (_, u64::MAX) => u64::MAX,
                (older, newer) => (older - 1).saturating_add(newer),
            };
            let counts = newer
                .keys
                .union(&older.keys)
                .map(|key| (store.most_hits(key, (merged.first, merged.end), settings, now), key.clone()));
            merged.keep(counts.collect(), self.set_bytes);
            sets.closed.remove(index + 1);
            sets.closed[index] = merged;
        }
        sets.closed.shrink_to(2 * sets.closed.len());
    }

    /// Adds a key that may be busy.
    fn add(&self, store: &Store, note: Note, now: Timestamp) {
        let settings = store.classes.settings(self.id);
        let (pane, mut sets) = (settings.pane_of(note.at.as_millis()), self.lock());
        if self.epoch.load(Relaxed) == NONE || pane < sets.known_from {
            return;
        }
        let Note { key, .. } = note;
        if pane >= sets.current.end {
            sets.ahead.insert((pane, key));
            if sets.ahead.len() * KEY_BYTES > self.set_bytes {
                let last = sets.ahead.last().map_or(pane, |(pane, _)| *pane);
                sets.known_from = last.div_euclid(self.panes).saturating_add(1) * self.panes;
                sets.ahead.clear();
            }
        } else if pane >= sets.current.first {
            let hash = store.hash(&key);
            sets.current.add(key);
            self.mark(hash);
            if sets.current.bytes > self.set_bytes {
                self.prune(store, &mut sets.current, now, settings);
            }
        } else {
            self.add_late(store, (key, pane), &mut sets, (now, settings));
        }
        self.charge(store, &mut sets);
    }

    /// Adds the key of a hit in an earlier epoch, if it is busy there.
    fn add_late(
        &self,
        store: &Store,
        (key, pane): (Box<[u8]>, i64),
        sets: &mut Sets,
        (now, settings): (Timestamp, &Settings),
    ) {
        let newest = sets.current.first - self.panes;
        let Some(set) = sets.closed.iter_mut().find(|set| set.first <= pane) else { return };
        // The threshold of the epoch before this one holds for every window that begins in it: see `find`.
        let is_old = set.end <= newest;
        let range = if is_old { (set.first, set.end) } else { (pane - self.panes + 1, pane + self.panes) };
        if store.most_hits(&key, range, settings, now) >= set.under {
            set.add(key);
        }
        if is_old && set.bytes > self.set_bytes {
            let keys = std::mem::take(&mut set.keys);
            let counts = keys.into_iter().map(|key| (store.most_hits(&key, range, settings, now), key));
            set.keep(counts.collect(), self.set_bytes / 2);
        } else if set.bytes > OVERFULL * self.set_bytes {
            *set = Set::new(set.first, set.end, u64::MAX);
        }
    }

    /// Raises the threshold of the current set, and drops the keys below it.
    #[cold]
    fn prune(&self, store: &Store, set: &mut Set, now: Timestamp, settings: &Settings) {
        // First: a hit that finds no mark any more notes its key again, and one before that is seen below.
        self.clear_marks();
        let pane = settings.pane_of(now.as_millis());
        let latest = settings.pane_of(now.saturating_add(settings.max_skew()).as_millis());
        let range = (pane - self.panes + 1, latest + 1);
        let keys = std::mem::take(&mut set.keys);
        set.under = set.under.saturating_add(set.under / 8);
        let counts = keys.into_iter().map(|key| (store.most_hits(&key, range, settings, now), key));
        set.keep(counts.collect(), self.set_bytes / 2);
        set.keys.iter().for_each(|key| self.mark(store.hash(key)));
        self.from.store(set.under, Release);
    }

    fn charge(&self, store: &Store, sets: &mut Sets) {
        let bytes = sets.bytes();
        store.memory.change_other(sets.charged_bytes, bytes);
        sets.charged_bytes = bytes;
    }
}

impl Store {
    /// Keys among which are all that have many hits in a window (default: that of each class) that ends at `now`, if they begin
    /// with `prefix`. `None` if a class of such keys does not ask for busy keys, or the window began before they were
    /// watched: then only a walk over all keys finds them.
    ///
    /// Only hits that this store counted itself matter.
    #[must_use]
    pub fn busy_keys(&self, window: Option<Span>, prefix: &[u8], now: Timestamp) -> Option<BusyKeys> {
        let (busy, now) = (self.busy.as_ref()?, self.advance(now));
        let (mut found, mut most_of_others) = (BTreeSet::new(), 0);
        for class in self.classes.of_prefix(prefix) {
            let (of, settings) = (busy.of(class)?, self.classes.settings(class));
            of.keep_current(self, now);
            let window = Window::ending_at(now, window.unwrap_or(settings.window()), settings, now);
            most_of_others = of.find((&window, now), prefix, settings, &mut found)?.max(most_of_others);
            // Meanwhile the threshold may have risen, by what is in a later window.
            if settings.pane_of(self.now().as_millis()) != settings.pane_of(now.as_millis()) {
                return None;
            }
        }
        Some(BusyKeys { keys: found.into_iter().collect(), most_of_others })
    }

    /// Begins new epochs. No shard may be locked.
    #[inline]
    pub(super) fn begin_busy_epochs(&self, now: Timestamp) {
        if let Some(busy) = &self.busy {
            busy.asking().for_each(|of| of.keep_current(self, now));
        }
    }

    /// Adds keys that may be busy. No shard may be locked.
    #[cold]
    pub(super) fn add_busy(&self, notes: Vec<Note>, now: Timestamp) {
        let Some(busy) = &self.busy else { return };
        for note in notes {
            if let Some(of) = busy.of(note.class) {
                of.add(self, note, now);
            }
        }
    }

    /// Forgets which keys are busy: there are hits that were not counted one by one. No shard may be locked.
    pub(super) fn forget_busy(&self) {
        for of in self.busy.iter().flat_map(|busy| busy.asking()) {
            let mut sets = of.lock();
            of.epoch.store(NONE, Release);
            of.clear_marks();
            *sets = Sets { charged_bytes: sets.charged_bytes, ..Sets::new(NONE, Set::default()) };
            of.charge(self, &mut sets);
        }
    }

    /// The upper bound of the hits of a key in these panes, as far as they are kept.
    fn most_hits(&self, key: &[u8], (first, end): (i64, i64), settings: &Settings, now: Timestamp) -> u64 {
        let hash = self.hash(key);
        let mut shard = self.lock(shard_of(hash), now);
        let now = shard.now();
        let Some(place) = shard.place_of(key, hash) else { return 0 };
        let width_ms = settings.resolution().as_millis();
        let first_ms = (first * width_ms).max(settings.retention_edge_ms(now));
        let window = Window::between(first_ms, (end * width_ms).max(first_ms), settings, now);
        let entry = shard.entry_at(Some(place));
        entry.map_or(0, |entry| entry.count_window(&window, settings).upper.unwrap_or(u64::MAX))
    }
}
