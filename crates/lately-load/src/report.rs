//! The result of a load.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::limits::MAX_LATENCY;
use crate::tally::Tally;

/// The result of a load.
#[derive(Clone, Debug)]
pub struct Report {
    /// The number of requests. Each was answered.
    pub requests: u64,
    /// The number of error replies.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
    /// The number of replies that say that the request was allowed.
    pub allowed: u64,
    /// The number of replies that say that it was denied.
    pub denied: u64,
    /// The time from the first request to the last reply.
    pub elapsed: Duration,
    latency: Histogram<u64>,
}

impl Report {
    pub(crate) fn new() -> Report {
        let most = u64::try_from(MAX_LATENCY.as_nanos()).unwrap_or(u64::MAX);
        // Three significant digits.
        let latency = Histogram::new_with_max(most, 3).expect("constants that fit");
        Report {
            requests: 0,
            errors: 0,
            first_error: None,
            allowed: 0,
            denied: 0,
            elapsed: Duration::ZERO,
            latency,
        }
    }

    /// Records the latency of a batch.
    #[inline]
    pub(crate) fn batch(&mut self, took_ns: u64) {
        self.latency.saturating_record(took_ns);
    }

    /// Adds the tally of replies.
    pub(crate) fn take(&mut self, tally: Tally) {
        (self.errors, self.first_error) = (tally.errors, tally.first_error);
        (self.allowed, self.denied) = (tally.allowed, tally.denied);
    }

    /// Requests per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate is not counted to the last digit")]
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency that this share of the batches did not exceed: 0.5 is the median, 1.0 the worst. It ends
    /// with the last reply of the batch.
    #[must_use]
    pub fn latency(&self, share: f64) -> Duration {
        Duration::from_nanos(self.latency.value_at_quantile(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_has_a_longest() {
        let mut report = Report::new();
        let longest_ns = u64::try_from(MAX_LATENCY.as_nanos()).expect("100 s");
        report.batch(1_000);
        report.batch(longest_ns);
        let longest = report.latency(1.0);
        report.batch(longest_ns * 100);
        assert_eq!(report.latency(1.0), longest);
        assert!(longest >= MAX_LATENCY && longest < MAX_LATENCY * 2, "{longest:?}");
        assert_eq!(report.latency(0.1).as_nanos(), 1_000);
    }
}
