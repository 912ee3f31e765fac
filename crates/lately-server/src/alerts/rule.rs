//! The rule of an alert: what it counts, and when it fires.

use lately::{Pattern, Span};

/// A rule of the config.
#[derive(Clone, PartialEq, Debug)]
pub struct AlertRule {
    /// Its unique name: letters, digits and `_ - .`.
    pub name: String,
    /// The keys whose hits are counted together.
    pub pattern: Pattern,
    /// When it holds.
    pub condition: Condition,
    /// The window of the hits.
    pub window: Span,
    /// How long the condition holds before the alert starts: `for`. `None` is not at all.
    pub hold: Option<Span>,
    /// How long the condition does not hold before the alert ends.
    pub keep_firing: Option<Span>,
    /// How long after its end the alert does not start again.
    pub cooldown: Option<Span>,
}

/// When a rule holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Condition {
    /// More hits than this.
    Above(u64),
    /// Fewer hits than this.
    Below(u64),
    /// More hits than `factor` times the baseline, and at least `least`.
    Spike {
        /// From 1 on.
        factor: f64,
        /// Fewer hits are no spike.
        least: u64,
    },
}

impl Condition {
    /// Its key in the config.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Condition::Above(_) => "above",
            Condition::Below(_) => "below",
            Condition::Spike { .. } => "spike",
        }
    }

    /// The number that the config compares with: hits, or the factor of a spike.
    #[must_use]
    pub fn threshold(self) -> f64 {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "it is shown")]
            Condition::Above(hits) | Condition::Below(hits) => hits as f64,
            Condition::Spike { factor, .. } => factor,
        }
    }

    /// Whether it holds. Without a baseline nothing is a spike.
    #[must_use]
    pub(crate) fn holds(self, hits: u64, baseline: Option<f64>) -> bool {
        match self {
            Condition::Above(most) => hits > most,
            Condition::Below(least) => hits < least,
            #[expect(clippy::cast_precision_loss, reason = "a baseline is an estimate")]
            Condition::Spike { factor, least } => {
                hits >= least && baseline.is_some_and(|baseline| hits as f64 > factor * baseline)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_hold_past_their_threshold() {
        let check = |condition: Condition, hits, baseline, expected| {
            assert_eq!(condition.holds(hits, baseline), expected, "{condition:?} {hits} {baseline:?}");
        };
        check(Condition::Above(10), 10, None, false);
        check(Condition::Above(10), 11, None, true);
        check(Condition::Above(0), 0, None, false);
        check(Condition::Below(1), 0, None, true);
        check(Condition::Below(1), 1, None, false);
        let spike = Condition::Spike { factor: 2.0, least: 10 };
        check(spike, 1_000, None, false);
        check(spike, 10, Some(5.0), false);
        check(spike, 11, Some(5.0), true);
        check(spike, 9, Some(1.0), false);
        check(spike, 10, Some(0.0), true);
    }
}
