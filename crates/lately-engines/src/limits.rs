//! Bounds of this crate.

use std::time::Duration;

/// How long a connection attempt to an engine, and an answer, may take.
pub(crate) const ENGINE_TIMEOUT: Duration = Duration::from_secs(2);

/// Commands that are sent to an engine together.
pub(crate) const ENGINE_COMMANDS: usize = 1_000;

/// Blocks that are known to have their time to live.
pub(crate) const LASTING_BLOCKS: usize = 200_000;

/// How often servers of a cluster may pass one command on.
pub(crate) const REDIRECTIONS: usize = 5;
