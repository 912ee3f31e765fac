//! Counting over HTTP: `POST /v1/hit/{key}`, `GET /v1/hits/{key}` and `GET /v1/unique/{key}`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use lately::Outcome;
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use super::problem::{Document, Problem};
use super::query::{Query, key_of, parsed};
use crate::json::{Key, seconds};
use crate::limits::MAX_HTTP_WINDOWS;
use crate::service::Service;
use crate::service::commit::Changes;
use crate::service::owners::IdHits;
use crate::service::response::WindowCount;
use crate::service::{Asked, Batch, DecideError};

#[derive(Serialize, ToSchema)]
pub(super) struct HitAnswer {
    #[serde(flatten)]
    key: Key,
    hits: u64,
}

#[derive(Serialize, ToSchema)]
pub(super) struct HitsAnswer {
    #[serde(flatten)]
    key: Key,
    /// The end of the windows, in Unix seconds.
    #[schema(value_type = f64)]
    as_of: Number,
    /// How old the hits of other nodes are. `null` when they were never read.
    staleness_ms: Option<i64>,
    windows: Vec<WindowAnswer>,
}

#[derive(Serialize, ToSchema)]
struct WindowAnswer {
    window: String,
    hits: u64,
    lower: u64,
    /// Unknown when the window reaches beyond the retention.
    upper: Option<u64>,
    /// Hits per second.
    rate: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    origins: Option<Vec<OriginAnswer>>,
}

/// The hits that a node counted.
#[derive(Serialize, ToSchema)]
struct OriginAnswer {
    #[schema(value_type = String)]
    origin: Box<str>,
    hits: u64,
}

