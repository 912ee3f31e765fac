//! Who sends an HTTP request: `Authorization: Basic`, or `Bearer` with the password of the user `default`.
//!
//! A browser with the dashboard has a session instead (`session.rs`). A layer around all routes finds the user. Each route then checks what that user may do. Without users, the header is
//! not looked at, and every client may do everything.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lately_resp::limits::MAX_ECHOED_BYTES;
use zeroize::Zeroizing;

use super::dumps::discard;
use super::listener::Link;
use super::problem::Problem;
use super::session::{is_of_page, token};
use crate::config::DEFAULT_USER;
use crate::service::Service;
use crate::service::access::{Forbidden, Principal};
use crate::service::login::LoginError;

/// The schemes that are accepted. A browser asks for a user and a password.
pub(super) const CHALLENGE: HeaderValue =
    HeaderValue::from_static("Basic realm=\"lately\", charset=\"UTF-8\", Bearer realm=\"lately\"");

/// What the dashboard gets instead: it has a form, and the browser is not to ask, too.
const PAGE_CHALLENGE: HeaderValue = HeaderValue::from_static("Session realm=\"lately\"");

/// Sets the principal of the connection for this request. A wrong password is refused here, even where none is needed.
pub(super) async fn log_in(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let is_of_page = is_of_page(request.headers());
    let mut response = log_in_and_run(service, request, next).await;
    if is_of_page && let Some(challenge) = response.headers_mut().get_mut(WWW_AUTHENTICATE) {
        *challenge = PAGE_CHALLENGE;
    }
    response
}

async fn log_in_and_run(service: Arc<Service>, mut request: Request, next: Next) -> Response {
    let Some(mut link) = request.extensions().get::<Link>().cloned() else { return next.run(request).await };
    link.users_version = service.users.version();
    // A test or the listener of metrics may have set it.
    if service.users.get().is_open() {
        request.extensions_mut().insert(link);
        return next.run(request).await;
    }
    let credentials = match credentials(request.headers()) {
        Ok(credentials) => credentials,
        Err(why) => return refuse(request, unauthorized(why)).await,
    };
    link.principal = match credentials {
        None => match token(&service, request.headers()) {
            None => Principal::Nobody,
            Some(token) => {
                link.session = Some(token);
                service.principal_of_session(token, service.now())
            }
        },
        Some((user, password)) => match service.login(user.as_bytes(), &password, &link.caller).await {
            Ok(principal) => principal,
            Err(LoginError::Wrong) => {
                return refuse(request, unauthorized("the user or the password is wrong")).await;
            }
            Err(LoginError::Busy) => {
                let detail = "too many logins are waiting: try again later";
                return refuse(request, Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &detail)).await;
            }
        },
    };
    request.extensions_mut().insert(link);
    next.run(request).await
}

/// Reads what is left of the request, so that the client gets the answer.
async fn refuse(request: Request, problem: Problem) -> Response {
    let (head, body) = request.into_parts();
    discard(&head.headers, body).await;
    problem.into_response()
}

/// The answer to a request that the client may not send.
pub(super) fn refused(principal: &Principal, forbidden: &Forbidden<Vec<u8>>, path: &str) -> Problem {
    let user = principal.name();
    let detail = match forbidden {
        Forbidden::Login => {
            return unauthorized("log in with Basic, or with Bearer and the password of the user default");
        }
        Forbidden::Verb => format!("user {user} has no permissions for {path}"),
        Forbidden::Key(key) => no_key(principal, key),
        Forbidden::AllKeys => format!("user {user} has no permissions for {path} on all keys"),
    };
    Problem::new(StatusCode::FORBIDDEN, "NOPERM", &detail)
}

/// Why a key is refused.
pub(in crate::protocol) fn no_key(principal: &Principal, key: &[u8]) -> String {
    let (user, key) = (principal.name(), &key[..key.len().min(MAX_ECHOED_BYTES)]);
    format!("user {user} has no permissions to access the key '{}'", String::from_utf8_lossy(key))
}

/// The answer to a client that has to log in.
pub(super) fn unauthorized(why: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", &why)
}

pub(in crate::protocol) type Credentials = (String, Zeroizing<Vec<u8>>);

/// The user and the password of a request, if it has any.
pub(in crate::protocol) fn credentials(headers: &HeaderMap) -> Result<Option<Credentials>, &'static str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        return Err("there are two Authorization headers");
    }
    let value = value.as_bytes();
    let space = value.iter().position(|&byte| byte == b' ').ok_or("Authorization has no credentials")?;
    let (scheme, rest) = (&value[..space], value[space..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Ok(Some((DEFAULT_USER.to_owned(), Zeroizing::new(rest.to_vec()))));
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return Err("Authorization is neither Basic nor Bearer");
    }
    let invalid = "the credentials of Basic are invalid: they are user:password in Base64";
    let decoded = Zeroizing::new(BASE64_STANDARD.decode(rest).map_err(|_| invalid)?);
    let colon = decoded.iter().position(|&byte| byte == b':').ok_or(invalid)?;
    let user = std::str::from_utf8(&decoded[..colon]).map_err(|_| invalid)?;
    // As in Redis, no user is the user default.
    let user = if user.is_empty() { DEFAULT_USER } else { user };
    Ok(Some((user.to_owned(), Zeroizing::new(decoded[colon + 1..].to_vec()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_basic_or_bearer() {
        let check = |values: &[&str], expected: Result<Option<(&str, &str)>, &str>| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().expect("a value"));
            }
            let found = credentials(&headers);
            let found = found.as_ref().map(|found| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                found.as_ref().map(|(user, password)| (user.clone(), text(password)))
            });
            let expected =
                expected.map(|it| it.map(|(user, password)| (user.to_owned(), password.to_owned())));
            assert_eq!(found.map_err(|why| *why), expected, "{values:?}");
        };
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        check(&[], Ok(None));
        check(&[&basic("web:secret")], Ok(Some(("web", "secret"))));
        check(&[&basic("web:")], Ok(Some(("web", ""))));
        check(&[&basic(":a:b")], Ok(Some(("default", "a:b"))));
        check(&["basic  d2ViOnNlY3JldA== "], Ok(Some(("web", "secret"))));
        check(&["Bearer secret"], Ok(Some(("default", "secret"))));
        check(&["bearer  a b "], Ok(Some(("default", "a b"))));
        let invalid = "the credentials of Basic are invalid: they are user:password in Base64";
        check(&[&basic("web")], Err(invalid));
        check(&["Basic web:secret"], Err(invalid));
        check(&["Basic"], Err("Authorization has no credentials"));
        check(&["Digest a"], Err("Authorization is neither Basic nor Bearer"));
        check(&["Bearer a", "Bearer a"], Err("there are two Authorization headers"));
    }
}
