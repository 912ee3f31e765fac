//! `GET /v1/limits`: the limits of the config, the rules of envoyproxy/ratelimit, and what they answered.

use std::iter::once;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use super::listener::Link;
use super::long_body::LongBody;
use super::problem::Problem;
use super::query::Query;
use crate::json::seconds;
use crate::limits::LIMITS_A_PIECE;
use crate::service::Service;
use crate::service::named_limits::{LimitAnswer, Rule};
use crate::service::ratelimit::RateLimits;
use crate::service::rule_tally::NamedTally;

/// The limits, as they are documented. They are written a piece at a time.
#[derive(ToSchema)]
#[expect(dead_code, reason = "its schema is what counts")]
pub(super) struct LimitsAnswer {
    as_of: f64,
    /// In the order of the config.
    limits: Vec<NamedLimitAnswer>,
    /// By domain and name.
    rules: Vec<RuleAnswer>,
}

#[derive(Serialize, ToSchema)]
struct NamedLimitAnswer {
    name: String,
    max: u64,
    window: String,
    lockout: Option<String>,
    /// Every request is allowed, and those that would be denied are counted.
    shadow: bool,
    overdraft: bool,
    /// The key of a request to `/v1/auth`.
    key: Option<String>,
    /// The domain of descriptors that it is for.
    domain: Option<String>,
    /// Requests by their answer, since the start or since the limit was added.
    allowed: u64,
    denied: u64,
    would_deny: u64,
}

impl From<&Rule> for NamedLimitAnswer {
    fn from(rule: &Rule) -> NamedLimitAnswer {
        let limit = &rule.limit;
        NamedLimitAnswer {
            name: limit.name.clone(),
            max: limit.max,
            window: limit.window.to_string(),
            lockout: limit.lockout.map(|lockout| lockout.first().to_string()),
            shadow: limit.is_shadow,
            overdraft: limit.is_overdraft,
            key: limit.key.as_ref().map(ToString::to_string),
            domain: limit.domain.clone(),
            allowed: rule.tally.get(LimitAnswer::Allowed),
            denied: rule.tally.get(LimitAnswer::Denied),
            would_deny: rule.tally.get(LimitAnswer::WouldDeny),
        }
    }
}

/// A rule of envoyproxy/ratelimit, or the values of one that counts each value.
#[derive(Serialize, ToSchema)]
struct RuleAnswer {
    domain: String,
    /// The keys and values of the rule, `key_value.key`.
    rule: String,
    /// The most in a unit. `null` for a rule without a limit, and for a value.
    max: Option<u32>,
    /// `second`, `minute`, `hour`, `day`, `week`, `month` or `year`.
    unit: Option<&'static str>,
    shadow: bool,
    /// Hits since the start or since the rule was added, by weight.
    hits: u64,
    /// Those of descriptors within the limit.
    within: u64,
    /// Those from 0.8 of the limit up to it.
    near: u64,
    /// Those past the limit, in shadow too.
    over: u64,
    /// Those past the limit of a rule in shadow.
    over_in_shadow: u64,
}

impl RuleAnswer {
    fn new(of: &NamedTally, limits: &RateLimits) -> RuleAnswer {
        let rule = of.rule.map(|index| limits.rule(index));
        let limit = rule.and_then(|rule| rule.limit);
        let [hits, within, near, over, over_in_shadow] = of.tally.counts();
        RuleAnswer {
            domain: of.domain.to_string(),
            rule: of.name.to_string(),
            max: limit.map(|limit| limit.requests),
            unit: limit.map(|limit| limit.unit.name()),
            shadow: rule.is_some_and(|rule| rule.is_shadow),
            hits,
            within,
            near,
            over,
            over_in_shadow,
        }
    }
}

/// The items of an array, some a piece. `rows` has them from an index on.
fn items<R: Serialize>(
    count: usize,
    rows: impl Fn(std::ops::Range<usize>) -> Vec<R>,
) -> impl Iterator<Item = String> {
    (0..count)
        .step_by(LIMITS_A_PIECE)
        .map(move |from| piece(from == 0, rows(from..count.min(from + LIMITS_A_PIECE)).into_iter()))
}

/// Rows of a list in JSON, behind a comma if they are not the first.
fn piece<R: Serialize>(is_first: bool, rows: impl Iterator<Item = R>) -> String {
    let rows: Vec<String> = rows.map(|row| serde_json::to_string(&row).expect("it has no maps")).collect();
    let comma = if is_first { "" } else { "," };
    format!("{comma}{}", rows.join(","))
}

/// The limits of the config, and the rules of envoyproxy/ratelimit.
#[utoipa::path(
    get, path = "/v1/limits", tag = "limits",
    responses((status = 200, description = "The limits.", body = LimitsAnswer)),
)]
pub(super) async fn limits(
    State(service): State<Arc<Service>>,
    Extension(link): Extension<Link>,
    uri: Uri,
) -> Result<impl IntoResponse, Problem> {
    Query::of(&uri, "none")?.end()?;
    let as_of: Number = seconds(service.now());
    let (limits, rules) = (service.rules.get(), service.rate_limits.get());
    let count = limits.iter().len();
    let limits = items(count, move |range| {
        limits.iter().skip(range.start).take(range.len()).map(NamedLimitAnswer::from).collect()
    });
    let pages = rules.pages(LIMITS_A_PIECE).enumerate();
    let rules = pages
        .map(move |(number, page)| piece(number == 0, page.iter().map(|of| RuleAnswer::new(of, &rules))));
    let pieces = once(format!("{{\"as_of\":{as_of},\"limits\":["))
        .chain(limits)
        .chain(once("],\"rules\":[".to_owned()))
        .chain(rules)
        .chain(once("]}".to_owned()));
    Ok(([(CONTENT_TYPE, "application/json")], Body::new(LongBody::new(pieces, service, link.pace))))
}
