//! Addresses of other nodes: `peer://HOST:PORT`, and `dns://NAME:PORT` for all nodes that a name has.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::EngineError;
use crate::url::{Parts, without_password};

/// The port of a node that names none.
const PORT: u16 = 7382;

/// The address of a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Address {
    /// Without the brackets of an IPv6 address. The certificate of the node has it.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Where the host was found, if a name has several nodes.
    pub(crate) ip: Option<IpAddr>,
}

/// What an address in the config stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Node(Address),
    /// All nodes of a name.
    Name(Address),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port, ip } = self;
        match ip {
            Some(ip) => write!(f, "{host} at {}", SocketAddr::new(*ip, *port)),
            None if host.contains(':') => write!(f, "[{host}]:{port}"),
            None => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Target::Node(address) | Target::Name(address)) = self;
        address.fmt(f)
    }
}

impl Target {
    /// Parses addresses of different nodes.
    ///
    /// # Errors
    /// [`EngineError::Url`] names the first one that is invalid, or that is there twice.
    pub(super) fn all<U: AsRef<str>>(urls: &[U]) -> Result<Vec<Target>, EngineError> {
        let mut all: Vec<Target> = Vec::new();
        for url in urls {
            let url = url.as_ref();
            let invalid = |why: &str| EngineError::Url { url: without_password(url), why: why.to_owned() };
            let target = Target::of(url).map_err(invalid)?;
            if all.contains(&target) {
                return Err(invalid("the address is there twice: give each of the other nodes once"));
            }
            all.push(target);
        }
        Ok(all)
    }

    fn of(url: &str) -> Result<Target, &'static str> {
        let Parts { scheme, login, hosts, path, query } = Parts::of(url);
        if !is_peer(scheme) && (!scheme.is_empty() || url.contains("://")) {
            return Err(
                "the addresses of other nodes begin with peer://, such as peer://eu-2:7382, or with dns:// for all nodes of a name",
            );
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
        let host = match bare {
            Some(address) if address.parse::<std::net::Ipv6Addr>().is_ok() => address.to_owned(),
            None if is_host(host) => host.to_ascii_lowercase(),
            _ => return Err(invalid),
        };
        let is_name = scheme.eq_ignore_ascii_case(NAME);
        if is_name && host.parse::<IpAddr>().is_ok() {
            return Err(
                "dns:// is for a name that has the addresses of all nodes: give the address of one node with peer://",
            );
        }
        let address = Address { host, port, ip: None };
        Ok(if is_name { Target::Name(address) } else { Target::Node(address) })
    }
}

const NAME: &str = "dns";

/// Whether a scheme is that of nodes.
pub(super) fn is_peer(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("peer") || scheme.eq_ignore_ascii_case(NAME)
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
            ("127.0.0.1:7100", "127.0.0.1:7100"),
            ("eu-2", "eu-2:7382"),
            ("[::1]:9", "[::1]:9"),
            ("dns://Lately.example", "lately.example:7382"),
        ] {
            let read = Target::all(&[url]).map(|all| all[0].to_string());
            assert_eq!(read.map_err(|error| error.to_string()).as_deref(), Ok(expected));
            let is_name = matches!(Target::all(&[url]).expect("valid")[0], Target::Name(_));
            assert_eq!(is_name, url.starts_with("dns"));
        }
        assert_eq!(Target::all::<&str>(&[]).expect("none is needed"), []);
    }

    #[test]
    fn what_is_wrong_with_an_address_is_named() {
        let check = |urls: &[&str], expected: &str| {
            let error = Target::all(urls).expect_err(expected).to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        };
        check(&["redis://h"], "invalid URL 'redis://h': the addresses of other nodes begin with peer://");
        check(&["://h"], "begin with peer://");
        check(&["peer://me:secret@h"], "invalid URL 'peer://…@h': nodes have no users and passwords");
        check(&["peer://h/1"], "a host and a port only");
        check(&["peer://h?ca=x"], "a host and a port only");
        for url in
            ["peer://", "peer://:1", "peer://h:0", "peer://h:x", "peer://h:99999", "peer://a b", "peer://::1"]
        {
            check(&[url], "give a host and a port, such as");
        }
        check(&["peer://a", "peer://b", "peer://A:7382"], "'peer://A:7382': the address is there twice");
        check(&["peer://a", "a:7382"], "'a:7382': the address is there twice");
        check(&["dns://127.0.0.1"], "give the address of one node with peer://");
    }
}
