//! How limits are set up.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
#[cfg(feature = "server")]
use std::time::Duration;

use http::HeaderValue;
use http::request::Parts;
use lately::limits::MAX_LIMITS;
use lately::{Clock, Lockout, Pattern, Settings, Span, Store, SystemClock, minutes};
use lately_keys::{Exempt, KeyError, Network, Prefix};

use crate::decider::{Decider, OnError};
use crate::error::{BuildError, DecideError};
use crate::key::Key;
use crate::layer::Limits;
use crate::limits::DEFAULT_CEILING_BYTES;
#[cfg(feature = "server")]
use crate::limits::DEFAULT_SERVER_TIMEOUT;
use crate::peer::{Addresses, FindPeer, find_peer};
use crate::rule::Rule;
#[cfg(feature = "server")]
use crate::server::{Away, Server};

/// The default of the exact span of a store; no retention is shorter.
const SHORTEST_RETENTION: Span = minutes(6);

/// Builds [`Limits`].
#[must_use]
pub struct LimitsBuilder {
    rules: Vec<Rule>,
    trusted_proxies: Vec<String>,
    ipv4_bits: u8,
    ipv6_bits: u8,
    ceiling_bytes: u64,
    clock: Option<Arc<dyn Clock>>,
    find_peer: FindPeer,
    has_headers: bool,
    on_error: OnError,
    /// The first name that no limit has, or the first text that is neither a network nor a pattern.
    mistake: Option<BuildError>,
    #[cfg(feature = "server")]
    server: Option<Server>,
    #[cfg(feature = "server")]
    server_timeout: Duration,
}

impl LimitsBuilder {
    pub(crate) fn new() -> LimitsBuilder {
        LimitsBuilder {
            rules: Vec::new(),
            trusted_proxies: Vec::new(),
            ipv4_bits: 32,
            ipv6_bits: 64,
            ceiling_bytes: DEFAULT_CEILING_BYTES,
            clock: None,
            find_peer: Box::new(find_peer),
            has_headers: true,
            on_error: Box::new(|_| {}),
            mistake: None,
            #[cfg(feature = "server")]
            server: None,
            #[cfg(feature = "server")]
            server_timeout: DEFAULT_SERVER_TIMEOUT,
        }
    }

