//! A queue with one timestamp per hit: the definition, and so the oracle for the other classics.
//!
//! The textbook queue drops hits that are too old for a read. A read at a later time, or of a narrower
//! window, then changes the answer of an earlier or wider one. Here only hits move the span that is kept, and
//! reads change nothing.

use std::collections::VecDeque;

use crate::counter::{Counter, first_kept};
use crate::limits::MAX_QUEUED_HITS;

/// Keeps the second of each hit: of all hits, or of a span. At most [`MAX_QUEUED_HITS`]; further hits are
/// refused.
#[derive(Clone, Debug, Default)]
pub struct ExactQueue {
    /// Oldest first.
    seconds: VecDeque<i64>,
    span_s: Option<i64>,
}

impl ExactQueue {
    /// A queue that keeps all hits.
    #[must_use]
    pub fn new() -> ExactQueue {
        ExactQueue::default()
    }

    /// A queue that keeps the hits of `span_s` seconds.
    ///
    /// # Panics
    /// If `span_s` is below 1.
    #[must_use]
    pub fn keeping(span_s: i64) -> ExactQueue {
        assert!(span_s >= 1, "a span is 1 s or more, not {span_s}");
        ExactQueue { seconds: VecDeque::new(), span_s: Some(span_s) }
    }

    fn first_kept(&self) -> Option<i64> {
        Some(first_kept(self.newest()?, self.span_s?))
    }
}

impl Counter for ExactQueue {
    fn hit(&mut self, second: i64, count: u64) -> bool {
        let room = MAX_QUEUED_HITS - self.seconds.len() as u64;
        if self.first_kept().is_some_and(|first| second < first) || count > room {
            return false;
        }
        let place = self.seconds.partition_point(|&kept| kept <= second);
        for _ in 0..count {
            self.seconds.insert(place, second);
        }
        while let (Some(&oldest), Some(first)) = (self.seconds.front(), self.first_kept())
            && oldest < first
        {
            self.seconds.pop_front();
        }
        true
    }

    fn load(&mut self, window_s: i64, at_s: i64) -> u64 {
        let window = 0..i128::from(window_s);
        let counts = |hit: i64| window.contains(&(i128::from(at_s) - i128::from(hit)));
        self.seconds.iter().filter(|&&hit| counts(hit)).count() as u64
    }

    fn newest(&self) -> Option<i64> {
        self.seconds.back().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_equality, check_examples};

    /// The textbook queue: a read drops what is too old for it.
    #[derive(Default)]
    struct Textbook {
        seconds: VecDeque<i64>,
    }

    impl Textbook {
        fn load(&mut self, window_s: i64, at_s: i64) -> usize {
            while self.seconds.front().is_some_and(|&oldest| oldest <= at_s - window_s) {
                self.seconds.pop_front();
            }
            self.seconds.len()
        }
    }

    #[test]
    fn a_narrow_read_takes_nothing_from_a_wider_one() {
        let mut textbook = Textbook { seconds: VecDeque::from([1, 100]) };
        assert_eq!((textbook.load(10, 100), textbook.load(300, 100)), (1, 1));
        let mut ours = ExactQueue::new();
        assert!(ours.hit(1, 1) && ours.hit(100, 1));
        assert_eq!((ours.load(10, 100), ours.load(300, 100)), (1, 2));
    }

    #[test]
    fn examples() {
        check_examples(ExactQueue::new);
        check_examples(|| ExactQueue::keeping(300));
    }

    #[test]
    fn a_queue_that_forgets_equals_one_that_does_not() {
        check_equality(300, || ExactQueue::keeping(300));
        check_equality(1, || ExactQueue::keeping(1));
    }

    #[test]
    fn the_queue_is_full_at_its_bound() {
        let mut queue = ExactQueue::new();
        assert!(queue.hit(7, MAX_QUEUED_HITS));
        assert!(!queue.hit(7, 1));
        assert_eq!(queue.load(1, 7), MAX_QUEUED_HITS);
        assert!(!ExactQueue::new().hit(7, MAX_QUEUED_HITS + 1));
    }
}
