//! Decides one request of a limit, for protocols that answer requests one by one.

use std::sync::Arc;

use super::Refused;
use lately::{Admission, Decision, LimitError, Lockout, Outcome, Request, Retry, Span, Timestamp};
use thiserror::Error;

use super::commit::Changes;
use super::named_limits::Rules;
use super::owners::Verdict;
use super::{Batch, NamedRequest, Service};

/// The limit of a request.
#[derive(Clone, Copy)]
pub(crate) enum Limiting<'r> {
    /// A limit of the config, and the set that it is in.
    Named(&'r Arc<Rules>, &'r [u8]),
    /// A limit that the request brings along.
    Given { max: u64, window: Span, lockout: Option<Lockout>, is_overdraft: bool },
}

/// What a client asks of a limit.
pub(crate) struct LimitRequest<'r> {
    pub(crate) key: &'r [u8],
    pub(crate) limit: Limiting<'r>,
    /// Below 0, hits are given back.
    pub(crate) cost: i64,
    pub(crate) at: Option<Timestamp>,
    pub(crate) is_peek: bool,
    /// The address that the key has. `None`: it is looked for in the key.
    pub(crate) address: Option<&'r [u8]>,
}

/// A decision, and what an answer says about the limit.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) decision: Decision,
    pub(crate) window: Span,
    /// How long until one more hit is free than `decision` has. `None` if no time frees any.
    pub(crate) more_after: Option<Span>,
}

/// Why there is no decision.
#[derive(Debug, Error)]
pub(crate) enum DecideError {
    /// No limit has this name. The text lists those there are.
    #[error("{0}")]
    Unknown(String),
    /// Hits cannot be given back here.
    #[error("{0}")]
    Refund(String),
    /// The request is wrong, or there is no room for it.
    #[error(transparent)]
    Limit(LimitError),
    /// The owner of the key refuses the request.
    #[error("{error}")]
    Owner {
        /// [`super::owners::ARGUMENT`], or the first word of the error in RESP.
        code: &'static str,
        /// The rest.
        error: String,
    },
    /// The journal has failed.
    #[error(transparent)]
    Refused(Refused),
}

impl Service {
    /// Decides a request. Returns once what it counted is committed.
    ///
    /// # Errors
    /// [`DecideError`]: nothing was counted.
    pub(crate) async fn decide(
        self: &Arc<Service>,
        asked: &LimitRequest<'_>,
    ) -> Result<Decided, DecideError> {
        let check_cost =
            || if asked.cost < 0 { self.check_refund().map_err(DecideError::Refund) } else { Ok(()) };
        let (max, window, is_exempt) = match asked.limit {
            Limiting::Given { max, window, .. } => {
                check_cost()?;
                (max, window, false)
            }
            Limiting::Named(rules, name) => {
                let number = rules.find(name).ok_or_else(|| DecideError::Unknown(rules.unknown(name)))?;
                check_cost()?;
                let limit = &rules.rule(number).limit;
                let is_exempt = match self.decided_by_owner(limit, &asked.named(name, false)).await {
                    None => false,
                    Some(Verdict::Decided(decided)) => return Ok(decided),
                    Some(Verdict::Refused { code, error }) => return Err(DecideError::Owner { code, error }),
                    Some(Verdict::Here { is_exempt }) => is_exempt,
                };
                (limit.max, limit.window, is_exempt)
            }
        };
        let now = self.now();
        let mut changes = Changes::default();
        // The change is committed before the next await: a client that disconnects cannot undo it.
        let (outcome, commit) = self.execute_alone(&mut changes, now, |batch| {
            asked.add_to(batch, is_exempt, self);
        });
        let decision = decision_of(outcome)?;
        let request = Request { at: asked.at, ..Request::new(asked.key, max, window, 1) };
        let more_after = self.more_after(request, &decision, now);
        self.settled(commit, changes).await.map_err(DecideError::Refused)?;
        Ok(Decided { decision, window, more_after })
    }

    /// How long until one more hit is free than is left now. The cost of `request` does not matter.
    pub(super) fn more_after(
        &self,
        request: Request<'_>,
        decision: &Decision,
        now: Timestamp,
    ) -> Option<Span> {
        if decision.left() >= request.max {
            return None;
        }
        let request = Request { cost: decision.left() + 1, is_peek: true, ..request };
        match self.store.decide(request, now).ok()?.retry {
            Retry::After(wait) => Some(wait),
            Retry::Now | Retry::Never => None,
        }
    }
}

impl<'r> LimitRequest<'r> {
    /// Adds it to a batch. A limit of the config was found before.
    fn add_to(&self, batch: &mut Batch<'r>, is_exempt: bool, service: &Service) {
        let &LimitRequest { key, limit, cost, at, is_peek, .. } = self;
        match limit {
            Limiting::Given { max, window, lockout, is_overdraft } => {
                let admission = if is_overdraft { Admission::Overdraft } else { Admission::Whole };
                let request = Request::new(key, max, window, cost.unsigned_abs());
                let request = Request { at, is_peek, lockout, admission, ..request };
                if cost < 0 { batch.refund(request) } else { batch.limit(request) }
            }
            Limiting::Named(rules, name) => {
                batch.use_rules(Arc::clone(rules));
                batch.limit_by_name(&self.named(name, is_exempt), service).expect("the name was found");
            }
        }
    }

    fn named(&self, name: &'r [u8], is_exempt: bool) -> NamedRequest<'r> {
        let &LimitRequest { key, cost, at, is_peek, address, .. } = self;
        NamedRequest { key, name, cost, at, is_peek, address, instead: None, is_spent: false, is_exempt }
    }
}

fn decision_of(outcome: Result<Outcome, Refused>) -> Result<Decision, DecideError> {
    match outcome {
        Ok(Outcome::Limit(decided)) => decided.map_err(DecideError::Limit),
        Ok(_) => unreachable!("a limit was asked for"),
        Err(refused) => Err(DecideError::Refused(refused)),
    }
}
