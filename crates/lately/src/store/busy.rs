//! The busy keys of classes that ask for them (`top`), so that the keys with the most hits are found without a walk over all.
//!
//! Time is cut into epochs, each as long as the default window of the class. An epoch has the set of keys that reached a
//! threshold in it: a key that is not in the set has fewer hits in the epoch. A hit learns the hits of its key in the default
//! window anyway, and an epoch is no longer than that window, so a hit costs one comparison; a key that reaches the threshold
//! is noted once. When a set is full, the threshold rises and the keys below it go: like in Space-Saving (Metwally, Agrawal,
//! El Abbadi, "Efficient computation of frequent and top-k elements in data streams", 2005) what is left out is bounded by the
//! least of what is kept. Unlike there, counts are read from the store. Old epochs are merged, and their thresholds are added
//! (Agarwal et al., "Mergeable summaries", 2012).
//!
//! The lock of the sets is taken while no shard is locked. Its holder may lock shards.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Store, shard_of};
use crate::allocation::allocated;
use crate::class::{ClassId, Classes};
use crate::limits::{BUSY_PART_OF_CEILING, BUSY_SET_BYTES, BUSY_SETS, LEAST_BUSY_WINDOW};
use crate::settings::Settings;
use crate::time::{Span, Timestamp};
use crate::window::Window;

/// No epoch has begun.
const NONE: i64 = i64::MIN;
/// Marks in a cache line.
const LINE: usize = 8;
/// Two old epochs are merged when both together are at most this part of their age.
const AGE_PARTS: i64 = 4;
/// What a key takes in a set, beside its bytes.
const KEY_BYTES: usize = 32;
/// A set that late hits make this many times as large as it may be is given up.
const OVERFULL: usize = 4;

/// The busy keys of all classes.
#[derive(Debug)]
pub(super) struct Busy {
    /// By class. `None` if the class does not ask for them.
    classes: Box<[Option<OfClass>]>,
}

/// The busy keys of a class.
#[derive(Debug)]
struct OfClass {
    id: ClassId,
    /// Panes of an epoch.
    panes: i64,
    /// The most bytes of the keys of a set.
    set_bytes: usize,
    /// The number of the current epoch.
    epoch: AtomicI64,
    /// From how many hits on a key is noted. In an epoch it only rises.
    from: AtomicU64,
    /// Hashes of keys that are in the current set, in lines. They change under the lock of the sets.
    marks: Box<[AtomicU64]>,
    sets: Mutex<Sets>,
}

#[derive(Debug)]
struct Sets {
    /// The first pane since which the sets are complete.
    known_from: i64,
    current: Set,
    /// Sets of earlier epochs, the newest first, without gaps.
    closed: VecDeque<Set>,
    /// The times and keys of hits in later epochs.
    ahead: BTreeSet<(i64, Box<[u8]>)>,
    /// The bytes that are charged.
    charged_bytes: usize,
}

/// The busy keys of one or several epochs.
#[derive(Debug, Default)]
struct Set {
    /// The first pane, and one past the last.
    first: i64,
    end: i64,
    /// Each other key has fewer hits in these panes. `u64::MAX`: nothing is known of them.
    under: u64,
    keys: BTreeSet<Box<[u8]>>,
    bytes: usize,
}

/// A key that may be busy.
#[derive(Debug)]
pub(super) struct Note {
    key: Box<[u8]>,
    class: ClassId,
    at: Timestamp,
}

/// Keys among which the most-hit ones are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BusyKeys {
    /// The keys, each once.
    pub keys: Vec<Box<[u8]>>,
    /// The most hits that any other key has in the window.
    pub most_of_others: u64,
}

impl Busy {
    /// `None` if no class asks for busy keys.
    pub(super) fn new(classes: &Classes, ceiling_bytes: Option<u64>) -> Option<Box<Busy>> {
        let asks = |settings: &&Settings| settings.top() && settings.window() >= LEAST_BUSY_WINDOW;
        let asking = classes.all().iter().filter(asks).count();
        if asking == 0 {
            return None;
        }
        let part = ceiling_bytes.map_or(u64::MAX, |ceiling| ceiling / BUSY_PART_OF_CEILING);
        let of_a_set = usize::try_from(part).unwrap_or(usize::MAX) / BUSY_SETS / asking;
        let set_bytes = of_a_set.min(BUSY_SET_BYTES * 16 / asking.max(16)).max(8 * KEY_BYTES);
        let of_class = |(id, settings): (ClassId, &Settings)| {
            asks(&settings).then(|| OfClass {
                id,
                panes: settings.panes_in(settings.window()),
                set_bytes,
                epoch: AtomicI64::new(NONE),
                from: AtomicU64::new(1),
                marks: (0..(set_bytes / (2 * LINE)).next_power_of_two()).map(|_| AtomicU64::new(0)).collect(),
                sets: Mutex::new(Sets::new(NONE, Set::default())),
            })
        };
        Some(Box::new(Busy { classes: classes.each().map(of_class).collect() }))
    }

    /// The memory that does not depend on hits.
    pub(super) fn fixed_bytes(&self) -> usize {
        let marks = |of: &OfClass| allocated(of.marks.len() * size_of::<u64>());
        size_of_val(&*self.classes) + self.asking().map(marks).sum::<usize>()
    }

    fn asking(&self) -> impl Iterator<Item = &OfClass> {
        self.classes.iter().flatten()
    }

    fn of(&self, class: ClassId) -> Option<&OfClass> {
        self.classes[class.index()].as_ref()
    }

