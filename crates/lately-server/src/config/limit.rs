//! `[[limit]]`: limits that requests refer to by name, as in `LIMIT key @login`.

use std::collections::BTreeMap;

use lately::Span;
use lately_keys::Prefix;
use serde::Deserialize;
use toml::Spanned;

use super::doors::Deny;
use super::error::Problem;
use super::key_template::KeyTemplate;
use super::value::{Bits, Length, Most};
use crate::limits::{MAX_LIMIT_NAME_BYTES, MAX_LIMITS};

/// An address of IPv4 is a client.
pub(crate) const DEFAULT_IPV4_PREFIX: u8 = 32;

/// A client of IPv6 has a network of at least this length to itself, and any address in it.
pub(crate) const DEFAULT_IPV6_PREFIX: u8 = 64;

/// A limit with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedLimit {
    /// Its unique name: letters, digits and `_ - . :`.
    pub name: String,
    /// The most hits in any window.
    pub max: u64,
    /// Length of the window.
    pub window: Span,
    /// How long every request of a key is denied after a denial.
    pub lockout: Option<Span>,
    /// Every request is allowed. Those that the limit would deny are counted in the statistics.
    pub is_shadow: bool,
    /// The key of a request to `/v1/auth`.
    pub key: Option<KeyTemplate>,
    /// The status of `/v1/auth` for a denied request.
    pub deny: Deny,
    /// How much of the addresses in keys counts: `ipv4_prefix` and `ipv6_prefix`.
    pub prefix: Prefix,
    /// The domain of the descriptors that the limit is for. Without one it is for none.
    pub domain: Option<String>,
    /// The entries of such a descriptor: each key with its value, a start of it and `*`, or `*` for any.
    pub descriptors: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: [[limit]]")]
pub(super) struct LimitConfig {
    name: Spanned<String>,
    max: Most,
    window: Spanned<Length>,
    lockout: Option<Length>,
    #[serde(default)]
    shadow: bool,
    key: Option<Spanned<String>>,
    #[serde(default)]
    deny: Deny,
    ipv4_prefix: Option<Bits<32>>,
    ipv6_prefix: Option<Bits<128>>,
    domain: Option<String>,
    #[serde(default)]
    descriptors: BTreeMap<String, String>,
}

/// Checks the names, and that no window is longer than the longest retention. The problem points at the first wrong
/// limit.
pub(super) fn settle(limits: Vec<Spanned<LimitConfig>>, longest: Span) -> Result<Vec<NamedLimit>, Problem> {
    let mut names = BTreeMap::new();
    if let Some(limit) = limits.get(MAX_LIMITS) {
        let message = format!("too many limits: a config has at most {MAX_LIMITS}");
        return Err(Problem { at: limit.span(), message });
    }
    for limit in &limits {
        let name = &limit.get_ref().name;
        let message = if !is_name(name.get_ref()) {
            invalid_name(name.get_ref())
        } else if let Some(other) = names.insert(info_name(name.get_ref()), name.get_ref()) {
            let name = name.get_ref();
            if other == name {
                format!("a second limit is named '{name}': give each its own name")
            } else {
                format!("'{other}' and '{name}' have the same name in INFO: give each its own name")
            }
        } else {
            let window = &limit.get_ref().window;
            if window.get_ref().0 <= longest {
                continue;
            }
            let message = format!(
                "window {} is longer than the longest retention, {longest}: give a shorter window, or a class a longer `retain`",
                window.get_ref().0
            );
            return Err(Problem { at: window.span(), message });
        };
        return Err(Problem { at: name.span(), message });
    }
    limits.into_iter().map(|limit| NamedLimit::of(limit.into_inner())).collect()
}

/// A name as `INFO` shows it: colons, which end the name of a field, are replaced.
pub(crate) fn info_name(name: &str) -> String {
    name.replace(':', "_")
}

fn invalid_name(name: &str) -> String {
    match name.strip_prefix('@') {
        Some(bare) if is_name(bare) => {
            format!("invalid name '{name}': requests write the @, the config does not: {bare}")
        }
        _ => format!(
            "invalid name '{name}': give 1 to {MAX_LIMIT_NAME_BYTES} letters, digits, or any of _ - . :"
        ),
    }
}

fn is_name(name: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    (1..=MAX_LIMIT_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_usual)
}

impl NamedLimit {
    fn of(config: LimitConfig) -> Result<NamedLimit, Problem> {
        let LimitConfig { name, max, window, lockout, shadow, key, deny, .. } = config;
        let template = |key: Spanned<String>| {
            KeyTemplate::parse(key.get_ref()).map_err(|message| Problem { at: key.span(), message })
        };
        let [v4_bits, v6_bits] = [
            config.ipv4_prefix.map_or(DEFAULT_IPV4_PREFIX, |bits| bits.0),
            config.ipv6_prefix.map_or(DEFAULT_IPV6_PREFIX, |bits| bits.0),
        ];
        Ok(NamedLimit {
            name: name.into_inner(),
            max: max.0,
            window: window.into_inner().0,
            lockout: lockout.map(|lockout| lockout.0),
            is_shadow: shadow,
            key: key.map(template).transpose()?,
            deny,
            prefix: Prefix::new(v4_bits, v6_bits).expect("their type bounds them"),
            domain: config.domain,
            descriptors: config.descriptors,
        })
    }
}
