//! Counting over HTTP: `POST /v1/hit/{key}` and `GET /v1/hits/{key}`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lately::limits::{MAX_KEY_BYTES, MAX_TOTAL};
use lately::{HitError, Outcome, Span, Timestamp};
use lately_journal::Refused;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::Number;

use super::problem::problem;
use crate::limits::MAX_HTTP_WINDOWS;
use crate::service::Service;
use crate::service::commit::Changes;
use crate::service::response::WindowCount;
use crate::service::{Asked, Batch, code_of};

/// The answer to a request that failed.
pub(super) struct Problem {
    status: StatusCode,
    title: &'static str,
    detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, title: &'static str, detail: &impl ToString) -> Problem {
        Problem { status, title, detail: detail.to_string() }
    }

    fn bad(detail: String) -> Problem {
        Problem { status: StatusCode::BAD_REQUEST, title: "invalid request", detail }
    }

    /// A refused hit. The title is the first word of the error in RESP.
    fn of_hit(error: &HitError) -> Problem {
        let status = match error {
            HitError::KeyLength { .. } => StatusCode::BAD_REQUEST,
            HitError::OutOfMemory { .. } => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Problem::new(status, code_of(error), error)
    }

    fn of_refused(refused: &Refused) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "MISCONF", refused)
    }

    fn loading() -> Problem {
        let detail = "the server is loading its counts: try again in a second";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "LOADING", &detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Problem { status, title, detail } = self;
        let mut response = problem(status, title, &detail);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// The name of a key: `key`, or `key_b64` when it is no UTF-8.
#[derive(Serialize)]
enum Key {
    #[serde(rename = "key")]
    Text(String),
    #[serde(rename = "key_b64")]
    Bytes(String),
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Key {
        match std::str::from_utf8(key) {
            Ok(text) => Key::Text(text.to_owned()),
            Err(_) => Key::Bytes(STANDARD.encode(key)),
        }
    }
}

#[derive(Serialize)]
pub(super) struct HitAnswer {
    #[serde(flatten)]
    key: Key,
    hits: u64,
}

#[derive(Serialize)]
pub(super) struct HitsAnswer {
    #[serde(flatten)]
    key: Key,
    as_of: Number,
    /// How old the hits of other nodes are. `null` when they were never read.
    staleness_ms: Option<i64>,
    windows: Vec<WindowAnswer>,
}

#[derive(Serialize)]
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
#[derive(Serialize)]
struct OriginAnswer {
    origin: Box<str>,
    hits: u64,
}

/// `POST /v1/hit/{key}?n=&at=`
pub(super) async fn hit(State(service): State<Arc<Service>>, uri: Uri) -> Result<Json<HitAnswer>, Problem> {
    let key = key_of(&uri, "/v1/hit/")?;
    let (mut count, mut at) = (None, None);
    for (name, value) in parameters(&uri) {
        match &*name {
            "n" => set_once(&mut count, "n", count_of(&value)?)?,
            "at" => set_once(&mut at, "at", time_of(&value)?)?,
            _ => return Err(unknown(&name, "n and at")),
        }
    }
    if service.is_loading() {
        return Err(Problem::loading());
    }
    let mut changes = Changes::default();
    let now = service.now();
    // The change is committed before the first await: a client that disconnects cannot undo it.
    let (outcome, commit) = service.execute_alone(&mut changes, now, |batch: &mut Batch<'_>| {
        batch.hit(&key, count.unwrap_or(1), at);
    });
    let hits = match outcome {
        Ok(Outcome::Hit(Ok(hits))) => hits,
        Ok(Outcome::Hit(Err(error))) => return Err(Problem::of_hit(&error)),
        Ok(_) => unreachable!("a hit was asked for"),
        Err(refused) => return Err(Problem::of_refused(&refused)),
    };
    service.settled(commit, changes).await.map_err(|refused| Problem::of_refused(&refused))?;
    Ok(Json(HitAnswer { key: (&*key).into(), hits }))
}

