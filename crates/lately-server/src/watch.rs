//! What an operator should be told while the server runs.

use lately::Timestamp;
use lately_journal::{Journal, JournalStats};

use crate::limits::{CLOCK_STEP_MS, TOLD_EVERY_MS};
use crate::service::Service;

/// What was told last.
#[derive(Default, Debug)]
pub(crate) struct Watch {
    /// The wall clock was far from time here.
    is_clock_far: bool,
    /// How far the wall clock was ahead of time here without its jumps.
    clock_ms: i64,
    jumped_ms: i64,
    evicted_keys: u64,
    /// At the last look all was loaded.
    is_loaded: bool,
    evictions_told: Option<Timestamp>,
    trouble: Option<String>,
    failures: u64,
    failures_told: Option<Timestamp>,
    checkpoint_trouble: Option<String>,
    slow: u64,
    slow_told: Option<Timestamp>,
}

impl Watch {
    /// What is new since the last look.
    pub(crate) fn look(&mut self, service: &Service) -> Vec<String> {
        self.jump(service.clock_jumped_ms())
            .into_iter()
            .chain(self.clock(service.clock_step_ms(), service.clock_jumped_ms()))
            .chain(self.evictions(service.store.memory().evicted_keys, service.now(), service.is_loading()))
            .chain(self.slow(service.slow(), service.now()))
            .chain(
                service
                    .journal()
                    .map(Journal::stats)
                    .into_iter()
                    .flat_map(|stats| self.disk(stats, service.now())),
            )
            .collect()
    }

    /// What is wrong with the disk, and that it is no more.
    fn disk(&mut self, stats: JournalStats, now: Timestamp) -> Vec<String> {
        let JournalStats { trouble, checkpoint_trouble, failures, failed, .. } = stats;
        let mut news = Vec::new();
        match (&self.trouble, &trouble) {
            (None, Some(why)) => {
                news.push(format!("the journal cannot be written: {why}: hits are refused until it can"));
            }
            (Some(_), None) => news.push("the journal can be written again: hits are taken".to_owned()),
            // It failed and was mended between two looks. On a disk that the log fills that comes again and again.
            (None, None) if failures > self.failures && is_due(self.failures_told, now) => {
                self.failures_told = Some(now);
                news.push(format!(
                    "the journal could not be written for a moment: {failed}: hits were refused"
                ));
            }
            _ => {}
        }
        self.failures = failures;
        if let Some(why) =
            checkpoint_trouble.as_ref().filter(|_| checkpoint_trouble != self.checkpoint_trouble)
        {
            news.push(format!(
                "a checkpoint could not be made: {why}: the log has all, and it is tried again"
            ));
        }
        (self.trouble, self.checkpoint_trouble) = (trouble, checkpoint_trouble);
        news
    }

    /// That clients of dumps and restores were too slow.
    fn slow(&mut self, (count, last): (u64, String), now: Timestamp) -> Option<String> {
        if count == self.slow || !is_due(self.slow_told, now) {
            return None;
        }
        let others = match count - self.slow - 1 {
            0 => String::new(),
            others => format!(", and {others} more before it"),
        };
        (self.slow, self.slow_told) = (count, Some(now));
        Some(format!("{last}{others}: it was disconnected; this is told at most once a minute"))
    }

    /// That time here jumped, by the sum of its jumps so far.
    fn jump(&mut self, jumped_ms: i64) -> Option<String> {
        let more_ms = jumped_ms - std::mem::replace(&mut self.jumped_ms, jumped_ms);
        (more_ms > 0).then(|| {
            let seconds = more_ms / 1_000;
            format!("the wall clock stayed {seconds} s ahead for a minute: time here jumped to it")
        })
    }

    /// That the wall clock was set: once until it agrees with time here, and again when it was set further away. Time here
    /// comes closer to it meanwhile, slowly or by jumps.
    fn clock(&mut self, step_ms: i64, jumped_ms: i64) -> Option<String> {
        let is_far = step_ms.abs() > CLOCK_STEP_MS;
        let was_far = std::mem::replace(&mut self.is_clock_far, is_far);
        let set_ms = step_ms + jumped_ms - std::mem::replace(&mut self.clock_ms, step_ms + jumped_ms);
        let is_further = set_ms.abs() > CLOCK_STEP_MS && set_ms.signum() == step_ms.signum();
        if !is_far || (was_far && !is_further) {
            return None;
        }
        let set_ms = if is_further { set_ms } else { step_ms };
        let (direction, place, jump) = if step_ms > 0 {
            ("ahead", "ahead of", ", and jumps to it when it stays more than max_skew ahead for a minute")
        } else {
            ("back", "behind", "")
        };
        let [set_s, step_s] = [set_ms, step_ms].map(|ms| ms.abs() / 1_000);
        Some(format!(
            "the wall clock was set {direction} by {set_s} s: it is {step_s} s {place} time here, \
             which moves towards it by 50 ms a second{jump}"
        ))
    }

    fn evictions(&mut self, evicted_keys: u64, now: Timestamp, is_loading: bool) -> Option<String> {
        if is_loading || !self.is_loaded {
            // They are told as left out when all is loaded, by whoever loads.
            self.evicted_keys = evicted_keys;
            self.is_loaded = !is_loading;
        }
        if evicted_keys == self.evicted_keys || !is_due(self.evictions_told, now) {
            return None;
        }
        let more = evicted_keys - self.evicted_keys;
        (self.evicted_keys, self.evictions_told) = (evicted_keys, Some(now));
        Some(format!(
            "the memory ceiling is reached: {more} keys with hits were evicted; this is told at most once a minute"
        ))
    }
}

