//! What clients get: headers about the limits, and an answer when a request is not let through.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use lately::{Retry, Span};
use lately_keys::quota::{QUOTA_EXCEEDED, QuotaItem, whole_seconds};

use crate::body::LimitBody;
use crate::decider::Quota;
use crate::error::DecideError;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The values of `RateLimit-Policy` and `RateLimit`.
pub(crate) struct Fields {
    policy: HeaderValue,
    remaining: HeaderValue,
}

impl Fields {
    /// `None` if no limit applies.
    pub(crate) fn of(quotas: &[Quota<'_>]) -> Option<Fields> {
        if quotas.is_empty() {
            return None;
        }
        let (mut policy, mut remaining) = (String::new(), String::with_capacity(32 * quotas.len()));
        for (index, quota) in quotas.iter().enumerate() {
            if index > 0 {
                policy.push_str(", ");
                remaining.push_str(", ");
            }
            let item = QuotaItem {
                remaining: quota.remaining,
                more_after_ms: match quota.retry {
                    Retry::After(wait) => Some(wait.as_millis()),
                    Retry::Now | Retry::Never => quota.more_after.map(Span::as_millis),
                },
                ..quota.rule.item()
            };
            item.add_remaining(&mut remaining);
            if quotas.len() > 1 {
                item.add_policy(&mut policy);
            }
        }
        let value = |text: String| HeaderValue::try_from(text).expect("names are letters and digits");
        let policy = match quotas {
            [only] => only.rule.policy.clone(),
            _ => value(policy),
        };
        Some(Fields { policy, remaining: value(remaining) })
    }

    /// Adds the headers. An inner layer may have added its own: both are lists.
    pub(crate) fn add_to(self, headers: &mut HeaderMap) {
        headers.append(POLICY, self.policy);
        headers.append(REMAINING, self.remaining);
    }
}

/// The answer to a request that is not let through.
pub(crate) struct Refusal {
    status: StatusCode,
    grpc_status: u8,
    kind: Option<&'static str>,
    title: &'static str,
    detail: String,
    /// Names of the limits that denied it.
    violated: Vec<String>,
    retry_s: Option<i64>,
    fields: Option<Fields>,
}

impl Refusal {
    /// At least one limit denies the request.
    pub(crate) fn denied(quotas: &[Quota<'_>], fields: Option<Fields>) -> Refusal {
        let denying = || quotas.iter().filter(|quota| quota.is_denial());
        let waits = denying().map(|quota| match quota.retry {
            Retry::After(wait) => Some(wait),
            Retry::Now | Retry::Never => None,
        });
        // All of them must allow it.
        let wait = waits.reduce(|a, b| Some(a?.max(b?))).flatten();
        Refusal {
            status: StatusCode::TOO_MANY_REQUESTS,
            grpc_status: 8,
            kind: Some(QUOTA_EXCEEDED),
            title: "quota exceeded",
            detail: match wait {
                Some(wait) => format!("the limit is reached: retry after {wait}"),
                None => "the limit allows no requests".to_owned(),
            },
            violated: denying().map(|quota| quota.rule.name.clone()).collect(),
            retry_s: wait.map(|wait| whole_seconds(wait.as_millis())),
            fields,
        }
    }

    pub(crate) fn of(error: &DecideError) -> Refusal {
        let (status, grpc_status, title, detail) = match error {
            DecideError::NoPeer => {
                (StatusCode::INTERNAL_SERVER_ERROR, 13, "internal error", error.to_string())
            }
            DecideError::KeyLength { .. } => {
                (StatusCode::BAD_REQUEST, 3, "invalid request", error.to_string())
            }
            // The cause is for the operator.
            _ => {
                let detail = "the limits cannot be checked now: try again in a second".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, 14, "service unavailable", detail)
            }
        };
        let retry_s = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        Refusal { status, grpc_status, kind: None, title, detail, violated: vec![], retry_s, fields: None }
    }

    /// The response: a problem document, or a status of gRPC.
    pub(crate) fn into_response<B>(self, is_grpc: bool) -> Response<LimitBody<B>> {
        let body = if is_grpc { String::new() } else { self.problem() };
        let mut response = Response::new(LimitBody::text(body));
        let headers = response.headers_mut();
        if is_grpc {
            // Errors of gRPC have the HTTP status 200.
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(self.grpc_status)));
            if let Ok(message) = HeaderValue::try_from(&self.detail) {
                headers.insert(GRPC_MESSAGE, message);
            }
        } else {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        }
        if let Some(retry_s) = self.retry_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(retry_s));
        }
        if let Some(fields) = self.fields {
            fields.add_to(headers);
        }
        if !is_grpc {
            *response.status_mut() = self.status;
        }
        response
    }

    /// The problem document (RFC 9457). Nothing in it needs to be escaped: names of limits are letters and digits, and the
    /// other texts are ours.
    fn problem(&self) -> String {
        let Refusal { title, detail, .. } = self;
        let kind = self.kind.map_or(String::new(), |kind| format!("\"type\":\"{kind}\","));
        let status = self.status.as_u16();
        let violated = if self.violated.is_empty() {
            String::new()
        } else {
            format!(",\"violated-policies\":[\"{}\"]", self.violated.join("\",\""))
        };
        format!("{{{kind}\"title\":\"{title}\",\"status\":{status},\"detail\":\"{detail}\"{violated}}}")
    }
}
