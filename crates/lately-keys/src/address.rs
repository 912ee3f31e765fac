//! Addresses of clients: what is one, one spelling for each, and networks.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::error::KeyError;

/// How many leading bits of an address count: `{ip/24/64}`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    v4_bits: u8,
    /// Whole addresses of IPv6 when it is left out.
    v6_bits: Option<u8>,
}

/// A network, `10.0.0.0/8`, or a single address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// `24/64`: of IPv4 and of IPv6, which is whole when it is left out.
    #[must_use]
    pub fn parse(text: &str) -> Option<Prefix> {
        let (v4, v6) = text.split_once('/').map_or((text, None), |(v4, v6)| (v4, Some(v6)));
        let bits = |text: &str, most: u8| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|&bits: &u8| is_number && bits <= most)
        };
        let v6_bits = match v6 {
            None => None,
            Some(text) => Some(bits(text, 128)?),
        };
        Some(Prefix { v4_bits: bits(v4, 32)?, v6_bits })
    }

    /// Whether a text is meant to be a prefix, right or wrong: numbers with slashes between them.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(|first: char| first.is_ascii_digit())
            && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'/')
    }

    /// The network of an address, such as `198.51.100.0/24`; the address alone where all of it counts. What is no address
    /// stays as it is.
    #[must_use]
    pub fn apply<'a>(self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(address) = parse(text) else { return Cow::Borrowed(text) };
        Cow::Owned(self.network_of(address).to_string().into_bytes())
    }

    /// The network of an address.
    #[must_use]
    pub fn network_of(self, address: IpAddr) -> Network {
        let address = address.to_canonical();
        let bits = if address.is_ipv4() { self.v4_bits } else { self.v6_bits() };
        Network { address: mask(address, bits), bits }
    }

    /// A prefix of these lengths. `None` when one is longer than an address.
    #[must_use]
    pub fn new(v4_bits: u8, v6_bits: u8) -> Option<Prefix> {
        (v4_bits <= 32 && v6_bits <= 128).then_some(Prefix { v4_bits, v6_bits: Some(v6_bits) })
    }

    /// The same, with the length for IPv6 of another where it has none.
    #[must_use]
    pub fn or_v6_of(self, other: Prefix) -> Prefix {
        Prefix { v6_bits: self.v6_bits.or(other.v6_bits), ..self }
    }

    /// The lengths for IPv4 and for IPv6.
    #[must_use]
    pub fn lengths(self) -> (u8, u8) {
        (self.v4_bits, self.v6_bits())
    }

    fn v6_bits(self) -> u8 {
        self.v6_bits.unwrap_or(128)
    }
}

impl Network {
    /// Whether an address, or all of a network, is in it. They are given as they are written.
    #[must_use]
    pub fn contains(&self, text: &[u8]) -> bool {
        network(text).is_some_and(|other| other.bits >= self.bits && self.contains_address(other.address))
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && mask(address, self.bits) == self.address
    }

    /// Whether networks of this size are smaller than it, or as large.
    #[must_use]
    pub fn has_all_of(&self, prefix: Prefix) -> bool {
        self.bits <= if self.address.is_ipv4() { prefix.v4_bits } else { prefix.v6_bits() }
    }
}

/// As it was given, without what does not count.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.address.is_ipv4() { 32 } else { 128 };
        write!(f, "{}", self.address)?;
        if self.bits == all { Ok(()) } else { write!(f, "/{}", self.bits) }
    }
}

impl FromStr for Network {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Network, KeyError> {
        let error = || KeyError::Network { text: text.into() };
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 =
            bits.map_or(Ok(most), str::parse).ok().filter(|&bits| bits <= most).ok_or_else(error)?;
        // A network of IPv4 in IPv6 is one of IPv4.
        let (address, bits) = match (address.to_canonical(), bits.checked_sub(96)) {
            (v4, Some(v4_bits)) if v4.is_ipv4() && address.is_ipv6() => (v4, v4_bits),
            // It would hold addresses that are not IPv4.
            (v4, None) if v4.is_ipv4() && address.is_ipv6() => return Err(error()),
            _ => (address, bits),
        };
        Ok(Network { address: mask(address, bits), bits })
    }
}

