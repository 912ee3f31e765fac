//! Addresses of a request: that of the peer, and that of the client behind trusted proxies.

use std::net::{IpAddr, SocketAddr};

use http::HeaderName;
use http::request::Parts;
use lately_keys::{Network, Prefix, client_address};

/// The header to which each proxy adds the address of its peer.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Finds the address of the peer of a request.
pub(crate) type FindPeer = Box<dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync>;

/// How addresses are found, and how much of them counts.
pub(crate) struct Addresses {
    pub(crate) find_peer: FindPeer,
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) prefix: Prefix,
}

impl Addresses {
    /// The network of the peer. `None` when the address of the peer is not known.
    pub(crate) fn peer(&self, parts: &Parts) -> Option<Network> {
        (self.find_peer)(parts).map(|peer| self.prefix.network_of(peer))
    }

    /// The network of the client. `None` when the address of the peer is not known.
    pub(crate) fn client(&self, parts: &Parts) -> Option<Network> {
        self.client_address(parts).map(|client| self.prefix.network_of(client))
    }

    /// The whole address of the client. `None` when the address of the peer is not known.
    pub(crate) fn client_address(&self, parts: &Parts) -> Option<IpAddr> {
        let peer = (self.find_peer)(parts)?;
        let forwarded = parts.headers.get_all(FORWARDED_FOR).iter();
        Some(client_address(peer, &self.trusted_proxies, forwarded.map(http::HeaderValue::as_bytes)))
    }
}

/// The address that axum keeps, or a `SocketAddr` among the extensions.
pub(crate) fn find_peer(parts: &Parts) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    {
        use axum::extract::ConnectInfo;
        use axum::extract::connect_info::MockConnectInfo;

        let connected = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        let mocked = || parts.extensions.get::<MockConnectInfo<SocketAddr>>().map(|info| info.0);
        if let Some(address) = connected.or_else(mocked) {
            return Some(address.ip());
        }
    }
    parts.extensions.get::<SocketAddr>().map(SocketAddr::ip)
}
