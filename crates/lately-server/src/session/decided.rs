//! What limits said to requests, as replies.

use lately::{Decision, JointDecision, JointRequest, LimitError, Op, Request, Retry, Span, Throttle};
use lately_resp::{CommandError, Encoder};

use super::integer;
use super::run::code;
use crate::rules::RuleNumber;

/// What a request that is to stay within limits may change, and how it is answered.
#[derive(Clone, Copy)]
pub(super) struct Change {
    /// Hits, if it is allowed: of all keys together.
    pub(super) hits: u64,
    /// The limit with a name that counts what it says.
    pub(super) rule: Option<RuleNumber>,
    words: Words,
    /// Whether something is changed beside hits: it gives room back if it is allowed, or locks out if it is denied.
    gives_back: bool,
    locks_out: bool,
    /// Whether the limit only watches: it is told to be allowed in any case.
    pub(super) is_shadow: bool,
}

/// In which words a decision is told.
#[derive(Clone, Copy)]
enum Words {
    /// Those of `LIMIT`.
    Limit,
    /// Those of `MLIMIT`.
    LimitAll,
    /// Those of redis-cell.
    Throttle,
}

impl Words {
    /// The name of the command.
    fn command(self) -> &'static str {
        match self {
            Words::Limit => "limit",
            Words::LimitAll => "mlimit",
            Words::Throttle => "cl.throttle",
        }
    }
}

/// What became of a request.
pub(super) struct Told {
    pub(super) fate: Fate,
    pub(super) hits: u64,
    /// Whether the reply says that something was changed.
    pub(super) is_changed: bool,
}

/// What became of hits.
pub(super) enum Fate {
    Counted,
    Denied,
    /// They could not be decided on.
    Refused,
}

impl Told {
    /// Hits that were counted.
    pub(super) fn counted(&self) -> u64 {
        if matches!(self.fate, Fate::Counted) { self.hits } else { 0 }
    }
}

impl Change {
    fn of_hits(hits: u64) -> Change {
        let words = Words::Limit;
        Change { hits, rule: None, words, gives_back: false, locks_out: false, is_shadow: false }
    }

    pub(super) fn of(request: &Request<'_>) -> Change {
        let Request { cost, is_peek, is_shadow, lockout, .. } = *request;
        let locks_out = !is_peek && lockout.is_some();
        Change { locks_out, is_shadow, ..Change::of_hits(if is_peek { 0 } else { cost }) }
    }

    /// Counted by the limit with a name that says it.
    pub(super) fn counted_by(self, rule: Option<RuleNumber>) -> Change {
        Change { rule, ..self }
    }

    pub(super) fn of_throttle(request: &Throttle<'_>) -> Change {
        let change = Change::of_hits(u64::try_from(request.quantity).unwrap_or(0));
        Change { words: Words::Throttle, gives_back: request.quantity < 0, ..change }
    }

    pub(super) fn of_joint(request: &JointRequest<'_>) -> Change {
        let JointRequest { limits, cost, is_peek, .. } = request;
        let is_first = |&index: &usize| limits[..index].iter().all(|before| before.key != limits[index].key);
        let keys = (0..limits.len()).filter(is_first).count() as u64;
        let change = Change::of_hits(if *is_peek { 0 } else { cost.saturating_mul(keys) });
        Change { words: Words::LimitAll, ..change }
    }

    /// What an operation may change, if it is such a request.
    pub(super) fn of_operation(op: &Op<'_>) -> Option<Change> {
        match op {
            Op::Limit { cost, .. } => Some(Change::of_hits(*cost)),
            Op::Decide(request) => Some(Change::of(request)),
            Op::Throttle { .. } => Some(Change { words: Words::Throttle, ..Change::of_hits(1) }),
            Op::ThrottleBy(request) => Some(Change::of_throttle(request)),
            Op::LimitAll(request) => Some(Change::of_joint(request)),
            _ => None,
        }
    }

