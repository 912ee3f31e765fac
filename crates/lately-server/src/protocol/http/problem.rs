//! Errors of HTTP: `application/problem+json`, RFC 9457.

use axum::Json;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

#[derive(Serialize)]
struct Problem {
    title: &'static str,
    status: u16,
    detail: String,
}

impl Problem {
    fn new(status: StatusCode, title: &'static str, detail: &dyn std::fmt::Display) -> Problem {
        Problem { title, status: status.as_u16(), detail: detail.to_string() }
    }
}

/// The bytes of such an answer, for a connection that hyper no longer serves.
pub(super) fn raw_problem(
    status: StatusCode,
    title: &'static str,
    detail: &dyn std::fmt::Display,
) -> Vec<u8> {
    let body = serde_json::to_string(&Problem::new(status, title, detail)).unwrap_or_default();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    (head + &body).into_bytes()
}

/// An error answer.
pub(super) fn problem(status: StatusCode, title: &'static str, detail: &dyn std::fmt::Display) -> Response {
    let mut response = (status, Json(Problem::new(status, title, detail))).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}