/// `GET /v1/hits/{key}?window=&window=&at=&origins=`
pub(super) async fn hits(State(service): State<Arc<Service>>, uri: Uri) -> Result<Json<HitsAnswer>, Problem> {
    let key = key_of(&uri, "/v1/hits/")?;
    let (mut windows, mut at, mut origins) = (Vec::new(), None, None);
    for (name, value) in parameters(&uri) {
        match &*name {
            "window" if windows.len() == MAX_HTTP_WINDOWS => {
                return Err(Problem::bad(format!("window: at most {MAX_HTTP_WINDOWS} in a request")));
            }
            "window" => windows.push(span_of(&value)?),
            "at" => set_once(&mut at, "at", time_of(&value)?)?,
            "origins" => set_once(&mut origins, "origins", flag_of("origins", &value)?)?,
            _ => return Err(unknown(&name, "window, which may be given several times, at and origins")),
        }
    }
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
    let counts = service.counts(&key, (windows, at), origins == Some(true), now);
    let windows = counts.into_iter().map(answer).collect();
    Ok(Json(HitsAnswer { key: (&*key).into(), as_of: seconds(at.unwrap_or(now)), staleness_ms, windows }))
}

/// The key at the end of a path. A slash in it need not be encoded.
pub(super) fn key_of(uri: &Uri, path: &str) -> Result<Vec<u8>, Problem> {
    let text = uri.path().strip_prefix(path).unwrap_or_default();
    let is_escape = |at: usize| {
        text.as_bytes().get(at + 1..at + 3).is_some_and(|it| it.iter().all(u8::is_ascii_hexdigit))
    };
    if let Some((at, _)) = text.match_indices('%').find(|&(at, _)| !is_escape(at)) {
        let wrong = text.get(at..).unwrap_or_default().chars().take(3).collect::<String>();
        return Err(Problem::bad(format!(
            "invalid key: '{}' is no percent-encoded byte, %25 is a percent sign",
            shown(&wrong)
        )));
    }
    let key: Vec<u8> = percent_decode_str(text).collect();
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(Problem::of_hit(&HitError::KeyLength { bytes: key.len() }));
    }
    Ok(key)
}

/// The parameters of a request, decoded.
fn parameters(uri: &Uri) -> impl Iterator<Item = (String, String)> {
    let query = uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).map(|(name, value)| (name.into_owned(), value.into_owned()))
}

fn set_once<T>(place: &mut Option<T>, name: &str, value: T) -> Result<(), Problem> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Problem::bad(format!("{name} is given twice"))),
    }
}

fn unknown(name: &str, known: &str) -> Problem {
    Problem::bad(format!("unknown parameter '{}': this path takes {known}", shown(name)))
}

fn count_of(text: &str) -> Result<u64, Problem> {
    let count = text.parse().ok().filter(|count| *count <= MAX_TOTAL);
    count.ok_or_else(|| {
        Problem::bad(format!("invalid n '{}': n is a whole number from 0 to {MAX_TOTAL}", shown(text)))
    })
}

fn flag_of(name: &str, text: &str) -> Result<bool, Problem> {
    text.parse().map_err(|_| Problem::bad(format!("invalid {name} '{}': give true or false", shown(text))))
}

fn time_of(text: &str) -> Result<Timestamp, Problem> {
    text.parse().map_err(|error| Problem::bad(format!("at: {error}")))
}

fn span_of(text: &str) -> Result<Span, Problem> {
    text.parse().map_err(|error| Problem::bad(format!("window: {error}")))
}

/// Text of a client, as errors show it.
fn shown(text: &str) -> String {
    let most = lately_resp::limits::MAX_ECHOED_BYTES;
    text.chars().take(most).map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect()
}

/// Unix seconds: an integer, or with a fraction.
pub(super) fn seconds(at: Timestamp) -> Number {
    let millis = at.as_millis();
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let fraction = Number::from_f64(millis as f64 / 1_000.0);
    fraction.filter(|_| millis % 1_000 != 0).unwrap_or_else(|| (millis / 1_000).into())
}
