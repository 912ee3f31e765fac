//! Prefetch: finds where a key's slot most likely is, without the shard's lock.
//!
//! The result is used for prefetching and as a hint only. A stale or wrong one costs a cache miss. Threads
//! share the tables. A shard that has outgrown its tables publishes new ones, and the old ones are dropped
//! when no thread reads them.

use std::collections::BTreeSet;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use super::slot::Slot;
use super::table::{Addresses, Page, Table, locate, place_of};
use super::tags::Tags;
use crate::cache_line::CacheLine;
use crate::machine::{prefetch, prefetch_all};
use crate::thread_number::thread_number;

/// The tags of a shard's slots, and its pages.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    tags: Tags,
    pages: Addresses,
    /// The tables as the shard itself holds them.
    held: usize,
    /// Where the marks of unsent keys are; 0 if there are none.
    marks: usize,
}

/// The tables of all shards, in one copy per group of threads. Reading writes to the lock of the copy, and
/// threads on different cores should not write to the same cache line.
#[derive(Debug)]
pub(super) struct PrefetchTables {
    views: Box<[CacheLine<View>]>,
    /// The shards whose old tables must be dropped, and whether there are any.
    outdated: Mutex<BTreeSet<usize>>,
    is_outdated: AtomicBool,
}

/// The highest number of copies.
const MAX_VIEWS: usize = 8;

/// The copy of one group of threads.
type View = RwLock<Box<[Hint]>>;

/// The tables of one shard: the current ones, and the previous or next ones.
#[derive(Debug, Default)]
struct Hint {
    tables: [OnceLock<Tables>; 2],
    current: AtomicUsize,
}

/// Read access to the tables. They stay valid while this lives.
pub(super) struct TablesView<'a>(RwLockReadGuard<'a, Box<[Hint]>>);

impl PrefetchTables {
    /// Tables for `shards` shards, for threads on `cores` cores.
    pub(super) fn new(shards: usize, cores: usize) -> PrefetchTables {
        let hints = || (0..shards).map(|_| Hint::default()).collect();
        let views = cores.clamp(1, MAX_VIEWS).next_power_of_two();
        PrefetchTables {
            views: (0..views).map(|_| CacheLine(RwLock::new(hints()))).collect(),
            outdated: Mutex::default(),
            is_outdated: AtomicBool::new(false),
        }
    }

    /// Read access to the tables. `None` while old ones are being dropped.
    pub(super) fn view(&self) -> Option<TablesView<'_>> {
        let view = &self.views[thread_number() & (self.views.len() - 1)];
        view.0.try_read().ok().map(TablesView)
    }

    /// Publishes a shard's new tables. Returns false if old tables must be dropped first; the caller must
    /// then try again with the same tables.
    pub(super) fn publish(&self, shard: usize, tables: &Tables) -> bool {
        let mut replaces = false;
        let published = self.views.iter().map(|view| {
            let Ok(hints) = view.0.try_read() else { return false };
            let hint = &hints[shard];
            // The shard's lock is held, so no other thread changes `current`.
            let current = hint.current.load(Relaxed);
            let next = match hint.tables[current].get() {
                None => current,
                Some(known) if known.is_same(tables) => return true,
                Some(_) => {
                    replaces = true;
                    1 - current
                }
            };
            if hint.tables[next].set(tables.clone()).is_err() {
                return false;
            }
            // Pairs with the load in `tables`: a thread that sees the number sees the tables.
            hint.current.store(next, Release);
            true
        });
        // Publish to every copy, even after one has failed.
        let all = published.fold(true, |all, published| all & published);
        if replaces {
            self.outdated.lock().unwrap_or_else(PoisonError::into_inner).insert(shard);
            self.is_outdated.store(true, Relaxed);
        }
        all
    }

    /// Drops old tables, if there are any and no thread reads them.
    #[inline]
    pub(super) fn tidy(&self) {
        if self.is_outdated.load(Relaxed) {
            self.let_go();
        }
    }

    /// Whether there are no old tables.
    #[cfg(test)]
    pub(super) fn is_tidy(&self) -> bool {
        !self.is_outdated.load(Relaxed)
    }

    #[cold]
    fn let_go(&self) {
        let Ok(mut outdated) = self.outdated.try_lock() else { return };
        let mut all = true;
        for view in &self.views {
            let Ok(mut hints) = view.0.try_write() else {
                all = false;
                continue;
            };
            for &shard in &*outdated {
                let hint = &mut hints[shard];
                let current = *hint.current.get_mut();
                hint.tables[1 - current].take();
            }
        }
        if all {
            outdated.clear();
            self.is_outdated.store(false, Relaxed);
        }
    }
}