    /// From how many hits on a key of this class is noted in the epoch of `now`. 0 if another epoch has begun meanwhile:
    /// then every hit is. `u64::MAX` if the class does not ask.
    pub(super) fn from(&self, class: ClassId, now: Timestamp, settings: &Settings) -> u64 {
        let Some(of) = self.of(class) else { return u64::MAX };
        let epoch = of.epoch_of(now, settings);
        if of.epoch.load(Acquire) != epoch {
            return 0;
        }
        // Pairs with the stores in `turn` and `prune`: who sees the threshold of a later epoch sees that it has begun.
        let from = of.from.load(Acquire);
        if of.epoch.load(Acquire) == epoch { from } else { 0 }
    }

    /// Whether a key is in the set of the epoch of `now`.
    pub(super) fn is_marked(&self, class: ClassId, hash: u64, now: Timestamp, settings: &Settings) -> bool {
        let Some(of) = self.of(class) else { return true };
        // Pairs with the store in `mark`: who sees a mark of a later epoch sees that it has begun.
        let is_marked = of.line(hash).iter().any(|mark| mark.load(Acquire) == hash | 1);
        is_marked && of.epoch.load(Acquire) == of.epoch_of(now, settings)
    }
}

impl Note {
    pub(super) fn new(key: &[u8], class: ClassId, at: Timestamp) -> Note {
        Note { key: key.into(), class, at }
    }
}

impl Sets {
    fn new(known_from: i64, current: Set) -> Sets {
        Sets { known_from, current, closed: VecDeque::new(), ahead: BTreeSet::new(), charged_bytes: 0 }
    }

    fn all(&self) -> impl Iterator<Item = &Set> {
        std::iter::once(&self.current).chain(&self.closed)
    }

    fn bytes(&self) -> usize {
        let ahead = self.ahead.iter().map(|(_, key)| key_bytes(key)).sum::<usize>();
        self.all().map(|set| set.bytes).sum::<usize>() + self.closed.capacity() * size_of::<Set>() + ahead
    }
}

impl Set {
    fn new(first: i64, end: i64, under: u64) -> Set {
        Set { first, end, under, keys: BTreeSet::new(), bytes: 0 }
    }

    fn len(&self) -> i64 {
        self.end - self.first
    }

    fn add(&mut self, key: Box<[u8]>) {
        let bytes = key_bytes(&key);
        if self.keys.insert(key) {
            self.bytes += bytes;
        }
    }

    /// Keeps the keys with the most hits, in at most this many bytes. `counts` are the keys with their hits.
    fn keep(&mut self, mut counts: Vec<(u64, Box<[u8]>)>, most_bytes: usize) {
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let mut bytes = 0;
        let kept = counts.iter().take_while(|(_, key)| {
            bytes += key_bytes(key);
            bytes <= most_bytes
        });
        if let Some(&(hits, _)) = counts.get(kept.count()) {
            self.under = self.under.max(hits.saturating_add(1));
        }
        (self.keys, self.bytes) = (BTreeSet::new(), 0);
        let under = self.under;
        counts.into_iter().filter(|(hits, _)| *hits >= under).for_each(|(_, key)| self.add(key));
    }
}

fn key_bytes(key: &[u8]) -> usize {
    allocated(key.len()) + KEY_BYTES
}

impl OfClass {
    fn epoch_of(&self, at: Timestamp, settings: &Settings) -> i64 {
        settings.pane_of(at.as_millis()).div_euclid(self.panes)
    }

    fn lock(&self) -> MutexGuard<'_, Sets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, hash: u64) -> &[AtomicU64] {
        let lines = self.marks.len() / LINE;
        let line = (hash >> 8) as usize & (lines - 1);
        &self.marks[line * LINE..(line + 1) * LINE]
    }

    fn mark(&self, hash: u64) {
        let line = self.line(hash);
        let free = line.iter().find(|mark| mark.load(Relaxed) == 0);
        let mark = free.unwrap_or(&line[(hash >> 40) as usize % LINE]);
        mark.store(hash | 1, Release);
    }

    fn clear_marks(&self) {
        self.marks.iter().for_each(|mark| mark.store(0, Relaxed));
    }

    /// Begins the epoch of `now`, if it has not begun.
    fn turn(&self, store: &Store, now: Timestamp) {
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

    /// Adds the busy keys of a window to `found`. Returns the most hits that others have, or `None` if that is not known.
    fn find(
        &self,
        (window, at): (&Window, Timestamp),
        prefix: &[u8],
        settings: &Settings,
        found: &mut BTreeSet<Box<[u8]>>,
    ) -> Option<u64> {
        let sets = self.lock();
        let (first, last) = (settings.pane_of(window.first_ms()), settings.pane_of(at.as_millis()));
        if !window.is_known() || first < sets.known_from || last >= sets.current.end {
            return None;
        }
        // The newest hits, in a window no longer than an epoch: the threshold holds for it as a whole. An epoch may be on both sides.
        let split = last - self.panes + 1;
        let (mut newest, mut older) = (0, 0_u64);
        for set in sets.all().filter(|set| set.end > first) {
            if set.under == u64::MAX {
                return None;
            }
            if set.end > split {
                newest = newest.max(set.under - 1);
            }
            if set.first < split && first < split {
                older = older.saturating_add(set.under - 1);
            }
            let from =
                set.keys.range::<[u8], _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
            found.extend(from.take_while(|key| key.starts_with(prefix)).cloned());
        }
        Some(older.saturating_add(newest))
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
            of.turn(self, now);
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
    pub(super) fn turn_busy(&self, now: Timestamp) {
        if let Some(busy) = &self.busy {
            busy.asking().for_each(|of| of.turn(self, now));
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
