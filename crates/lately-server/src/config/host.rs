//! `hosts` in `[server]`: host names that HTTP requests may have in `Host` and `Origin`. And `trusted_proxies`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use lately_keys::Network;
use serde::{Deserialize, Deserializer};

use super::value::list;
use crate::limits::{MAX_HOST_BYTES, MAX_HOSTS, MAX_TRUSTED_PROXIES};

/// A host in `Host` or `Origin`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostName {
    /// In lower case, without a final dot.
    Name(String),
    /// In `Host`, an IPv6 address has brackets.
    Address(IpAddr),
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostName::Name(name) => name.fmt(f),
            HostName::Address(address) => address.fmt(f),
        }
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<HostName, String> {
        let invalid = || {
            format!(
                "invalid host '{text}': give a name or an IP address, without scheme and port, such as lately.example.org"
            )
        };
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse::<IpAddr>() {
            let is_right = bare.is_none() || address.is_ipv6();
            return is_right.then_some(HostName::Address(address)).ok_or_else(invalid);
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_good);
        let is_name = name.len() <= MAX_HOST_BYTES && name.split('.').all(is_label);
        is_name.then(|| HostName::Name(name.to_ascii_lowercase())).ok_or_else(invalid)
    }
}

/// The list in the config.
#[derive(Default)]
pub(super) struct Hosts(pub(super) Vec<HostName>);

impl<'de> Deserialize<'de> for Hosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hosts, D::Error> {
        list(deserializer, ("hosts", "server"), MAX_HOSTS).map(Hosts)
    }
}

/// `trusted_proxies`: the networks of proxies whose headers are believed.
#[derive(Default)]
pub(super) struct TrustedProxies(pub(super) Vec<Network>);

impl<'de> Deserialize<'de> for TrustedProxies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TrustedProxies, D::Error> {
        list(deserializer, ("trusted_proxies", "server"), MAX_TRUSTED_PROXIES).map(TrustedProxies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_one_spelling() {
        let name = |name: &str| HostName::Name(name.to_owned());
        let address = |address: &str| HostName::Address(address.parse().expect(address));
        for (text, expected) in [
            ("Lately.Example.Org", name("lately.example.org")),
            ("lately.example.org.", name("lately.example.org")),
            ("my_host-1", name("my_host-1")),
            ("192.0.2.7", address("192.0.2.7")),
            ("[2001:DB8::1]", address("2001:db8::1")),
            ("2001:db8:0:0::1", address("2001:db8::1")),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        let longest = format!("{}a", "a.".repeat(MAX_HOST_BYTES / 2));
        assert_eq!(longest.len(), MAX_HOST_BYTES);
        assert!(longest.parse::<HostName>().is_ok());
        let longer = format!("{longest}a");
        for bad in
            ["", ".", "a..b", "a:80", "http://a", "a/b", "a b", "[a]", "[1.2.3.4]", "*.a", "ä", &longer]
        {
            let error = bad.parse::<HostName>().expect_err(bad);
            assert!(
                error.starts_with(&format!("invalid host '{bad}': give a name or an IP address")),
                "{error}"
            );
        }
    }
}
