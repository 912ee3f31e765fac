//! Decisions: whether hits stay within a limit, and if not, when they would.

use crate::time::Span;

/// When a request that was denied would be allowed, if nothing else came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// It is allowed now.
    Now,
    /// After so long, and not a millisecond earlier.
    After(Span),
    /// Never: it costs more than the limit has.
    Never,
}

/// What a limit says to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The most hits in any window.
    pub max: u64,
    /// Hits that are left in the window that ends now, those of this request taken off.
    pub remaining: u64,
    /// Whether it is allowed; if not, when it would be.
    pub retry: Retry,
    /// How long until all of the limit is left, if nothing else came; `None` when it is.
    pub reset_after: Option<Span>,
}

/// What several limits say to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JointDecision {
    /// What each says, in their order.
    pub decisions: Vec<Decision>,
    /// Hits that were denied: the cost, for each key with a limit that denies it.
    pub denied_hits: u64,
}

impl JointDecision {
    /// Whether the request is allowed: whether each limit allows it.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.decisions.iter().all(Decision::is_allowed)
    }
}

impl Decision {
    /// Whether the request is allowed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.retry == Retry::Now
    }
}