impl Tables {
    pub(super) fn new(table: &Table<Slot>, marks: usize) -> Tables {
        Tables { tags: table.tags().clone(), pages: table.addresses().clone(), held: table.pages_at(), marks }
    }

    fn is_same(&self, other: &Tables) -> bool {
        self.tags.is_same(&other.tags) && self.marks == other.marks
    }

    /// Prefetches the tags where a search for `hash` begins.
    #[inline]
    pub(super) fn prefetch_tags(&self, hash: u64) {
        if let Some(address) = self.tags.address(hash) {
            prefetch(address);
        }
    }

    /// Prefetches the slot where the key with this hash most likely is, and returns its place.
    #[inline]
    pub(super) fn prefetch_slot(&self, hash: u64) -> Option<u32> {
        let place = place_of(self.tags.find(hash, |_| true)?);
        self.prefetch(place);
        Some(place)
    }

    /// Prefetches the slot that a new key with this hash most likely takes.
    #[inline]
    pub(super) fn prefetch_free(&self, hash: u64) {
        if let Some(slot) = self.tags.free_near(hash) {
            self.prefetch(place_of(slot));
        }
    }

    #[inline]
    fn prefetch(&self, place: u32) {
        let (page, within) = locate(place);
        prefetch(ptr::without_provenance::<Page<Slot>>(self.held).wrapping_add(page));
        if let Some(page) = self.pages.get(page) {
            let page = ptr::without_provenance::<Option<Slot>>(page.load(Relaxed));
            let slot = page.wrapping_add(within);
            prefetch_all(slot);
        }
        if self.marks != 0 {
            prefetch(ptr::without_provenance::<u8>(self.marks).wrapping_add(place as usize));
        }
    }
}

impl TablesView<'_> {
    /// The published tables of a shard.
    #[inline]
    pub(super) fn tables(&self, shard: usize) -> Option<&Tables> {
        let hint = &self.0[shard];
        // Pairs with the store in `publish`.
        hint.tables[hint.current.load(Acquire)].get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(slots: usize) -> Tables {
        Tables { tags: Tags::new(slots), pages: Addresses::default(), held: 0, marks: 0 }
    }

    #[test]
    fn old_tables_stay_while_they_are_read() {
        let shared = PrefetchTables::new(2, 4);
        let groups = |shared: &PrefetchTables| {
            let view = shared.view().expect("nobody writes");
            [0, 1].map(|shard| view.tables(shard).map(|tables| tables.tags.groups()))
        };
        let (first, second, third) = (tables(8), tables(16), tables(32));
        assert_eq!(groups(&shared), [None, None]);
        assert!(shared.publish(1, &first));
        assert_eq!(groups(&shared), [None, Some(1)]);
        let view = shared.view().expect("nobody writes");
        assert!(shared.publish(1, &second));
        assert_eq!(groups(&shared), [None, Some(2)]);
        shared.tidy();
        assert!(!shared.publish(1, &third), "the first tables are still read");
        assert_eq!(first.tags.holders(), 2, "one holder reads them, the others are gone");
        drop(view);
        shared.tidy();
        assert_eq!(first.tags.holders(), 1);
        assert!(shared.publish(1, &third));
        assert_eq!(groups(&shared), [None, Some(4)]);
    }

    /// Symptom: each connection took 8 KiB more than accounted for. Cause: while nobody called `tidy`, a shard that could
    /// not publish its tables was listed again by each lock. Fix: it is listed once.
    #[test]
    fn a_shard_that_cannot_publish_is_listed_once() {
        let shared = PrefetchTables::new(2, 4);
        let [first, second, third] = [8, 16, 32].map(tables);
        assert!(shared.publish(1, &first) && shared.publish(1, &second));
        assert!((0..100).all(|_| !shared.publish(1, &third)));
        let outdated = || shared.outdated.lock().expect("no panic").len();
        assert_eq!(outdated(), 1);
        shared.tidy();
        assert_eq!(outdated(), 0);
        assert!(shared.publish(1, &third));
    }

    #[test]
    fn a_prefetch_without_tables_or_pages_is_harmless() {
        let shared = PrefetchTables::new(1, 1);
        let look = |hash: u64| {
            let view = shared.view().expect("nobody writes");
            let tables = view.tables(0)?;
            tables.prefetch_tags(hash);
            tables.prefetch_slot(hash)
        };
        assert_eq!(look(7), None);
        let tables = tables(8);
        // The page does not exist.
        let (slot, _) = tables.tags.take(9 << 56);
        assert!(shared.publish(0, &tables));
        assert_eq!((look(9 << 56), look(8 << 56)), (Some(place_of(slot)), None));
    }
}
