//! Replays hits of the past against a rule, as a server would have counted and evaluated them.

use std::cmp::Reverse;
use std::collections::HashMap;

use lately::{SettingsError, Store, Timestamp};

use super::{AlertRule, Change, Condition, State, Watched, total_settings};
use crate::limits::{ALERT_KEYS, LEAST_ALERT_WINDOW};

/// Hits of a log, and the rule that they are replayed against.
#[derive(Debug)]
pub struct AlertReplay {
    rule: AlertRule,
    /// The time of each hit that counts, in milliseconds, and the number of its key.
    hits: Vec<(i64, u32)>,
    keys: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, u32>,
    others: u64,
    /// The first and the last time of all hits, also those of other keys, in milliseconds.
    span: Option<(i64, i64)>,
}

/// An alert that would have started.
#[derive(Clone, PartialEq, Debug)]
pub struct Fired {
    /// When it started.
    pub started: Timestamp,
    /// When it ended. `None`: it fired at the end of the log.
    pub ended: Option<Timestamp>,
    /// The hits in the window when it started.
    pub hits: u64,
    /// What they usually are, for a spike.
    pub baseline: Option<f64>,
    /// The most hits in the window while it fired.
    pub peak: u64,
    /// The keys with the most hits in the window when it started, with these and their share.
    pub keys: Vec<(Box<[u8]>, u64, f64)>,
}

/// The key of the total in the store of a replay.
const TOTAL: &[u8] = b"total";

fn pane_of(millis: i64) -> i64 {
    millis.div_euclid(LEAST_ALERT_WINDOW.as_millis())
}

impl AlertReplay {
    /// A replay without hits.
    #[must_use]
    pub fn new(rule: AlertRule) -> AlertReplay {
        AlertReplay {
            rule,
            hits: Vec::new(),
            keys: Vec::new(),
            numbers: HashMap::new(),
            others: 0,
            span: None,
        }
    }