/// Whether what was told then may be told again.
fn is_due(told: Option<Timestamp>, now: Timestamp) -> bool {
    told.is_none_or(|told| now.as_millis() - told.as_millis() >= TOLD_EVERY_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_step_is_logged_once() {
        let mut watch = Watch::default();
        assert_eq!(watch.clock(9_999, 0), None);
        let back = "the wall clock was set back by 69 s: it is 60 s behind time here, which moves towards it by 50 ms a second";
        assert_eq!(watch.clock(-60_000, 0).as_deref(), Some(back));
        assert_eq!(watch.clock(-50_000, 0), None);
        assert_eq!(watch.clock(0, 0), None);
        assert!(
            watch
                .clock(11_000, 0)
                .is_some_and(|told| told.contains("set ahead by 11 s: it is 11 s ahead of time here"))
        );
    }

    /// Symptom: a clock that was set ahead by 10 s and then by a day was logged as 10 s. Cause: nothing was logged until both
    /// clocks agreed again. Fix: a further step is logged.
    #[test]
    fn a_further_clock_step_is_logged_again() {
        let mut watch = Watch::default();
        let mut told = |step_ms, jumped_ms| watch.clock(step_ms, jumped_ms);
        let is = |told: Option<String>, expected: &str| {
            assert!(told.as_ref().is_some_and(|told| told.contains(expected)), "{told:?} {expected}");
        };
        is(told(10_500, 0), "set ahead by 10 s: it is 10 s ahead of");
        assert_eq!(told(10_450, 0), None);
        is(told(86_410_400, 0), "set ahead by 86399 s: it is 86410 s ahead of");
        // Time here came closer while the process was stopped, and jumped.
        assert_eq!(told(86_380_000, 0), None);
        assert_eq!(told(70_000_000, 16_380_000), None);
        is(told(70_020_000, 16_380_000), "set ahead by 20 s: it is 70020 s ahead of");
        is(told(-20_000, 16_380_000), "set back by 70040 s: it is 20 s behind");
        is(told(-40_000, 16_380_000), "set back by 20 s: it is 40 s behind");
        assert_eq!(told(-45_000, 16_380_000), None);
        assert_eq!(told(0, 16_380_000), None);
        is(told(11_000, 16_380_000), "set ahead by 11 s");
    }

    #[test]
    fn a_clock_jump_is_logged_once() {
        let mut watch = Watch::default();
        assert_eq!(watch.jump(0), None);
        let hour = "the wall clock stayed 3600 s ahead for a minute: time here jumped to it";
        assert_eq!(watch.jump(3_600_000).as_deref(), Some(hour));
        assert_eq!(watch.jump(3_600_000), None);
        assert!(watch.jump(3_612_000).is_some_and(|told| told.contains("stayed 12 s ahead")));
    }

    #[test]
    fn slow_clients_are_logged_once_a_minute() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let mut watch = Watch::default();
        let mut told = |count, seconds| watch.slow((count, "x was slow".to_owned()), at(seconds));
        assert_eq!(told(0, 0), None);
        let ended = "it was disconnected; this is told at most once a minute";
        assert_eq!(told(1, 0), Some(format!("x was slow: {ended}")));
        assert_eq!([told(1, 1), told(3, 59)], [None, None]);
        assert_eq!(told(4, 60), Some(format!("x was slow, and 2 more before it: {ended}")));
    }

    #[test]
    fn brief_failures_are_logged_once_a_minute() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let stats = |failures, trouble: Option<&str>| JournalStats {
            durability: lately_journal::Durability::Interval,
            log_bytes: 0,
            checkpoint_bytes: 0,
            checkpoints: 0,
            checkpoint_at: None,
            records: 0,
            syncs: 0,
            is_checkpointing: false,
            checkpoint_trouble: None,
            trouble: trouble.map(str::to_owned),
            failures,
            failed: "it is full".to_owned(),
        };
        let mut watch = Watch::default();
        let moment = ["the journal could not be written for a moment: it is full: hits were refused"];
        assert!(watch.disk(stats(0, None), at(1)).is_empty());
        assert_eq!(watch.disk(stats(1, None), at(2)), moment);
        assert!(watch.disk(stats(3, None), at(3)).is_empty());
        assert!(watch.disk(stats(3, None), at(90)).is_empty());
        assert_eq!(watch.disk(stats(4, None), at(91)), moment);
        // One that lasts is told at once, and only as that.
        let told = watch.disk(stats(5, Some("it is gone")), at(92));
        assert_eq!(told, ["the journal cannot be written: it is gone: hits are refused until it can"]);
        assert_eq!(watch.disk(stats(5, None), at(93)), ["the journal can be written again: hits are taken"]);
    }

    #[test]
    fn evictions_are_logged_once_a_minute() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let mut watch = Watch::default();
        assert_eq!(watch.evictions(0, at(1), false), None);
        assert!(watch.evictions(5, at(1), false).is_some_and(|told| told.contains("5 keys")));
        assert_eq!(watch.evictions(9, at(60), false), None);
        assert!(watch.evictions(12, at(61), false).is_some_and(|told| told.contains("7 keys")));
        assert_eq!(watch.evictions(12, at(200), false), None);
        assert_eq!(watch.evictions(20, at(300), true), None);
        assert_eq!(watch.evictions(20, at(400), false), None);
    }
}
