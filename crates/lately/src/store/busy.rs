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

use crate::allocation::allocated;
use crate::class::{ClassId, Classes};
use crate::limits::{BUSY_PART_OF_CEILING, BUSY_SET_BYTES, BUSY_SETS, LEAST_BUSY_WINDOW};
use crate::settings::Settings;
use crate::time::Timestamp;
use crate::window::Window;

/// No epoch has begun.
pub(super) const NONE: i64 = i64::MIN;
/// Marks in a cache line.
const LINE: usize = 8;
/// What a key takes in a set, beside its bytes.
pub(super) const KEY_BYTES: usize = 32;

/// The busy keys of all classes.
#[derive(Debug)]
pub(super) struct Busy {
    /// By class. `None` if the class does not ask for them.
    classes: Box<[Option<OfClass>]>,
}

/// The busy keys of a class.
#[derive(Debug)]
pub(super) struct OfClass {
    pub(super) id: ClassId,
    /// Panes of an epoch.
    pub(super) panes: i64,
    /// The most bytes of the keys of a set.
    pub(super) set_bytes: usize,
    /// The number of the current epoch.
    pub(super) epoch: AtomicI64,
    /// From how many hits on a key is noted. In an epoch it only rises.
    pub(super) from: AtomicU64,
    /// Hashes of keys that are in the current set, in lines. They change under the lock of the sets.
    marks: Box<[AtomicU64]>,
    sets: Mutex<Sets>,
}

#[derive(Debug)]
pub(super) struct Sets {
    /// The first pane since which the sets are complete.
    pub(super) known_from: i64,
    pub(super) current: Set,
    /// Sets of earlier epochs, the newest first, without gaps.
    pub(super) closed: VecDeque<Set>,
    /// The times and keys of hits in later epochs.
    pub(super) ahead: BTreeSet<(i64, Box<[u8]>)>,
    /// The bytes that are charged.
    pub(super) charged_bytes: usize,
}

/// The busy keys of one or several epochs.
#[derive(Debug, Default)]
pub(super) struct Set {
    /// The first pane, and one past the last.
    pub(super) first: i64,
    pub(super) end: i64,
    /// Each other key has fewer hits in these panes. `u64::MAX`: nothing is known of them.
    pub(super) under: u64,
    pub(super) keys: BTreeSet<Box<[u8]>>,
    pub(super) bytes: usize,
}

/// A key that may be busy.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) key: Box<[u8]>,
    pub(super) class: ClassId,
    pub(super) at: Timestamp,
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

    pub(super) fn asking(&self) -> impl Iterator<Item = &OfClass> {
        self.classes.iter().flatten()
    }

    pub(super) fn of(&self, class: ClassId) -> Option<&OfClass> {
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
        // Pairs with the stores in `begin` and `prune`: who sees the threshold of a later epoch sees that it has begun.
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
    pub(super) fn new(known_from: i64, current: Set) -> Sets {
        Sets { known_from, current, closed: VecDeque::new(), ahead: BTreeSet::new(), charged_bytes: 0 }
    }

    fn all(&self) -> impl Iterator<Item = &Set> {
        std::iter::once(&self.current).chain(&self.closed)
    }

    pub(super) fn bytes(&self) -> usize {
        let ahead = self.ahead.iter().map(|(_, key)| key_bytes(key)).sum::<usize>();
        self.all().map(|set| set.bytes).sum::<usize>() + self.closed.capacity() * size_of::<Set>() + ahead
    }
}

impl Set {
    pub(super) fn new(first: i64, end: i64, under: u64) -> Set {
        Set { first, end, under, keys: BTreeSet::new(), bytes: 0 }
    }

    pub(super) fn len(&self) -> i64 {
        self.end - self.first
    }

    pub(super) fn add(&mut self, key: Box<[u8]>) {
        let bytes = key_bytes(&key);
        if self.keys.insert(key) {
            self.bytes += bytes;
        }
    }

    /// Keeps the keys with the most hits, in at most this many bytes. `counts` are the keys with their hits.
    pub(super) fn keep(&mut self, mut counts: Vec<(u64, Box<[u8]>)>, most_bytes: usize) {
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
    pub(super) fn epoch_of(&self, at: Timestamp, settings: &Settings) -> i64 {
        settings.pane_of(at.as_millis()).div_euclid(self.panes)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Sets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, hash: u64) -> &[AtomicU64] {
        let lines = self.marks.len() / LINE;
        let line = (hash >> 8) as usize & (lines - 1);
        &self.marks[line * LINE..(line + 1) * LINE]
    }

    pub(super) fn mark(&self, hash: u64) {
        let line = self.line(hash);
        let free = line.iter().find(|mark| mark.load(Relaxed) == 0);
        let mark = free.unwrap_or(&line[(hash >> 40) as usize % LINE]);
        mark.store(hash | 1, Release);
    }

    pub(super) fn clear_marks(&self) {
        self.marks.iter().for_each(|mark| mark.store(0, Relaxed));
    }

    /// Adds the busy keys of a window to `found`. Returns the most hits that others have, or `None` if that is not known.
    pub(super) fn find(
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
