//! Keys that are exempt from limits.

use std::str::FromStr;

use lately::Pattern;

use crate::error::SetupError;
use lately_keys::address::{Network, is_address};
use lately_keys::{Part, Template};

/// The addresses of a network, `10.0.0.0/8`, or the keys that match a pattern, `login:monitor*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Exempt {
    /// Keys with an address in this network.
    Network(Network),
    /// Keys that match this pattern as a whole.
    Pattern(Pattern),
}

impl Exempt {
    /// Whether a key with this address part is exempt.
    pub(crate) fn is_of(&self, key: &[u8], address: &[u8]) -> bool {
        match self {
            Exempt::Network(network) => network.contains(address),
            Exempt::Pattern(pattern) => pattern.matches(key),
        }
    }

    /// Checks that it can exempt keys of this template.
    ///
    /// # Errors
    /// It is a network, and the keys have no address, or have larger networks.
    pub fn check(&self, key: &Template) -> Result<(), SetupError> {
        let Exempt::Network(network) = self else { return Ok(()) };
        let error = |cause| SetupError::Exempt { text: network.to_string(), key: key.to_string(), cause };
        let part = key.address_part().and_then(|part| key.parts().get(part));
        match part.ok_or_else(|| error("no field of the key is known to be an address"))? {
            Part::Network(_, prefix) if !network.has_all_of(*prefix) => {
                Err(error("the networks of the key are larger"))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Exempt {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Exempt, SetupError> {
        // A text that starts like a network but is not one is a mistake, not a pattern.
        let starts_as_network = text.split('/').next().is_some_and(|first| is_address(first.as_bytes()));
        match text.parse() {
            Ok(network) => Ok(Exempt::Network(network)),
            Err(error) if starts_as_network || text.is_empty() => Err(SetupError::Key(error)),
            Err(_) => Ok(Exempt::Pattern(Pattern::new(text.as_bytes()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_patterns_are_distinguished() {
        let is_of = |exempt: &Exempt, key: &str| exempt.is_of(key.as_bytes(), key.as_bytes());
        let check = |text: &str, inside: &str, outside: &str| {
            let exempt: Exempt = text.parse().expect(text);
            assert!(is_of(&exempt, inside) && !is_of(&exempt, outside), "{text}");
        };
        check("10.0.0.0/8", "10.1.2.3", "11.0.0.1");
        check("2001:db8::1", "2001:db8:0::1", "2001:db8::2");
        check("login:monitor*", "login:monitor-1", "login:jo");
        check("10.*", "10.x", "11.x");
        for bad in ["10.0.0.0/33", "::/129", ""] {
            assert!(bad.parse::<Exempt>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_useless_exemption_is_refused() {
        let check = |text: &str, key: &str, cause: Option<&str>| {
            let checked = text.parse::<Exempt>().expect(text).check(&key.parse().expect(key));
            let error = checked.err().map(|error| error.to_string());
            let is_expected = match (&error, cause) {
                (Some(error), Some(cause)) => error.contains(cause),
                (None, None) => true,
                _ => false,
            };
            assert!(is_expected, "{text} {key}: {error:?}");
        };
        check("10.0.0.0/8", "{user} {ip}", None);
        check("10.0.0.0/8", "{ip/8/64} {path}", None);
        check("10.0.0.0/8", "{ip/7/64} {path}", Some("the networks of the key are larger"));
        check("::1", "ip/24/64", Some("the networks of the key are larger"));
        check("::1", "ip/24", None);
        check("10.0.0.0/8", "{user} {path}", Some("no field of the key is known to be an address"));
        check("10.0.0.0/8", "*", Some("no field of the key is known to be an address"));
        check("login:*", "{user} {path}", None);
    }
}
