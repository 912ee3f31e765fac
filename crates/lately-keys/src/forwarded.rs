//! The address of a client behind proxies, from `X-Forwarded-For`.

use std::net::IpAddr;

use crate::address::{Network, client, parse};

/// The address of the client: the peer, if it is no trusted proxy. Otherwise the last address of `X-Forwarded-For` that is
/// none. Each proxy adds the address of its own peer at the end, so what stands before the first address that is not trusted
/// may be forged. An element that is no address ends the search: the client is then the proxy that wrote it.
///
/// `forwarded` has the header's values in their order. If all addresses are trusted, the client is the first of them.
pub fn client_address<'h>(
    peer: IpAddr,
    trusted: &[Network],
    forwarded: impl DoubleEndedIterator<Item = &'h [u8]>,
) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains_address(address));
    let mut address = peer.to_canonical();
    let elements = forwarded.rev().flat_map(|value| value.rsplit(|&byte| byte == b','));
    for element in elements {
        if !is_trusted(address) {
            break;
        }
        let Some(before) = client(element.trim_ascii()).and_then(parse) else { break };
        address = before;
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_found_from_the_right() {
        let trusted = ["10.0.0.0/8", "127.0.0.1", "2001:db8:1::/48"].map(|text| text.parse().expect(text));
        let check = |peer: &str, headers: &[&str], expected: &str| {
            let headers = headers.iter().map(|value| value.as_bytes());
            let found = client_address(peer.parse().expect(peer), &trusted, headers);
            assert_eq!(found.to_string(), expected);
        };
        check("10.0.0.1", &["198.51.100.7"], "198.51.100.7");
        // An untrusted peer may write what it likes.
        check("192.0.2.9", &["198.51.100.7"], "192.0.2.9");
        check("::ffff:192.0.2.9", &["198.51.100.7"], "192.0.2.9");
        // A forged element is left of that of the first proxy.
        check("10.0.0.1", &["1.2.3.4, 198.51.100.7"], "198.51.100.7");
        check("10.0.0.1", &["1.2.3.4", "198.51.100.7,10.0.0.2"], "198.51.100.7");
        check("::ffff:10.0.0.1", &["1.2.3.4", "198.51.100.7", " 10.0.0.2 "], "198.51.100.7");
        check("2001:db8:1::1", &["2001:DB8:2::7, [2001:db8:1::2]:443"], "2001:db8:2::7");
        check("127.0.0.1", &["198.51.100.7:4711"], "198.51.100.7");
        check("127.0.0.1", &["fe80::1%eth0"], "fe80::1");
        check("10.0.0.1", &["::ffff:198.51.100.7"], "198.51.100.7");
        // What is no address ends the search.
        check("10.0.0.1", &["198.51.100.7, unknown, 10.0.0.2"], "10.0.0.2");
        check("10.0.0.1", &["198.51.100.7,"], "10.0.0.1");
        check("10.0.0.1", &[], "10.0.0.1");
        check("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3");
    }
}
