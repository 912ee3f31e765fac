//! A ring without locks. The word of a slot has the number of the ring's round and the hits since then.
//!
//! The textbook version has the second and the count in two atomics. Two threads that come to a slot at a new
//! second both find the old one. The first sets it, clears the count and counts; the second clears the count
//! again, and a hit is lost. The model below shows it (`two_atomics_lose_a_hit`). One word has no such gap.
//!
//! Cost: a hit is a compare-and-exchange, repeated if another thread was faster; a read is a scan. A round
//! and a count have 32 bits each: seconds are at most 2^31 rounds from the epoch, and a second counts at most
//! 2^32 - 1 hits.

use std::cmp::Ordering as Compare;

use crate::counter::{first_kept, sum_kept, window_seconds};
use crate::limits::{MAX_RING_SLOTS, SPIN_TRIES};
use crate::shared_counter::SharedCounter;
use crate::sync::{AtomicI64, AtomicU64, Ordering, yield_now};

/// No hit yet. No second is this many rounds back.
const NEVER: i64 = i64::MIN;

/// A ring of words.
#[derive(Debug)]
pub struct AtomicRing {
    words: Box<[AtomicU64]>,
    slot_count: i64,
    newest: AtomicI64,
}

/// The content of a word. Without hits it is empty, whatever its round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    round: i32,
    count: u32,
}

impl Slot {
    fn of_word(word: u64) -> Slot {
        let [round @ .., a, b, c, d] = word.to_be_bytes();
        Slot { round: i32::from_be_bytes(round), count: u32::from_be_bytes([a, b, c, d]) }
    }

    fn word(self) -> u64 {
        u64::from(self.round.cast_unsigned()) << 32 | u64::from(self.count)
    }

    /// The slot with `count` more hits in `round`. `None` if it has a later round or would overflow.
    fn with(self, round: i32, count: u32) -> Option<Slot> {
        match self.round.cmp(&round) {
            Compare::Equal => Some(Slot { round, count: self.count.checked_add(count)? }),
            Compare::Greater if self.count > 0 => None,
            Compare::Greater | Compare::Less => Some(Slot { round, count }),
        }
    }
}

impl AtomicRing {
    /// A ring of `slots` seconds.
    ///
    /// # Panics
    /// If `slots` is not 1 to [`MAX_RING_SLOTS`].
    #[must_use]
    pub fn new(slots: usize) -> AtomicRing {
        assert!((1..=MAX_RING_SLOTS).contains(&slots), "a ring has 1 to {MAX_RING_SLOTS} slots, not {slots}");
        AtomicRing {
            words: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            slot_count: i64::try_from(slots).expect("at most MAX_RING_SLOTS"),
            newest: AtomicI64::new(NEVER),
        }
    }

    /// The round of a second. `None` if it is too far from the epoch.
    fn round_of(&self, second: i64) -> Option<i32> {
        i32::try_from(second.div_euclid(self.slot_count)).ok()
    }

    fn word(&self, second: i64) -> &AtomicU64 {
        &self.words[usize::try_from(second.rem_euclid(self.slot_count)).expect("below the number of slots")]
    }

    fn count_at(&self, second: i64) -> u64 {
        // Acquire: partner of the exchange in `hit`.
        let slot = Slot::of_word(self.word(second).load(Ordering::Acquire));
        if Some(slot.round) == self.round_of(second) { slot.count.into() } else { 0 }
    }
}

impl SharedCounter for AtomicRing {
    fn hit(&self, second: i64, count: u64) -> bool {
        let (Some(round), Ok(count)) = (self.round_of(second), u32::try_from(count)) else { return false };
        if self.newest().is_some_and(|newest| second < first_kept(newest, self.slot_count)) {
            return false;
        }
        if count == 0 {
            return true;
        }
        let word = self.word(second);
        for attempt in 1_u32.. {
            let seen = word.load(Ordering::Relaxed);
            let Some(slot) = Slot::of_word(seen).with(round, count) else { return false };
            // AcqRel: partner of the load in `count_at`.
            if word.compare_exchange(seen, slot.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // Before the hit is acknowledged, because a read stops at the newest. AcqRel: partner of the
                // load in `newest`.
                if self.newest.load(Ordering::Relaxed) < second {
                    self.newest.fetch_max(second, Ordering::AcqRel);
                }
                return true;
            }
            if attempt.is_multiple_of(SPIN_TRIES) {
                yield_now();
            }
        }
        false
    }

