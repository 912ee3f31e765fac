//! Runs a trace on the model and on an implementation, and reports the first difference.

use crate::limits::{MAX_TIME_MS, MAX_WINDOW_MS};
use crate::model::{ExactLog, HitOutcome, ModelCount};
use crate::model_settings::ModelSettings;
use crate::op::Op;

/// The initial clock of [`drive`]: in November 2023, and not on a border of any pane.
pub const START_MS: i64 = 1_700_000_000_123;

/// An implementation to test. Times are 0 to [`MAX_TIME_MS`], windows 1 to [`MAX_WINDOW_MS`]. `now_ms` is the
/// caller's clock and may go back: the latest of all calls counts, also of refused hits and merges.
pub trait Subject {
    /// Counts `count` hits of `key` at `at_ms`.
    fn hit(&mut self, key: u8, at_ms: i64, count: u64, now_ms: i64) -> HitOutcome;

    /// Counts `count` hits of `key` at `at_ms`, with an id.
    fn hit_once(&mut self, key: u8, at_ms: i64, count: u64, id: u8, now_ms: i64) -> HitOutcome;

    /// Counts `count` hits of `key` at `at_ms`, with a member.
    fn hit_member(&mut self, key: u8, at_ms: i64, count: u64, member: u8, now_ms: i64) -> HitOutcome;

    /// Reads the distinct members of `key` over the window that ends now, and whether all of it is kept.
    fn unique(&mut self, key: u8, window_ms: i64, now_ms: i64) -> Option<(u64, bool)>;

    /// Reads `key` over the window that ends at `at_ms`.
    fn read(&mut self, key: u8, at_ms: i64, window_ms: i64, now_ms: i64) -> ModelCount;

    /// Forgets all hits of `key`.
    fn forget(&mut self, key: u8, now_ms: i64);

    /// Merges old panes of `key`, which changes no answer.
    fn merge(&mut self, key: u8, now_ms: i64);

    /// Called after each operation, for checks of the inner state.
    fn check(&mut self) {}
}

impl Subject for ExactLog {
    fn hit(&mut self, key: u8, at_ms: i64, count: u64, now_ms: i64) -> HitOutcome {
        ExactLog::hit(self, key, at_ms, count, now_ms)
    }

    fn hit_once(&mut self, key: u8, at_ms: i64, count: u64, id: u8, now_ms: i64) -> HitOutcome {
        ExactLog::hit_once(self, key, at_ms, count, id, now_ms)
    }

    fn hit_member(&mut self, key: u8, at_ms: i64, count: u64, member: u8, now_ms: i64) -> HitOutcome {
        ExactLog::hit_member(self, key, at_ms, count, member, now_ms)
    }

    fn unique(&mut self, key: u8, window_ms: i64, now_ms: i64) -> Option<(u64, bool)> {
        ExactLog::unique(self, key, window_ms, now_ms)
    }

    fn read(&mut self, key: u8, at_ms: i64, window_ms: i64, now_ms: i64) -> ModelCount {
        ExactLog::read(self, key, at_ms, window_ms, now_ms)
    }

    fn forget(&mut self, key: u8, now_ms: i64) {
        ExactLog::forget(self, key, now_ms);
    }

    /// A log has nothing to merge, but it takes the time.
    fn merge(&mut self, key: u8, now_ms: i64) {
        self.exists(key, now_ms);
    }
}

/// Runs `ops` from [`START_MS`]; see [`drive_from`].
///
/// # Errors
/// The first difference.
pub fn drive(subject: &mut impl Subject, settings: &ModelSettings, ops: &[Op]) -> Result<(), String> {
    drive_from(START_MS, subject, settings, ops)
}

