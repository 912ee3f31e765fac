//! Who sends an HTTP request: `Authorization: Basic`, or `Bearer` with the password of the user `default`.
//!
//! A browser with the dashboard has a session instead (`session.rs`). [`log_in`] finds the user before the route is looked up. Each route then checks what that user may do. Without users, the header is
//! not looked at, and every client may do everything.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lately_resp::limits::MAX_ECHOED_BYTES;
use zeroize::Zeroizing;

use super::dumps::discard;
use super::listener::Link;
use super::problem::Problem;
use super::session::token;
use crate::config::DEFAULT_USER;
use crate::service::Service;
use crate::service::access::{Forbidden, Principal};
use crate::service::login::LoginError;

/// The schemes that are accepted. A browser asks for a user and a password.
pub(super) const CHALLENGE: HeaderValue =
    HeaderValue::from_static("Basic realm=\"lately\", charset=\"UTF-8\", Bearer realm=\"lately\"");

/// What the dashboard gets instead: it has a form, and the browser is not to ask, too.
const PAGE_CHALLENGE: HeaderValue = HeaderValue::from_static("Session realm=\"lately\"");

/// Finds the user of a request, and sets the principal of its link. A wrong password is refused here, even where none is needed.
///
/// # Errors
/// Why the request is refused.
pub(super) async fn log_in(service: &Arc<Service>, request: &mut Request) -> Result<(), Problem> {
    let version = service.users.version();
    // Without users, a test or the listener of metrics may have set the principal.
    if service.users.get().is_open() {
        request.extensions_mut().get_mut::<Link>().into_iter().for_each(|link| link.users_version = version);
        return Ok(());
    }
    let credentials = credentials(request.headers()).map_err(unauthorized)?;
    let session = if credentials.is_none() { token(service, request.headers()) } else { None };
    let Some(link) = request.extensions_mut().get_mut::<Link>() else { return Ok(()) };
    (link.users_version, link.session) = (version, session);
    link.principal = match (credentials, session) {
        (None, None) => Principal::Nobody,
        (None, Some(token)) => service.principal_of_session(token, service.now()),
        (Some((user, password)), _) => {
            service.login(user.as_bytes(), &password, &link.caller).await.map_err(|error| match error {
                LoginError::Wrong => unauthorized("the user or the password is wrong"),
                LoginError::Busy => {
                    let detail = "too many logins are waiting: try again later";
                    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &detail)
                }
            })?
        }
    };
    Ok(())
}

/// The dashboard has a form, so its browser does not ask for a password, too.
pub(super) fn challenge_page(response: &mut Response) {
    if let Some(challenge) = response.headers_mut().get_mut(WWW_AUTHENTICATE) {
        *challenge = PAGE_CHALLENGE;
    }
}

/// Reads what is left of the request, so that the client gets the answer.
pub(super) async fn refuse(request: Request, problem: Problem) -> Response {
    let (head, body) = request.into_parts();
    discard(&head.headers, body).await;
    problem.into_response()
}

/// The answer to a request that the client may not send.
pub(super) fn refused(principal: &Principal, forbidden: &Forbidden<impl AsRef<[u8]>>, path: &str) -> Problem {
    let user = principal.name();
    let detail = match forbidden {
        Forbidden::Login => {
            return unauthorized("log in with Basic, or with Bearer and the password of the user default");
        }
        Forbidden::Verb => format!("user {user} has no permissions for {path}"),
        Forbidden::Key(key) => no_key(principal, key.as_ref()),
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