/// Counts hits of a key.
#[utoipa::path(
    post, path = "/v1/hit/{key}", tag = "counting",
    params(
        ("key" = String, Path, description = "Up to 1,024 bytes, percent-encoded."),
        ("n" = Option<i64>, Query, minimum = 0, description = "The number of hits: 1."),
        ("at" = Option<f64>, Query, description = "The time of the hits in Unix seconds: now."),
        ("id" = Option<String>, Query, description = "The id of the hits, up to 256 bytes. Hits of the key with the same id count once within the `dedupe` of its class."),
        ("member" = Option<String>, Query, description = "Whose hits they are, up to 256 bytes. The distinct members of a key are counted if its class has `unique`."),
    ),
    responses(
        (status = 200, description = "The hits in the default window of the key, these included.", body = HitAnswer),
        (status = 422, description = "The time is too old or too far ahead, the count is too large, or hits of the key have no ids or no members.", body = Document, content_type = "application/problem+json"),
        (status = 507, description = "The memory ceiling is reached.", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn hit(State(service): State<Arc<Service>>, uri: Uri) -> Result<Json<HitAnswer>, Problem> {
    let key = key_of(&uri, "/v1/hit/")?;
    let mut query = Query::of(&uri, "n, at, id and member")?;
    let (count, at) = (query.count("n")?, query.time("at")?);
    let (id, member) = (query.bytes("id")?, query.bytes("member")?);
    query.end()?;
    if service.is_loading() {
        return Err(Problem::loading());
    }
    if let Some(id) = &id {
        let hits = IdHits { key: &key, weight: count.unwrap_or(1), at, id, member: member.as_deref() };
        hits.check().map_err(|error| Problem::of_hit(&error))?;
        if let Some(asked) = service.ask_to_count(&hits) {
            let hits = service.all_counted(vec![asked]).await.remove(0).map_err(DecideError::from)?;
            return Ok(Json(HitAnswer { key: (&*key).into(), hits }));
        }
    }
    let mut changes = Changes::default();
    let now = service.now();
    // The change is committed before the first await: a client that disconnects cannot undo it.
    let (outcome, commit) = service.execute_alone(&mut changes, now, |batch: &mut Batch<'_>| {
        batch.hit_with((&key, count.unwrap_or(1), at), (id.as_deref(), member.as_deref()));
    });
    let hits = match outcome {
        Ok(Outcome::Hit(Ok(hits)) | Outcome::Repeated(hits)) => hits,
        Ok(Outcome::Hit(Err(error))) => return Err(Problem::of_hit(&error)),
        Ok(_) => unreachable!("a hit was asked for"),
        Err(refused) => return Err(Problem::of_refused(&refused)),
    };
    service.settled(commit, changes).await.map_err(|refused| Problem::of_refused(&refused))?;
    Ok(Json(HitAnswer { key: (&*key).into(), hits }))
}

/// The distinct members of a key in a window.
#[derive(Serialize, ToSchema)]
pub(super) struct UniqueAnswer {
    #[serde(flatten)]
    key: Key,
    /// The end of the window, in Unix seconds.
    #[schema(value_type = f64)]
    as_of: Number,
    window: String,
    unique: u64,
    lower: u64,
    /// Unknown when the window reaches beyond the retention.
    upper: Option<u64>,
}

/// The distinct members of a key's hits in a window.
#[utoipa::path(
    get, path = "/v1/unique/{key}", tag = "counting",
    params(
        ("key" = String, Path, description = "Up to 1,024 bytes, percent-encoded."),
        ("window" = Option<String>, Query, description = "A duration, such as 5m: the default window of the key."),
    ),
    responses(
        (status = 200, description = "The distinct members: exact up to 100, then estimated.", body = UniqueAnswer),
        (status = 422, description = "Hits of the key have no members.", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn unique(
    State(service): State<Arc<Service>>,
    uri: Uri,
) -> Result<Json<UniqueAnswer>, Problem> {
    let key = key_of(&uri, "/v1/unique/")?;
    let mut query = Query::of(&uri, "window")?;
    let window = query.one("window", parsed)?;
    query.end()?;
    if service.is_loading() {
        return Err(Problem::loading());
    }
    service.known(Asked { key: &key, window, at: None }).await;
    let now = service.now();
    let (window, count) = service.unique(&key, window, now).map_err(|error| Problem::of_hit(&error))?;
    Ok(Json(UniqueAnswer {
        key: (&*key).into(),
        as_of: seconds(now),
        window: window.to_string(),
        unique: count.estimate,
        lower: count.lower,
        upper: count.upper,
    }))
}

/// The hits of a key in windows.
#[utoipa::path(
    get, path = "/v1/hits/{key}", tag = "counting",
    params(
        ("key" = String, Path, description = "Up to 1,024 bytes, percent-encoded."),
        ("window" = Option<Vec<String>>, Query, description = "Durations, such as 5m; each in a parameter of its own."),
        ("at" = Option<f64>, Query, description = "The end of the windows in Unix seconds: now."),
        ("origins" = Option<bool>, Query, description = "Whether to name the nodes that counted the hits."),
    ),
    responses((status = 200, description = "The hits.", body = HitsAnswer)),
)]
pub(super) async fn hits(State(service): State<Arc<Service>>, uri: Uri) -> Result<Json<HitsAnswer>, Problem> {
    let key = key_of(&uri, "/v1/hits/")?;
    let mut query = Query::of(&uri, "window, which may be given several times, at and origins")?;
    let windows = query.all("window", MAX_HTTP_WINDOWS, parsed)?;
    let (at, origins) = (query.time("at")?, query.flag("origins")?);
    query.end()?;
    if service.is_loading() {
        return Err(Problem::loading());
    }
    let asked = Asked { key: &key, window: windows.iter().copied().max(), at };
    service.known(asked).await;
    let now = service.now();
    let answer = |WindowCount { window, count, rate, origins }| WindowAnswer {
        window: window.to_string(),
        hits: count.estimate,
        lower: count.lower,
        upper: count.upper,
        rate,
        origins: origins
            .map(|rows| rows.into_iter().map(|(origin, hits)| OriginAnswer { origin, hits }).collect()),
    };
    // First: what is read meanwhile is newer than the answer says.
    let staleness_ms = service.staleness_ms(asked, now);
    let counts = service.counts(&key, (windows, at), origins, now);
    let windows = counts.into_iter().map(answer).collect();
    Ok(Json(HitsAnswer { key: (&*key).into(), as_of: seconds(at.unwrap_or(now)), staleness_ms, windows }))
}