/// Runs `ops` on `subject` and on an [`ExactLog`] with `settings`, with an initial clock of `start_ms`, and
/// compares the outcome of each hit and read.
///
/// # Errors
/// The first difference: the operation, its time, the expected and the actual outcome.
pub fn drive_from(
    start_ms: i64,
    subject: &mut impl Subject,
    settings: &ModelSettings,
    ops: &[Op],
) -> Result<(), String> {
    let mut model = ExactLog::new(*settings);
    let mut now_ms = clamp_time(start_ms);
    for (index, op) in ops.iter().enumerate() {
        let difference = match *op {
            Op::Hit { key, offset_ms, count } => {
                let at_ms = clamp_time(now_ms.saturating_add(offset_ms));
                let expected = model.hit(key, at_ms, count, now_ms);
                differ(&expected, &subject.hit(key, at_ms, count, now_ms), at_ms)
            }
            Op::HitOnce { key, offset_ms, count, id } => {
                let at_ms = clamp_time(now_ms.saturating_add(offset_ms));
                let expected = model.hit_once(key, at_ms, count, id, now_ms);
                differ(&expected, &subject.hit_once(key, at_ms, count, id, now_ms), at_ms)
            }
            Op::HitMember { key, offset_ms, count, member } => {
                let at_ms = clamp_time(now_ms.saturating_add(offset_ms));
                let expected = model.hit_member(key, at_ms, count, member, now_ms);
                differ(&expected, &subject.hit_member(key, at_ms, count, member, now_ms), at_ms)
            }
            Op::Unique { key, window_ms } => {
                let window_ms = window_ms.clamp(1, MAX_WINDOW_MS);
                let expected = model.unique(key, window_ms, now_ms);
                differ(&expected, &subject.unique(key, window_ms, now_ms), now_ms)
            }
            Op::Read { key, back_ms, window_ms } => {
                let at_ms = clamp_time(now_ms.saturating_sub(back_ms));
                let window_ms = window_ms.clamp(1, MAX_WINDOW_MS);
                let expected = model.read(key, at_ms, window_ms, now_ms);
                differ(&expected, &subject.read(key, at_ms, window_ms, now_ms), at_ms)
            }
            Op::Advance { ms } => {
                now_ms = clamp_time(now_ms.saturating_add(ms.max(0)));
                None
            }
            Op::Jump { ms } => {
                now_ms = clamp_time(now_ms.saturating_add(ms));
                None
            }
            Op::Forget { key } => {
                model.forget(key, now_ms);
                subject.forget(key, now_ms);
                None
            }
            Op::Merge { key } => {
                Subject::merge(&mut model, key, now_ms);
                subject.merge(key, now_ms);
                None
            }
        };
        if let Some(difference) = difference {
            return Err(format!("op {index}, {op:?}, clock {now_ms}: {difference}"));
        }
        subject.check();
    }
    Ok(())
}

fn clamp_time(ms: i64) -> i64 {
    ms.clamp(0, MAX_TIME_MS)
}

fn differ<T: PartialEq + std::fmt::Debug>(expected: &T, got: &T, at_ms: i64) -> Option<String> {
    (expected != got).then(|| format!("at {at_ms} expected {expected:?}, got {got:?}"))
}

#[cfg(test)]
mod tests {
    use proptest::strategy::Strategy;
    use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

    use super::*;
    use crate::op::ops_from_bytes;
    use crate::strategies;

    /// A log with one mistake.
    struct Wrong {
        log: ExactLog,
        mistake: Mistake,
        checks: usize,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Mistake {
        None,
        CountsHitsAfterTheTime,
        ForgetsNothing,
        FollowsTheClockBack,
        KeepsLateHits,
        MixesKeys,
        MergeDropsHits,
        RoundsDown,
        CellIsTheResolution,
        MixesIds,
        ComparesTimesOfArrival,
        MixesMembers,
        CountsAllMembers,
    }

    impl Wrong {
        fn new(mistake: Mistake, settings: &ModelSettings) -> Wrong {
            Wrong { log: ExactLog::new(*settings), mistake, checks: 0 }
        }

        fn is(&self, mistake: Mistake) -> bool {
            self.mistake == mistake
        }

        fn key(&self, key: u8) -> u8 {
            if self.is(Mistake::MixesKeys) { 0 } else { key }
        }

        fn see(&mut self, now_ms: i64) {
            if self.is(Mistake::FollowsTheClockBack) {
                self.log.set_now(now_ms);
            }
        }
    }

    impl Subject for Wrong {
        fn hit(&mut self, key: u8, at_ms: i64, count: u64, now_ms: i64) -> HitOutcome {
            self.see(now_ms);
            let key = self.key(key);
            let outcome = self.log.hit(key, at_ms, count, now_ms);
            if outcome == HitOutcome::Late && self.is(Mistake::KeepsLateHits) {
                return HitOutcome::Hits(0);
            }
            outcome
        }

        fn hit_once(&mut self, key: u8, at_ms: i64, count: u64, id: u8, now_ms: i64) -> HitOutcome {
            self.see(now_ms);
            let id = if self.is(Mistake::MixesIds) { 0 } else { id };
            let at_ms = if self.is(Mistake::ComparesTimesOfArrival) { now_ms } else { at_ms };
            self.log.hit_once(self.key(key), at_ms, count, id, now_ms)
        }

        fn hit_member(&mut self, key: u8, at_ms: i64, count: u64, member: u8, now_ms: i64) -> HitOutcome {
            self.see(now_ms);
            let member = if self.is(Mistake::MixesMembers) { 0 } else { member };
            self.log.hit_member(self.key(key), at_ms, count, member, now_ms)
        }

        fn unique(&mut self, key: u8, window_ms: i64, now_ms: i64) -> Option<(u64, bool)> {
            self.see(now_ms);
            let window_ms = if self.is(Mistake::CountsAllMembers) { MAX_WINDOW_MS } else { window_ms };
            let (members, is_known) = self.log.unique(self.key(key), window_ms, now_ms)?;
            Some((members, is_known || self.is(Mistake::CountsAllMembers)))
        }

