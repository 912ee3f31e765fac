//! The decisions of one kind of limit about the trace, and their sums.

use super::fixed::Begin;
use super::limiter::{Limiter, MAX, window};
use super::trace::{requests, time};

/// A request, and whether it was admitted.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) at_ms: i64,
    pub(crate) is_admitted: bool,
}

/// The decisions of one kind of limit. Times are in milliseconds from the start of the trace.
pub(crate) struct Replay {
    /// The name of the kind.
    pub(crate) name: &'static str,
    /// The command for it.
    pub(crate) how: String,
    pub(crate) requests: Vec<Request>,
}

impl Replay {
    /// The replays by all kinds of limits.
    pub(crate) fn all() -> [Replay; 4] {
        let (window, burst) = (window().as_millis() / 1_000, MAX - 1);
        let sliding = format!("LIMIT key {MAX} {window}");
        let throttle = format!("CL.THROTTLE key {burst} {MAX} {window}");
        let (clock, first) = ("INCR key:window".to_owned(), format!("INCR key, EXPIRE key {window}"));
        [
            Replay::of("Sliding window", sliding, Limiter::sliding()),
            Replay::of("GCRA", throttle, Limiter::throttle(burst, MAX)),
            Replay::of("Fixed window by the clock", clock, Limiter::fixed(Begin::OnTheClock)),
            Replay::of(
                "Fixed window from the first request",
                first,
                Limiter::fixed(Begin::WithTheFirstRequest),
            ),
        ]
    }

    fn of(name: &'static str, how: String, mut limiter: Limiter) -> Replay {
        let decided = requests().map(|at_ms| Request { at_ms, is_admitted: limiter.admits(time(at_ms)) });
        Replay { name, how, requests: decided.collect() }
    }

    /// The times of the admitted requests.
    pub(crate) fn admitted_ms(&self) -> impl Iterator<Item = i64> {
        self.requests.iter().filter(|request| request.is_admitted).map(|request| request.at_ms)
    }

    /// The number of requests admitted from `from_ms` until before `until_ms`.
    pub(crate) fn admitted_between(&self, from_ms: i64, until_ms: i64) -> usize {
        self.admitted_ms().filter(|at_ms| (from_ms..until_ms).contains(at_ms)).count()
    }

    /// The number of requests admitted in the window that ends with the millisecond `at_ms`.
    pub(crate) fn admitted_lately(&self, at_ms: i64) -> usize {
        self.admitted_between(at_ms + 1 - window().as_millis(), at_ms + 1)
    }

    /// The most requests admitted in any window.
    pub(crate) fn most(&self) -> usize {
        self.admitted_ms().map(|at_ms| self.admitted_lately(at_ms)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sliding_window_keeps_to_the_limit() {
        let most = Replay::all().map(|replay| replay.most());
        assert_eq!(most, [10, 19, 20, 19]);
    }

    #[test]
    fn half_at_once_and_half_evenly_keep_to_the_limit() {
        let replay = Replay::of("GCRA", String::new(), Limiter::throttle(MAX / 2 - 1, MAX / 2));
        assert!(replay.most() <= 10, "{}", replay.most());
        assert_eq!(replay.admitted_between(9_000, 11_000), 5);
        assert_eq!(Replay::all()[0].admitted_between(9_000, 11_000), 9);
    }
}
