//! An alert as it is shown and sent.

use std::sync::Arc;

use lately::{Span, Timestamp};
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use crate::alerts::{AlertRule, Condition, Reading};
use crate::config::Alert;
use crate::json::{Key, seconds};

/// A key that contributed to the total of an alert.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cause {
    pub(crate) key: Box<[u8]>,
    /// Its hits in the window.
    pub(crate) hits: u64,
    /// These as a share of the total.
    pub(crate) share: f64,
}

/// Where an alert is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// The condition does not hold, and the alert does not fire.
    Quiet,
    /// The condition holds, but not for long enough.
    Pending,
    /// The alert has started and not ended.
    Firing,
    Ended,
}

impl Stage {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Quiet => "quiet",
            Stage::Pending => "pending",
            Stage::Firing => "firing",
            Stage::Ended => "ended",
        }
    }

    /// What happened when an alert that is published came to it.
    pub(crate) fn change(self) -> &'static str {
        if self == Stage::Ended { "ended" } else { "started" }
    }
}

/// An alert at one time.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Notice {
    pub(crate) alert: Arc<Alert>,
    pub(crate) stage: Stage,
    /// The time of what follows.
    pub(crate) as_of: Timestamp,
    pub(crate) hits: u64,
    pub(crate) baseline: Option<f64>,
    /// The most hits in the window since it was pending.
    pub(crate) peak: u64,
    /// When it started; of a pending alert, since when the condition holds.
    pub(crate) since: Timestamp,
    pub(crate) ended: Option<Timestamp>,
    /// The keys with the most hits in the window when it started.
    pub(crate) keys: Arc<[Cause]>,
}

/// A rule and its total, as JSON.
#[derive(Serialize, ToSchema)]
struct ReadText<'a> {
    name: &'a str,
    state: Stage,
    /// The pattern of the keys whose hits are counted together.
    #[serde(rename = "match")]
    pattern: String,
    /// `above`, `below` or `spike`.
    kind: &'static str,
    /// What the hits are compared with: hits, or the factor of a spike.
    #[schema(value_type = f64)]
    threshold: Number,
    #[schema(value_type = String)]
    window: String,
    /// The hits of all these keys in the window.
    hits: u64,
    /// What they usually are. Only of a spike.
    baseline: Option<f64>,
}

/// An alert as JSON.
#[derive(Serialize, ToSchema)]
pub(crate) struct AlertText<'a> {
    #[serde(flatten)]
    read: ReadText<'a>,
    /// The most hits in the window so far.
    peak: u64,
    /// When it started, in Unix seconds; of a pending alert, since when the condition holds.
    #[schema(value_type = f64)]
    since: Number,
    /// `null` until it has ended.
    #[schema(value_type = Option<f64>)]
    ended_at: Option<Number>,
    /// The keys with the most hits in the window when it started, most first.
    keys: Vec<CauseText>,
}

/// A rule of the config as JSON.
#[derive(Serialize, ToSchema)]
pub(crate) struct RuleText<'a> {
    #[serde(flatten)]
    read: ReadText<'a>,
    /// How often its alert started.
    starts: u64,
}

#[derive(Serialize, ToSchema)]
struct CauseText {
    #[serde(flatten)]
    key: Key,
    hits: u64,
    /// Its share of the hits, 0 to 1.
    share: f64,
}

/// What is sent when an alert starts or ends.
#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: String,
    timestamp: String,
    data: AlertText<'a>,
}

/// A time as RFC 3339 has it.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.as_millis()).map_or_else(|_| at.to_string(), |at| at.to_string())
}

impl<'a> ReadText<'a> {
    fn new(rule: &'a AlertRule, state: Stage, Reading { hits, baseline }: Reading) -> ReadText<'a> {
        let AlertRule { name, pattern, condition, window, .. } = rule;
        ReadText {
            name,
            state,
            pattern: String::from_utf8_lossy(pattern.as_bytes()).into_owned(),
            kind: condition.name(),
            threshold: match condition {
                Condition::Above(hits) | Condition::Below(hits) => (*hits).into(),
                Condition::Spike { factor, .. } => Number::from_f64(*factor).unwrap_or_else(|| 0.into()),
            },
            window: window.to_string(),
            hits,
            baseline,
        }
    }
}

impl<'a> RuleText<'a> {
    pub(crate) fn new(rule: &'a AlertRule, state: Stage, reading: Reading, starts: u64) -> RuleText<'a> {
        RuleText { read: ReadText::new(rule, state, reading), starts }
    }
}

impl Notice {
    pub(crate) fn rule(&self) -> &AlertRule {
        &self.alert.rule
    }

    pub(crate) fn text(&self) -> AlertText<'_> {
        let cause =
            |cause: &Cause| CauseText { key: (&*cause.key).into(), hits: cause.hits, share: cause.share };
        let reading = Reading { hits: self.hits, baseline: self.baseline };
        AlertText {
            read: ReadText::new(self.rule(), self.stage, reading),
            peak: self.peak,
            since: seconds(self.since),
            ended_at: self.ended.map(seconds),
            keys: self.keys.iter().map(cause).collect(),
        }
    }

    /// The event that the alert started or ended, as JSON.
    pub(crate) fn event(&self) -> String {
        let kind = format!("alert.{}", self.stage.change());
        let event = Event { kind, timestamp: rfc3339(self.as_of), data: self.text() };
        serde_json::to_string(&event).expect("it has no maps")
    }

    /// A sentence about it, such as `41231 hits of endpoint:* in 10s, more than 10000`.
    pub(crate) fn summary(&self) -> String {
        let AlertRule { pattern, condition, window, .. } = self.rule();
        let (hits, window): (u64, Span) = (self.hits, *window);
        let s = if hits == 1 { "" } else { "s" };
        let pattern = String::from_utf8_lossy(pattern.as_bytes());
        let compared = match condition {
            Condition::Above(most) => format!("more than {most}"),
            Condition::Below(least) => format!("fewer than {least}"),
            Condition::Spike { factor, .. } => {
                let usual = self.baseline.map_or_else(|| "unknown".to_owned(), |usual| format!("{usual:.1}"));
                format!("more than {factor} times the usual {usual}")
            }
        };
        format!("{hits} hit{s} of {pattern} in {window}, {compared}")
    }
}
