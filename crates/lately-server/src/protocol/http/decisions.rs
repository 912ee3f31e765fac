//! Limits over HTTP: `POST /v1/limit/{key}`, and `GET /v1/auth` for proxies that ask whether a request may pass.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use lately::{Decision, Factor, Lockout, Retry, Span};
use lately_keys::client_address;
use lately_keys::quota::QUOTA_EXCEEDED;
use serde::Serialize;
use utoipa::ToSchema;

use super::listener::Link;
use super::login::no_key;
use super::problem::{Document, Problem};
use super::query::{Query, checked, key_of, missing, parsed, shown};
use super::quota::Quota;
use crate::config::{Deny, KeyTemplate, NamedLimit};
use crate::json::Key;
use crate::service::named_limits::Rules;
use crate::service::{LimitRequest, Limiting, Service};

/// The path that proxies ask.
pub(super) const AUTH: &str = "/v1/auth";

/// The header to which each proxy adds the address of its peer.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The decision of a limit.
#[derive(Serialize, ToSchema)]
pub(super) struct LimitAnswer {
    #[serde(flatten)]
    key: Key,
    #[serde(flatten)]
    decision: DecisionAnswer,
}

#[derive(Serialize, ToSchema)]
pub(super) struct DecisionAnswer {
    allowed: bool,
    max: u64,
    /// Below 0 for an overdraft: how many hits are too many.
    remaining: i64,
    /// 0 when the request is allowed, `null` when it never will be.
    retry_after_ms: Option<i64>,
    reset_after_ms: i64,
}

/// A denial: a problem document with the decision.
#[derive(Serialize, ToSchema)]
pub(super) struct Denial<A> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(rename = "violated-policies")]
    violated_policies: [String; 1],
    #[serde(flatten)]
    answer: A,
}

/// What a denial tells the clients of a proxy: nothing about the key.
#[derive(Serialize, ToSchema)]
struct Nothing {}

impl From<&Decision> for DecisionAnswer {
    fn from(decision: &Decision) -> DecisionAnswer {
        DecisionAnswer {
            allowed: decision.is_allowed(),
            max: decision.max,
            remaining: decision.remaining,
            retry_after_ms: match decision.retry {
                Retry::Now => Some(0),
                Retry::After(wait) => Some(wait.as_millis()),
                Retry::Never => None,
            },
            reset_after_ms: decision.reset_after.map_or(0, Span::as_millis),
        }
    }
}

/// The limit that a query names.
enum Named<'u> {
    Config(Arc<Rules>, Cow<'u, [u8]>),
    Given { max: u64, window: Span, lockout: Option<Lockout>, is_overdraft: bool },
}

impl<'u> Named<'u> {
    /// Takes `limit`, or `max`, `window`, `overdraft` and the lockouts.
    fn take(query: &mut Query<'u>, service: &Service) -> Result<Named<'u>, Problem> {
        let (max, window, overdraft) =
            (query.count("max")?, query.span("window")?, query.switch("overdraft")?);
        let lockout = take_lockout(query)?;
        match (query.bytes("limit")?, max, window) {
            (Some(name), None, None) if lockout.is_none() && overdraft.is_none() => {
                Ok(Named::Config(service.rules.get(), name))
            }
            (Some(_), ..) => {
                let detail = "limit takes max, window, lockout and overdraft from the config: give the one or the others";
                Err(Problem::bad(detail.to_owned()))
            }
            (None, Some(max), Some(window)) => {
                Ok(Named::Given { max, window, lockout, is_overdraft: overdraft.unwrap_or_default() })
            }
            (None, None, Some(_)) => Err(missing("max")),
            (None, Some(_), None) => Err(missing("window")),
            (None, None, None) => Err(missing("limit, or max and window,")),
        }
    }

    fn limiting(&self) -> Limiting<'_> {
        match self {
            Named::Config(rules, name) => Limiting::Named(rules, name),
            &Named::Given { max, window, lockout, is_overdraft } => {
                Limiting::Given { max, window, lockout, is_overdraft }
            }
        }
    }

