//! `GET /v1/series/{key}`: the hits of a key in each step of a window.

use std::fmt::Write;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use lately::Timestamp;
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use super::listener::Link;
use super::long_body::LongBody;
use super::problem::Problem;
use super::query::{Query, key_of};
use crate::json::{Key, seconds};
use crate::limits::DEFAULT_SERIES_POINTS;
use crate::service::{Asked, SeriesWalk, Service};

/// A series, as it is documented. It is written a slice at a time.
#[derive(ToSchema)]
#[expect(dead_code, reason = "its schema is what counts")]
pub(super) struct SeriesAnswer {
    #[schema(inline)]
    #[serde(flatten)]
    head: SeriesHead,
    points: Vec<SeriesPoint>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "its schema is what counts")]
struct SeriesPoint {
    /// When the step starts, in Unix seconds.
    start: f64,
    hits: u64,
}

/// What comes before the points.
#[derive(Serialize, ToSchema)]
struct SeriesHead {
    #[serde(flatten)]
    key: Key,
    /// The end of the window, in Unix seconds.
    #[schema(value_type = f64)]
    as_of: Number,
    staleness_ms: Option<i64>,
    window: String,
    step: String,
}

/// The hits of a key in each step of a window, oldest first. Without a step there are some 60 points.
#[utoipa::path(
    get, path = "/v1/series/{key}", tag = "counting",
    params(
        ("key" = String, Path, description = "Up to 1,024 bytes, percent-encoded."),
        ("window" = Option<String>, Query, description = "A duration, such as 5m: the default window of the key.", pattern = "^[1-9][0-9]*(ms|s|m|h|d|w)?$"),
        ("step" = Option<String>, Query, description = "A duration, a multiple of the key's resolution: one that gives some 60 points.", pattern = "^[1-9][0-9]*(ms|s|m|h|d|w)?$"),
        ("at" = Option<f64>, Query, description = "The end of the window in Unix seconds: now."),
    ),
    responses((status = 200, description = "The points.", body = SeriesAnswer)),
)]
pub(super) async fn series(
    State(service): State<Arc<Service>>,
    Extension(link): Extension<Link>,
    uri: Uri,
) -> Result<impl IntoResponse, Problem> {
    let key = key_of(&uri, "/v1/series/")?;
    let mut query = Query::of(&uri, "window, step and at")?;
    let (window, step, at) = (query.span("window")?, query.span("step")?, query.time("at")?);
    query.end()?;
    if service.is_loading() {
        return Err(Problem::loading());
    }
    let window = window.unwrap_or_else(|| service.default_window(&key));
    let step = step.unwrap_or_else(|| service.step_of(&key, window, DEFAULT_SERIES_POINTS));
    let asked = Asked { key: &key, window: Some(window), at };
    service.known(asked).await;
    let now = service.now();
    let as_of = at.unwrap_or(now);
    let walk = SeriesWalk::new(&service, &key, (window, step), as_of)
        .map_err(|error| Problem::bad(error.to_string()))?;
    service.note_question(asked, now);
    let head = SeriesHead {
        key: (&*key).into(),
        as_of: seconds(as_of),
        staleness_ms: service.staleness_ms(asked, now),
        window: window.to_string(),
        step: step.to_string(),
    };
    let pieces = Pieces { service: Arc::clone(&service), walk, now, head: Some(head) };
    Ok(answer(pieces, service, link))
}

fn answer(mut pieces: Pieces, service: Arc<Service>, link: Link) -> impl IntoResponse {
    let first = pieces.next().unwrap_or_default();
    // A short answer has a length.
    let body = if pieces.walk.left() == 0 {
        Body::from(first)
    } else {
        Body::new(LongBody::new([first].into_iter().chain(pieces), service, link.pace))
    };
    ([(CONTENT_TYPE, "application/json")], body)
}

/// The text of a series, a slice at a time.
struct Pieces {
    service: Arc<Service>,
    walk: SeriesWalk,
    now: Timestamp,
    /// Until the first piece was made.
    head: Option<SeriesHead>,
}

impl Iterator for Pieces {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let head = self.head.take();
        if head.is_none() && self.walk.left() == 0 {
            return None;
        }
        let mut is_first = head.is_some();
        let mut text = head.map_or(String::new(), |head| {
            let mut text = serde_json::to_string(&head).expect("it has no maps");
            text.truncate(text.len() - 1);
            text + ",\"points\":["
        });
        for point in self.walk.step(&self.service, self.now) {
            let comma = if std::mem::take(&mut is_first) { "" } else { "," };
            write!(text, "{comma}{{\"start\":{},\"hits\":{}}}", seconds(point.start), point.hits)
                .expect("a text takes all");
        }
        if self.walk.left() == 0 {
            text.push_str("]}");
        }
        Some(text)
    }
}
