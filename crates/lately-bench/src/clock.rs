//! The stopwatch: the one place of the benchmark that reads a clock.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A moment on the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time; it reads it here and nowhere else")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Yields the core for about `time`.
pub(crate) fn pause(time: Duration) {
    std::thread::park_timeout(time);
}

/// The time that `work` takes on this thread, in nanoseconds. Time of other threads on the core does not
/// count.
pub(crate) fn nanos_of(work: impl FnOnce()) -> f64 {
    let start = thread_nanos();
    work();
    thread_nanos() - start
}

/// The times of two threads that worked at the same time, in nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Both {
    /// From the start of the first to the end of the last.
    pub(crate) wall: f64,
    /// The processor time of the thread with more work. It equals the wall time if each thread has its own
    /// core.
    pub(crate) busy: f64,
}

/// Runs both, with a common start. Each is timed on its own thread, so starting the threads does not count.
pub(crate) fn nanos_of_both(one: impl FnOnce() + Send, other: impl FnOnce() + Send) -> Both {
    let barrier = Barrier::new(2);
    let (here, there) = std::thread::scope(|scope| {
        let there = scope.spawn(|| timed(&barrier, other));
        let here = timed(&barrier, one);
        (here, there.join().expect("a contender does not panic"))
    });
    let wall = nanos_between(here.0.min(there.0), here.1.max(there.1));
    Both { wall, busy: here.2.max(there.2) }
}

fn timed(barrier: &Barrier, work: impl FnOnce()) -> (Instant, Instant, f64) {
    barrier.wait();
    let start = now();
    let busy = nanos_of(work);
    (start, now(), busy)
}

/// The processor time of this thread.
fn thread_nanos() -> f64 {
    nanos_on(ClockId::ThreadCPUTime)
}

fn nanos_on(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds from one moment to a later one.
pub(crate) fn nanos_between(start: Instant, end: Instant) -> f64 {
    end.duration_since(start).as_secs_f64() * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn both_jobs_run_at_the_same_time() {
        let (runs, meeting) = (AtomicU32::new(0), Barrier::new(2));
        let work = || {
            // Passes only if both are running.
            meeting.wait();
            runs.fetch_add(1, Ordering::Relaxed);
        };
        let both = nanos_of_both(work, work);
        assert!(both.wall > 0.0 && both.busy > 0.0);
        assert_eq!(runs.into_inner(), 2);
    }
}
