//! Decisions: whether hits stay within a limit, and if not, when they would.

use crate::time::Span;

/// When the same request would be allowed, if no other request came before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// It is allowed now.
    Now,
    /// After this span, and not a millisecond earlier.
    After(Span),
    /// Never: it costs more than the limit allows at once.
    Never,
}

/// The decision of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The most hits in any window.
    pub max: u64,
    /// Hits that are left of `max`, after this request.
    pub remaining: u64,
    /// Whether the request is allowed, and if not, when it would be.
    pub retry: Retry,
    /// The time until all of `max` is free again, if no other request comes. `None` when it is free now.
    pub reset_after: Option<Span>,
}

/// The decision of several limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JointDecision {
    /// The decision of each limit, in the order of the request.
    pub decisions: Vec<Decision>,
    /// Denied hits: the cost, once for each key with a limit that denies it.
    pub denied_hits: u64,
}

impl JointDecision {
    /// Whether the request is allowed: by all limits.
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
