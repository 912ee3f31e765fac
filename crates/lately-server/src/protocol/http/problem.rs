//! Errors of HTTP: `application/problem+json`, RFC 9457.

use crate::service::Refused;
use axum::Json;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use lately::{HitError, LimitError};
use serde::Serialize;
use utoipa::ToSchema;

use super::login::CHALLENGE;
use crate::service::owners::{ARGUMENT, TRY_AGAIN};
use crate::service::{DecideError, code_of};

/// The body of an error.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct Document {
    title: &'static str,
    status: u16,
    detail: String,
}

impl Document {
    fn new(status: StatusCode, title: &'static str, detail: &dyn std::fmt::Display) -> Document {
        Document { title, status: status.as_u16(), detail: detail.to_string() }
    }
}

/// The bytes of such an answer, for a connection that hyper no longer serves.
pub(super) fn raw_problem(
    status: StatusCode,
    title: &'static str,
    detail: &dyn std::fmt::Display,
) -> Vec<u8> {
    let body = serde_json::to_string(&Document::new(status, title, detail)).unwrap_or_default();
    let length = body.len();
    let retry = if status == StatusCode::SERVICE_UNAVAILABLE { "retry-after: 1\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\n{retry}connection: close\r\n\r\n"
    );
    (head + &body).into_bytes()
}

/// An error answer.
pub(super) fn problem(status: StatusCode, title: &'static str, detail: &dyn std::fmt::Display) -> Response {
    let mut response = (status, Json(Document::new(status, title, detail))).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

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

    /// The same with more in its detail.
    pub(super) fn and(mut self, more: &str) -> Problem {
        self.detail = format!("{}; {more}", self.detail);
        self
    }

    pub(super) fn bad(detail: String) -> Problem {
        Problem { status: StatusCode::BAD_REQUEST, title: "invalid request", detail }
    }

    /// A refused hit. The title is the first word of the error in RESP.
    pub(super) fn of_hit(error: &HitError) -> Problem {
        let status = match error {
            HitError::KeyLength { .. }
            | HitError::Reserved { .. }
            | HitError::IdLength { .. }
            | HitError::MemberLength { .. } => StatusCode::BAD_REQUEST,
            HitError::OutOfMemory { .. } => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Problem::new(status, code_of(error), error)
    }

    pub(super) fn of_refused(refused: &Refused) -> Problem {
        let status = match refused {
            Refused::Never(_) => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Problem::new(status, refused.code(), refused)
    }

    pub(super) fn loading() -> Problem {
        let detail = "the server is loading its counts: try again in a second";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "LOADING", &detail)
    }
}

impl From<DecideError> for Problem {
    fn from(error: DecideError) -> Problem {
        let cause = match &error {
            DecideError::Refused(refused) => return Problem::of_refused(refused),
            DecideError::Limit(LimitError::Hit(hit)) => return Problem::of_hit(hit),
            DecideError::Owner { code, error: cause } => {
                let status = match *code {
                    ARGUMENT => return Problem::bad(cause.clone()),
                    "OOM" => StatusCode::INSUFFICIENT_STORAGE,
                    "MISCONF" | TRY_AGAIN => StatusCode::SERVICE_UNAVAILABLE,
                    _ => StatusCode::UNPROCESSABLE_ENTITY,
                };
                return Problem::new(status, code, cause);
            }
            DecideError::Limit(error) => error.to_string(),
            DecideError::Unknown(text) | DecideError::Refund(text) => text.clone(),
        };
        Problem::bad(cause)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Problem { status, title, detail } = self;
        let mut response = problem(status, title, &detail);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, CHALLENGE);
        }
        response
    }
}