        fn read(&mut self, key: u8, at_ms: i64, window_ms: i64, now_ms: i64) -> ModelCount {
            self.see(now_ms);
            let key = self.key(key);
            if self.is(Mistake::CountsHitsAfterTheTime) && at_ms < now_ms {
                let window_ms = window_ms.saturating_add(now_ms - at_ms);
                return self.log.read(key, now_ms, window_ms, now_ms);
            }
            let read = self.log.read(key, at_ms, window_ms, now_ms);
            match self.mistake {
                Mistake::RoundsDown => ModelCount { estimate: read.lower, ..read },
                Mistake::CellIsTheResolution => ModelCount { cell_ms: 1_000, ..read },
                _ => read,
            }
        }

        fn forget(&mut self, key: u8, now_ms: i64) {
            if !self.is(Mistake::ForgetsNothing) {
                self.log.forget(self.key(key), now_ms);
            }
        }

        fn merge(&mut self, key: u8, now_ms: i64) {
            if self.is(Mistake::MergeDropsHits) {
                self.log.forget(key, now_ms);
            }
            Subject::merge(&mut self.log, key, now_ms);
        }

        fn check(&mut self) {
            self.checks += 1;
        }
    }

    fn run(mistake: Mistake, ops: &[Op]) -> Result<(), String> {
        let settings = ModelSettings::default();
        drive(&mut Wrong::new(mistake, &settings), &settings, ops)
    }

    #[test]
    fn a_difference_is_named() {
        let ops = [
            Op::Hit { key: 2, offset_ms: 0, count: 3 },
            Op::Advance { ms: 5_000 },
            Op::Hit { key: 2, offset_ms: 0, count: 1 },
            Op::Read { key: 2, back_ms: 5_000, window_ms: 60_000 },
        ];
        assert_eq!(run(Mistake::None, &ops), Ok(()));
        let difference = run(Mistake::CountsHitsAfterTheTime, &ops).expect_err("a difference");
        for part in ["op 3, Read { key: 2,", "clock 1700000005123", "at 1700000000123", "estimate: 3", "got"]
        {
            assert!(difference.contains(part), "{difference}");
        }
    }

    #[test]
    fn times_are_clamped_and_each_op_is_checked() {
        let ops = [
            Op::Advance { ms: i64::MAX },
            Op::Hit { key: 0, offset_ms: i64::MAX, count: 1 },
            Op::Jump { ms: i64::MIN },
            Op::Advance { ms: i64::MIN },
            Op::Read { key: 0, back_ms: i64::MIN, window_ms: i64::MIN },
            Op::Merge { key: 0 },
            Op::Forget { key: 0 },
        ];
        let settings = ModelSettings::default();
        let mut subject = Wrong::new(Mistake::None, &settings);
        assert_eq!(drive_from(i64::MIN, &mut subject, &settings, &ops), Ok(()));
        assert_eq!(subject.checks, ops.len());
        let late = [ops[0], Op::Hit { key: 0, offset_ms: 0, count: 1 }, ops[2], ops[1]];
        let last = MAX_TIME_MS;
        let mut log = ExactLog::new(settings);
        assert_eq!(drive_from(last, &mut log, &settings, &late), Ok(()));
        assert!(log.exists(0, last));
    }

    fn search(
        mistake: Mistake,
        ops: impl Strategy<Value = Vec<Op>>,
    ) -> Result<(), TestError<(ModelSettings, Vec<Op>)>> {
        // The same traces each time, and no shrinking, so the result does not depend on luck.
        let config = Config { failure_persistence: None, max_shrink_iters: 0, ..Config::with_cases(256) };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        runner.run(&(strategies::settings(), ops), |(settings, ops)| {
            let result = drive(&mut Wrong::new(mistake, &settings), &settings, &ops);
            result.map_err(TestCaseError::fail)
        })
    }

    #[test]
    fn the_model_agrees_with_itself() {
        let check = |found: Result<(), _>| assert!(found.is_ok(), "{found:?}");
        check(search(Mistake::None, strategies::ordered_ops()));
        check(search(Mistake::None, strategies::disordered_ops()));
        let bytes = proptest::collection::vec(proptest::num::u8::ANY, 0..400);
        check(search(Mistake::None, bytes.prop_map(|bytes| ops_from_bytes(&bytes))));
    }

    #[test]
    fn random_traces_find_each_mistake() {
        let anywhere = [
            Mistake::CountsHitsAfterTheTime,
            Mistake::ForgetsNothing,
            Mistake::MixesKeys,
            Mistake::MergeDropsHits,
            Mistake::RoundsDown,
            Mistake::CellIsTheResolution,
            Mistake::MixesIds,
            Mistake::MixesMembers,
            Mistake::CountsAllMembers,
        ];
        for mistake in anywhere {
            assert!(search(mistake, strategies::ordered_ops()).is_err(), "{mistake:?}, ordered");
            assert!(search(mistake, strategies::disordered_ops()).is_err(), "{mistake:?}, disordered");
        }
        for mistake in [Mistake::FollowsTheClockBack, Mistake::KeepsLateHits, Mistake::ComparesTimesOfArrival]
        {
            assert!(search(mistake, strategies::disordered_ops()).is_err(), "{mistake:?}, disordered");
        }
    }
}
