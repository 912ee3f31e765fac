//! `[[limit]]`: limits that requests name instead of saying them.

use std::collections::BTreeMap;

use lately::Span;
use serde::Deserialize;
use toml::Spanned;

use super::error::Problem;
use super::value::{Length, Most};
use crate::limits::{MAX_LIMIT_NAME_BYTES, MAX_LIMITS};

/// A limit with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedLimit {
    /// Its name: letters, digits and `_ - . :`. No other has the same.
    pub name: String,
    /// The most hits in any window.
    pub max: u64,
    /// Length of the window.
    pub window: Span,
    /// How long a key is denied all once it is denied.
    pub lockout: Option<Span>,
    /// Nobody is denied; what would be is counted.
    pub is_shadow: bool,
    /// For gRPC, which this version has not: nothing reads it.
    pub domain: Option<String>,
    /// For gRPC, which this version has not: nothing reads it.
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
    domain: Option<String>,
    #[serde(default)]
    descriptors: BTreeMap<String, String>,
}

/// Checks the names, and the windows against the longest time that hits of any key are kept; a problem is placed at
/// the first that is wrong.
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
                format!("a second limit of the name '{name}': give each a name of its own")
            } else {
                format!("'{other}' and '{name}' are one name in INFO: give each a name of its own")
            }
        } else {
            let window = &limit.get_ref().window;
            if window.get_ref().0 <= longest {
                continue;
            }
            let message = format!(
                "window {} is longer than hits of any key are kept, {longest}: give a shorter one, or have a class retain more",
                window.get_ref().0
            );
            return Err(Problem { at: window.span(), message });
        };
        return Err(Problem { at: name.span(), message });
    }
    Ok(limits.into_iter().map(|limit| NamedLimit::from(limit.into_inner())).collect())
}

/// A name as `INFO` shows it, where a colon ends the name of a field.
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

impl From<LimitConfig> for NamedLimit {
    fn from(config: LimitConfig) -> NamedLimit {
        let LimitConfig { name, max, window, lockout, shadow, domain, descriptors } = config;
        NamedLimit {
            name: name.into_inner(),
            max: max.0,
            window: window.into_inner().0,
            lockout: lockout.map(|lockout| lockout.0),
            is_shadow: shadow,
            domain,
            descriptors,
        }
    }
}