/// An address, or a network with the number of its bits.
fn network(text: &[u8]) -> Option<Network> {
    let slash = memchr::memchr(b'/', text);
    let address = parse(&text[..slash.unwrap_or(text.len())])?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits =
        slash.map_or(Some(most), |slash| std::str::from_utf8(&text[slash + 1..]).ok()?.parse().ok())?;
    (bits <= most).then_some(Network { address, bits })
}

/// Whether this is an address or a network.
#[must_use]
pub fn is_network(text: &[u8]) -> bool {
    network(text).is_some()
}

/// Whether this is an address: IPv4, or IPv6 with or without a zone.
#[must_use]
pub fn is_address(text: &[u8]) -> bool {
    is_ipv4(text)
        || text.contains(&b':') && parse(text.split(|&byte| byte == b'%').next().unwrap_or(text)).is_some()
}

/// The address in a text that is one, with or without a port, or a list of them: then the first. The last element of a list is
/// what a proxy added and has to be one, too.
#[must_use]
pub fn client(text: &[u8]) -> Option<&[u8]> {
    if is_ipv4(text) {
        return Some(text);
    }
    let mut elements = text.split(|&byte| byte == b',').map(|element| without_port(element.trim_ascii()));
    let is_list = elements.clone().next_back().is_some_and(is_address);
    elements.find(|element| is_address(element)).filter(|_| is_list)
}

/// `192.0.2.1:443` and `[2001:db8::1]:443` without the port.
fn without_port(text: &[u8]) -> &[u8] {
    let is_port = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let (address, port) = match (text, memchr::memrchr(b':', text)) {
        ([b'[', inner @ .., b']'], _) => return inner,
        (_, Some(colon)) => (&text[..colon], &text[colon + 1..]),
        _ => return text,
    };
    match address {
        _ if !is_port(port) => text,
        [b'[', inner @ .., b']'] => inner,
        // The last colon of an IPv6 address is not that of a port.
        address if is_ipv4(address) => address,
        _ => text,
    }
}

/// Whether this is four numbers up to 255 with dots between them.
#[must_use]
pub fn is_ipv4(text: &[u8]) -> bool {
    ipv4_at_start(text).is_some_and(|ip| ip.len() == text.len())
}

/// Four numbers up to 255, with dots between them, at the start of a text.
#[inline]
#[must_use]
pub fn ipv4_at_start(text: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    for part in 0..4 {
        if part > 0 {
            if text.get(at) != Some(&b'.') {
                return None;
            }
            at += 1;
        }
        let start = at;
        let mut number = 0_u32;
        while let Some(byte) = text.get(at)
            && byte.is_ascii_digit()
            && at - start < 3
        {
            number = number * 10 + u32::from(byte - b'0');
            at += 1;
        }
        if at == start || number > 255 {
            return None;
        }
    }
    Some(&text[..at])
}

/// Whether this can be the name of a host. The last of its labels is no number, as that of an address is.
#[must_use]
pub fn is_host_name(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let last = text.rsplit(|&byte| byte == b'.').next().unwrap_or_default();
    text.iter().all(is_part) && !last.is_empty() && !last.iter().all(u8::is_ascii_digit)
}

/// One spelling for each address: IPv6 as RFC 5952 has it, and IPv4 in IPv6 as IPv4.
#[must_use]
pub fn canonical(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b':') {
        return Cow::Borrowed(text);
    }
    parse(text).map_or(Cow::Borrowed(text), |address| Cow::Owned(address.to_string().into_bytes()))
}

/// The same of a text that may be owned.
#[must_use]
pub fn canonical_of(text: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => canonical(text),
        Cow::Owned(text) => Cow::Owned(canonical(&text).into_owned()),
    }
}

/// The address that a text is. IPv4 in IPv6 is IPv4, and the zone of `fe80::1%eth0` is cut.
#[must_use]
pub fn parse(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let address = match text.split_once('%') {
        Some((address, zone)) if !zone.is_empty() => IpAddr::V6(address.parse::<Ipv6Addr>().ok()?),
        _ => text.parse().ok()?,
    };
    Some(address.to_canonical())
}

