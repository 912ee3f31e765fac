//! Replies with the decisions of limits.

use lately::{Decision, JointDecision, LimitError, Retry, Span};
use lately_resp::{CommandError, Encoder};

use super::integer;
use crate::service::code_of;

/// The command whose format a reply has.
#[derive(Clone, Copy)]
pub(super) enum Words {
    /// `LIMIT`.
    Limit,
    /// `MLIMIT`.
    LimitAll,
    /// `CL.THROTTLE`, as in redis-cell.
    Throttle,
}

impl Words {
    /// The name of the command.
    pub(super) fn command(self) -> &'static str {
        match self {
            Words::Limit => "limit",
            Words::LimitAll => "mlimit",
            Words::Throttle => "cl.throttle",
        }
    }
}

/// Writes the decision of a limit.
pub(super) fn write(decided: &Result<Decision, LimitError>, words: Words, reply: &mut Encoder<'_>) {
    match (decided, words) {
        (Ok(decision), Words::Throttle) => reply.five_integers(five_of_throttle(decision)),
        (Ok(decision), _) => reply.five_integers(five_of_limit(decision)),
        (Err(error), _) => refused(error, words, reply),
    }
}

/// Writes whether several limits allow a request, and the decision of each.
pub(super) fn write_all(decided: &Result<JointDecision, LimitError>, words: Words, reply: &mut Encoder<'_>) {
    match decided {
        Ok(joint) => {
            reply.array(1 + joint.decisions.len());
            reply.integer(i64::from(joint.is_allowed()));
            joint.decisions.iter().for_each(|decision| reply.five_integers(five_of_limit(decision)));
        }
        Err(error) => refused(error, words, reply),
    }
}

fn refused(error: &LimitError, words: Words, reply: &mut Encoder<'_>) {
    let cause = match error {
        LimitError::Each { error, .. } => error,
        error => error,
    };
    match cause {
        LimitError::Hit(hit) => reply.error(format_args!("{} {error}", code_of(hit))),
        _ => reply.error(CommandError::about_argument(error, words.command())),
    }
}

/// The five integers of `LIMIT`: allowed, max, remaining, retry_after in ms (-1: never), reset_after in ms.
fn five_of_limit(decision: &Decision) -> [i64; 5] {
    [
        i64::from(decision.is_allowed()),
        integer(decision.max),
        decision.remaining,
        match decision.retry {
            Retry::Now => 0,
            Retry::After(wait) => wait.as_millis(),
            Retry::Never => -1,
        },
        decision.reset_after.map_or(0, Span::as_millis),
    ]
}

/// The five integers of redis-cell: denied, limit, remaining, retry_after in seconds (-1: allowed, or never) and
/// reset_after in seconds, both rounded up.
fn five_of_throttle(decision: &Decision) -> [i64; 5] {
    let seconds = |span: Span| (span.as_millis() + 999) / 1_000;
    [
        i64::from(!decision.is_allowed()),
        integer(decision.max),
        decision.remaining,
        match decision.retry {
            Retry::After(wait) => seconds(wait),
            Retry::Now | Retry::Never => -1,
        },
        decision.reset_after.map_or(0, seconds),
    ]
}
