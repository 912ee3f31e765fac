//! The monotonic clock of the event loops. Everything below them gets the time as an argument.

use std::time::Instant;

/// The current time. An event loop reads it once a round, and around what it executes.
#[expect(clippy::disallowed_methods, reason = "the one place of this crate that reads the clock")]
pub(crate) fn moment() -> Instant {
    Instant::now()
}