fn mask(address: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[test]
    fn addresses_have_one_spelling() {
        let check = |from: &str, to: &str| assert_eq!(text(&canonical(from.as_bytes())), to);
        check("198.51.100.7", "198.51.100.7");
        check("::ffff:192.0.2.1", "192.0.2.1");
        check("2001:0DB8:0:0:0:0:0:1", "2001:db8::1");
        check("host:80", "host:80");
        check("fe80::1%eth0", "fe80::1");
        check("FE80:0::1%25", "fe80::1");
        check("fe80::1%", "fe80::1%");
    }

    #[test]
    fn prefixes_make_networks_of_addresses() {
        let check = |prefix: &str, from: &str, to: &str| {
            let prefix = Prefix::parse(prefix).expect(prefix);
            assert_eq!(text(&prefix.apply(from.as_bytes())), to);
        };
        check("24/64", "198.51.100.7", "198.51.100.0/24");
        check("24/64", "::ffff:198.51.100.7", "198.51.100.0/24");
        check("24/64", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64");
        check("24", "2001:DB8::7", "2001:db8::7");
        check("32/64", "198.51.100.7", "198.51.100.7");
        check("0/0", "198.51.100.7", "0.0.0.0/0");
        check("0/0", "::1", "::/0");
        check("24/64", "host", "host");
        for bad in ["", "33", "24/129", "a", "24/", "+2", "24/64/1"] {
            assert_eq!(Prefix::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn networks_have_their_addresses() {
        let check = |network: &str, inside: &str, outside: &str| {
            let network: Network = network.parse().expect(network);
            assert!(
                network.contains(inside.as_bytes()) && !network.contains(outside.as_bytes()),
                "{network:?}"
            );
        };
        check("10.0.0.0/8", "10.255.0.1", "11.0.0.1");
        check("10.1.2.3/8", "::ffff:10.0.0.1", "::10.0.0.1");
        check("192.0.2.1", "192.0.2.1", "192.0.2.2");
        check("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::");
        check("0.0.0.0/0", "1.2.3.4", "::1");
        check("10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/7");
        check("10.0.0.0/8", "10.0.0.0/8", "10.0.0.0/33");
        check("::ffff:10.0.0.0/104", "10.9.9.9", "11.0.0.1");
        check("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.2");
        check("::/0", "2001:db8::1", "10.0.0.1");
        check("fe80::/10", "fe80::1%eth0", "fec0::1");
        check("2001:db8::/32", "2001:db8:1:2::/64", "2001:db9::/64");
        for bad in ["", "10.0.0.0/33", "::/129", "host", "10.0.0.0/", "10.0/8"] {
            assert_eq!(bad.parse::<Network>(), Err(KeyError::Network { text: bad.into() }));
        }
    }

    #[test]
    fn clients_are_addresses_without_ports() {
        let check = |from: &str, to: Option<&str>| {
            assert_eq!(client(from.as_bytes()), to.map(str::as_bytes), "{from}");
        };
        for address in ["198.51.100.7", "2001:db8::7", "fe80::1%eth0", "::ffff:192.0.2.1", "2001:db8::7:80"] {
            check(address, Some(address));
        }
        check("198.51.100.7:443", Some("198.51.100.7"));
        check("[2001:db8::7]:443", Some("2001:db8::7"));
        check("[2001:db8::7]", Some("2001:db8::7"));
        check("198.51.100.7, 10.0.0.1", Some("198.51.100.7"));
        check("unknown,198.51.100.7:80,[::1]:80", Some("198.51.100.7"));
        for bad in ["", "-", "unix:", "host", "host:80", "198.51.100.7:", "198.51.100.7:x", "[host]:80", ","]
        {
            check(bad, None);
        }
        check("198.51.100.7, evil", None);
        check("198.51.100.7:1:2", None);
    }

    #[test]
    fn names_of_hosts() {
        for good in ["localhost", "a.example.com", "crawl-66-249.x", "_dmarc"] {
            assert!(is_host_name(good.as_bytes()), "{good}");
        }
        for bad in ["", "a b", "a:80", "a,", "1.2.3.4", "access.log-1.2.3.4", "a.", "é"] {
            assert!(!is_host_name(bad.as_bytes()), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn the_fast_look_at_ipv4_is_that_of_the_library(numbers in proptest::collection::vec(0..300_u32, 3..6)) {
            let text = numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
            prop_assert_eq!(is_address(text.as_bytes()), text.parse::<IpAddr>().is_ok());
        }
    }
}
