//! Looking ahead: where a key's slot most likely is, told without its shard's lock.
//!
//! What is found is only ever prefetched. A stale or wrong answer costs a cache line and nothing else.
//! The tables a look goes through are shared, so that they stay where they are while somebody looks; a
//! shard that has outgrown its tables hands in new ones, and the old ones go when nobody looks.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use super::index::{self, Buckets};
use super::slab::locate;
use super::slot::Slot;
use crate::own_line::OwnLine;
use crate::prefetch::prefetch;
use crate::thread_number::thread_number;

/// Where the chunks of a shard's slots are; null where there is none yet.
pub(super) type Chunks = Arc<[AtomicPtr<Option<Slot>>]>;

/// Buckets of a shard's index, and where its slots are.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) buckets: Buckets,
    pub(super) chunks: Chunks,
}

/// The tables of all shards, once for each of a few groups of threads: a look writes to its lock, and
/// threads on different cores should not write to one.
#[derive(Debug)]
pub(super) struct Peek {
    views: Box<[OwnLine<View>]>,
    /// Shards that have old tables to let go, and whether there are any.
    outdated: Mutex<Vec<usize>>,
    is_outdated: AtomicBool,
}

/// The most views there are.
const MAX_VIEWS: usize = 8;

/// The tables of all shards, as a group of threads sees them.
type View = RwLock<Box<[Hint]>>;

/// The tables of one shard: those in use, and those before or after them.
#[derive(Debug, Default)]
struct Hint {
    tables: [OnceLock<Tables>; 2],
    current: AtomicUsize,
}

/// A look at the tables. They stay while it lasts.
pub(super) struct Look<'a>(RwLockReadGuard<'a, Box<[Hint]>>);

impl Peek {
    /// For so many shards, and threads on so many cores.
    pub(super) fn new(shards: usize, cores: usize) -> Peek {
        let hints = || (0..shards).map(|_| Hint::default()).collect();
        let views = cores.clamp(1, MAX_VIEWS).next_power_of_two();
        Peek {
            views: (0..views).map(|_| OwnLine(RwLock::new(hints()))).collect(),
            outdated: Mutex::default(),
            is_outdated: AtomicBool::new(false),
        }
    }

    /// Begins a look; `None` while old tables are let go.
    pub(super) fn look(&self) -> Option<Look<'_>> {
        let view = &self.views[thread_number() & (self.views.len() - 1)];
        view.0.try_read().ok().map(Look)
    }

    /// Takes a shard's new tables; false when there is no room until old ones are let go. Call it again
    /// with the same ones then.
    pub(super) fn publish(&self, shard: usize, tables: &Tables) -> bool {
        let mut replaces = false;
        let published = self.views.iter().map(|view| {
            let Ok(hints) = view.0.try_read() else { return false };
            let hint = &hints[shard];
            // Only the holder of the shard's lock comes here: nobody else moves `current`.
            let current = hint.current.load(Relaxed);
            let next = match hint.tables[current].get() {
                None => current,
                Some(known) if known.are(tables) => return true,
                Some(_) => {
                    replaces = true;
                    1 - current
                }
            };
            if hint.tables[next].set(tables.clone()).is_err() {
                return false;
            }
            // Pairs with the load in `tables`: who sees the number sees the tables.
            hint.current.store(next, Release);
            true
        });
        // All that can take them, and not only those before the first that cannot.
        let all = published.fold(true, |all, published| all & published);
        if replaces {
            self.outdated.lock().unwrap_or_else(PoisonError::into_inner).push(shard);
            self.is_outdated.store(true, Relaxed);
        }
        all
    }

    /// Lets old tables go, if there are any and nobody looks.
    #[inline]
    pub(super) fn tidy(&self) {
        if self.is_outdated.load(Relaxed) {
            self.let_go();
        }
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
    fn are(&self, other: &Tables) -> bool {
        Arc::ptr_eq(&self.buckets, &other.buckets) && Arc::ptr_eq(&self.chunks, &other.chunks)
    }
}

impl Look<'_> {
    fn tables(&self, shard: usize) -> Option<&Tables> {
        let hint = &self.0[shard];
        // Pairs with the store in `publish`.
        hint.tables[hint.current.load(Acquire)].get()
    }

    /// Has the bucket fetched where a search for `hash` begins.
    #[inline]
    pub(super) fn prefetch_bucket(&self, shard: usize, hash: u64) {
        if let Some(bucket) = self.tables(shard).and_then(|tables| index::home(&tables.buckets, hash)) {
            prefetch(bucket);
        }
    }

    /// Has the slot fetched where the key with this hash most likely is; gives that place.
    #[inline]
    pub(super) fn prefetch_slot(&self, shard: usize, hash: u64) -> Option<u32> {
        let tables = self.tables(shard)?;
        let place = index::guess(&tables.buckets, hash)?;
        let (chunk, within) = locate(place);
        if let Some(chunk) = tables.chunks.get(chunk) {
            let slot = chunk.load(Relaxed).cast_const().wrapping_add(within);
            prefetch(slot);
            // A slot may lie on two lines; its hits are at its end.
            prefetch(slot.wrapping_add(1).cast::<u8>().wrapping_sub(1));
        }
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn tables(buckets: usize) -> Tables {
        Tables {
            buckets: (0..buckets).map(|_| AtomicU32::new(0)).collect(),
            chunks: Arc::new([AtomicPtr::default()]),
        }
    }

    #[test]
    fn old_tables_stay_while_somebody_looks() {
        let peek = Peek::new(2, 4);
        let lens = |peek: &Peek| {
            let look = peek.look().expect("nobody writes");
            [0, 1].map(|shard| look.tables(shard).map(|tables| tables.buckets.len()))
        };
        let (first, second, third) = (tables(8), tables(16), tables(32));
        assert_eq!(lens(&peek), [None, None]);
        assert!(peek.publish(1, &first));
        assert_eq!(lens(&peek), [None, Some(8)]);
        let look = peek.look().expect("nobody writes");
        assert!(peek.publish(1, &second));
        assert_eq!(lens(&peek), [None, Some(16)]);
        peek.tidy();
        assert!(!peek.publish(1, &third), "the first tables are still looked at");
        assert_eq!(Arc::strong_count(&first.buckets), 2, "one is looked at, the others went");
        drop(look);
        peek.tidy();
        assert_eq!(Arc::strong_count(&first.buckets), 1);
        assert!(peek.publish(1, &third));
        assert_eq!(lens(&peek), [None, Some(32)]);
    }

    #[test]
    fn a_guess_of_nothing_is_harmless() {
        let peek = Peek::new(1, 1);
        let look = |hash: u64| {
            let look = peek.look().expect("nobody writes");
            look.prefetch_bucket(0, hash);
            look.prefetch_slot(0, hash)
        };
        assert_eq!(look(7), None);
        let tables = tables(8);
        // Tag 1, place 0, in every bucket: the chunk is not there.
        tables.buckets.iter().for_each(|bucket| bucket.store(1 << 24 | 1, Relaxed));
        assert!(peek.publish(0, &tables));
        assert_eq!((look(1 << 56), look(2 << 56)), (Some(0), None));
    }
}