    /// Adds a hit, in any order.
    ///
    /// # Panics
    /// Past four billion distinct keys.
    pub fn hit(&mut self, key: &[u8], at: Timestamp) {
        let at_ms = at.as_millis();
        self.span =
            Some(self.span.map_or((at_ms, at_ms), |(first, last)| (first.min(at_ms), last.max(at_ms))));
        if !self.rule.pattern.matches(key) {
            self.others += 1;
            return;
        }
        let number = match self.numbers.get(key) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.keys.len()).expect("fewer keys");
                self.keys.push(key.into());
                self.numbers.insert(key.into(), number);
                number
            }
        };
        self.hits.push((at_ms, number));
    }

    /// The hits that count, and those whose key does not match.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.len() as u64, self.others)
    }

    /// The alerts, in the order of their times. The rule is evaluated at the end of each pane of 100 ms, until that of the last hit, of any key.
    ///
    /// # Errors
    /// Never: the settings of totals agree with each other.
    pub fn run(mut self) -> Result<Vec<Fired>, SettingsError> {
        self.hits.sort_unstable();
        let store = Store::builder()
            .class(lately::Pattern::new(TOTAL), total_settings(LEAST_ALERT_WINDOW)?)
            .build()?;
        let (mut fired, mut taken): (Vec<Fired>, usize) = (Vec::new(), 0);
        let Some((first, last)) = self.span else { return Ok(fired) };
        let end_of = |pane: i64| {
            Timestamp::from_millis((pane + 1) * LEAST_ALERT_WINDOW.as_millis() - 1).unwrap_or(Timestamp::MAX)
        };
        let mut watched =
            Watched::new(self.rule.clone(), Timestamp::from_millis(first).unwrap_or(Timestamp::MIN));
        let mut pane = pane_of(first);
        while pane <= pane_of(last) {
            let now = end_of(pane);
            let from = taken;
            taken += self.hits[from..].partition_point(|(at, _)| pane_of(*at) <= pane);
            for run in self.hits[from..taken].chunk_by(|one, other| one.0 == other.0) {
                let at = Timestamp::from_millis(run[0].0);
                // A total takes any hit of a log: it is neither late nor ahead.
                let _ = store.hit_n(TOTAL, run.len() as u64, at, now);
            }
            match watched.step(now, true, |window, at| store.hits_at(TOTAL, window, at, now).estimate) {
                Some(Change::Started) => fired.push(self.fired(&watched, now, taken)),
                Some(Change::Ended { .. }) => {
                    if let Some(last) = fired.last_mut() {
                        last.ended = Some(now);
                    }
                }
                None => {}
            }
            if let (State::Firing { .. }, Some(last)) = (watched.state(), fired.last_mut()) {
                last.peak = last.peak.max(watched.peak());
            }
            pane += 1;
            if self.rests(&watched)
                && let Some((next, _)) = self.hits.get(taken)
            {
                pane = pane.max(pane_of(*next));
            }
        }
        Ok(fired)
    }

    /// Whether nothing changes before the next hit.
    fn rests(&self, watched: &Watched) -> bool {
        let is_below = matches!(self.rule.condition, Condition::Below(_));
        watched.last().hits == 0
            && match watched.state() {
                State::Quiet { .. } => !is_below,
                State::Pending { .. } => false,
                State::Firing { failing, .. } => is_below && failing.is_none(),
            }
    }

    /// The alert that starts now, when the first `taken` hits were counted.
    fn fired(&self, watched: &Watched, now: Timestamp, taken: usize) -> Fired {
        let panes = pane_of(self.rule.window.as_millis() + LEAST_ALERT_WINDOW.as_millis() - 1);
        let edge = pane_of(now.as_millis()) - panes;
        let mut counts: HashMap<u32, u64> = HashMap::new();
        for (_, key) in self.hits[..taken].iter().rev().take_while(|(at, _)| pane_of(*at) > edge) {
            *counts.entry(*key).or_default() += 1;
        }
        let hits = watched.last().hits;
        let mut keys: Vec<(u64, &[u8])> =
            counts.into_iter().map(|(number, hits)| (hits, &*self.keys[number as usize])).collect();
        keys.sort_unstable_by_key(|&(hits, key)| (Reverse(hits), key));
        #[expect(clippy::cast_precision_loss, reason = "a share is an estimate")]
        let share = |of: u64| of as f64 / hits.max(of).max(1) as f64;
        let keys = keys.into_iter().take(ALERT_KEYS).map(|(hits, key)| (key.into(), hits, share(hits)));
        Fired {
            started: now,
            ended: None,
            hits,
            baseline: watched.last().baseline,
            peak: hits,
            keys: keys.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use lately::{Pattern, milliseconds, seconds};

    use super::*;

    const START: i64 = 1_700_000_000_000;

    fn rule(condition: Condition) -> AlertRule {
        AlertRule {
            name: "a".to_owned(),
            pattern: Pattern::new(b"k:*"),
            condition,
            window: seconds(10),
            hold: None,
            keep_firing: None,
            cooldown: None,
        }
    }

    /// The starts and ends, in seconds since the first second, of hits at these seconds.
    fn replay(rule: AlertRule, hits: &[(i64, u64)]) -> Vec<(f64, Option<f64>, u64)> {
        let mut replay = AlertReplay::new(rule);
        for &(second, count) in hits {
            let at = Timestamp::from_millis(START + 1_000 * second).expect("a time");
            (0..count).for_each(|_| replay.hit(b"k:1", at));
            replay.hit(b"other", at);
        }
        let fired = replay.run().expect("valid");
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let second = |at: Timestamp| (at.as_millis() - START) as f64 / 1_000.0;
        fired.iter().map(|one| (second(one.started), one.ended.map(second), one.peak)).collect()
    }

    #[test]
    fn a_replay_starts_and_ends_as_the_server_would() {
        let above = || rule(Condition::Above(5));
        let burst = [(0, 6), (30, 1), (60, 6), (65, 2), (100, 1)];
        assert_eq!(replay(above(), &burst), [(0.099, Some(10.099), 6), (60.099, Some(70.099), 8)]);
        // `for`: each holds for 10 s.
        let hold = AlertRule { hold: Some(seconds(12)), ..above() };
        assert_eq!(replay(hold, &burst), []);
        let hold = AlertRule { hold: Some(seconds(9)), ..above() };
        assert_eq!(replay(hold, &burst), [(9.099, Some(10.099), 6), (69.099, Some(70.099), 8)]);
        let keep = AlertRule { keep_firing: Some(seconds(51)), ..above() };
        assert_eq!(replay(keep, &burst), [(0.099, None, 8)]);
        let cooldown = AlertRule { cooldown: Some(seconds(55)), ..above() };
        assert_eq!(replay(cooldown, &burst), [(0.099, Some(10.099), 6), (65.099, Some(70.099), 8)]);
        // Absence: known once there was a whole window.
        let beats = [(0, 1), (8, 1), (16, 1), (40, 1), (45, 1)];
        let below = rule(Condition::Below(1));
        assert_eq!(replay(below.clone(), &beats), [(26.099, Some(40.099), 0)]);
        assert_eq!(replay(below, &[]), []);
        let spike = rule(Condition::Spike { factor: 3.0, least: 20 });
        let steady: Vec<(i64, u64)> =
            (0..30).map(|window| (10 * window, 10)).chain([(300, 50), (310, 10)]).collect();
        assert_eq!(replay(spike, &steady).iter().map(|fired| fired.0).collect::<Vec<_>>(), [300.099]);
    }

    /// Hits of any order give the same, and the keys are those of the window.
    #[test]
    fn the_keys_are_those_of_the_window() {
        let mut replay =
            AlertReplay::new(AlertRule { window: milliseconds(250), ..rule(Condition::Above(3)) });
        for (key, at_ms) in [("k:c", 950), ("k:b", 900), ("k:a", 500), ("k:b", 800), ("k:b", 910), ("x", 900)]
        {
            replay.hit(key.as_bytes(), Timestamp::from_millis(START + at_ms).expect("a time"));
        }
        assert_eq!(replay.counts(), (5, 1));
        let fired = replay.run().expect("valid");
        let keys: Vec<_> = fired[0].keys.iter().map(|(key, hits, share)| (&**key, *hits, *share)).collect();
        assert_eq!(keys, [(&b"k:b"[..], 3, 0.75), (b"k:c", 1, 0.25)]);
        assert_eq!((fired.len(), fired[0].hits, fired[0].ended), (1, 4, None));
    }
}
