//! Keys that are exempt from limits.

use std::fmt;
use std::str::FromStr;

use lately::Pattern;

use crate::address::{Network, Prefix, is_address, is_network};
use crate::error::KeyError;
use crate::limits::MAX_ADDRESS_BYTES;
use crate::template::{Part, Template};

/// The addresses of a network, `10.0.0.0/8`, or the keys that match a pattern, `login:monitor*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Exempt {
    /// Keys with an address in this network.
    Network(Network),
    /// Keys that match this pattern as a whole.
    Pattern(Pattern),
}

impl Exempt {
    /// Whether a key with this address is exempt. The address may also be a network.
    #[must_use]
    pub fn is_of(&self, key: &[u8], address: &[u8]) -> bool {
        match self {
            Exempt::Network(network) => network.contains(address),
            Exempt::Pattern(pattern) => pattern.matches(key),
        }
    }

    /// Checks that it can exempt keys of this template. A field of the template that is an address becomes a network, by the
    /// lengths in the template, else by `prefix`.
    ///
    /// # Errors
    /// It is a network, and the keys have no address, or have larger networks.
    pub fn check(&self, key: &Template, prefix: Prefix) -> Result<(), KeyError> {
        let Exempt::Network(network) = self else { return Ok(()) };
        let error = |cause| KeyError::Exempt { text: network.to_string(), key: key.to_string(), cause };
        let part = key.address_part().and_then(|part| key.parts().get(part));
        let prefix = match part.ok_or_else(|| error("no field of the key is known to be an address"))? {
            Part::Network(_, own) => own.or_v6_of(prefix),
            _ => prefix,
        };
        if network.has_all_of(prefix) { Ok(()) } else { Err(error("the networks of the key are larger")) }
    }

    /// The address or network that a key is, or that it ends with after a character that is no letter and no digit, such as
    /// in `login:192.0.2.1`. The longest, if there are several. Empty if there is none.
    #[must_use]
    pub fn address_of(key: &[u8]) -> &[u8] {
        let from = key.len().saturating_sub(MAX_ADDRESS_BYTES);
        let begins = |start: &usize| {
            let before = start.checked_sub(1).map(|before| key[before]);
            before.is_none_or(|byte| !byte.is_ascii_alphanumeric() && byte != b'.')
        };
        let mut ends = (from..key.len()).filter(begins).map(|start| &key[start..]);
        ends.find(|end| is_network(end)).unwrap_or_default()
    }
}

/// As it was given.
impl fmt::Display for Exempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exempt::Network(network) => network.fmt(f),
            Exempt::Pattern(pattern) => f.write_str(&String::from_utf8_lossy(pattern.as_bytes())),
        }
    }
}

impl FromStr for Exempt {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Exempt, KeyError> {
        match text.parse() {
            Ok(network) => Ok(Exempt::Network(network)),
            Err(error) if is_like_a_network(text) || text.is_empty() => Err(error),
            Err(_) => Ok(Exempt::Pattern(Pattern::new(text.as_bytes()))),
        }
    }
}

/// Whether a text that is no network was meant as one, so that it is a mistake and no pattern: it starts with an address, or
/// looks like a part of one, such as 10.0.0/24.
fn is_like_a_network(text: &str) -> bool {
    let first = text.split(['/', '-']).next().unwrap_or_default();
    let is_part_of_ipv4 =
        first.contains('.') && first.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_part_of_ipv6 =
        first.contains(':') && first.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
    is_address(first.as_bytes()) || is_part_of_ipv4 || is_part_of_ipv6 && text.contains('/')
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
        check("cafe:1", "cafe:1", "cafe:2");
        for bad in [
            "10.0.0.0/33",
            "::/129",
            "",
            "10.0.0/24",
            "10.0/16",
            "10.0.0",
            "10.0.0.256",
            "10.0.0.0-10.0.0.255",
            "2001:db8/32",
            "::ffff:10.0.0.0/8",
        ] {
            assert!(bad.parse::<Exempt>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_ends_with_its_address() {
        let check = |key: &str, address: &str| {
            assert_eq!(String::from_utf8_lossy(Exempt::address_of(key.as_bytes())), address, "{key}");
        };
        check("192.0.2.1", "192.0.2.1");
        check("login:192.0.2.1", "192.0.2.1");
        check("a:login|198.51.100.0/24", "198.51.100.0/24");
        check("login:2001:db8::1", "2001:db8::1");
        check("login:2001:db8:1:2::/64", "2001:db8:1:2::/64");
        check("jo 192.0.2.1", "192.0.2.1");
        check("login:fe80::1%eth0", "fe80::1%eth0");
        for none in [
            "",
            "login:jo",
            "login:192.0.2.1:jo",
            "v192.0.2.1",
            "1.192.0.2.1",
            "login:192.0.2",
            "192.0.2.1/33",
        ] {
            check(none, "");
        }
        // Further from the end than any address begins.
        let key = [b"192.0.2.1/", &[b'0'; MAX_ADDRESS_BYTES][..]].concat();
        assert_eq!(Exempt::address_of(&key), b"");
    }

    /// All of an address counts.
    fn whole() -> Prefix {
        Prefix::new(32, 128).expect("lengths")
    }

    #[test]
    fn a_useless_exemption_is_refused() {
        let check = |text: &str, key: &str, cause: Option<&str>| {
            let checked = text.parse::<Exempt>().expect(text).check(&key.parse().expect(key), whole());
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
