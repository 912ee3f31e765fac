//! A ring under a sequence lock: hits exclude each other; reads write nothing, and check whether a hit came
//! in between.
//!
//! The textbook version lets a reader retry for ever: under steady hits a scan of 300 slots never succeeds.
//! Here a reader tries [`SPIN_TRIES`] times and then takes the writers' lock. The textbook version also reads
//! plain memory while another thread may write it; here every word is an atomic.
//!
//! Cost: a hit pays for the lock and two more stores; a read pays for a scan, and another one for each hit
//! that comes in between.

use std::ops::RangeInclusive;

use crate::counter::{first_kept, sum_kept, window_seconds};
use crate::limits::{MAX_RING_SLOTS, SPIN_TRIES};
use crate::shared_counter::SharedCounter;
use crate::sync::{AtomicI64, AtomicU64, Mutex, Ordering, lock};

/// A ring of slots that are read without a lock.
#[derive(Debug)]
pub struct SequenceLocked {
    /// Odd while a hit changes the slots.
    version: AtomicU64,
    writers: Mutex<()>,
    slots: Box<[Slot]>,
    slot_count: i64,
    newest: AtomicI64,
    /// Whether there is a newest second: 0 or 1.
    any: AtomicU64,
}

/// A slot without hits is empty, whatever its second.
#[derive(Debug)]
struct Slot {
    second: AtomicI64,
    count: AtomicU64,
}

impl SequenceLocked {
    /// A ring of `slots` seconds.
    ///
    /// # Panics
    /// If `slots` is not 1 to [`MAX_RING_SLOTS`].
    #[must_use]
    pub fn new(slots: usize) -> SequenceLocked {
        assert!((1..=MAX_RING_SLOTS).contains(&slots), "a ring has 1 to {MAX_RING_SLOTS} slots, not {slots}");
        let slot = || Slot { second: AtomicI64::new(0), count: AtomicU64::new(0) };
        SequenceLocked {
            version: AtomicU64::new(0),
            writers: Mutex::new(()),
            slots: (0..slots).map(|_| slot()).collect(),
            slot_count: i64::try_from(slots).expect("at most MAX_RING_SLOTS"),
            newest: AtomicI64::new(0),
            any: AtomicU64::new(0),
        }
    }

    /// The result of `load` between two hits.
    fn read<T>(&self, load: impl Fn() -> T) -> T {
        for _ in 0..SPIN_TRIES {
            // Acquire: partner of the last store of `change`.
            let before = self.version.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let seen = load();
                // The loads of `load` acquire from the stores of a hit. If one has seen such a store, this
                // load sees the odd version that the hit stored before, or a later one.
                if self.version.load(Ordering::Relaxed) == before {
                    return seen;
                }
            }
            std::hint::spin_loop();
        }
        let _writers = lock(&self.writers);
        load()
    }

    /// Runs `change`, and makes reads meanwhile invalid. The caller has the writers' lock.
    fn change(&self, change: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        change();
        // Release: partner of the first load of `read`.
        self.version.store(version + 2, Ordering::Release);
    }

    /// Loads acquire, stores release: partners of each other, see `read`.
    fn newest_now(&self) -> Option<i64> {
        (self.any.load(Ordering::Acquire) == 1).then(|| self.newest.load(Ordering::Acquire))
    }

    fn count_at(&self, second: i64) -> u64 {
        let slot = self.slot(second);
        let count = slot.count.load(Ordering::Acquire);
        if slot.second.load(Ordering::Acquire) == second { count } else { 0 }
    }

    fn sum(&self, window: &RangeInclusive<i64>) -> u64 {
        let Some(newest) = self.newest_now() else { return 0 };
        sum_kept(window, newest, self.slot_count, |second| self.count_at(second))
    }

    fn slot(&self, second: i64) -> &Slot {
        &self.slots[usize::try_from(second.rem_euclid(self.slot_count)).expect("below the number of slots")]
    }
}

impl SharedCounter for SequenceLocked {
    fn hit(&self, second: i64, count: u64) -> bool {
        let _writers = lock(&self.writers);
        let newest = self.newest_now();
        if newest.is_some_and(|newest| second < first_kept(newest, self.slot_count)) {
            return false;
        }
        if count == 0 {
            return true;
        }
        self.change(|| {
            let slot = self.slot(second);
            let count = self.count_at(second).saturating_add(count);
            slot.second.store(second, Ordering::Release);
            slot.count.store(count, Ordering::Release);
            self.newest.store(newest.map_or(second, |newest| newest.max(second)), Ordering::Release);
            self.any.store(1, Ordering::Release);
        });
        true
    }

    fn load(&self, window_s: i64, at_s: i64) -> u64 {
        window_seconds(window_s, at_s).map_or(0, |window| self.read(|| self.sum(&window)))
    }

    fn newest(&self) -> Option<i64> {
        self.read(|| self.newest_now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_shared, check_threads};

    #[test]
    fn equals_the_exact_queue() {
        check_shared(300, || SequenceLocked::new(300));
        check_shared(1, || SequenceLocked::new(1));
    }

    #[test]
    fn no_hit_is_lost_or_doubled() {
        check_threads(SequenceLocked::new);
    }

    /// A reader that never succeeds sees a version that is always odd.
    #[test]
    fn a_reader_does_not_spin_for_ever() {
        let counter = SequenceLocked::new(7);
        assert!(counter.hit(3, 2));
        counter.version.store(1, Ordering::Relaxed);
        assert_eq!((counter.load(7, 3), counter.newest()), (2, Some(3)));
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two hits each. A read in between sees none, the first, or both, but never half of one.
    #[test]
    fn a_read_races_the_roll_of_a_slot() {
        loom::model(|| {
            let counter = Arc::new(SequenceLocked::new(1));
            counter.hit(10, 5);
            let other = Arc::clone(&counter);
            let thread = thread::spawn(move || other.hit(11, 3));
            let seen = counter.load(2, 11);
            assert!(seen == 5 || seen == 3, "{seen}");
            thread.join().expect("no panic");
            assert_eq!(counter.load(2, 11), 3);
        });
    }
}
