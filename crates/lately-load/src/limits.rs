//! Every bound of a load, by name.

use std::time::Duration;

/// The most connections.
pub const MAX_CLIENTS: usize = 10_000;
/// The most requests of a connection that wait for their replies.
pub const MAX_PIPELINE: usize = 10_000;
/// The most keys. The expected count of each is in memory.
pub const MAX_KEYS: u64 = 100_000_000;
/// The longest run.
pub const MAX_SECONDS: u64 = 86_400;
/// The most requests a second of a fixed rate.
pub const MAX_RATE: u64 = 1_000_000_000;
/// The steepest Zipf distribution. Beyond it, one key has nearly all requests.
pub const MAX_ZIPF: f64 = 10.0;

/// How long a server may be silent while replies are due.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The longest latency that is recorded; longer ones count as this.
pub const MAX_LATENCY: Duration = Duration::from_secs(100);

/// Digits of a key: `key:000000000042`.
pub(crate) const KEY_DIGITS: usize = 12;
/// Digits of an id.
pub(crate) const ID_DIGITS: usize = 12;
/// Digits of a time, in Unix seconds.
pub(crate) const TIME_DIGITS: usize = 10;
/// Bytes that are read at once from a connection.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// Keys that are drawn in advance from a Zipf distribution, and used cyclically.
pub(crate) const ZIPF_DRAWN: usize = 1 << 20;
/// Keys whose counts are read at once.
pub(crate) const KEYS_AT_ONCE: u64 = 1_000;
