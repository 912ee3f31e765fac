//! A count of hits, with its bounds.

use crate::time::Span;

/// The number of hits in a window.
///
/// The true number is from `lower` to `upper`. The two are equal while the window lies inside the exact span. When it
/// reaches further back, they differ by the hits in the panes that its edges cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// The best single number. Of each pane that an edge cuts, it counts the share by time.
    pub estimate: u64,
    /// The lower bound.
    pub lower: u64,
    /// The upper bound; `None` when the window reaches back past the retention.
    pub upper: Option<u64>,
    /// Width of the pane at the far edge.
    pub cell: Span,
}

impl Count {
    /// The sum of this count and that of other hits in the same window.
    pub(crate) fn plus(self, other: Count) -> Count {
        Count {
            estimate: self.estimate.saturating_add(other.estimate),
            lower: self.lower.saturating_add(other.lower),
            upper: self.upper.zip(other.upper).map(|(one, two)| one.saturating_add(two)),
            cell: self.cell.max(other.cell),
        }
    }
}
