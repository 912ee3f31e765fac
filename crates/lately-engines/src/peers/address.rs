//! Addresses of other nodes: `peer://HOST:PORT`.

use std::fmt;

use crate::EngineError;
use crate::url::{Parts, without_password};

/// The port of a node that names none.
const PORT: u16 = 7382;

/// The address of a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Address {
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Address {
    /// Parses addresses of different nodes.
    ///
    /// # Errors
    /// [`EngineError::Url`] names the first one that is invalid, or that is there twice.
    pub(super) fn all<U: AsRef<str>>(urls: &[U]) -> Result<Vec<Address>, EngineError> {
        let mut all: Vec<Address> = Vec::new();
        for url in urls {
            let url = url.as_ref();
            let invalid = |why: &str| EngineError::Url { url: without_password(url), why: why.to_owned() };
            let address = Address::of(url).map_err(invalid)?;
            if all.contains(&address) {
                return Err(invalid("the address is there twice: give each of the other nodes once"));
            }
            all.push(address);
        }
        if all.is_empty() {
            let why = "give the addresses of the other nodes, such as peer://eu-2:7382".to_owned();
            return Err(EngineError::Url { url: String::new(), why });
        }
        Ok(all)
    }

    fn of(url: &str) -> Result<Address, &'static str> {
        let Parts { scheme, login, hosts, path, query } = Parts::of(url);
        if !is_peer(scheme) {
            return Err("the addresses of other nodes begin with peer://, such as peer://eu-2:7382");
        }
        if !login.is_empty() {
            return Err("nodes have no users and passwords: give each a certificate, with tls in [cluster]");
        }
        if !path.is_empty() || !query.is_empty() || url.contains('?') {
            return Err("give a host and a port only, such as peer://eu-2:7382");
        }
        let invalid = "give a host and a port, such as peer://eu-2:7382 or peer://[::1]:7382";
        let (host, port) = match hosts.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().ok().filter(|port| *port > 0).ok_or(invalid)?)
            }
            _ => (hosts, PORT),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = |host: &str| {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        match bare {
            Some(address) if address.parse::<std::net::Ipv6Addr>().is_ok() => {
                Ok(Address { host: address.to_owned(), port })
            }
            None if is_host(host) => Ok(Address { host: host.to_ascii_lowercase(), port }),
            _ => Err(invalid),
        }
    }
}

/// Whether a scheme is that of nodes.
pub(super) fn is_peer(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("peer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (url, expected) in [
            ("peer://127.0.0.1:7100", "127.0.0.1:7100"),
            ("peer://EU-2", "eu-2:7382"),
            ("PEER://[::1]", "[::1]:7382"),
            ("peer://[2001:db8::7]:9", "[2001:db8::7]:9"),
            ("peer://lately-1.lately.svc:7382", "lately-1.lately.svc:7382"),
        ] {
            let read = Address::all(&[url]).map(|all| all[0].to_string());
            assert_eq!(read.map_err(|error| error.to_string()).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn what_is_wrong_with_an_address_is_named() {
        let check = |urls: &[&str], expected: &str| {
            let error = Address::all(urls).expect_err(expected).to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        };
        check(&[], "give the addresses of the other nodes");
        check(&["redis://h"], "invalid URL 'redis://h': the addresses of other nodes begin with peer://");
        check(&["127.0.0.1:7382"], "begin with peer://");
        check(&["peer://me:secret@h"], "invalid URL 'peer://…@h': nodes have no users and passwords");
        check(&["peer://h/1"], "a host and a port only");
        check(&["peer://h?ca=x"], "a host and a port only");
        for url in
            ["peer://", "peer://:1", "peer://h:0", "peer://h:x", "peer://h:99999", "peer://a b", "peer://::1"]
        {
            check(&[url], "give a host and a port, such as");
        }
        check(&["peer://a", "peer://b", "peer://A:7382"], "'peer://A:7382': the address is there twice");
    }
}
