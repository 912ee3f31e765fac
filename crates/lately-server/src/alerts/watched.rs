//! A rule with its state and what was read last.

use lately::{Span, Timestamp, seconds};

use super::baseline::baseline;
use super::{AlertRule, Change, Condition, State};

/// What was read of a total.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Reading {
    /// Hits in the window.
    pub hits: u64,
    /// What they usually are, for a spike.
    pub baseline: Option<f64>,
}

/// A rule that is evaluated.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The rule.
    pub rule: AlertRule,
    state: State,
    /// Since when its hits are counted.
    counted_since: Timestamp,
    /// The baseline, and when it was found.
    baseline: Option<(Timestamp, Option<f64>)>,
    last: Reading,
    /// The most hits while the alert was pending or fired.
    peak: u64,
}

/// How long a baseline is used.
const BASELINE_LASTS: Span = seconds(1);

impl Watched {
    /// A rule whose hits are counted from now on.
    #[must_use]
    pub fn new(rule: AlertRule, now: Timestamp) -> Watched {
        Watched {
            rule,
            state: State::NEW,
            counted_since: now,
            baseline: None,
            last: Reading::default(),
            peak: 0,
        }
    }

    /// The state now.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// What was read last.
    #[must_use]
    pub fn last(&self) -> Reading {
        self.last
    }

    /// The most hits in the window since the alert was pending.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak
    }

    pub(crate) fn counted_since(&self) -> Timestamp {
        self.counted_since
    }

    /// The same, when the hits were counted before already.
    pub(crate) fn counted_from(self, since: Timestamp) -> Watched {
        Watched { counted_since: since, ..self }
    }

    /// Reads the total and advances the state. `hits` returns the hits of a window that ends at a time. Unless they are `all_known`,
    /// the state stays as it is where more hits might have kept it so. Times do not decrease.
    pub fn step(
        &mut self,
        now: Timestamp,
        all_known: bool,
        hits: impl Fn(Span, Timestamp) -> u64,
    ) -> Option<Change> {
        let window = self.rule.window;
        let reading = Reading { hits: hits(window, now), baseline: self.baseline(now, &hits) };
        let condition = self.rule.condition;
        // What is missing may have come before the hits were counted.
        let is_known =
            !matches!(condition, Condition::Below(_)) || now >= self.counted_since.saturating_add(window);
        let holds = is_known && condition.holds(reading.hits, reading.baseline);
        let is_sure = all_known
            || match condition {
                Condition::Above(_) => holds,
                Condition::Below(_) => !holds,
                // More hits may have come now or before.
                Condition::Spike { .. } => false,
            };
        if !is_sure {
            self.last = reading;
            return None;
        }
        let (state, change) = self.state.next(&self.rule, holds, now);
        self.peak = if matches!(self.state, State::Quiet { .. }) { 0 } else { self.peak }.max(reading.hits);
        (self.state, self.last) = (state, reading);
        change
    }

    fn baseline(&mut self, now: Timestamp, hits: &impl Fn(Span, Timestamp) -> u64) -> Option<f64> {
        if !matches!(self.rule.condition, Condition::Spike { .. }) {
            return None;
        }
        match self.baseline {
            Some((found, baseline)) if now < found.saturating_add(BASELINE_LASTS) => baseline,
            _ => {
                let found = baseline(self.rule.window, now, hits);
                self.baseline = Some((now, found));
                found
            }
        }
    }
}
