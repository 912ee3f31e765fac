//! The hits of a key by the node that counted them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::count::Count;

/// The hits of a key in a window, by the node that counted them. They add up to the estimate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HitsByNode {
    /// All of them.
    pub count: Count,
    /// The hits of this store.
    pub own: u64,
    /// The hits of other nodes, by name. The origins of one node are one number.
    pub others: Vec<(Box<str>, u64)>,
}

/// Nodes and their hits.
pub(super) type Shares = Vec<(Box<str>, u64)>;

/// Shares `total` out to nodes with these counts.
///
/// An estimate is rounded, so those of the nodes need not add up to that of all their hits. The nodes with the most hits get
/// the difference: one hit each, then what their bounds permit, which is more where their cells have other widths.
pub(super) fn share_out(total: u64, counts: BTreeMap<Box<str>, Count>) -> Shares {
    let mut rows: Vec<(Box<str>, Count)> = counts.into_iter().collect();
    rows.sort_by_key(|(_, count)| Reverse((count.estimate, count.upper.unwrap_or(u64::MAX))));
    let sum: u128 = rows.iter().map(|(_, count)| u128::from(count.estimate)).sum();
    let (mut missing, mut excess) =
        (u128::from(total).saturating_sub(sum), sum.saturating_sub(u128::from(total)));
    let mut share = |most: u64, in_bounds: bool| {
        let part = |of: u128, room: u64| u64::try_from(of).unwrap_or(u64::MAX).min(room).min(most);
        for (_, count) in &mut rows {
            let upper = count.upper.filter(|_| in_bounds).unwrap_or(u64::MAX);
            let lower = if in_bounds { count.lower } else { 0 };
            let more = part(missing, upper.saturating_sub(count.estimate));
            let less = part(excess, count.estimate.saturating_sub(lower));
            count.estimate = count.estimate + more - less;
            (missing, excess) = (missing - u128::from(more), excess - u128::from(less));
        }
    };
    share(1, true);
    share(u64::MAX, true);
    // Only a sum past the bound of counts leaves more than that.
    share(u64::MAX, false);
    rows.into_iter().map(|(node, count)| (node, count.estimate)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_TOTAL;
    use crate::time::Span;

    #[test]
    fn shares_add_up_within_the_bounds_of_each_node() {
        let check = |total, counts: &[(u64, u64, Option<u64>)], expected: &[u64]| {
            let count = |&(estimate, lower, upper)| Count { estimate, lower, upper, cell: Span::MIN };
            let names = ["a", "b", "c"].map(Box::from).into_iter();
            let rows = share_out(total, names.zip(counts.iter().map(count)).collect());
            assert_eq!(
                rows.iter().map(|(_, hits)| *hits).collect::<Vec<_>>(),
                expected,
                "{total} {counts:?}"
            );
            assert_eq!(expected.iter().sum::<u64>(), total);
        };
        check(5, &[(2, 2, Some(2)), (3, 3, Some(3))], &[3, 2]);
        // Three thirds of a hit are one.
        check(1, &[(0, 0, Some(1)), (0, 0, Some(1)), (0, 0, Some(1))], &[1, 0, 0]);
        check(1, &[(0, 0, Some(0)), (0, 0, None)], &[1, 0]);
        check(2, &[(1, 0, Some(1)), (1, 0, Some(1)), (1, 0, Some(2))], &[0, 1, 1]);
        // The first has no hit to give.
        check(8, &[(6, 6, Some(7)), (3, 1, Some(4))], &[6, 2]);
        check(10, &[(6, 6, Some(6)), (3, 1, Some(4))], &[6, 4]);
        // Cells of other widths.
        check(10, &[(5, 4, Some(9)), (1, 1, Some(1))], &[9, 1]);
        check(10, &[(5, 5, Some(6)), (1, 1, Some(1))], &[9, 1]);
        // Counts are bounded, and so is their sum.
        let most = MAX_TOTAL;
        check(most, &[(most, most, Some(most)), (5, 5, Some(5))], &[most - 5, 5]);
    }
}
