//! The clocks of threads. Everything below them gets the time as an argument.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The current time. An event loop reads it once per round, and before and after it executes requests.
#[expect(clippy::disallowed_methods, reason = "the one place of this crate that reads the clock")]
pub(crate) fn moment() -> Instant {
    Instant::now()
}

/// The processor time that this thread has used.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
}
