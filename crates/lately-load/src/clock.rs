//! The clock of this crate. Latency is real elapsed time, so it cannot be passed in.

use std::time::{Duration, Instant};

/// How long ago it was started.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts it.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place of this crate that reads the clock")]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// What has passed since.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// The same in nanoseconds.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
