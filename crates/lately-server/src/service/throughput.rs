//! Commands per second, for `instantaneous_ops_per_sec`, from regular samples.

use std::collections::VecDeque;

use lately::Timestamp;

use crate::limits::THROUGHPUT_SAMPLES;

/// Samples: a time and the number of commands until then, the newest last.
#[derive(Default, Debug)]
pub(crate) struct Throughput {
    samples: VecDeque<(Timestamp, u64)>,
}

impl Throughput {
    /// Adds a sample: `commands` were answered until `now`.
    pub(crate) fn note(&mut self, now: Timestamp, commands: u64) {
        if self.samples.len() == THROUGHPUT_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((now, commands));
    }

    /// The rate from the oldest sample to now.
    pub(crate) fn per_second(&self, now: Timestamp, commands: u64) -> u64 {
        let Some(&(then, before)) = self.samples.front() else { return 0 };
        // In the first second after a start, the rate is the number of commands so far.
        let elapsed_ms = (now.as_millis() - then.as_millis()).max(1_000).unsigned_abs();
        commands.saturating_sub(before).saturating_mul(1_000) / elapsed_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_covers_the_last_samples() {
        let at = |ms: i64| Timestamp::from_millis(ms).expect("in range");
        let mut throughput = Throughput::default();
        assert_eq!(throughput.per_second(at(0), 7), 0);
        throughput.note(at(0), 7);
        assert_eq!(throughput.per_second(at(0), 9), 2);
        assert_eq!(throughput.per_second(at(1), 17), 10);
        assert_eq!(throughput.per_second(at(500), 17), 10);
        assert_eq!(throughput.per_second(at(1_250), 17), 8);
        (1..16).for_each(|sample| throughput.note(at(100 * sample), 7));
        assert_eq!(throughput.per_second(at(2_000), 2_007), 1_000);
        // There are 16 samples; the oldest is dropped.
        throughput.note(at(2_000), 2_007);
        assert_eq!(throughput.per_second(at(2_100), 4_007), 2_000);
    }
}
