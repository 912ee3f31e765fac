//! Errors of a load.

use std::net::SocketAddr;
use std::time::Duration;

/// Why a load failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A part of the plan that is out of bounds.
    #[error("{what} {value} is out of bounds: give {least} to {most}")]
    Bounds {
        /// Which part.
        what: &'static str,
        /// What was given.
        value: String,
        /// The least it can be.
        least: String,
        /// The most it can be.
        most: String,
    },
    /// No connection.
    #[error("{address}: {cause}")]
    Connect {
        /// Where to.
        address: SocketAddr,
        /// Why not.
        cause: std::io::Error,
    },
    /// The server closed a connection while replies were due.
    #[error("the server closed a connection that still waited for {due} replies")]
    Closed {
        /// How many were due.
        due: usize,
    },
    /// The server did not answer.
    #[error("no reply came for {} s", patience.as_secs())]
    Silent {
        /// How long was waited.
        patience: Duration,
    },
    /// A reply that is neither an integer, a simple string nor an error.
    #[error("a reply that starts with '{}' has no place here", first.escape_ascii())]
    Reply {
        /// Its first byte.
        first: u8,
    },
    /// More replies than requests.
    #[error("{extra} replies more came than were due")]
    Extra {
        /// How many.
        extra: usize,
    },
    /// The system refused something.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The counts could not be read.
    #[error("reading the counts: {0}")]
    Counts(#[from] redis::RedisError),
}
