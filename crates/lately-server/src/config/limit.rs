//! `[[limit]]`: limits that requests refer to by name, as in `LIMIT key @login`.

use std::collections::BTreeMap;

use lately::{Admission, Factor, Lockout, Span};
use lately_keys::{Exempt, Prefix};
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::doors::Deny;
use super::error::Problem;
use super::key_template::KeyTemplate;
use super::value::{Bits, Exemptions, Length, LockoutFactor, Most, shown};
use crate::limits::{MAX_LIMIT_NAME_BYTES, MAX_LIMITS};

/// An address of IPv4 is a client.
pub(crate) const DEFAULT_IPV4_PREFIX: u8 = 32;

/// A client of IPv6 has a network of at least this length to itself, and any address in it.
pub(crate) const DEFAULT_IPV6_PREFIX: u8 = 64;

/// The start of the keys of descriptors that bring their limit along, where no limit of the config is for them.
pub(crate) const DOMAIN_PREFIX: &str = "domain:";

/// The start of the keys that the rules of envoyproxy/ratelimit count.
pub(crate) const RATELIMIT_PREFIX: &str = "ratelimit:";

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
    pub lockout: Option<Lockout>,
    /// A request is admitted while there is room for one hit, and its whole cost counts.
    pub is_overdraft: bool,
    /// Keys that are never denied. Their hits count.
    pub exempt: Vec<Exempt>,
    /// Every request is allowed. Those that the limit would deny are counted in the statistics.
    pub is_shadow: bool,
    /// The key of a request to `/v1/auth`.
    pub key: Option<KeyTemplate>,
    /// Each key is decided by one node, its owner. What the other nodes do while it is away. `None`: each node decides by what it
    /// knows.
    pub exact: Option<OwnerDown>,
    /// The status of `/v1/auth` for a denied request.
    pub deny: Deny,
    /// How much of the addresses in keys counts: `ipv4_prefix` and `ipv6_prefix`.
    pub prefix: Prefix,
    /// The domain of the descriptors that the limit is for. Without one it is for none.
    pub domain: Option<String>,
    /// The entries of such a descriptor: each key with its value, a start of it and `*`, or `*` for any.
    pub descriptors: BTreeMap<String, String>,
}

/// What a node does with a request of an exact limit while it does not reach the owner of the key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OwnerDown {
    /// It is denied. So the limit is exact.
    #[default]
    Deny,
    /// It is allowed, and counts on this node.
    Allow,
    /// This node decides by what it knows.
    Local,
}

impl OwnerDown {
    /// As in the config file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            OwnerDown::Deny => "deny",
            OwnerDown::Allow => "allow",
            OwnerDown::Local => "local",
        }
    }
}

