//! Keys that no limit is for.

use std::str::FromStr;

use lately::Pattern;

use crate::address::{Network, is_address};
use crate::error::SetupError;

/// The addresses of a network, `10.0.0.0/8`, or the keys that match a pattern, `login:monitor*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Exempt {
    /// Keys that are an address in it.
    Network(Network),
    /// Keys all of which matches.
    Pattern(Pattern),
}

impl Exempt {
    pub(crate) fn is_of(&self, key: &[u8]) -> bool {
        match self {
            Exempt::Network(network) => network.contains(key),
            Exempt::Pattern(pattern) => pattern.matches(key),
        }
    }
}

impl FromStr for Exempt {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Exempt, SetupError> {
        // What starts as a network and is none is a mistake, no pattern.
        let starts_as_network = text.split('/').next().is_some_and(|first| is_address(first.as_bytes()));
        match text.parse() {
            Ok(network) => Ok(Exempt::Network(network)),
            Err(error) if starts_as_network || text.is_empty() => Err(error),
            Err(_) => Ok(Exempt::Pattern(Pattern::new(text.as_bytes()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_patterns_are_told_apart() {
        let check = |text: &str, inside: &str, outside: &str| {
            let exempt: Exempt = text.parse().expect(text);
            assert!(exempt.is_of(inside.as_bytes()) && !exempt.is_of(outside.as_bytes()), "{text}");
        };
        check("10.0.0.0/8", "10.1.2.3", "11.0.0.1");
        check("2001:db8::1", "2001:db8:0::1", "2001:db8::2");
        check("login:monitor*", "login:monitor-1", "login:jo");
        check("10.*", "10.x", "11.x");
        for bad in ["10.0.0.0/33", "::/129", ""] {
            assert!(bad.parse::<Exempt>().is_err(), "{bad}");
        }
    }
}
