//! `/v1/key/{key}`: deletes a key, or says what is known of it besides its hits.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use lately::Span;
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use super::decisions::DecisionAnswer;

use super::problem::Problem;
use super::query::{Query, key_of};
use crate::json::{Key, seconds};
use crate::service::commit::Changes;
use crate::service::{DeleteError, Service};

/// Deletes a key. It is no error if there is none.
#[utoipa::path(
    delete, path = "/v1/key/{key}", tag = "keys",
    params(("key" = String, Path, description = "Up to 1,024 bytes, percent-encoded.")),
    responses((status = 204, description = "There is no such key any more.")),
)]
pub(super) async fn delete(State(service): State<Arc<Service>>, uri: Uri) -> Result<StatusCode, Problem> {
    let key = key_of(&uri, "/v1/key/")?;
    Query::of(&uri, "none")?.end()?;
    if service.is_loading() {
        return Err(Problem::loading());
    }
    let mut changes = Changes::default();
    let commit = {
        let _entered = service.enter();
        let deleted = service.delete([&*key].into_iter(), &mut changes, service.now());
        deleted.map_err(|error| {
            let is_wrong = matches!(error, DeleteError::Reserved);
            let status = if is_wrong { StatusCode::BAD_REQUEST } else { StatusCode::SERVICE_UNAVAILABLE };
            Problem::new(status, error.code(), &error)
        })?;
        service.commit(&mut [&mut changes])
    };
    service.settled(commit, changes).await.map_err(|refused| Problem::of_refused(&refused))?;
    Ok(StatusCode::NO_CONTENT)
}

/// What is known of a key besides its hits.
#[derive(Serialize, ToSchema)]
pub(super) struct KeyAnswer {
    #[serde(flatten)]
    key: Key,
    #[schema(value_type = f64)]
    as_of: Number,
    /// Whether it has hits within its retention, or a limit in force.
    exists: bool,
    /// The window, by default that of its class.
    window: String,
    /// The settings of its class.
    resolution: String,
    retain: String,
    unique: bool,
    /// Hits that limits denied in the window.
    denied: u64,
    /// Until when it is locked out.
    #[schema(value_type = Option<f64>)]
    locked_until: Option<Number>,
    /// What named limits would answer its next request; at most 16.
    limits: Vec<LimitOfKeyAnswer>,
}

#[derive(Serialize, ToSchema)]
struct LimitOfKeyAnswer {
    limit: String,
    window: String,
    /// Every request is allowed, also when this answer denies it.
    shadow: bool,
    #[serde(flatten)]
    decision: DecisionAnswer,
}

/// The state of a key: what was denied, its lockout, and what named limits would answer.
#[utoipa::path(
    get, path = "/v1/key/{key}", tag = "keys",
    params(
        ("key" = String, Path, description = "Up to 1,024 bytes, percent-encoded."),
        ("window" = Option<String>, Query, description = "A duration, such as 5m: the default window of the key.", pattern = "^[1-9][0-9]*(ms|s|m|h|d|w)?$"),
    ),
    responses((status = 200, description = "The state.", body = KeyAnswer)),
)]
pub(super) async fn state(State(service): State<Arc<Service>>, uri: Uri) -> Result<Json<KeyAnswer>, Problem> {
    let key = key_of(&uri, "/v1/key/")?;
    let mut query = Query::of(&uri, "window")?;
    let window = query.span("window")?.unwrap_or_else(|| service.default_window(&key));
    query.end()?;
    if service.is_loading() {
        return Err(Problem::loading());
    }
    let limits = service.limits_of_key(&key).await?;
    let now = service.now();
    let settings = service.settings_of(&key);
    let shown = |span: Span| span.to_string();
    Ok(Json(KeyAnswer {
        key: (&*key).into(),
        as_of: seconds(now),
        exists: service.time_to_live(&key, now).is_some(),
        window: shown(window),
        resolution: shown(settings.resolution()),
        retain: shown(settings.retain()),
        unique: settings.unique(),
        denied: service.denied(&key, window, now),
        locked_until: service.locked_until(&key, now).map(seconds),
        limits: limits
            .into_iter()
            .map(|limit| LimitOfKeyAnswer {
                limit: limit.name,
                window: shown(limit.decided.window),
                shadow: limit.is_shadow,
                decision: (&limit.decided.decision).into(),
            })
            .collect(),
    }))
}
