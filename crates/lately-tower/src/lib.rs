//! Rate limits for web services: a [Tower](https://docs.rs/tower) layer for axum, hyper, tonic and others.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # async fn handler() -> &'static str { "hello" }
//! use axum::{Router, routing::get};
//! use lately_tower::{Limits, by_client_address, by_header, days, minutes};
//!
//! let limits = Limits::builder()
//!     .limit("ip", by_client_address(), 100, minutes(1))
//!     .limit("key", by_header("x-api-key"), 10_000, days(1))
//!     .trusted_proxies(["10.0.0.0/8"])
//!     .memory_ceiling(64 << 20)
//!     .build()?;
//! let app: Router = Router::new().route("/", get(handler)).layer(limits.layer());
//! # Ok(())
//! # }
//! ```
//!
//! Serve it with `app.into_make_service_with_connect_info::<SocketAddr>()`, so that the address of the peer is known.
//!
//! - **Several limits at once, all or nothing.** A request that one limit denies counts against none of them.
//! - **Sliding windows.** No window of the length of a limit ever has more allowed requests than its maximum.
//! - **Keys**: the address of the client ([`by_client_address`]) or of the peer ([`by_peer_address`]), a header
//!   ([`by_header`]), an extension of the request ([`by_extension`]), or a closure ([`by`], [`by_async`]). A request without
//!   the key of a limit is not limited by it; [`Key::or`] names another key then.
//! - **Proxies.** The address of the client is read from `X-Forwarded-For` from the right, past
//!   [trusted proxies](LimitsBuilder::trusted_proxies) only. What a client writes into that header changes nothing. Without
//!   trusted proxies the header is not read. Clients with IPv6 count by their /64 network.
//! - **Answers.** A denied request gets the status 429, `Retry-After`, and a problem document (RFC 9457); a gRPC request gets
//!   the status `RESOURCE_EXHAUSTED`. All answers have `RateLimit-Policy` and `RateLimit`
//!   (draft-ietf-httpapi-ratelimit-headers), unless [turned off](LimitsBuilder::without_headers).
//! - **Lockouts and exemptions.** [`LimitsBuilder::lockout`] denies a key for a time after a denial, and longer each time if you
//!   like. [`LimitsBuilder::exempt`] leaves clients of a network, or some keys, out of a limit.
//! - **Shadow mode.** [`LimitsBuilder::shadow`] adds a limit that denies nothing. [`Limits::denials`] says how many requests
//!   it would have denied.
//! - **Bounded memory.** At [the ceiling](LimitsBuilder::memory_ceiling) keys are evicted, but never one that has used up its
//!   limit. When only such keys are left, requests with new keys get the status 503.
//! - **A server, if you like.** With the feature `server`, `LimitsBuilder::server` has a Lately server decide, so that
//!   several processes share the counts.
//!
//! A request counts when it is let through to the inner service, whatever becomes of it there. A request whose client goes
//! away while its key is computed counts nothing.

mod answer;
mod body;
mod builder;
mod decider;
mod error;
mod key;
mod layer;
pub mod limits;
mod peer;
mod rule;
#[cfg(feature = "server")]
mod server;

pub use body::LimitBody;
pub use builder::LimitsBuilder;
pub use error::{BuildError, DecideError};
pub use key::{Key, by, by_async, by_client_address, by_extension, by_header, by_peer_address};
pub use lately::{Factor, Lockout, Span, days, hours, milliseconds, minutes, seconds};
pub use layer::{LimitFuture, LimitLayer, LimitService, Limits};
#[cfg(feature = "server")]
pub use server::{Away, ServerError};
