//! `GET /v1/alerts`: the alerts that are pending or firing.

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
use crate::alerts::notice::{AlertText, Notice};
use crate::json::seconds;
use crate::service::Service;

#[derive(Serialize, ToSchema)]
pub(super) struct AlertsAnswer<'a> {
    /// Unix seconds.
    #[schema(value_type = f64)]
    as_of: Number,
    /// In the order of the config.
    alerts: Vec<AlertText<'a>>,
}

/// The alerts that are pending or firing.
#[utoipa::path(
    get, path = "/v1/alerts", tag = "server",
    responses((status = 200, description = "The alerts.", body = AlertsAnswer)),
)]
pub(super) async fn alerts(
    State(service): State<Arc<Service>>,
    uri: Uri,
) -> Result<impl IntoResponse, Problem> {
    Query::of(&uri, "none")?.end()?;
    let alerts = service.active_alerts();
    let answer =
        AlertsAnswer { as_of: seconds(service.now()), alerts: alerts.iter().map(Notice::text).collect() };
    let text = serde_json::to_string(&answer).expect("it has no maps");
    Ok(([(CONTENT_TYPE, "application/json")], text))
}
