//! `/v1/session`: the login of the dashboard. A browser gets a cookie for it, because its stream of events can send no
//! password.
//!
//! The cookie is for requests that read. It is sent by pages of this server only (`SameSite`), and scripts cannot read it.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::State;
use axum::http::header::{ACCEPT, COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use lately_resp::command::Verb;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::decisions::is_trusted;
use super::listener::Link;
use super::login::{refused, unauthorized};
use super::problem::{Document, Problem};
use crate::limits::{MAX_LOGIN_BODY_BYTES, SESSION_LIFE_MS};
use crate::service::Service;
use crate::service::access::Forbidden;
use crate::service::login::LoginError;
use crate::service::sessions::Token;

/// A header of the dashboard: the browser need not ask for a password in a window of its own.
const PAGE: HeaderName = HeaderName::from_static("lately-page");

const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Who looks, and at what.
#[derive(Serialize, ToSchema)]
pub(super) struct SessionAnswer {
    /// The user. `null` when there are no users.
    user: Option<String>,
    reads: Reads,
}

/// The keys that the client may read.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Reads {
    All,
    Some,
    None,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Login {
    user: String,
    password: String,
}

/// Whether the dashboard sent a request. Its stream of events has no other header of its own.
pub(super) fn is_of_page(headers: &HeaderMap) -> bool {
    let is_stream = |accept: &axum::http::HeaderValue| accept == "text/event-stream";
    headers.contains_key(PAGE) || headers.get(ACCEPT).is_some_and(is_stream)
}

/// The name of the cookie. Cookies of a host are sent to all its ports, so each server has a name of its own.
fn cookie_name(service: &Service) -> String {
    format!("lately-session-{}", service.config.http.port())
}

/// The token in the cookie of a request, if it has one.
pub(super) fn token(service: &Service, headers: &HeaderMap) -> Option<Token> {
    let name = cookie_name(service);
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(found, _)| *found == name)?;
    Some(service.token_of(value.as_bytes()))
}

/// The header that sets the cookie, for as long as a session may last, or removes it.
fn cookie(service: &Service, link: &Link, headers: &HeaderMap, text: Option<&str>) -> String {
    let is_forwarded = || {
        let proto = headers.get(FORWARDED_PROTO);
        is_trusted(service, link.peer) && proto.is_some_and(|proto| proto == "https")
    };
    let secure = if service.config.tls.is_some() || is_forwarded() { "; Secure" } else { "" };
    let (text, age_s) = text.map_or(("", 0), |text| (text, SESSION_LIFE_MS / 1_000));
    let name = cookie_name(service);
    format!("{name}={text}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}")
}

/// Who the client is.
#[utoipa::path(
    get, path = "/v1/session", tag = "server",
    responses((status = 200, description = "The user.", body = SessionAnswer)),
)]
pub(super) async fn who(Extension(link): Extension<Link>) -> Result<Json<SessionAnswer>, Problem> {
    let reads = match link.principal.check::<()>(Some(Verb::Read), |_| None) {
        Ok(()) => Reads::All,
        Err(Forbidden::Login) => {
            return Err(refused(&link.principal, &Forbidden::<Vec<u8>>::Login, "/v1/session"));
        }
        Err(Forbidden::AllKeys | Forbidden::Key(())) => Reads::Some,
        Err(Forbidden::Verb) => Reads::None,
    };
    Ok(Json(SessionAnswer { user: link.principal.user().map(|user| user.name.clone()), reads }))
}

/// Logs in. The answer sets a cookie.
#[utoipa::path(
    post, path = "/v1/session", tag = "server",
    request_body(content = Login, content_type = "application/json"),
    responses(
        (status = 204, description = "The session has begun."),
        (status = 409, description = "There are no users: nobody has to log in.", body = Document, content_type = "application/problem+json"),
        (status = 413, description = "The body is too long.", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn begin(
    State(service): State<Arc<Service>>,
    Extension(link): Extension<Link>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    if service.users.get().is_open() {
        let detail = "there are no users: every client may do everything";
        return Err(Problem::new(StatusCode::CONFLICT, "no users", &detail));
    }
    let login = read(body).await?;
    let password = Zeroizing::new(login.password);
    let principal = match service.login(login.user.as_bytes(), password.as_bytes(), &link.caller).await {
        Ok(principal) => principal,
        Err(LoginError::Wrong) => return Err(unauthorized("the user or the password is wrong")),
        Err(LoginError::Busy) => {
            let detail = "too many logins are waiting: try again later";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &detail));
        }
    };
    let Some(user) = principal.user() else {
        return Err(unauthorized("the users have changed: log in again"));
    };
    if let Some(before) = token(&service, &headers) {
        service.end_session(before);
    }
    let text = service.begin_session(user, service.now());
    let cookie = cookie(&service, &link, &headers, Some(&text));
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response())
}

/// Reads the user and the password.
async fn read(body: Body) -> Result<Login, Problem> {
    let too_long = || {
        let detail = format!("a login has at most {MAX_LOGIN_BODY_BYTES} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too long", &detail)
    };
    if body.size_hint().lower() > MAX_LOGIN_BODY_BYTES as u64 {
        return Err(too_long());
    }
    let bytes = axum::body::to_bytes(body, MAX_LOGIN_BODY_BYTES).await.map_err(|_| too_long())?;
    // The error of the parser may have a part of the password.
    let wrong = "give a JSON object with user and password, both text";
    serde_json::from_slice(&bytes).map_err(|_| Problem::bad(wrong.to_owned()))
}

/// Logs out. It is no error if there is no session.
#[utoipa::path(
    delete, path = "/v1/session", tag = "server",
    responses((status = 204, description = "The session has ended.")),
)]
pub(super) async fn end(
    State(service): State<Arc<Service>>,
    Extension(link): Extension<Link>,
    headers: HeaderMap,
) -> Response {
    if let Some(token) = token(&service, &headers) {
        service.end_session(token);
    }
    let cookie = cookie(&service, &link, &headers, None);
    (StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response()
}
