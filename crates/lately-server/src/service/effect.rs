//! The possible effect of an operation, and its actual one.

use lately::{JointRequest, Op, Outcome, Request, Throttle};

/// The possible effect of an operation.
#[derive(Clone, Copy)]
pub(super) struct Effect {
    /// Hits that are counted if it is allowed, over all its keys.
    hits: u64,
    /// Whether it gives hits back, or room of a rate.
    refunds: bool,
    /// Whether it locks out if it is denied.
    locks_out: bool,
    /// Whether it is of a shadow limit, whose answer is always allowed.
    is_shadow: bool,
}

/// The actual effect of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Applied {
    /// Hits that were counted, denied or refused.
    pub(super) counted: u64,
    pub(super) denied: u64,
    pub(super) refused: u64,
    /// Hits that had been counted before, by their id.
    pub(super) repeated: u64,
    /// Whether something changed, so that the answer waits for the commit.
    pub(super) is_change: bool,
}

impl Applied {
    const NOTHING: Applied = Applied { counted: 0, denied: 0, refused: 0, repeated: 0, is_change: false };

    pub(super) fn counted(hits: u64, is_change: bool) -> Applied {
        Applied { counted: hits, is_change, ..Applied::NOTHING }
    }

    pub(super) fn refused(hits: u64) -> Applied {
        Applied { refused: hits, ..Applied::NOTHING }
    }
}

impl Effect {
    fn of_hits(hits: u64) -> Effect {
        Effect { hits, refunds: false, locks_out: false, is_shadow: false }
    }

    pub(super) fn of(op: &Op<'_>) -> Effect {
        match op {
            Op::Hit { weight, .. } | Op::HitOnce { weight, .. } => Effect::of_hits(*weight),
            Op::HitOnceAt(hit) => Effect::of_hits(hit.weight),
            Op::HitMember(hit) => Effect::of_hits(hit.weight),
            Op::Limit { cost, .. } => Effect::of_hits(*cost),
            Op::Decide(request) => Effect::of_request(request),
            Op::Refund(request) => {
                Effect { refunds: !request.is_peek && request.cost > 0, ..Effect::of_hits(0) }
            }
            Op::Throttle { .. } => Effect::of_hits(1),
            Op::ThrottleBy(request) => Effect::of_throttle(request),
            Op::LimitAll(request) => Effect::of_joint(request),
            _ => Effect::of_hits(0),
        }
    }

    fn of_request(request: &Request<'_>) -> Effect {
        let Request { cost, is_peek, is_shadow, lockout, .. } = *request;
        let locks_out = !is_peek && lockout.is_some();
        Effect { locks_out, is_shadow, ..Effect::of_hits(if is_peek { 0 } else { cost }) }
    }

    fn of_throttle(request: &Throttle<'_>) -> Effect {
        let hits = u64::try_from(request.quantity).unwrap_or(0);
        Effect { refunds: request.quantity < 0, ..Effect::of_hits(hits) }
    }

    fn of_joint(request: &JointRequest<'_>) -> Effect {
        let JointRequest { limits, cost, is_peek, .. } = request;
        let is_first = |&index: &usize| limits[..index].iter().all(|before| before.key != limits[index].key);
        let keys = (0..limits.len()).filter(is_first).count() as u64;
        Effect::of_hits(if *is_peek { 0 } else { cost.saturating_mul(keys) })
    }

    /// Whether it may change anything. A hit of weight 0 does not, but is committed like any hit.
    pub(super) fn may_change(op: &Op<'_>) -> bool {
        let Effect { hits, refunds, locks_out, .. } = Effect::of(op);
        matches!(op, Op::Hit { .. } | Op::HitOnce { .. } | Op::HitOnceAt(_) | Op::HitMember(_))
            || hits > 0
            || refunds
            || locks_out
    }

    /// Hits that are refused when nothing may change.
    pub(super) fn hits(self) -> u64 {
        self.hits
    }

    /// The actual effect, by the outcome. The answer of a shadow limit becomes allowed.
    pub(super) fn settle(self, outcome: &mut Outcome) -> Applied {
        let applied = self.applied(outcome);
        if let Outcome::Limit(Ok(decision)) = outcome
            && self.is_shadow
        {
            decision.retry = lately::Retry::Now;
        }
        applied
    }

    /// The actual effect, by the outcome before it is settled.
    pub(super) fn applied(self, outcome: &Outcome) -> Applied {
        match outcome {
            Outcome::Hit(Ok(_)) => Applied::counted(self.hits, true),
            // The answer waits until the hits that it repeats are committed.
            Outcome::Repeated(_) => Applied { repeated: self.hits, ..Applied::counted(0, true) },
            Outcome::Hit(Err(_)) | Outcome::Limit(Err(_)) | Outcome::LimitAll(Err(_)) => {
                Applied::refused(self.hits)
            }
            Outcome::Limit(Ok(decision)) => self.decided(decision.is_allowed(), self.hits),
            Outcome::LimitAll(Ok(joint)) => self.decided(joint.is_allowed(), joint.denied_hits),
            _ => Applied::NOTHING,
        }
    }

    fn decided(self, is_allowed: bool, denied: u64) -> Applied {
        if is_allowed {
            return Applied::counted(self.hits, self.hits > 0 || self.refunds);
        }
        Applied {
            denied: if self.is_shadow { 0 } else { denied },
            is_change: self.locks_out,
            ..Applied::NOTHING
        }
    }
}
