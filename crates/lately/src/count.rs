//! The answer to "how many hits?", with its bounds.

use crate::time::Span;

/// Hits in a window.
///
/// `lower` and `upper` bound the true number: they are equal while the window lies inside the exact
/// span, and differ by the hits in the panes its edges cut through when it reaches further back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// The best single number: `lower` and the share, by time, of the panes cut through.
    pub estimate: u64,
    /// At least this many.
    pub lower: u64,
    /// At most this many; `None` when the window reaches back past the retention.
    pub upper: Option<u64>,
    /// Width of the pane at the far edge.
    pub cell: Span,
}
