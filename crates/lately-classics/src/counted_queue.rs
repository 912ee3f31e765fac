//! A queue of (second, count): as exact as a queue of timestamps, in memory that does not grow with
//! the hits of a second.
//!
//! The textbook version compares a hit only with the back of the queue. So a late hit is behind a newer one,
//! the queue is not sorted any more, and a read, which stops at the first entry that is too old, misses all
//! entries before it. Here a hit is inserted at its place.

use std::collections::VecDeque;

use crate::counter::{Counter, first_kept, saturating_sum, window_seconds};

/// Keeps a count for each second of a span that had hits.
#[derive(Clone, Debug)]
pub struct CountedQueue {
    /// (second, count), oldest first. Each second occurs at most once.
    entries: VecDeque<(i64, u64)>,
    span_s: i64,
}

impl CountedQueue {
    /// A queue that keeps the hits of `span_s` seconds.
    ///
    /// # Panics
    /// If `span_s` is below 1.
    #[must_use]
    pub fn new(span_s: i64) -> CountedQueue {
        assert!(span_s >= 1, "a span is 1 s or more, not {span_s}");
        CountedQueue { entries: VecDeque::new(), span_s }
    }

    fn first_kept(&self) -> Option<i64> {
        Some(first_kept(self.newest()?, self.span_s))
    }
}

impl Counter for CountedQueue {
    fn hit(&mut self, second: i64, count: u64) -> bool {
        if self.first_kept().is_some_and(|first| second < first) {
            return false;
        }
        if count == 0 {
            return true;
        }
        match self.entries.binary_search_by_key(&second, |entry| entry.0) {
            Ok(place) => self.entries[place].1 = self.entries[place].1.saturating_add(count),
            Err(place) => self.entries.insert(place, (second, count)),
        }
        while let (Some(&(oldest, _)), Some(first)) = (self.entries.front(), self.first_kept())
            && oldest < first
        {
            self.entries.pop_front();
        }
        true
    }

    fn load(&mut self, window_s: i64, at_s: i64) -> u64 {
        let Some(window) = window_seconds(window_s, at_s) else { return 0 };
        let newest_first = self.entries.iter().rev();
        let inside = newest_first
            .skip_while(|entry| entry.0 > *window.end())
            .take_while(|entry| entry.0 >= *window.start());
        saturating_sum(inside.map(|entry| entry.1))
    }

    fn newest(&self) -> Option<i64> {
        self.entries.back().map(|entry| entry.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_equality, check_examples};

    /// The textbook queue: sorted only if the hits are.
    #[derive(Default)]
    struct Textbook {
        entries: Vec<(i64, u64)>,
    }

    impl Textbook {
        fn hit(&mut self, second: i64) {
            match self.entries.last_mut() {
                Some(last) if last.0 == second => last.1 += 1,
                _ => self.entries.push((second, 1)),
            }
        }

        fn load(&self, window_s: i64, at_s: i64) -> u64 {
            let newest_first = self.entries.iter().rev();
            newest_first.take_while(|entry| at_s - entry.0 < window_s).map(|entry| entry.1).sum()
        }
    }

    #[test]
    fn a_late_hit_hides_nothing() {
        let (mut textbook, mut ours) = (Textbook::default(), CountedQueue::new(300));
        for second in [100, 101, 50] {
            textbook.hit(second);
            assert!(ours.hit(second, 1));
        }
        assert_eq!(textbook.load(10, 101), 0);
        assert_eq!(ours.load(10, 101), 2);
    }

    #[test]
    fn examples() {
        check_examples(|| CountedQueue::new(300));
    }

    #[test]
    fn equals_the_exact_queue() {
        check_equality(300, || CountedQueue::new(300));
        check_equality(1, || CountedQueue::new(1));
        check_equality(i64::MAX, || CountedQueue::new(i64::MAX));
    }

    #[test]
    fn a_sum_past_the_largest_number_is_the_largest() {
        let mut queue = CountedQueue::new(300);
        assert!(queue.hit(1, u64::MAX) && queue.hit(1, 1) && queue.hit(2, 1));
        assert_eq!(queue.load(300, 2), u64::MAX);
        assert_eq!(queue.load(1, 2), 1);
    }
}
