//! The errors of a load.

use std::net::SocketAddr;
use std::time::Duration;

/// Why a load failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A part of the plan is out of bounds.
    #[error("{what} {value} is out of bounds: give {least} to {most}")]
    Bounds {
        /// The name of the part.
        what: &'static str,
        /// What was given.
        value: String,
        /// The lower bound.
        least: String,
        /// The upper bound.
        most: String,
    },
    /// No connection.
    #[error("{address}: {cause}")]
    Connect {
        /// The address.
        address: SocketAddr,
        /// The cause.
        cause: std::io::Error,
    },
    /// The server refused the login.
    #[error("the login: {answer}")]
    Login {
        /// Its answer, or why there was none.
        answer: String,
    },
    /// The server closed a connection while replies were due.
    #[error("the server closed a connection that still waited for {due} replies")]
    Closed {
        /// The number of missing replies.
        due: usize,
    },
    /// The server did not answer.
    #[error("no reply came for {} s", patience.as_secs())]
    Silent {
        /// The time that was waited.
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
        /// Their number.
        extra: usize,
    },
    /// An error of the system.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The counts could not be read.
    #[error("reading the counts: {0}")]
    Counts(#[from] redis::RedisError),
}
