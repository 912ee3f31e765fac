//! A ring of slots, each with its second and a count. Memory is fixed, and a hit takes one step.
//!
//! The textbook ring has three mistakes. A late hit in the slot of a newer second clears it; here a hit older
//! than the ring is refused. A read counts every slot that is young enough, even after the end of the window;
//! here it counts only the seconds of the window. And an empty slot has second 0, or `i32::MAX`, so that hits
//! at those seconds (the epoch; a date in 2038) are lost; here an empty slot is `None`.

use std::ops::RangeInclusive;

use crate::counter::{Counter, first_kept, sum_kept, window_seconds};
use crate::limits::MAX_RING_SLOTS;

/// Keeps a count for each of the newest seconds, one per slot.
#[derive(Clone, Debug)]
pub struct Ring {
    slots: Vec<Option<Slot>>,
    slot_count: i64,
    newest: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    second: i64,
    count: u64,
}

impl Ring {
    /// A ring that keeps the hits of `slots` seconds.
    ///
    /// # Panics
    /// If `slots` is not 1 to [`MAX_RING_SLOTS`].
    #[must_use]
    pub fn new(slots: usize) -> Ring {
        assert!((1..=MAX_RING_SLOTS).contains(&slots), "a ring has 1 to {MAX_RING_SLOTS} slots, not {slots}");
        let slot_count = i64::try_from(slots).expect("at most MAX_RING_SLOTS");
        Ring { slots: vec![None; slots], slot_count, newest: None }
    }

    /// Seconds kept.
    pub(crate) fn span_s(&self) -> i64 {
        self.slot_count
    }

    /// The oldest second the ring has a slot for; `None` before any hit.
    pub(crate) fn first_kept(&self) -> Option<i64> {
        Some(first_kept(self.newest?, self.slot_count))
    }

    /// Hits at `second`, which must not be older than the ring.
    pub(crate) fn count_at(&self, second: i64) -> u64 {
        match self.slots[self.index(second)] {
            Some(slot) if slot.second == second => slot.count,
            _ => 0,
        }
    }

    /// Hits at those of `seconds` that are kept.
    pub(crate) fn sum(&self, seconds: &RangeInclusive<i64>) -> u64 {
        let Some(newest) = self.newest else { return 0 };
        sum_kept(seconds, newest, self.slot_count, |second| self.count_at(second))
    }

    fn index(&self, second: i64) -> usize {
        usize::try_from(second.rem_euclid(self.slot_count)).expect("below the number of slots")
    }
}

impl Counter for Ring {
    fn hit(&mut self, second: i64, count: u64) -> bool {
        if self.first_kept().is_some_and(|first| second < first) {
            return false;
        }
        if count == 0 {
            return true;
        }
        self.newest = self.newest.max(Some(second));
        let index = self.index(second);
        // Another second in the slot is a round of the ring or more older. A newer one would be after
        // `newest`.
        let count = self.count_at(second).saturating_add(count);
        self.slots[index] = Some(Slot { second, count });
        true
    }

    fn load(&mut self, window_s: i64, at_s: i64) -> u64 {
        window_seconds(window_s, at_s).map_or(0, |window| self.sum(&window))
    }

    fn newest(&self) -> Option<i64> {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_equality, check_examples};

    const SLOTS: usize = 300;

    /// The textbook ring. `never` is the second of an empty slot.
    struct Textbook {
        never: i64,
        slots: Vec<(i64, u64)>,
    }

    impl Textbook {
        fn new(never: i64) -> Textbook {
            Textbook { never, slots: vec![(never, 0); SLOTS] }
        }

        fn hit(&mut self, second: i64) {
            let slot = &mut self.slots[usize::try_from(second).expect("not negative") % SLOTS];
            if slot.0 == second && second != self.never {
                slot.1 += 1;
            } else {
                *slot = (second, 1);
            }
        }

        fn load(&self, window_s: i64, at_s: i64) -> u64 {
            let used = self.slots.iter().filter(|slot| slot.0 != self.never);
            used.filter(|slot| at_s - slot.0 < window_s).map(|slot| slot.1).sum()
        }
    }

    #[test]
    fn a_late_hit_wipes_no_newer_slot() {
        let (mut textbook, mut ours) = (Textbook::new(0), Ring::new(SLOTS));
        textbook.hit(1_000);
        textbook.hit(700);
        assert_eq!(textbook.load(300, 1_000), 0);
        assert!(ours.hit(1_000, 1));
        assert!(!ours.hit(700, 1));
        assert_eq!(ours.load(300, 1_000), 1);
    }

    #[test]
    fn a_read_sees_no_hit_after_its_time() {
        let (mut textbook, mut ours) = (Textbook::new(0), Ring::new(SLOTS));
        for second in [1_000, 1_005] {
            textbook.hit(second);
            assert!(ours.hit(second, 1));
        }
        assert_eq!(textbook.load(300, 1_002), 2);
        assert_eq!(ours.load(300, 1_002), 1);
    }

    #[test]
    fn no_second_means_never() {
        for never in [0, i64::from(i32::MAX)] {
            let (mut textbook, mut ours) = (Textbook::new(never), Ring::new(SLOTS));
            assert_eq!(ours.newest(), None);
            textbook.hit(never);
            assert!(ours.hit(never, 1));
            assert_eq!(textbook.load(300, never), 0);
            assert_eq!((ours.load(300, never), ours.load_latest(300)), (1, 1));
        }
    }

    #[test]
    fn examples() {
        check_examples(|| Ring::new(300));
        check_examples(|| Ring::new(301));
    }

    #[test]
    fn equals_the_exact_queue() {
        check_equality(300, || Ring::new(300));
        check_equality(7, || Ring::new(7));
        check_equality(1, || Ring::new(1));
    }

    #[test]
    fn rings_have_bounds() {
        let made = |slots: usize| std::panic::catch_unwind(|| Ring::new(slots)).is_ok();
        assert!(made(1) && made(MAX_RING_SLOTS));
        assert!(!made(0) && !made(MAX_RING_SLOTS + 1));
    }
}
