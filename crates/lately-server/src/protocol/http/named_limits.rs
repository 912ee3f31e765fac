//! `GET /v1/limits`: the limits of the config, and what they answered.

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

/// The limits, as they are documented. They are written a piece at a time.
#[derive(ToSchema)]
#[expect(dead_code, reason = "its schema is what counts")]
pub(super) struct LimitsAnswer {
    as_of: f64,
    limits: Vec<NamedLimitAnswer>,
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

/// The limits of the config, in its order.
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
    let rules = service.rules.get();
    let mut next = Some(0);
    let pieces = std::iter::from_fn(move || {
        let from = next?;
        let rows: Vec<String> = rules
            .iter()
            .skip(from)
            .take(LIMITS_A_PIECE)
            .map(|rule| serde_json::to_string(&NamedLimitAnswer::from(rule)).expect("it has no maps"))
            .collect();
        let (is_first, is_last) = (from == 0, rows.len() < LIMITS_A_PIECE);
        next = (!is_last).then_some(from + LIMITS_A_PIECE);
        let head = if is_first { format!("{{\"as_of\":{as_of},\"limits\":[") } else { String::new() };
        let comma = if is_first || rows.is_empty() { "" } else { "," };
        Some(head + comma + &rows.join(",") + if is_last { "]}" } else { "" })
    });
    Ok(([(CONTENT_TYPE, "application/json")], Body::new(LongBody::new(pieces, service, link.pace))))
}
