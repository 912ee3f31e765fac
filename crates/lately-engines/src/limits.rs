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

/// The most nodes that follow a node of a mesh.
pub(crate) const MAX_PEER_FOLLOWERS: usize = 1_000;

/// The most connections to the listener for peers.
pub(crate) const MAX_PEER_CONNECTIONS: usize = 1_000;

/// Bytes of a message between nodes of a mesh. A longer one is refused.
pub(crate) const MAX_PEER_MESSAGE_BYTES: usize = 8 << 20;

/// Bytes of changes in a message, about. The last block of a page may exceed it.
pub(crate) const PEER_PAGE_BYTES: usize = 256 << 10;

/// Starts of nodes that a node of a mesh knows apart. Changes from further ones are passed on as its own.
pub(crate) const MAX_PEER_LIVES: usize = 10_000;

/// Widths of cells, each with its levels, in one message between nodes.
pub(crate) const MAX_PEER_GRIDS: usize = 10_000;

/// Bytes of a name or a text that nodes of a mesh share.
pub(crate) const MAX_PEER_TEXT_BYTES: usize = 512 << 10;

/// Such texts, and their bytes.
pub(crate) const MAX_PEER_TEXTS: usize = 10_000;
/// See [`MAX_PEER_TEXTS`].
pub(crate) const MAX_PEER_TEXTS_BYTES: usize = 16 << 20;

/// The longest time that counts and texts from another node are kept: longer than any retention.
pub(crate) const MAX_PEER_KEPT_MS: i64 = 2 * lately::Span::MAX.as_millis();

/// Blocks that a node of a mesh notes as changed, for an upstream engine.
pub(crate) const MAX_PEER_NOTES: usize = 200_000;

/// How long the answer to a node that follows another one may wait for a change.
pub(crate) const PEER_WAIT: Duration = Duration::from_secs(1);

/// How often a node asks another one for what that has learned from others, in milliseconds.
pub(crate) const PEER_RELAY_EVERY_MS: i64 = 1_000;

/// The pause after a failed attempt to follow a node.
pub(crate) const PEER_RETRY: Duration = Duration::from_millis(250);

/// A follower that has not asked for this long, in milliseconds, is not waited for.
pub(crate) const PEER_SILENT_MS: i64 = 5_000;

/// How often a part of the counts of a mesh is looked at for those that are over: all of them in this many turns.
pub(crate) const PEER_TIDY_EVERY: Duration = Duration::from_secs(1);
/// See [`PEER_TIDY_EVERY`].
pub(crate) const PEER_TIDY_ROUND: usize = 60;

/// How often the certificates between nodes are read again.
pub(crate) const PEER_TLS_EVERY: Duration = Duration::from_secs(60);
