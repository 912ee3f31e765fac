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

/// Bytes of a log that are parsed in a second: with fewer, a regular expression is called slow.
pub(crate) const SLOW_BYTES_PER_SECOND: u64 = 20_000_000;

/// How long lines are parsed before that is said.
pub(crate) const SLOW_AFTER: Duration = Duration::from_secs(3);

/// Keys in the table of a report.
pub(crate) const MAX_REPORT_KEYS: usize = 100;

/// Keys of a report that have a chart.
pub(crate) const MAX_REPORT_CHARTS: usize = 12;

/// Steps of the charts of a report.
pub(crate) const MAX_REPORT_STEPS: usize = 240;

/// Logs, and conditions, that a report names.
pub(crate) const MAX_REPORT_NAMES: usize = 20;

/// Characters of a key, a name or a condition that a report shows.
pub(crate) const REPORT_TEXT_CHARACTERS: usize = 60;

/// Bytes of a report, at most, for the whole texts of what it shows shortened.
pub(crate) const REPORT_TITLE_BYTES: usize = 64_000;

/// File descriptors the server needs beside those of its clients, RESP and HTTP, and those of its threads.
pub(crate) const OWN_FILES: u64 = 64;