    fn load(&self, window_s: i64, at_s: i64) -> u64 {
        let (Some(window), Some(newest)) = (window_seconds(window_s, at_s), self.newest()) else { return 0 };
        sum_kept(&window, newest, self.slot_count, |second| self.count_at(second))
    }

    fn newest(&self) -> Option<i64> {
        // Acquire: partner of the exchange in `hit`.
        Some(self.newest.load(Ordering::Acquire)).filter(|&newest| newest != NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_shared_from, check_threads};

    #[test]
    fn equals_the_exact_queue() {
        let starts = [0, -1_000, 1_700_000_000];
        check_shared_from(&starts, 300, || AtomicRing::new(300));
        check_shared_from(&starts, 1, || AtomicRing::new(1));
    }

    #[test]
    fn no_hit_is_lost_or_doubled() {
        check_threads(AtomicRing::new);
    }

    #[test]
    fn words_come_back() {
        for round in [i32::MIN, -1, 0, 1, i32::MAX] {
            for count in [0, 1, u32::MAX] {
                let slot = Slot { round, count };
                assert_eq!(Slot::of_word(slot.word()), slot);
            }
        }
    }

    #[test]
    fn a_word_has_bounds() {
        let ring = AtomicRing::new(10);
        let last = (i64::from(i32::MAX) + 1) * 10 - 1;
        assert!(ring.hit(last, u32::MAX.into()));
        assert!(!ring.hit(last, 1) && !ring.hit(last + 1, 1) && !ring.hit(last - 1, 1 << 32));
        assert_eq!((ring.load(10, last), ring.newest()), (u32::MAX.into(), Some(last)));
        let ring = AtomicRing::new(10);
        let first = i64::from(i32::MIN) * 10;
        assert!(!ring.hit(first - 1, 1) && ring.hit(first, 1));
        assert_eq!(ring.load(1, first), 1);
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two threads hit `second` of a counter whose slot is that of an older second.
    fn race<C: Send + Sync + 'static>(counter: C, hit: fn(&C)) -> Arc<C> {
        let counter = Arc::new(counter);
        let other = Arc::clone(&counter);
        let thread = thread::spawn(move || hit(&other));
        hit(&counter);
        thread.join().expect("no panic");
        counter
    }

    #[test]
    fn two_hits_race_the_roll_of_a_slot() {
        loom::model(|| {
            let ring = AtomicRing::new(1);
            assert!(ring.hit(10, 1));
            let ring = race(ring, |ring| assert!(ring.hit(11, 1)));
            assert_eq!((ring.load(1, 11), ring.load(1, 10)), (2, 0));
        });
    }

    /// The textbook slot: its second and its count are two atomics.
    struct TwoAtomics {
        second: AtomicI64,
        count: AtomicU64,
    }

    impl TwoAtomics {
        fn hit(&self, second: i64) {
            if self.second.load(Ordering::Acquire) != second {
                self.second.store(second, Ordering::Release);
                self.count.store(0, Ordering::Release);
            }
            self.count.fetch_add(1, Ordering::AcqRel);
        }
    }

    #[test]
    fn two_atomics_lose_a_hit() {
        const LOST: &str = "a hit is lost";
        let run = || {
            loom::model(|| {
                let slot = TwoAtomics { second: AtomicI64::new(10), count: AtomicU64::new(1) };
                let slot = race(slot, |slot| slot.hit(11));
                assert!(slot.count.load(Ordering::Acquire) == 2, "{LOST}");
            });
        };
        let found = catch_unwind(AssertUnwindSafe(run)).expect_err("the model finds the loss");
        let message = found.downcast_ref::<String>().map(String::as_str);
        assert_eq!(message.or(found.downcast_ref::<&str>().copied()), Some(LOST));
    }
}
