//! Where the event loops' time comes from: what they do with it is given a moment.

use std::time::Instant;

/// This moment. An event loop reads it once a round.
#[expect(clippy::disallowed_methods, reason = "the one place of this crate that reads the clock")]
pub(crate) fn moment() -> Instant {
    Instant::now()
}
