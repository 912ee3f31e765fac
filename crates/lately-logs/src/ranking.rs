//! The best of many items, in order, with little memory for the others.

use std::cmp::Ordering;

/// How many items are kept beyond twice the top before the worst are dropped.
const SLACK: usize = 1_024;

/// Takes items one by one and keeps the best.
pub(crate) struct Ranking<T, C> {
    best: Vec<T>,
    top: usize,
    order: C,
}

impl<T, C: Fn(&T, &T) -> Ordering> Ranking<T, C> {
    /// A ranking of the best `top` items, or of all, in this order, in which no two are equal.
    pub(crate) fn new(top: Option<usize>, order: C) -> Ranking<T, C> {
        Ranking { best: Vec::new(), top: top.unwrap_or(usize::MAX), order }
    }

    pub(crate) fn push(&mut self, item: T) {
        self.best.push(item);
        if self.best.len() >= self.top.saturating_mul(2).saturating_add(SLACK) {
            self.rank();
        }
    }

    /// The best items, in order.
    pub(crate) fn into_best(mut self) -> Vec<T> {
        self.rank();
        self.best
    }

    fn rank(&mut self) {
        self.best.sort_unstable_by(&self.order);
        self.best.truncate(self.top);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ones_are_kept_whenever_they_came() {
        for top in [0, 1, 10, 2_999, 3_000, 5_000, usize::MAX] {
            let mut ranking = Ranking::new(Some(top), u32::cmp);
            // 7,919 is prime: each number below 3,000 comes once.
            (0..3_000).for_each(|number| ranking.push(number * 7_919 % 3_000));
            assert_eq!(ranking.into_best(), Vec::from_iter((0..3_000).take(top)), "top {top}");
        }
        let mut all = Ranking::new(None, |a: &u32, b: &u32| b.cmp(a));
        (0..5).for_each(|number| all.push(number));
        assert_eq!(all.into_best(), [4, 3, 2, 1, 0]);
    }
}