    /// Adds a limit: for each key, at most `max` requests in any window of this length. The name is in response headers, in
    /// answers, and at the start of keys: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub fn limit(self, name: &str, key: Key, max: u64, window: Span) -> LimitsBuilder {
        self.rule(name, key, (max, window), false)
    }

    /// Adds a limit in shadow: it counts, and denies nothing. A request that it would have denied is not counted as a hit;
    /// [`Limits::denials`] says how many there were. It is not in the headers.
    pub fn shadow(self, name: &str, key: Key, max: u64, window: Span) -> LimitsBuilder {
        self.rule(name, key, (max, window), true)
    }

    fn rule(mut self, name: &str, key: Key, (max, window): (u64, Span), is_shadow: bool) -> LimitsBuilder {
        let (name, denials) = (name.to_owned(), AtomicU64::new(0));
        let policy = HeaderValue::from_static("");
        let (lockout, exempt) = (None, Vec::new());
        self.rules.push(Rule { name, key, max, window, lockout, exempt, is_shadow, denials, policy });
        self
    }

    /// Has a denial of a limit that was added before lock the key out: each request of the key is denied for this long, whatever
    /// counts then. Requests during a lockout do not extend it. A limit in shadow starts no lockouts.
    ///
    /// ```
    /// # use lately_tower::{Limits, Lockout, by_client_address, days, minutes};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::builder()
    ///     .limit("login", by_client_address(), 5, minutes(1))
    ///     // 15 minutes, then 30, then an hour, and so on up to a day.
    ///     .lockout("login", Lockout::growing(minutes(15), "2".parse()?, Some(days(1)))?)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lockout(mut self, limit: &str, lockout: impl Into<Lockout>) -> LimitsBuilder {
        let lockout = lockout.into();
        self.change(limit, |rule| rule.lockout = Some(lockout));
        self
    }

    /// Leaves requests out of a limit that was added before: those of clients in a network, such as `10.0.0.0/8`, and those
    /// whose key matches a pattern, such as `login:monitor*`, with the name of the limit and a colon before it. The limit neither
    /// denies nor counts them. The address of the client is that of [`by_client_address`](crate::by_client_address), all of it,
    /// whatever the key of the limit.
    pub fn exempt<T: Into<String>>(
        mut self,
        limit: &str,
        exempt: impl IntoIterator<Item = T>,
    ) -> LimitsBuilder {
        let parsed: Result<Vec<Exempt>, KeyError> =
            exempt.into_iter().map(|text| text.into().parse()).collect();
        match parsed {
            Ok(exempt) => self.change(limit, |rule| rule.exempt.extend(exempt)),
            Err(error) => _ = self.mistake.get_or_insert(BuildError::Exempt(error)),
        }
        self
    }

    fn change(&mut self, limit: &str, change: impl FnOnce(&mut Rule)) {
        match self.rules.iter_mut().find(|rule| rule.name == limit) {
            Some(rule) => change(rule),
            None => _ = self.mistake.get_or_insert(BuildError::NoSuchLimit { name: limit.to_owned() }),
        }
    }

    /// Sets which proxies may add addresses to `X-Forwarded-For`: addresses and networks. Default: none, and the header is not
    /// read.
    pub fn trusted_proxies<T: Into<String>>(mut self, proxies: impl IntoIterator<Item = T>) -> LimitsBuilder {
        self.trusted_proxies = proxies.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how many leading bits of addresses count. Default: 32 of IPv4, which is all, and 64 of IPv6: a customer has at
    /// least that network.
    pub fn prefix(mut self, ipv4_bits: u8, ipv6_bits: u8) -> LimitsBuilder {
        (self.ipv4_bits, self.ipv6_bits) = (ipv4_bits, ipv6_bits);
        self
    }

    /// Sets how the address of the peer is found. Default: `ConnectInfo<SocketAddr>` of axum, or else a `SocketAddr` among the
    /// extensions of the request, which a service on hyper puts there itself.
    ///
    /// With tonic: `peer_by(|parts| Some(parts.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip()))`.
    pub fn peer_by(
        mut self,
        find_peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> LimitsBuilder {
        self.find_peer = Box::new(find_peer);
        self
    }

    /// Sets the most memory that keys and their counts take, in bytes. Default: 64 MiB.
    pub fn memory_ceiling(mut self, bytes: u64) -> LimitsBuilder {
        self.ceiling_bytes = bytes;
        self
    }

    /// Leaves the headers `RateLimit-Policy` and `RateLimit` out. `Retry-After` stays.
    pub fn without_headers(mut self) -> LimitsBuilder {
        self.has_headers = false;
        self
    }

    /// Sets the clock, such as a `lately::ManualClock` in tests. Default: the system's, which never goes back here.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> LimitsBuilder {
        self.clock = Some(clock);
        self
    }

    /// Sets what is called when a request could not be decided, to log it.
    pub fn on_error(mut self, on_error: impl Fn(&DecideError) + Send + Sync + 'static) -> LimitsBuilder {
        self.on_error = Box::new(on_error);
        self
    }

    /// Has a Lately server decide, over a connection of the `redis` crate, so that several processes share the counts. `away`
    /// says what becomes of requests while it is away or refuses.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use lately_tower::{Away, Limits, by_client_address, minutes};
    ///
    /// let client = redis::Client::open("redis://127.0.0.1:7379")?;
    /// let limits = Limits::builder()
    ///     .limit("ip", by_client_address(), 100, minutes(1))
    ///     .server(client.get_connection_manager().await?, Away::Local)
    ///     .on_error(|error| eprintln!("{error}"))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Give a connection that connects again, such as `redis::aio::ConnectionManager`. After a failure the server is not
    /// asked for a second; then one request tries it again. The windows must not be longer than the server's retention.
    #[cfg(feature = "server")]
    pub fn server(
        mut self,
        connection: impl redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
        away: Away,
    ) -> LimitsBuilder {
        self.server = Some(Server::new(connection, away));
        self
    }

    /// Sets how long a request waits for the server before it counts as away. Default: 250 ms.
    #[cfg(feature = "server")]
    pub fn server_timeout(mut self, timeout: Duration) -> LimitsBuilder {
        self.server_timeout = timeout;
        self
    }

    /// Builds the limits.
    ///
    /// # Errors
    /// [`BuildError`] says what is wrong.
    pub fn build(self) -> Result<Limits, BuildError> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        let rules = self.rules.into_iter().map(Rule::checked).collect::<Result<Vec<_>, _>>()?;
        let trusted_proxies =
            self.trusted_proxies.iter().map(|text| text.parse()).collect::<Result<Vec<Network>, _>>();
        let prefix = Prefix::new(self.ipv4_bits, self.ipv6_bits)
            .ok_or(BuildError::Prefix { ipv4_bits: self.ipv4_bits, ipv6_bits: self.ipv6_bits })?;
        Ok(Limits::new(Decider {
            store: store_for(&rules, self.ceiling_bytes)?,
            rules: enforced_first(rules),
            addresses: Addresses {
                find_peer: self.find_peer,
                trusted_proxies: trusted_proxies.map_err(BuildError::Proxy)?,
                prefix,
            },
            clock: self.clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
            has_headers: self.has_headers,
            on_error: self.on_error,
            #[cfg(feature = "server")]
            server: self.server.map(|server| server.with_timeout(self.server_timeout)),
        }))
    }
}

/// A store that keeps the hits of each limit for as long as its window.
fn store_for(rules: &[Rule], ceiling_bytes: u64) -> Result<Store, BuildError> {
    match rules.len() {
        0 => return Err(BuildError::NoLimit),
        given if given > MAX_LIMITS => return Err(BuildError::Limits { given }),
        _ => {}
    }
    let mut builder = Store::builder().memory_ceiling(ceiling_bytes);
    for (index, rule) in rules.iter().enumerate() {
        if rules[..index].iter().any(|before| before.name == rule.name) {
            return Err(BuildError::SameName { name: rule.name.clone() });
        }
        let retain = rule.window.max(SHORTEST_RETENTION);
        let settings = Settings::builder().retain(retain).build().map_err(BuildError::Settings)?;
        builder = builder.class(Pattern::new(format!("{}:*", rule.name).as_bytes()), settings);
    }
    builder.build().map_err(BuildError::Settings)
}

/// The order in which they are asked: those in shadow last.
fn enforced_first(mut rules: Vec<Rule>) -> Vec<Rule> {
    rules.sort_by_key(|rule| rule.is_shadow);
    rules
}
