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

/// When a limit admits a request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Admission {
    /// While there is room for its whole cost.
    #[default]
    Whole,
    /// While there is room for one hit. Then its whole cost counts, so that the hits may exceed the limit. For costs that
    /// are known afterwards.
    Overdraft,
    /// Always. Its hits count.
    Exempt,
    /// Always, because its cost was spent already: the report of a request that [`Admission::Overdraft`] admitted. The whole
    /// cost counts, also during a lockout, so that the hits may exceed the limit.
    Spent,
}

impl Admission {
    /// The room that a request of this cost needs. `None` if it needs none, whatever counts already.
    #[inline]
    pub(crate) fn needs(self, cost: u64) -> Option<u64> {
        match self {
            Admission::Whole => Some(cost),
            Admission::Overdraft => Some(1),
            Admission::Exempt | Admission::Spent => None,
        }
    }
}

/// The decision of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The most hits in any window.
    pub max: u64,
    /// Hits that are left of `max`, after this request. Below 0 for [`Admission::Overdraft`] and [`Admission::Spent`] only: by
    /// how many hits the limit is exceeded.
    pub remaining: i64,
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

/// A number of hits as [`Decision::remaining`]. No key has more than that many.
#[inline]
pub(crate) fn remaining_of(left: u64) -> i64 {
    i64::try_from(left).unwrap_or(i64::MAX)
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

    /// Hits that are left, at least 0.
    #[must_use]
    #[inline]
    pub fn left(&self) -> u64 {
        self.remaining.max(0).unsigned_abs()
    }
}
