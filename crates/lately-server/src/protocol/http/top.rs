//! `GET /v1/top`: the keys with the most hits.

use std::borrow::Cow;
use std::sync::Arc;
use std::vec;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use lately::limits::MAX_KEY_BYTES;
use lately_resp::limits::MAX_TOP_KEYS;
use lately_resp::parse_integer;
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use super::listener::Link;
use super::long_body::LongBody;
use super::problem::Problem;
use super::query::{Query, shown};
use crate::json::{Key, seconds};
use crate::limits::{DEFAULT_TOP_KEYS, TOP_PIECE_BYTES};
use crate::service::{Held, NoRoom, Service, TopQuestion, TopRow};

/// The most-hit keys, as they are documented. They are written a piece at a time.
#[derive(ToSchema)]
#[expect(dead_code, reason = "its schema is what counts")]
pub(super) struct TopAnswer {
    #[schema(inline)]
    #[serde(flatten)]
    head: TopHead,
    /// Most hits first, those with equal hits by key. Keys without hits are left out.
    keys: Vec<TopKeyAnswer>,
}

/// What comes before the keys.
#[derive(Serialize, ToSchema)]
pub(super) struct TopHead {
    /// The end of the window, in Unix seconds.
    #[schema(value_type = f64)]
    pub(super) as_of: Number,
    /// The most hits that any other key can have. `null` when the window reaches beyond a retention.
    pub(super) others_upper: Option<u64>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct TopKeyAnswer {
    #[serde(flatten)]
    key: Key,
    window: String,
    hits: u64,
    lower: u64,
    /// Unknown when the window reaches beyond the retention.
    upper: Option<u64>,
    /// Hits per second.
    rate: f64,
}

impl From<&TopRow> for TopKeyAnswer {
    fn from(row: &TopRow) -> TopKeyAnswer {
        let &TopRow { ref key, window, hits, lower, upper, rate } = row;
        TopKeyAnswer { key: (&**key).into(), window: window.to_string(), hits, lower, upper, rate }
    }
}

/// The keys with the most hits in a window. It walks over all keys.
#[utoipa::path(
    get, path = "/v1/top", tag = "counting",
    params(
        ("k" = Option<i64>, Query, minimum = 0, maximum = 10000, description = "The number of keys: 10."),
        ("window" = Option<String>, Query, description = "A duration, such as 5m: the default window of each key.", pattern = "^[1-9][0-9]*(ms|s|m|h|d|w)?$"),
        ("prefix" = Option<String>, Query, description = "Only keys that begin with this, percent-encoded."),
    ),
    responses((status = 200, description = "The keys.", body = TopAnswer)),
)]
pub(super) async fn top(
    State(service): State<Arc<Service>>,
    Extension(link): Extension<Link>,
    uri: Uri,
) -> Result<impl IntoResponse, Problem> {
    let mut query = Query::of(&uri, "k, window and prefix")?;
    let count = query.one("k", count_of)?.unwrap_or(DEFAULT_TOP_KEYS);
    let window = query.span("window")?;
    let prefix = query.bytes("prefix")?.map(prefix_of).transpose()?.unwrap_or_default();
    query.end()?;
    if service.is_loading() {
        return Err(Problem::loading());
    }
    let (keys, held) = service.top(TopQuestion { count, window, prefix: &prefix, pattern: None }).await?;
    let head = TopHead { as_of: seconds(keys.as_of), others_upper: keys.others_upper };
    let mut pieces = Pieces { head: Some(head), rows: keys.rows.into_iter(), _held: held };
    let first = pieces.next().unwrap_or_default();
    // A short answer has a length.
    let body = if pieces.rows.len() == 0 {
        Body::from(first)
    } else {
        Body::new(LongBody::new([first].into_iter().chain(pieces), service, link.pace))
    };
    Ok(([(CONTENT_TYPE, "application/json")], body))
}

fn count_of(name: &str, text: &str) -> Result<usize, Problem> {
    let count = parse_integer(text.as_bytes()).and_then(|count| usize::try_from(count).ok());
    count.filter(|count| *count <= MAX_TOP_KEYS).ok_or_else(|| {
        let text = shown(text);
        Problem::bad(format!("invalid {name} '{text}': give how many keys are wanted, 0 to {MAX_TOP_KEYS}"))
    })
}

fn prefix_of(prefix: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, Problem> {
    if prefix.is_empty() || prefix.len() > MAX_KEY_BYTES {
        let text = shown(&String::from_utf8_lossy(&prefix));
        return Err(Problem::bad(format!(
            "invalid prefix '{text}': give 1 to {MAX_KEY_BYTES} bytes that keys begin with"
        )));
    }
    Ok(prefix)
}

impl From<NoRoom> for Problem {
    fn from(_: NoRoom) -> Problem {
        let detail = "other answers take the memory for this one: try again, or ask for fewer keys";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "OOM", &detail)
    }
}

/// The text of the answer, a piece at a time.
struct Pieces {
    /// Until the first piece was made.
    head: Option<TopHead>,
    rows: vec::IntoIter<TopRow>,
    _held: Held,
}

impl Iterator for Pieces {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut is_first = false;
        if let Some(head) = self.head.take() {
            text = serde_json::to_string(&head).expect("it has no maps");
            text.truncate(text.len() - 1);
            text += ",\"keys\":[";
            is_first = true;
        } else if self.rows.len() == 0 {
            return None;
        }
        while text.len() < TOP_PIECE_BYTES
            && let Some(row) = self.rows.next()
        {
            text += if std::mem::take(&mut is_first) { "" } else { "," };
            text += &serde_json::to_string(&TopKeyAnswer::from(&row)).expect("it has no maps");
        }
        if self.rows.len() == 0 {
            text += "]}";
        }
        Some(text)
    }
}
