//! A cache of the last answer, for any other counter: reading again needs no scan.
//!
//! The textbook version drops the answer at the next hit, and only then. Without hits it returns the answer
//! of a time long past. Here the answer is for a window and a time, and is only used for the same ones.

use crate::counter::Counter;

/// A counter that remembers the last answer of the one it wraps, until the next hit.
#[derive(Clone, Debug)]
pub struct Cached<C> {
    inner: C,
    last: Option<Answer>,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    window_s: i64,
    at_s: i64,
    load: u64,
}

impl<C: Counter> Cached<C> {
    /// A cache over `inner`, which keeps what `inner` keeps.
    #[must_use]
    pub fn new(inner: C) -> Cached<C> {
        Cached { inner, last: None }
    }
}

impl<C: Counter> Counter for Cached<C> {
    fn hit(&mut self, second: i64, count: u64) -> bool {
        self.last = None;
        self.inner.hit(second, count)
    }

    fn load(&mut self, window_s: i64, at_s: i64) -> u64 {
        if let Some(last) = self.last.filter(|last| (last.window_s, last.at_s) == (window_s, at_s)) {
            return last.load;
        }
        let load = self.inner.load(window_s, at_s);
        self.last = Some(Answer { window_s, at_s, load });
        load
    }

    fn newest(&self) -> Option<i64> {
        self.inner.newest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_equality, check_examples};
    use crate::{ExactQueue, Ring, RunningTotal};

    /// Counts the scans of the inner counter.
    struct Scans {
        inner: ExactQueue,
        scans: u32,
    }

    impl Counter for Scans {
        fn hit(&mut self, second: i64, count: u64) -> bool {
            self.inner.hit(second, count)
        }

        fn load(&mut self, window_s: i64, at_s: i64) -> u64 {
            self.scans += 1;
            self.inner.load(window_s, at_s)
        }

        fn newest(&self) -> Option<i64> {
            self.inner.newest()
        }
    }

    /// The textbook cache: valid until a hit.
    struct Textbook {
        inner: ExactQueue,
        last: Option<u64>,
    }

    impl Textbook {
        fn hits(&mut self, at_s: i64) -> u64 {
            *self.last.get_or_insert_with(|| self.inner.hits(at_s))
        }
    }

    #[test]
    fn time_makes_an_answer_old() {
        let mut inner = ExactQueue::new();
        assert!(inner.hit(1, 1));
        let mut textbook = Textbook { inner: inner.clone(), last: None };
        assert_eq!((textbook.hits(1), textbook.hits(301)), (1, 1));
        let mut ours = Cached::new(inner);
        assert_eq!((ours.hits(1), ours.hits(301)), (1, 0));
    }

    #[test]
    fn the_same_question_costs_one_scan_until_a_hit() {
        let mut ours = Cached::new(Scans { inner: ExactQueue::new(), scans: 0 });
        assert!(ours.hit(1, 1));
        assert_eq!((ours.hits(1), ours.hits(1), ours.hits(1)), (1, 1, 1));
        assert_eq!(ours.inner.scans, 1);
        assert!(ours.hit(1, 1));
        assert_eq!(ours.hits(1), 2);
        assert_eq!(ours.inner.scans, 2);
        assert_eq!(ours.load(5, 1), 2, "another window");
        assert_eq!(ours.inner.scans, 3);
    }

    #[test]
    fn examples() {
        check_examples(|| Cached::new(Ring::new(300)));
    }

    #[test]
    fn equals_the_exact_queue() {
        check_equality(300, || Cached::new(Ring::new(300)));
        check_equality(7, || Cached::new(RunningTotal::new(7)));
    }
}
