//! Detects that a log is parsed so slowly that the user's regular expression must be the reason.

use lately::Timestamp;

use crate::limits::{SLOW_AFTER, SLOW_BYTES_PER_SECOND};

/// The bytes that were parsed, and the time for that, which is the time between two reads. The time of reads, from a slow
/// disk or a pipe, does not count.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    bytes: u64,
    worked_ms: u64,
    /// The time when the current bytes arrived.
    since: Option<Timestamp>,
    has_warned: bool,
}

impl Pace {
    /// Records that the next bytes are requested. Returns the bytes per second when they are too few, once.
    pub(crate) fn ask(&mut self, now: Timestamp) -> Option<u64> {
        if let Some(since) = self.since.take() {
            self.worked_ms += u64::try_from(now.as_millis() - since.as_millis()).unwrap_or(0);
        }
        let slow = slow(self.bytes, self.worked_ms).filter(|_| !self.has_warned);
        self.has_warned |= slow.is_some();
        slow
    }

    /// Records that the bytes have arrived.
    pub(crate) fn come(&mut self, now: Timestamp, bytes: usize) {
        self.bytes += bytes as u64;
        self.since = Some(now);
    }
}

/// The bytes per second, if they are too few after a sufficient time.
fn slow(bytes: u64, worked_ms: u64) -> Option<u64> {
    let is_long = u128::from(worked_ms) >= SLOW_AFTER.as_millis();
    let per_second = bytes.saturating_mul(1_000).checked_div(worked_ms)?;
    Some(per_second).filter(|rate| is_long && *rate < SLOW_BYTES_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowness_is_bytes_per_second_of_work() {
        let long = u64::try_from(SLOW_AFTER.as_millis()).expect("seconds");
        let enough = SLOW_BYTES_PER_SECOND * long / 1_000;
        let check =
            |bytes, worked_ms, expected| assert_eq!(slow(bytes, worked_ms), expected, "{bytes} {worked_ms}");
        check(enough, long, None);
        check(enough - 1, long, Some(SLOW_BYTES_PER_SECOND - 1));
        check(enough / 4, long, Some(SLOW_BYTES_PER_SECOND / 4));
        check(0, long - 1, None);
        check(0, long, Some(0));
        check(0, 0, None);
        check(u64::MAX, u64::MAX, Some(1));
    }

    /// A pipe with a line a second is slow, but its reader is not.
    #[test]
    fn time_waiting_for_bytes_does_not_count() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let mut pace = Pace::default();
        for second in 0..100 {
            assert_eq!(pace.ask(at(second)), None);
            pace.come(at(second + 1), 100);
        }
        assert_eq!((pace.bytes, pace.worked_ms), (10_000, 0));
    }

    #[test]
    fn slowness_is_reported_once() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let mut pace = Pace::default();
        let mut reported = Vec::new();
        // A second of work on each thousand bytes, after ten seconds of waiting for them.
        for round in 0..20 {
            pace.come(at(11 * round), 1_000);
            reported.extend(pace.ask(at(11 * round + 1)));
        }
        assert_eq!((reported, pace.worked_ms), (vec![1_000], 20_000));
    }
}
