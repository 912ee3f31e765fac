//! The state of an alert, over time that is passed in.

use lately::{Span, Timestamp};

use super::AlertRule;

/// The state of an alert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The condition does not hold.
    Quiet {
        /// No start before this: the cooldown of the last end.
        until: Option<Timestamp>,
    },
    /// The condition holds, but not for long enough.
    Pending {
        /// Since when it holds.
        since: Timestamp,
        /// No start before this.
        until: Option<Timestamp>,
    },
    /// The alert has started and not ended.
    Firing {
        /// When it started.
        started: Timestamp,
        /// Since when the condition does not hold, if it does not.
        failing: Option<Timestamp>,
    },
}

/// What a step changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The alert started.
    Started,
    /// The alert ended.
    Ended {
        /// When it started.
        started: Timestamp,
    },
}

/// Whether a time is a span or more after another.
fn is_over(since: Timestamp, span: Option<Span>, now: Timestamp) -> bool {
    span.is_none_or(|span| now >= since.saturating_add(span))
}

impl State {
    /// The state at the start.
    pub const NEW: State = State::Quiet { until: None };

    /// The next state, when the condition `holds` at `now`, and what changes. Times do not decrease.
    #[must_use]
    pub fn next(self, rule: &AlertRule, holds: bool, now: Timestamp) -> (State, Option<Change>) {
        match self {
            State::Quiet { until } if holds => State::Pending { since: now, until }.next(rule, true, now),
            State::Quiet { .. } => (self, None),
            State::Pending { until, .. } if !holds => (State::Quiet { until }, None),
            State::Pending { since, until } => {
                if is_over(since, rule.hold, now) && until.is_none_or(|until| now >= until) {
                    (State::Firing { started: now, failing: None }, Some(Change::Started))
                } else {
                    (self, None)
                }
            }
            State::Firing { started, .. } if holds => (State::Firing { started, failing: None }, None),
            State::Firing { started, failing } => {
                let since = failing.unwrap_or(now);
                if is_over(since, rule.keep_firing, now) {
                    let until = rule.cooldown.map(|cooldown| now.saturating_add(cooldown));
                    (State::Quiet { until }, Some(Change::Ended { started }))
                } else {
                    (State::Firing { started, failing: Some(since) }, None)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lately::{Pattern, seconds};
    use proptest::prelude::*;

    use super::super::Condition;
    use super::*;

    fn rule([hold, keep_firing, cooldown]: [u64; 3]) -> AlertRule {
        let span = |span: u64| (span > 0).then(|| seconds(span));
        AlertRule {
            name: "a".to_owned(),
            pattern: Pattern::new(b"*"),
            condition: Condition::Above(1),
            window: seconds(1),
            hold: span(hold),
            keep_firing: span(keep_firing),
            cooldown: span(cooldown),
        }
    }

    /// The times at which the alert starts and ends, by definition: each is looked for in all that was seen so far.
    fn model(spans: [u64; 3], seen: &[(u64, bool)]) -> Vec<(u64, bool)> {
        let [hold, keep_firing, cooldown] = spans;
        let mut changes: Vec<(u64, bool)> = Vec::new();
        for end in 0..seen.len() {
            let now = seen[end].0;
            let last = changes.last().copied();
            let is_firing = last.is_some_and(|(_, started)| started);
            // Since when the condition has been as it must be for the next change, without a break.
            let run = seen[..=end].iter().rev().take_while(|(_, holds)| *holds != is_firing);
            let run = run.filter(|(at, _)| !is_firing || last.is_some_and(|(started, _)| *at >= started));
            let Some(&(since, _)) = run.last() else { continue };
            let needed = if is_firing { keep_firing } else { hold };
            let is_cool = is_firing || last.is_none_or(|(ended, _)| now >= ended + cooldown);
            if now - since >= needed && is_cool {
                changes.push((now, !is_firing));
            }
        }
        changes
    }

    fn changes(spans: [u64; 3], seen: &[(u64, bool)]) -> Vec<(u64, bool)> {
        let (rule, mut state, mut changes) = (rule(spans), State::NEW, Vec::new());
        for &(at, holds) in seen {
            let now = Timestamp::from_seconds(at).expect("a time");
            let (next, change) = state.next(&rule, holds, now);
            state = next;
            changes.extend(change.map(|change| (at, change == Change::Started)));
        }
        changes
    }

    #[test]
    fn an_alert_starts_holds_on_ends_and_cools_down() {
        let seen = |text: &str| -> Vec<(u64, bool)> { (1..).zip(text.chars().map(|it| it == '1')).collect() };
        let check = |spans, text: &str, expected: &[(u64, bool)]| {
            assert_eq!(changes(spans, &seen(text)), expected, "{spans:?} {text}");
        };
        check([0, 0, 0], "0110100", &[(2, true), (4, false), (5, true), (6, false)]);
        // `for`: a short excess does not start it.
        check([2, 0, 0], "01101111", &[(7, true)]);
        // `keep_firing`: a short pause does not end it.
        check([0, 2, 0], "1011000", &[(1, true), (7, false)]);
        // `cooldown`: it does not start again at once, and then at once if the condition holds.
        check([0, 0, 3], "101111", &[(1, true), (2, false), (5, true)]);
    }

    proptest! {
        /// The state machine starts and ends an alert at the times that the definition says.
        #[test]
        fn starts_and_ends_are_those_of_the_definition(
            spans in [0_u64..6, 0..6, 0..6],
            steps in prop::collection::vec((0_u64..4, any::<bool>()), 1..60),
        ) {
            let mut at = 1;
            let seen: Vec<(u64, bool)> = steps.iter().map(|&(step, holds)| { at += step; (at, holds) }).collect();
            prop_assert_eq!(changes(spans, &seen), model(spans, &seen));
        }
    }
}
