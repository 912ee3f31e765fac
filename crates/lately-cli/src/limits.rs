//! Every bound of the command line, by name.

use std::time::Duration;

/// How long a client command waits for a connection, and then for each answer.
pub(crate) const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The most threads `serve` may be asked for.
pub(crate) const MAX_THREADS: usize = 1_024;

/// Threads that serve clients and share an arena of the allocator: more would wait for each other.
pub(crate) const THREADS_PER_ARENA: usize = 4;

/// Blocks of memory from this size on are given back to the system when they are freed.
pub(crate) const LARGE_BLOCK_BYTES: u32 = 64 << 10;

/// Threads that do what blocks, beside those that serve clients.
pub(crate) const BLOCKING_THREADS: usize = 512;

/// File descriptors the server needs for each thread but the first.
pub(crate) const FILES_PER_THREAD: u64 = 6;

/// File descriptors the server needs beside those of its clients, RESP and HTTP, and those of its threads.
pub(crate) const OWN_FILES: u64 = 64;
