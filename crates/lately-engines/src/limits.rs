//! Bounds of this crate.

use std::time::Duration;

/// The timeout of a connection attempt to an engine, and of an answer.
pub(crate) const ENGINE_TIMEOUT: Duration = Duration::from_secs(2);

/// Commands that are sent to an engine together.
pub(crate) const ENGINE_COMMANDS: usize = 1_000;

/// Blocks that are known to have a time to live.
pub(crate) const LASTING_BLOCKS: usize = 200_000;

/// The most redirections of one command by the servers of a cluster.
pub(crate) const REDIRECTIONS: usize = 5;
