//! What the key of a request is made of.

use std::fmt;
use std::io::Write as _;
use std::pin::Pin;

use http::HeaderName;
use http::request::Parts;
use lately_keys::Network;

use crate::error::{BuildError, DecideError};
use crate::peer::Addresses;

/// Makes something of the head of a request.
type Closure<K> = Box<dyn Fn(&Parts) -> K + Send + Sync>;

/// A key that is still being computed.
type Computing = Pin<Box<dyn Future<Output = Option<Vec<u8>>> + Send>>;

/// What the key of a limit is made of: requests with the same key share the limit. Made by [`by_client_address`],
/// [`by_header`] and others.
#[derive(Debug)]
pub struct Key {
    /// The first that a request has is its key.
    sources: Vec<Source>,
}

enum Source {
    ClientAddress,
    PeerAddress,
    /// As it was given, until the limits are built.
    HeaderText(String),
    Header(HeaderName),
    Closure(Closure<Option<Vec<u8>>>),
    AsyncClosure(Closure<Computing>),
}

/// The address of the client: that of the peer or, if the peer is a trusted proxy, what trusted proxies wrote into
/// `X-Forwarded-For`. Of an IPv6 address the /64 network counts.
///
/// A request whose peer has no known address gets the status 500: see [`LimitsBuilder::peer_by`](crate::LimitsBuilder::peer_by).
#[must_use]
pub fn by_client_address() -> Key {
    Key::of(Source::ClientAddress)
}

/// The address of the peer, the other end of the connection, even if it is a proxy. See [`by_client_address`].
#[must_use]
pub fn by_peer_address() -> Key {
    Key::of(Source::PeerAddress)
}

/// The value of a header; the first, if there are several.
///
/// A client chooses what it writes into a header. If the service does not check the value, add a limit by address.
#[must_use]
pub fn by_header(name: &str) -> Key {
    Key::of(Source::HeaderText(name.to_owned()))
}

/// Something that an outer layer put into the extensions of the request, such as the user.
///
/// ```
/// # use lately_tower::by_extension;
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
/// let key = by_extension(|user: &User| user.id.to_string());
/// ```
#[must_use]
pub fn by_extension<T, K>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> Key
where
    T: Send + Sync + 'static,
    K: Into<Vec<u8>>,
{
    by(move |parts| parts.extensions.get::<T>().map(&key))
}

/// What a closure makes of the head of the request.
///
/// ```
/// # use lately_tower::by;
/// let key = by(|parts| Some(parts.uri.path().to_owned()));
/// ```
#[must_use]
pub fn by<K: Into<Vec<u8>>>(key: impl Fn(&Parts) -> Option<K> + Send + Sync + 'static) -> Key {
    Key::of(Source::Closure(Box::new(move |parts| key(parts).map(Into::into))))
}

/// What a future makes of the head of the request. Take from the head what the future needs before it starts.
///
/// ```
/// # use lately_tower::by_async;
/// # async fn user_of(token: http::HeaderValue) -> Option<String> { None }
/// let key = by_async(|parts| {
///     let token = parts.headers.get("authorization").cloned();
///     async move { user_of(token?).await }
/// });
/// ```
#[must_use]
pub fn by_async<F, K>(key: impl Fn(&Parts) -> F + Send + Sync + 'static) -> Key
where
    F: Future<Output = Option<K>> + Send + 'static,
    K: Into<Vec<u8>>,
{
    Key::of(Source::AsyncClosure(Box::new(move |parts| {
        let computing = key(parts);
        Box::pin(async move { computing.await.map(Into::into) })
    })))
}

impl Key {
    fn of(source: Source) -> Key {
        Key { sources: vec![source] }
    }

    /// This key or, of a request without it, another. The alternatives count apart: a client that writes the address of
    /// another into a header does not use up its limit.
    ///
    /// ```
    /// # use lately_tower::{by_client_address, by_header};
    /// let key = by_header("x-api-key").or(by_client_address());
    /// ```
    #[must_use]
    pub fn or(mut self, other: Key) -> Key {
        self.sources.extend(other.sources);
        self
    }

    /// Checks the names of headers.
    pub(crate) fn checked(mut self) -> Result<Key, BuildError> {
        for source in &mut self.sources {
            if let Source::HeaderText(name) = source {
                let parsed = HeaderName::try_from(name.as_str());
                *source =
                    Source::Header(parsed.map_err(|_| BuildError::Header { name: std::mem::take(name) })?);
            }
        }
        Ok(self)
    }

    /// Whether no source of it is a future.
    pub(crate) fn is_immediate(&self) -> bool {
        !self.sources.iter().any(|source| matches!(source, Source::AsyncClosure(_)))
    }

    /// Appends the key of a request. Returns whether it has one.
    pub(crate) async fn append_to(
        &self,
        out: &mut Vec<u8>,
        parts: &Parts,
        addresses: &Addresses,
    ) -> Result<bool, DecideError> {
        let start_bytes = out.len();
        let append = |out: &mut Vec<u8>, network: Option<Network>| {
            write!(out, "{}", network.ok_or(DecideError::NoPeer)?).expect("a Vec takes any bytes");
            Ok(true)
        };
        for (index, source) in self.sources.iter().enumerate() {
            if self.sources.len() > 1 {
                out.truncate(start_bytes);
                write!(out, "{}:", index + 1).expect("a Vec takes any bytes");
            }
            let found = match source {
                Source::ClientAddress => return append(out, addresses.client(parts)),
                Source::PeerAddress => return append(out, addresses.peer(parts)),
                Source::HeaderText(_) => unreachable!("names were checked when the limits were built"),
                Source::Header(name) => parts.headers.get(name).map(|value| value.as_bytes().to_vec()),
                Source::Closure(key) => key(parts),
                Source::AsyncClosure(key) => key(parts).await,
            };
            if let Some(found) = found {
                out.extend_from_slice(&found);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::ClientAddress => f.write_str("client address"),
            Source::PeerAddress => f.write_str("peer address"),
            Source::HeaderText(name) => write!(f, "header {name}"),
            Source::Header(name) => write!(f, "header {name}"),
            Source::Closure(_) => f.write_str("closure"),
            Source::AsyncClosure(_) => f.write_str("async closure"),
        }
    }
}
