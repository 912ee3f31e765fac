//! A ring that also keeps the total of its whole span, so that the usual read needs no scan.
//!
//! The textbook version updates the total at hits only. Without hits the total goes stale, and a read still
//! counts what left the window long ago. Here the total is for a time, and a read at a later time first
//! subtracts what has left.

use crate::counter::{Counter, window_seconds};
use crate::ring::Ring;

/// A ring, and the total of the window of the ring's length at the latest time of a hit or read. Other
/// windows and earlier times are scanned.
#[derive(Clone, Debug)]
pub struct RunningTotal {
    ring: Ring,
    /// The last second of the total's window; not before the newest hit.
    end_s: Option<i64>,
    /// Wide enough that the sum of all slots never overflows.
    total: u128,
}

impl RunningTotal {
    /// A ring of `slots` seconds with the total of them.
    ///
    /// # Panics
    /// If `slots` is not 1 to [`MAX_RING_SLOTS`](crate::limits::MAX_RING_SLOTS).
    #[must_use]
    pub fn new(slots: usize) -> RunningTotal {
        RunningTotal { ring: Ring::new(slots), end_s: None, total: 0 }
    }

    /// Moves the total's window to end at `to_s`, and subtracts what has left it.
    fn advance(&mut self, to_s: i64) {
        let span_s = self.ring.span_s();
        let end_s = self.end_s.replace(to_s).unwrap_or(to_s);
        if to_s.saturating_sub(end_s) >= span_s {
            self.total = 0;
        } else if let Some(last_out) = to_s.checked_sub(span_s) {
            let first = end_s.saturating_sub(span_s - 1);
            let left = (first..=last_out).map(|second| u128::from(self.ring.count_at(second)));
            self.total -= left.sum::<u128>();
        }
    }

    fn is_past_end(&self, second: i64) -> bool {
        self.end_s.is_none_or(|end_s| second > end_s)
    }
}

impl Counter for RunningTotal {
    fn hit(&mut self, second: i64, count: u64) -> bool {
        if count == 0 || self.ring.first_kept().is_some_and(|first| second < first) {
            return self.ring.hit(second, count);
        }
        // Before the ring reuses slots for newer seconds.
        if self.is_past_end(second) {
            self.advance(second);
        }
        let window = self.end_s.and_then(|end_s| window_seconds(self.ring.span_s(), end_s));
        let before = self.ring.count_at(second);
        self.ring.hit(second, count);
        if window.is_some_and(|window| window.contains(&second)) {
            self.total += u128::from(self.ring.count_at(second) - before);
        }
        true
    }

    fn load(&mut self, window_s: i64, at_s: i64) -> u64 {
        if self.end_s.is_some() && self.is_past_end(at_s) {
            self.advance(at_s);
        }
        if window_s == self.ring.span_s() && Some(at_s) == self.end_s {
            return u64::try_from(self.total).unwrap_or(u64::MAX);
        }
        self.ring.load(window_s, at_s)
    }

    fn newest(&self) -> Option<i64> {
        self.ring.newest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_equality, check_examples};

    /// The textbook running total: updated by hits only.
    #[derive(Default)]
    struct Textbook {
        seconds: Vec<i64>,
        total: usize,
    }

    impl Textbook {
        fn hit(&mut self, second: i64) {
            self.seconds.push(second);
            self.seconds.retain(|&kept| second - kept < 300);
            self.total = self.seconds.len();
        }
    }

    #[test]
    fn the_total_does_not_go_stale_without_a_hit() {
        let (mut textbook, mut ours) = (Textbook::default(), RunningTotal::new(300));
        for second in [1, 2] {
            textbook.hit(second);
            assert!(ours.hit(second, 1));
        }
        assert_eq!(textbook.total, 2, "an hour later as well");
        assert_eq!((ours.hits(2), ours.hits(301), ours.hits(3_600)), (2, 1, 0));
        assert_eq!(ours.hits(2), 2, "and back in time");
    }

    #[test]
    fn a_late_hit_behind_the_total_is_kept() {
        let mut ours = RunningTotal::new(300);
        assert!(ours.hit(1_000, 1));
        assert_eq!(ours.hits(1_250), 1);
        assert!(ours.hit(900, 5), "outside the total's window, inside the ring");
        assert_eq!((ours.hits(1_250), ours.hits(1_199), ours.hits(1_200)), (1, 6, 1));
    }

    #[test]
    fn a_saturated_total_recovers() {
        let mut ours = RunningTotal::new(300);
        assert!(ours.hit(1, u64::MAX) && ours.hit(1, 9) && ours.hit(2, u64::MAX) && ours.hit(3, 4));
        assert_eq!((ours.hits(3), ours.hits(301), ours.hits(302)), (u64::MAX, u64::MAX, 4));
    }

    #[test]
    fn examples() {
        check_examples(|| RunningTotal::new(300));
    }

    #[test]
    fn equals_the_exact_queue() {
        check_equality(300, || RunningTotal::new(300));
        check_equality(7, || RunningTotal::new(7));
        check_equality(1, || RunningTotal::new(1));
    }
}
