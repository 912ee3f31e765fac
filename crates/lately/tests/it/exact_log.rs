//! An exact log of the hits of a key, to the millisecond. Tests compare decisions with it.

use std::collections::BTreeSet;

use lately::{Admission, Decision, Request, Retry, Span, Timestamp};

/// The hits of a key.
#[derive(Default)]
pub(crate) struct ExactLog(Vec<(i64, u64)>);

impl ExactLog {
    pub(crate) const fn new() -> ExactLog {
        ExactLog(Vec::new())
    }

    pub(crate) fn push(&mut self, at_ms: i64, hits: u64) {
        self.0.push((at_ms, hits));
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|(_, hits)| hits).sum()
    }

    /// The hits that count in a window, including those after its end.
    pub(crate) fn used(&self, at_ms: i64, window_ms: i64) -> u64 {
        self.0.iter().filter(|(ms, _)| *ms > at_ms - window_ms).map(|(_, hits)| hits).sum()
    }

    pub(crate) fn forget_before(&mut self, ms: i64) {
        self.0.retain(|&(at_ms, _)| at_ms > ms);
    }

    /// The most hits in any window of this length. A fullest window ends with a hit.
    pub(crate) fn fullest(&self, window_ms: i64) -> u64 {
        let ending_at = |end_ms: i64| {
            let is_in = |ms: i64| end_ms - window_ms < ms && ms <= end_ms;
            self.0.iter().filter(|(ms, _)| is_in(*ms)).map(|(_, hits)| hits).sum()
        };
        self.0.iter().map(|&(end_ms, _)| ending_at(end_ms)).max().unwrap_or(0)
    }

    /// The number of different milliseconds with hits that count.
    pub(crate) fn milliseconds(&self, at_ms: i64, window_ms: i64) -> usize {
        let counted = self.0.iter().map(|(ms, _)| *ms).filter(|ms| *ms > at_ms - window_ms);
        counted.collect::<BTreeSet<i64>>().len()
    }

    /// The time until at most `most` hits count; none if that holds now.
    pub(crate) fn until(&self, most: u64, at_ms: i64, window_ms: i64) -> Option<Span> {
        let mut leaves: Vec<i64> = self.0.iter().map(|(ms, _)| ms + window_ms - at_ms).collect();
        leaves.sort_unstable();
        let fits = |after_ms: i64| self.used(at_ms + after_ms, window_ms) <= most;
        if fits(0) {
            return None;
        }
        // As time passes, fewer hits count.
        let first = leaves.partition_point(|&ms| ms <= 0 || !fits(ms));
        leaves.get(first).copied().and_then(Span::from_millis)
    }

    /// The remaining hits of a limit.
    pub(crate) fn left(&self, max: u64, window_ms: i64, at_ms: i64) -> u64 {
        max.saturating_sub(self.used(at_ms, window_ms))
    }

    /// The remaining hits as a decision has them.
    fn remaining(&self, request: &Request<'_>, at_ms: i64) -> i64 {
        let signed = |hits: u64| i64::try_from(hits).expect("few hits");
        let remaining = signed(request.max) - signed(self.used(at_ms, request.window.as_millis()));
        match request.admission {
            Admission::Overdraft | Admission::Spent => remaining,
            Admission::Whole | Admission::Exempt => remaining.max(0),
        }
    }

    /// Gives hits of a request back, the newest first.
    pub(crate) fn refund(&mut self, request: &Request<'_>, now_ms: i64) -> Decision {
        let (at_ms, window_ms) =
            (request.at.map_or(now_ms, Timestamp::as_millis), request.window.as_millis());
        self.0.sort_by_key(|(ms, _)| *ms);
        let mut left = if request.is_peek { 0 } else { request.cost };
        // Hits later than a request of the past are not in its window.
        let last_ms = if at_ms < now_ms { at_ms } else { i64::MAX };
        let is_in = |ms: i64| at_ms - window_ms < ms && ms <= last_ms;
        for (_, hits) in self.0.iter_mut().rev().filter(|(ms, _)| is_in(*ms)) {
            let taken = left.min(*hits);
            *hits -= taken;
            left -= taken;
        }
        self.0.retain(|(_, hits)| *hits > 0);
        Decision { retry: Retry::Now, ..self.peek(request, at_ms) }
    }

    /// The decision, without counting the request.
    pub(crate) fn peek(&self, request: &Request<'_>, at_ms: i64) -> Decision {
        let &Request { max, cost, window, .. } = request;
        let window_ms = window.as_millis();
        let needed = match request.admission {
            Admission::Whole => cost,
            Admission::Overdraft => 1,
            Admission::Exempt | Admission::Spent => 0,
        };
        let retry = match max.checked_sub(needed) {
            _ if matches!(request.admission, Admission::Exempt | Admission::Spent) => Retry::Now,
            None => Retry::Never,
            Some(most) => self.until(most, at_ms, window_ms).map_or(Retry::Now, Retry::After),
        };
        let remaining = self.remaining(request, at_ms);
        Decision { max, remaining, retry, reset_after: self.until(0, at_ms, window_ms) }
    }

    /// Decides on a request, and counts it if it is allowed.
    pub(crate) fn decide(&mut self, request: &Request<'_>, now_ms: i64) -> Decision {
        let &Request { cost, window, is_peek, .. } = request;
        let (at_ms, window_ms) = (request.at.map_or(now_ms, Timestamp::as_millis), window.as_millis());
        let decision = self.peek(request, at_ms);
        if !decision.is_allowed() || is_peek || cost == 0 {
            return decision;
        }
        self.push(at_ms, cost);
        Decision {
            remaining: self.remaining(request, at_ms),
            reset_after: self.until(0, at_ms, window_ms),
            ..decision
        }
    }
}