impl<'de> Deserialize<'de> for OwnerDown {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OwnerDown, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let all = [OwnerDown::Deny, OwnerDown::Allow, OwnerDown::Local];
        let found = all.into_iter().find(|down| value.as_str() == Some(down.name()));
        found.ok_or_else(|| {
            let value = shown(&value);
            de::Error::custom(format!("invalid on_owner_down {value}: give \"deny\", \"allow\" or \"local\""))
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: [[limit]]")]
pub(super) struct LimitConfig {
    name: Spanned<String>,
    max: Most,
    window: Spanned<Length>,
    lockout: Option<Length>,
    lockout_factor: Option<Spanned<LockoutFactor>>,
    lockout_max: Option<Spanned<Length>>,
    #[serde(default)]
    overdraft: bool,
    exempt: Option<Spanned<Exemptions>>,
    #[serde(default)]
    shadow: bool,
    #[serde(default)]
    exact: bool,
    on_owner_down: Option<Spanned<OwnerDown>>,
    key: Option<Spanned<String>>,
    #[serde(default)]
    deny: Deny,
    ipv4_prefix: Option<Bits<32>>,
    ipv6_prefix: Option<Bits<128>>,
    domain: Option<Spanned<String>>,
    descriptors: Option<Spanned<BTreeMap<String, String>>>,
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

/// Starts of keys that have their own meaning. A limit on descriptors with such a name would count under their keys.
const TAKEN: [&str; 2] = [DOMAIN_PREFIX, RATELIMIT_PREFIX];

fn invalid_name(name: &str) -> String {
    if let Some(taken) = TAKEN.iter().find(|taken| name.starts_with(**taken)) {
        return format!("invalid name '{name}': other keys start with '{taken}'");
    }
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
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    let is_taken = TAKEN.iter().any(|taken| name.starts_with(taken));
    (1..=MAX_LIMIT_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed) && !is_taken
}

/// The domain and the entries of the descriptors of a limit. One without the other is for no descriptor.
fn descriptors_of(
    domain: Option<Spanned<String>>,
    descriptors: Option<Spanned<BTreeMap<String, String>>>,
) -> Result<(Option<String>, BTreeMap<String, String>), Problem> {
    let problem = |at, message: &str| Err(Problem { at, message: message.to_owned() });
    const EXAMPLE: &str = "add descriptors, such as { remote_address = \"*\" }";
    match (domain, descriptors) {
        (None, None) => Ok((None, BTreeMap::new())),
        (Some(domain), None) => problem(domain.span(), &format!("domain goes with descriptors: {EXAMPLE}")),
        (_, Some(none)) if none.get_ref().is_empty() => {
            problem(none.span(), &format!("descriptors are empty, so the limit is for none: {EXAMPLE}"))
        }
        (None, Some(of)) => problem(
            of.span(),
            "descriptors go with a domain: add that of the proxy, such as domain = \"edge\"",
        ),
        (Some(domain), Some(descriptors)) => {
            let value =
                descriptors.get_ref().values().find(|value| value.trim_end_matches('*').contains('*'));
            if let Some(value) = value {
                let message = format!(
                    "'{value}' has a * that is not at its end: give a start and *, or the whole value"
                );
                return problem(descriptors.span(), &message);
            }
            Ok((Some(domain.into_inner()), descriptors.into_inner()))
        }
    }
}

/// The lockouts of a limit.
fn lockout_of(config: &LimitConfig) -> Result<Option<Lockout>, Problem> {
    let LimitConfig { lockout, lockout_factor: factor, lockout_max: longest, .. } = config;
    let Some(Length(first)) = *lockout else {
        let factor = factor.as_ref().map(|factor| (factor.span(), "lockout_factor"));
        let longest = longest.as_ref().map(|longest| (longest.span(), "lockout_max"));
        return match factor.or(longest) {
            None => Ok(None),
            Some((at, name)) => {
                let message =
                    format!("{name} goes with lockout: give the length of the first one, such as \"15m\"");
                Err(Problem { at, message })
            }
        };
    };
    if factor.is_none() && longest.is_none() {
        return Ok(Some(Lockout::of(first)));
    }
    let factor = factor.as_ref().map_or(Factor::ONE, |factor| factor.get_ref().0);
    let lockout = Lockout::growing(first, factor, longest.as_ref().map(|longest| longest.get_ref().0));
    lockout.map(Some).map_err(|error| {
        let at = longest.as_ref().map_or(0..0, Spanned::span);
        Problem { at, message: error.to_string() }
    })
}

impl NamedLimit {
    /// When a request of a key with this address is admitted.
    pub(crate) fn admission(&self, key: &[u8], address: Option<&[u8]>) -> Admission {
        let is_exempt = || {
            let address = address.unwrap_or_else(|| Exempt::address_of(key));
            self.exempt.iter().any(|exempt| exempt.is_of(key, address))
        };
        match self.is_overdraft {
            _ if !self.exempt.is_empty() && is_exempt() => Admission::Exempt,
            true => Admission::Overdraft,
            false => Admission::Whole,
        }
    }

    fn of(config: LimitConfig) -> Result<NamedLimit, Problem> {
        let lockout = lockout_of(&config)?;
        let LimitConfig { name, max, window, shadow, key, deny, overdraft, exempt, exact, .. } = config;
        let on_owner_down = match config.on_owner_down {
            Some(down) if !exact => {
                let message = "on_owner_down goes with exact = true: without it each node decides".to_owned();
                return Err(Problem { at: down.span(), message });
            }
            down => down.map(Spanned::into_inner).unwrap_or_default(),
        };
        let template = |key: Spanned<String>| {
            KeyTemplate::parse(key.get_ref()).map_err(|message| Problem { at: key.span(), message })
        };
        let [v4_bits, v6_bits] = [
            config.ipv4_prefix.map_or(DEFAULT_IPV4_PREFIX, |bits| bits.0),
            config.ipv6_prefix.map_or(DEFAULT_IPV6_PREFIX, |bits| bits.0),
        ];
        let prefix = Prefix::new(v4_bits, v6_bits).expect("their type bounds them");
        let key = key.map(template).transpose()?;
        let exempt = match exempt {
            Some(list) => {
                let at = list.span();
                let list = list.into_inner().0;
                let mut checked = list.iter().map(|exempt| match &key {
                    Some(key) => key.check_exempt(exempt, prefix),
                    None => Ok(()),
                });
                checked
                    .try_for_each(|checked| checked)
                    .map_err(|error| Problem { at, message: error.to_string() })?;
                list
            }
            None => Vec::new(),
        };
        let (domain, descriptors) = descriptors_of(config.domain, config.descriptors)?;
        Ok(NamedLimit {
            name: name.into_inner(),
            max: max.0,
            window: window.into_inner().0,
            lockout,
            is_overdraft: overdraft,
            exempt,
            is_shadow: shadow,
            exact: exact.then_some(on_owner_down),
            key,
            deny,
            prefix,
            domain,
            descriptors,
        })
    }
}
