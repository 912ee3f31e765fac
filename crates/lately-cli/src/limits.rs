//! Every bound of the command line, by name.

use std::time::Duration;

/// How long a client command waits for a connection, and then for each answer.
pub(crate) const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The most threads `serve` may be asked for.
pub(crate) const MAX_THREADS: usize = 1_024;

/// File descriptors the server needs beside those of its clients, RESP and HTTP.
pub(crate) const OWN_FILES: u64 = 64;
