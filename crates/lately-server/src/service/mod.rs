//! What a client may ask of the counts, whatever protocol it speaks: protocols translate, this decides and counts.
//!
//! A [`Batch`] has the requests that the store is given together. Others are functions of the [`Engine`], here and in
//! `keys.rs`. What takes long is read in slices: a series, the walks of `walk.rs`.

mod batch;
mod effect;
mod keys;
mod walk;

use lately::{Count, HitError, Span};

pub(crate) use batch::{Batch, NamedRequest, Response};
pub(crate) use walk::{CoolestWalk, ScanWalk, coolest_of};

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
