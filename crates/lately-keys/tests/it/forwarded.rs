//! Checks `client_address` with any header values.

use std::net::{IpAddr, Ipv4Addr};

use lately_keys::{Network, client_address};

/// The trusted proxies.
pub(crate) fn trusted() -> Vec<Network> {
    ["10.0.0.0/8", "::1", "2001:db8::/32"].map(|network| network.parse().expect("a network")).to_vec()
}

/// Checks the client behind a trusted proxy. Each line is a value of the header.
///
/// # Panics
/// The address is none that a trusted proxy wrote.
pub(crate) fn check(bytes: &[u8]) {
    let trusted = trusted();
    let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let found = |values: &[&[u8]]| client_address(peer, &trusted, values.iter().copied());
    let values: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    let client = found(&values);
    assert_eq!(client, client.to_canonical(), "an IPv4 address is one");
    // The same as in one value.
    assert_eq!(client, found(&[&values.join(&b","[..])]));
    // What a client wrote in front changes nothing, unless all of it is trusted.
    let is_trusted = trusted.iter().any(|network| network.contains_address(client));
    if !is_trusted {
        let forged = [&[&b"192.0.2.66, 10.9.9.9"[..]], &values[..]].concat();
        assert_eq!(client, found(&forged));
    }
    // A peer that is no proxy is the client, whatever it wrote.
    let stranger: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
    assert_eq!(client_address(stranger, &trusted, values.iter().copied()), stranger);
}
