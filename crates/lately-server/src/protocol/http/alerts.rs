//! `GET /v1/alerts`: the alerts and their rules.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use super::problem::Problem;
use super::query::Query;
use crate::json::seconds;
use crate::service::notice::{AlertText, Notice, RuleText};
use crate::service::{AlertFigures, Service};

#[derive(Serialize, ToSchema)]
pub(super) struct AlertsAnswer<'a> {
    /// Unix seconds.
    #[schema(value_type = f64)]
    as_of: Number,
    /// Those that are pending or firing, in the order of the config.
    alerts: Vec<AlertText<'a>>,
    /// Those that ended last, the newest first. A restart forgets them.
    ended: Vec<AlertText<'a>>,
    /// All rules, in the order of the config.
    rules: Vec<RuleText<'a>>,
}

/// The alerts as JSON.
pub(super) fn json(service: &Service) -> String {
    let (active, ended, figures) = (service.active_alerts(), service.ended_alerts(), service.alert_figures());
    fn rule(of: &AlertFigures) -> RuleText<'_> {
        RuleText::new(&of.alert.rule, of.stage, of.reading, of.starts)
    }
    let answer = AlertsAnswer {
        as_of: seconds(service.now()),
        alerts: active.iter().map(Notice::text).collect(),
        ended: ended.iter().map(|notice| notice.text()).collect(),
        rules: figures.iter().map(rule).collect(),
    };
    serde_json::to_string(&answer).expect("it has no maps")
}

/// The alerts: those that are pending or firing, those that ended lately, and all rules.
#[utoipa::path(
    get, path = "/v1/alerts", tag = "server",
    responses((status = 200, description = "The alerts.", body = AlertsAnswer)),
)]
pub(super) async fn alerts(
    State(service): State<Arc<Service>>,
    uri: Uri,
) -> Result<impl IntoResponse, Problem> {
    Query::of(&uri, "none")?.end()?;
    Ok(([(CONTENT_TYPE, "application/json")], json(&service)))
}
