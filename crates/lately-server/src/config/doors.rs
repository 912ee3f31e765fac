//! What other servers see of limits: the status of a denial, and the headers with what is left.

use std::fmt;

use serde::{Deserialize, Deserializer, de};

use super::value::shown;

/// The status of `/v1/auth` for a denied request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Deny {
    /// 403, which `auth_request` of nginx passes on.
    #[default]
    Forbidden,
    /// 429, for proxies that pass on any status.
    TooManyRequests,
}

impl Deny {
    /// The status.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Deny::Forbidden => 403,
            Deny::TooManyRequests => 429,
        }
    }

    /// The status with this code. `None` if it is none of the two.
    pub(crate) fn of_code(code: &str) -> Option<Deny> {
        [Deny::Forbidden, Deny::TooManyRequests].into_iter().find(|deny| deny.code().to_string() == code)
    }
}

impl<'de> Deserialize<'de> for Deny {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Deny, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        value.as_integer().and_then(|code| Deny::of_code(&code.to_string())).ok_or_else(|| {
            de::Error::custom(format!("invalid deny {}: give 403 (for nginx) or 429", shown(&value)))
        })
    }
}

/// The headers that tell clients what is left of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum RateLimitHeaders {
    /// `RateLimit-Policy` and `RateLimit`, of the IETF draft from version 8 on.
    #[default]
    Current,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` and `-Policy`, of the draft up to version 6.
    Draft06,
    /// The same with `X-`, of version 3, as Envoy sends them.
    XDraft03,
    /// None.
    Off,
}

impl RateLimitHeaders {
    const ALL: [(&str, RateLimitHeaders); 4] = [
        ("current", RateLimitHeaders::Current),
        ("draft-06", RateLimitHeaders::Draft06),
        ("x-draft-03", RateLimitHeaders::XDraft03),
        ("off", RateLimitHeaders::Off),
    ];
}

/// As the config writes it.
impl fmt::Display for RateLimitHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = RateLimitHeaders::ALL.iter().find(|(_, it)| it == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl<'de> Deserialize<'de> for RateLimitHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RateLimitHeaders, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let named = RateLimitHeaders::ALL.into_iter().find(|(name, _)| value.as_str() == Some(name));
        named.map(|(_, it)| it).ok_or_else(|| {
            let names = RateLimitHeaders::ALL.map(|(name, _)| format!("\"{name}\"")).join(", ");
            de::Error::custom(format!("invalid ratelimit_headers {}: give one of {names}", shown(&value)))
        })
    }
}
