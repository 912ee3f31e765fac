//! What the service answers, in no protocol's words.

use lately::{Count, HitError, Outcome, Span};
use lately_journal::Refused;

/// The response to an operation.
pub(crate) struct Response<'o> {
    /// What it gave; an error when it would change something and nothing can be kept.
    pub(crate) outcome: Result<&'o Outcome, &'o Refused>,
    /// Whether it reports a change: then it is not to leave before that is committed.
    pub(crate) is_change: bool,
}

/// The first word of an error, by which scripts tell errors apart.
pub(crate) fn code_of(error: &HitError) -> &'static str {
    match error {
        HitError::Late { .. } => "LATE",
        HitError::Future { .. } => "FUTURE",
        HitError::OutOfMemory { .. } => "OOM",
        _ => "ERR",
    }
}

/// Hits per second of a count in a window of so many whole panes.
#[expect(clippy::cast_precision_loss, reason = "a rate is a fraction")]
pub(crate) fn rate(count: &Count, panes: Span) -> f64 {
    count.estimate as f64 / panes.as_seconds_f64()
}
