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

/// An answer that says what is wrong.
pub(super) fn problem(status: StatusCode, title: &'static str, detail: &dyn std::fmt::Display) -> Response {
    let body = Problem { title, status: status.as_u16(), detail: detail.to_string() };
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}
