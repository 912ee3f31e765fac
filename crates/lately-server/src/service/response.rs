//! Responses of the service, in no protocol.

use super::Refused;
use lately::{Count, HitError, Outcome, Span};

/// The response to an operation.
pub(crate) struct Response<'o> {
    /// The outcome. An error if the operation would change something and the journal has failed.
    pub(crate) outcome: Result<&'o Outcome, &'o Refused>,
    /// Whether it reports a change, and so must wait for the commit.
    pub(crate) is_change: bool,
}

/// The hits of a key in a window.
pub(crate) struct WindowCount {
    pub(crate) window: Span,
    pub(crate) count: Count,
    /// Hits per second.
    pub(crate) rate: f64,
    /// The nodes and the hits that they counted, most first, if requested. Their sum is the estimate.
    pub(crate) origins: Option<Vec<(Box<str>, u64)>>,
}

/// The first word of an error, by which clients distinguish errors.
pub(crate) fn code_of(error: &HitError) -> &'static str {
    match error {
        HitError::Late { .. } => "LATE",
        HitError::Future { .. } => "FUTURE",
        HitError::OutOfMemory { .. } => "OOM",
        _ => "ERR",
    }
}

/// Hits per second, in a window whose whole panes span `panes`.
#[expect(clippy::cast_precision_loss, reason = "a rate is a fraction")]
pub(crate) fn rate(hits: u64, panes: Span) -> f64 {
    hits as f64 / panes.as_seconds_f64()
}
