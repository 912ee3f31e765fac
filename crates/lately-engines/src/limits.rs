//! Bounds of this crate.

use std::time::Duration;

/// The timeout of a connection attempt to an engine, and of an answer.
pub(crate) const ENGINE_TIMEOUT: Duration = Duration::from_secs(2);

/// Commands that are sent to an engine together.
pub(crate) const ENGINE_COMMANDS: usize = 1_000;

/// Blocks that are known to have a time to live.
pub(crate) const LASTING_BLOCKS: usize = 200_000;

/// Sets with the names of changed blocks. A Redis Cluster spreads them over its masters.
pub(crate) const CHANGED_SETS: u16 = 8;

/// How long the names of changed blocks are kept after the last one was added.
pub(crate) const CHANGED_LASTS: Duration = Duration::from_secs(3_600);

/// The most redirections of one command by the servers of a cluster.
pub(crate) const REDIRECTIONS: usize = 5;

/// The blocks of cells in a partition of a table of PostgreSQL, at least.
pub(crate) const PARTITION_BLOCKS: i64 = 64;

/// The least length of such a partition, in milliseconds.
pub(crate) const PARTITION_LEAST_MS: i64 = 600_000;
