//! The stopwatch: the one place of the benchmark that reads a clock.

use std::sync::Barrier;
use std::time::Instant;

/// A moment on the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time; it reads it here and nowhere else")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// How long `work` takes, in nanoseconds.
pub(crate) fn nanos_of(work: impl FnOnce()) -> f64 {
    let start = now();
    work();
    nanos_between(start, now())
}

/// How long it takes from the start of the first to the end of the last of two threads that start
/// together, in nanoseconds. Each is timed on its own thread: starting threads costs nothing here.
pub(crate) fn nanos_of_both(one: impl FnOnce() + Send, other: impl FnOnce() + Send) -> f64 {
    let barrier = Barrier::new(2);
    let timed = |work: &mut dyn FnMut()| {
        barrier.wait();
        let start = now();
        work();
        (start, now())
    };
    let (mut one, mut other) = (Some(one), Some(other));
    let (here, there) = std::thread::scope(|scope| {
        let there = scope.spawn(|| timed(&mut || other.take().into_iter().for_each(|work| work())));
        let here = timed(&mut || one.take().into_iter().for_each(|work| work()));
        (here, there.join().expect("a contender does not panic"))
    });
    nanos_between(here.0.min(there.0), here.1.max(there.1))
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
    fn both_run_once_and_together() {
        let (runs, meeting) = (AtomicU32::new(0), Barrier::new(2));
        let work = || {
            // Passes only when both are running.
            meeting.wait();
            runs.fetch_add(1, Ordering::Relaxed);
        };
        assert!(nanos_of_both(work, work) > 0.0);
        assert_eq!(runs.into_inner(), 2);
    }
}