    pub(super) fn may_be(self) -> bool {
        self.hits > 0 || self.gives_back || self.locks_out
    }

    fn told(self, is_allowed: bool) -> Told {
        if is_allowed {
            let is_changed = self.hits > 0 || self.gives_back;
            return Told { fate: Fate::Counted, hits: self.hits, is_changed };
        }
        let hits = if self.is_shadow { 0 } else { self.hits };
        Told { fate: Fate::Denied, hits, is_changed: self.locks_out }
    }

    fn refused(self, error: &LimitError, reply: &mut Encoder<'_>) -> Told {
        let cause = match error {
            LimitError::Each { error, .. } => error,
            error => error,
        };
        match cause {
            LimitError::Hit(hit) => reply.error(format_args!("{} {error}", code(hit))),
            _ => reply.error(CommandError::about_argument(error, self.words.command())),
        }
        Told { fate: Fate::Refused, hits: self.hits, is_changed: false }
    }
}

/// Answers a request that is to stay within a limit.
#[inline(never)]
pub(super) fn answer(
    decided: &Result<Decision, LimitError>,
    change: Change,
    reply: &mut Encoder<'_>,
) -> Told {
    match decided {
        Ok(decision) => {
            // Of those that are allowed most is known here.
            match (change.words, decision.retry) {
                (Words::Throttle, Retry::Now) => reply.five_integers(five_of_throttle(decision, Retry::Now)),
                (Words::Throttle, retry) => reply.five_integers(five_of_throttle(decision, retry)),
                (_, retry) if retry == Retry::Now || change.is_shadow => {
                    reply.five_integers(five_of_limit(decision, Retry::Now));
                }
                (_, retry) => reply.five_integers(five_of_limit(decision, retry)),
            }
            change.told(decision.is_allowed())
        }
        Err(error) => change.refused(error, reply),
    }
}

/// Answers a request that is to stay within several limits: whether all allow it, and what each says.
#[inline(never)]
pub(super) fn answer_all(
    decided: &Result<JointDecision, LimitError>,
    change: Change,
    reply: &mut Encoder<'_>,
) -> Told {
    match decided {
        Ok(joint) => {
            reply.array(1 + joint.decisions.len());
            reply.integer(i64::from(joint.is_allowed()));
            joint
                .decisions
                .iter()
                .for_each(|decision| reply.five_integers(five_of_limit(decision, decision.retry)));
            let told = change.told(joint.is_allowed());
            let hits = if matches!(told.fate, Fate::Denied) { joint.denied_hits } else { told.hits };
            Told { hits, ..told }
        }
        Err(error) => change.refused(error, reply),
    }
}

/// Whether it is allowed, the limit, what is left, and the milliseconds until it would be allowed (-1: never) and
/// until all is left. It is told when it would be allowed: by a limit that only watches, now.
#[inline(always)]
fn five_of_limit(decision: &Decision, retry: Retry) -> [i64; 5] {
    [
        i64::from(retry == Retry::Now),
        integer(decision.max),
        integer(decision.remaining),
        match retry {
            Retry::Now => 0,
            Retry::After(wait) => wait.as_millis(),
            Retry::Never => -1,
        },
        decision.reset_after.map_or(0, Span::as_millis),
    ]
}

/// As redis-cell has them: whether it is denied, the limit, what is left, and the seconds, rounded up, until it would
/// be allowed (-1: it is, or never) and until all is left.
#[inline(always)]
fn five_of_throttle(decision: &Decision, retry: Retry) -> [i64; 5] {
    let seconds = |span: Span| (span.as_millis() + 999) / 1_000;
    [
        i64::from(retry != Retry::Now),
        integer(decision.max),
        integer(decision.remaining),
        match retry {
            Retry::After(wait) => seconds(wait),
            Retry::Now | Retry::Never => -1,
        },
        decision.reset_after.map_or(0, seconds),
    ]
}
