//! Errors: of the limits as they are set up, and of single requests.

use std::error::Error;
use std::fmt;

use lately::limits::{MAX_KEY_BYTES, MAX_LIMITS};
use lately::{LimitError, SettingsError};
use lately_keys::KeyError;

use crate::limits::MAX_NAME_BYTES;

/// Limits that cannot be built.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// There is no limit.
    NoLimit,
    /// There are more limits than a request can be decided by.
    Limits {
        /// How many there are.
        given: usize,
    },
    /// The name of a limit is empty, too long, or has other bytes than letters, digits, `-`, `_` and `.`.
    Name {
        /// The name.
        name: String,
    },
    /// Two limits have the same name.
    SameName {
        /// The name.
        name: String,
    },
    /// No limit has the name for which a lockout or an exemption was given.
    NoSuchLimit {
        /// The name.
        name: String,
    },
    /// What is exempt is neither a network nor a pattern.
    Exempt(KeyError),
    /// This is no name of a header.
    Header {
        /// The text.
        name: String,
    },
    /// A trusted proxy is neither an address nor a network.
    Proxy(KeyError),
    /// A prefix is longer than an address.
    Prefix {
        /// The bits of IPv4 that count.
        ipv4_bits: u8,
        /// The bits of IPv6 that count.
        ipv6_bits: u8,
    },
    /// The store refuses the window of a limit.
    Settings(SettingsError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::NoLimit => write!(f, "there is no limit: add one with `limit`"),
            BuildError::Limits { given } => {
                write!(f, "{given} limits are too many: give at most {MAX_LIMITS}")
            }
            BuildError::Name { name } => write!(
                f,
                "invalid name of a limit '{name}': give 1 to {MAX_NAME_BYTES} letters, digits, '-', '_' or '.'"
            ),
            BuildError::SameName { name } => write!(f, "two limits are named '{name}'"),
            BuildError::NoSuchLimit { name } => {
                write!(f, "no limit is named '{name}': add it before its lockout and exemptions")
            }
            BuildError::Exempt(error) => write!(f, "exempt: {error}"),
            BuildError::Header { name } => write!(f, "invalid name of a header '{name}'"),
            BuildError::Proxy(error) => write!(f, "trusted_proxies: {error}"),
            BuildError::Prefix { ipv4_bits, ipv6_bits } => write!(
                f,
                "invalid prefix of {ipv4_bits} bits of IPv4 and {ipv6_bits} of IPv6: give at most 32 and 128"
            ),
            BuildError::Settings(error) => error.fmt(f),
        }
    }
}

impl Error for BuildError {}

/// Why a request could not be decided. [`LimitsBuilder::on_error`](crate::LimitsBuilder::on_error) is called with it.
#[derive(Debug)]
#[non_exhaustive]
pub enum DecideError {
    /// The address of the peer is not known. The request gets the status 500.
    NoPeer,
    /// The key is too long. The request gets the status 400.
    KeyLength {
        /// The name of the limit.
        limit: String,
        /// Bytes of the key, with the name of the limit and a colon.
        bytes: usize,
    },
    /// The store has no room for the key. The request gets the status 503.
    Store(LimitError),
    /// The server is away, or refused. The request gets what was stated for that case.
    #[cfg(feature = "server")]
    Server(crate::ServerError),
}

impl fmt::Display for DecideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecideError::NoPeer => f.write_str(
                "the address of the peer is not known: serve with into_make_service_with_connect_info::<SocketAddr>(), or set peer_by",
            ),
            DecideError::KeyLength { limit, bytes } => {
                write!(f, "the key of the limit '{limit}' has {bytes} bytes: at most {MAX_KEY_BYTES} are allowed")
            }
            DecideError::Store(error) => error.fmt(f),
            #[cfg(feature = "server")]
            DecideError::Server(error) => error.fmt(f),
        }
    }
}

impl Error for DecideError {}
