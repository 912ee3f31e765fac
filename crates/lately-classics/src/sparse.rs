//! A sorted map from second to count. Only seconds with hits take memory, over any span.
//!
//! The textbook version deletes during reads everything before the window, so a later read of a wider window
//! misses hits. Here only hits move the span that is kept.

use std::collections::BTreeMap;

use crate::counter::{Counter, first_kept, saturating_sum, window_seconds};

/// Keeps a count for each second of a span that had hits, in a map.
#[derive(Clone, Debug)]
pub struct Sparse {
    counts: BTreeMap<i64, u64>,
    span_s: i64,
}

impl Sparse {
    /// A map that keeps the hits of `span_s` seconds.
    ///
    /// # Panics
    /// If `span_s` is below 1.
    #[must_use]
    pub fn new(span_s: i64) -> Sparse {
        assert!(span_s >= 1, "a span is 1 s or more, not {span_s}");
        Sparse { counts: BTreeMap::new(), span_s }
    }

    fn first_kept(&self) -> Option<i64> {
        Some(first_kept(self.newest()?, self.span_s))
    }
}

impl Counter for Sparse {
    fn hit(&mut self, second: i64, count: u64) -> bool {
        if self.first_kept().is_some_and(|first| second < first) {
            return false;
        }
        if count == 0 {
            return true;
        }
        let kept = self.counts.entry(second).or_default();
        *kept = kept.saturating_add(count);
        while let (Some((&oldest, _)), Some(first)) = (self.counts.first_key_value(), self.first_kept())
            && oldest < first
        {
            self.counts.pop_first();
        }
        true
    }

    fn load(&mut self, window_s: i64, at_s: i64) -> u64 {
        let Some(window) = window_seconds(window_s, at_s) else { return 0 };
        saturating_sum(self.counts.range(window).map(|(_, &count)| count))
    }

    fn newest(&self) -> Option<i64> {
        self.counts.last_key_value().map(|(&second, _)| second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_equality, check_examples};

    /// The textbook map: a read deletes what its window does not reach.
    #[derive(Default)]
    struct Textbook {
        counts: BTreeMap<i64, u64>,
    }

    impl Textbook {
        fn load(&mut self, window_s: i64, at_s: i64) -> u64 {
            self.counts = self.counts.split_off(&(at_s - window_s + 1));
            self.counts.values().sum()
        }
    }

    #[test]
    fn a_read_deletes_nothing_that_a_wider_window_needs() {
        let seconds = [1, 2, 3_600];
        let mut textbook = Textbook { counts: seconds.map(|second| (second, 1)).into() };
        assert_eq!((textbook.load(60, 3_600), textbook.load(7_200, 3_600)), (1, 1));
        let mut ours = Sparse::new(86_400);
        for second in seconds {
            assert!(ours.hit(second, 1));
        }
        assert_eq!((ours.load(60, 3_600), ours.load(7_200, 3_600)), (1, 3));
    }

    #[test]
    fn examples() {
        check_examples(|| Sparse::new(300));
    }

    #[test]
    fn equals_the_exact_queue() {
        check_equality(300, || Sparse::new(300));
        check_equality(1, || Sparse::new(1));
        check_equality(604_800, || Sparse::new(604_800));
        check_equality(i64::MAX, || Sparse::new(i64::MAX));
    }
}