    /// The limit, if it is named in the config.
    fn config(&self) -> Result<Option<&NamedLimit>, Problem> {
        match self {
            Named::Given { .. } => Ok(None),
            Named::Config(rules, name) => match rules.find(name) {
                Some(number) => Ok(Some(&rules.rule(number).limit)),
                None => Err(Problem::bad(rules.unknown(name))),
            },
        }
    }
}

/// Takes the lockouts of a query.
fn take_lockout(query: &mut Query<'_>) -> Result<Option<Lockout>, Problem> {
    let (first, longest) = (query.span("lockout")?, query.span("lockout_max")?);
    let factor: Option<Factor> = query.one("lockout_factor", parsed)?;
    let growth = factor.map(|_| "lockout_factor").or(longest.map(|_| "lockout_max"));
    match (first, growth) {
        (None, Some(name)) => Err(Problem::bad(format!("{name} goes with lockout, which is missing"))),
        (None, None) => Ok(None),
        (Some(first), None) => Ok(Some(Lockout::of(first))),
        (Some(first), Some(_)) => Lockout::growing(first, factor.unwrap_or(Factor::ONE), longest)
            .map(Some)
            .map_err(|error| Problem::bad(error.to_string())),
    }
}

/// Decides whether hits stay within a limit, and counts them if so.
///
/// The limit is `max` hits in any `window`, or `limit`, the name of one in the config.
#[utoipa::path(
    post, path = "/v1/limit/{key}", tag = "limits",
    params(
        ("key" = String, Path, description = "Up to 1,024 bytes, percent-encoded."),
        ("limit" = Option<String>, Query, description = "The name of a limit in the config."),
        ("max" = Option<i64>, Query, minimum = 0, description = "The most hits in any window."),
        ("window" = Option<String>, Query, description = "A duration, such as 5m.", pattern = "^[1-9][0-9]*(ms|s|m|h|d|w)?$"),
        ("lockout" = Option<String>, Query, description = "How long every request is denied after a denial.", pattern = "^[1-9][0-9]*(ms|s|m|h|d|w)?$"),
        ("lockout_factor" = Option<f64>, Query, minimum = 1, description = "Each further lockout of the key is this many times as long as the last: 1."),
        ("lockout_max" = Option<String>, Query, description = "The longest lockout: 1d, or lockout if that is longer.", pattern = "^[1-9][0-9]*(ms|s|m|h|d|w)?$"),
        ("overdraft" = Option<bool>, Query, description = "Allow while there is room for one hit, and count the whole cost."),
        ("cost" = Option<i64>, Query, description = "Hits that the request takes: 1. Below 0, hits are given back."),
        ("peek" = Option<bool>, Query, description = "Decide only, and count nothing."),
        ("at" = Option<f64>, Query, description = "The time of the request in Unix seconds: now."),
    ),
    responses(
        (status = 200, description = "It is allowed.", body = LimitAnswer),
        (status = 429, description = "It is denied.", body = Denial<LimitAnswer>, content_type = "application/problem+json"),
        (status = 422, description = "The time is too old or too far ahead.", body = Document, content_type = "application/problem+json"),
        (status = 507, description = "The memory ceiling is reached.", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn limit(State(service): State<Arc<Service>>, uri: Uri) -> Result<Response, Problem> {
    let key = key_of(&uri, "/v1/limit/")?;
    let mut query = Query::of(
        &uri,
        "max and window, or limit; cost, peek, overdraft, lockout, lockout_factor, lockout_max and at",
    )?;
    let named = Named::take(&mut query, &service)?;
    let (cost, is_peek, at) =
        (query.signed_count("cost")?.unwrap_or(1), query.flag("peek")?, query.time("at")?);
    query.end()?;
    let name = named.config()?.map(|limit| limit.name.as_str());
    if service.is_loading() {
        return Err(Problem::loading());
    }
    let request = LimitRequest { key: &key, limit: named.limiting(), cost, at, is_peek, address: None };
    let decided = service.decide(&request).await?;
    let quota = Quota::new(name, &decided);
    let answer = LimitAnswer { key: (&*key).into(), decision: (&decided.decision).into() };
    let mut response = if decided.decision.is_allowed() {
        Json(answer).into_response()
    } else {
        denial(StatusCode::TOO_MANY_REQUESTS, &quota, &decided.decision, answer)
    };
    quota.add_to(response.headers_mut(), service.config.ratelimit_headers);
    Ok(response)
}

/// Decides whether a request to another server may pass, for proxies.
///
/// The key is made from the headers of that request by `key` of the limit, unless it is given.
#[utoipa::path(
    get, path = "/v1/auth", tag = "limits",
    params(
        ("limit" = Option<String>, Query, description = "The name of a limit in the config."),
        ("key" = Option<String>, Query, description = "The key: that of the limit's template."),
        ("max" = Option<i64>, Query, minimum = 0, description = "The most hits in any window."),
        ("window" = Option<String>, Query, description = "A duration, such as 5m.", pattern = "^[1-9][0-9]*(ms|s|m|h|d|w)?$"),
        ("lockout" = Option<String>, Query, description = "How long every request is denied after a denial.", pattern = "^[1-9][0-9]*(ms|s|m|h|d|w)?$"),
        ("lockout_factor" = Option<f64>, Query, minimum = 1, description = "Each further lockout of the key is this many times as long as the last: 1."),
        ("lockout_max" = Option<String>, Query, description = "The longest lockout: 1d, or lockout if that is longer.", pattern = "^[1-9][0-9]*(ms|s|m|h|d|w)?$"),
        ("overdraft" = Option<bool>, Query, description = "Allow while there is room for one hit, and count the whole cost."),
        ("cost" = Option<i64>, Query, minimum = 0, description = "Hits that the request takes: 1."),
        ("deny" = Option<i64>, Query, description = "The status of a denial, 403 or 429: that of the limit."),
        ("x-forwarded-for" = Option<String>, Header, description = "Addresses of the client and of proxies. Believed from trusted proxies only."),
    ),
    responses(
        (status = 204, description = "It may pass."),
        (status = 403, description = "It is denied, or the client may not ask.", body = Denial<Nothing>, content_type = "application/problem+json"),
        (status = 429, description = "It is denied.", body = Denial<Nothing>, content_type = "application/problem+json"),
        (status = 422, description = "It cannot be counted.", body = Document, content_type = "application/problem+json"),
        (status = 507, description = "The memory ceiling is reached.", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn auth(
    State(service): State<Arc<Service>>,
    Extension(link): Extension<Link>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut query = Query::of(
        &uri,
        "limit, or key, max and window; cost, overdraft, lockout, lockout_factor, lockout_max and deny",
    )?;
    let named = Named::take(&mut query, &service)?;
    let cost = query.count("cost")?.unwrap_or(1).cast_signed();
    let deny = query.one("deny", |_, text| {
        let wrong = || format!("invalid deny '{}': give 403 (for nginx) or 429", shown(text));
        Deny::of_code(text).ok_or_else(|| Problem::bad(wrong()))
    })?;
    let key = query.bytes("key")?;
    query.end()?;
    let limit = named.config()?;
    let deny = deny.or(limit.map(|limit| limit.deny)).unwrap_or_default();
    let (key, address) = match (key, limit) {
        (Some(key), _) => {
            if KeyTemplate::is_one(&key) {
                return Err(Problem::bad(format!(
                    "invalid key '{}': a template works in `key` of a [[limit]] only: write it there, and give limit=NAME in place of key",
                    shown(&String::from_utf8_lossy(&key))
                )));
            }
            (checked(key)?, None)
        }
        (None, Some(NamedLimit { key: Some(template), prefix, .. })) => {
            let forwarded = Forwarded { service: &service, peer: link.peer, headers: &headers };
            forwarded.check(template)?;
            let header = |name: &HeaderName| forwarded.header(name);
            let client = forwarded.client();
            let address = template.address(*prefix, client, header);
            (checked(template.key(*prefix, client, header).into())?, Some(address))
        }
        (None, Some(limit)) => {
            return Err(Problem::bad(format!(
                "key is missing: the limit '{}' has none in the config",
                limit.name
            )));
        }
        (None, None) => return Err(missing("key")),
    };
    if !link.principal.has_key(&key) {
        let forbidden = no_key(&link.principal, &key);
        return Err(Problem::new(StatusCode::FORBIDDEN, "NOPERM", &forbidden));
    }
    if service.is_loading() {
        return Err(Problem::loading());
    }
    let address = address.as_deref();
    let request =
        LimitRequest { key: &key, limit: named.limiting(), cost, at: None, is_peek: false, address };
    let decided = service.decide(&request).await?;
    let quota = Quota::new(limit.map(|limit| limit.name.as_str()), &decided);
    let mut response = if decided.decision.is_allowed() {
        StatusCode::NO_CONTENT.into_response()
    } else {
        let status = StatusCode::from_u16(deny.code()).expect("403 or 429");
        denial(status, &quota, &decided.decision, Nothing {})
    };
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    quota.add_to(response.headers_mut(), service.config.ratelimit_headers);
    Ok(response)
}

fn denial(status: StatusCode, quota: &Quota<'_>, decision: &Decision, answer: impl Serialize) -> Response {
    let detail = match decision.retry {
        Retry::After(wait) => format!("the limit is reached: retry after {wait}"),
        Retry::Now | Retry::Never => "the request costs more than the limit allows at once".to_owned(),
    };
    let denial = Denial {
        kind: QUOTA_EXCEEDED,
        title: "quota exceeded",
        status: status.as_u16(),
        detail,
        violated_policies: [quota.name().to_owned()],
        answer,
    };
    let mut response = (status, Json(denial)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

/// The request of another server that a proxy asks about.
struct Forwarded<'r> {
    service: &'r Service,
    peer: IpAddr,
    headers: &'r HeaderMap,
}

impl<'r> Forwarded<'r> {
    /// The address of the client.
    fn client(&self) -> IpAddr {
        let forwarded: Vec<_> = self.headers.get_all(FORWARDED_FOR).iter().collect();
        let trusted = &self.service.config.trusted_proxies;
        client_address(self.peer, trusted, forwarded.iter().map(|value| value.as_bytes()))
    }

    /// All values of a header. They form one list.
    fn header(&self, name: &HeaderName) -> Option<Cow<'r, [u8]>> {
        let mut values = self.headers.get_all(name).iter().map(HeaderValue::as_bytes);
        let first = values.next()?;
        let with = |all: Cow<'r, [u8]>, value: &[u8]| Cow::Owned([&*all, b", ", value].concat());
        Some(values.fold(Cow::Borrowed(first), with))
    }

    /// Refuses a key with headers that the peer may have forged.
    fn check(&self, template: &KeyTemplate) -> Result<(), Problem> {
        if !template.has_headers() || is_trusted(self.service, self.peer) {
            return Ok(());
        }
        let detail = format!(
            "the key '{template}' has headers, and {} is no proxy whose headers are believed: if it is one, add it to trusted_proxies in [server] of the config",
            self.peer
        );
        Err(Problem::new(StatusCode::FORBIDDEN, "untrusted peer", &detail))
    }
}

/// Whether a peer is one of the trusted proxies.
pub(super) fn is_trusted(service: &Service, peer: IpAddr) -> bool {
    service.config.trusted_proxies.iter().any(|network| network.contains_address(peer))
}
