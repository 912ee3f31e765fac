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

/// One part in this many of the memory ceiling is for these connections, and another one for the messages on them.
pub(crate) const NODES_SHARE: u64 = 8;

/// What a connection takes, with the window below.
pub(crate) const NODE_CONNECTION_BYTES: usize = 64 << 10;

/// The connections for which there is room in any case.
pub(crate) const LEAST_NODE_CONNECTIONS: usize = 64;

/// The bytes of messages for which there is room in any case, and the most of them.
pub(crate) const LEAST_NODE_BYTES: usize = 2 << 20;
/// See [`LEAST_NODE_BYTES`].
pub(crate) const MAX_NODE_BYTES: usize = 64 << 20;

/// A message is in memory this many times at once: as it came, and read.
pub(crate) const NODE_COPIES: usize = 2;

/// Bytes that a node may send ahead on a connection, and those of an answer that are sent ahead. The protocol has no less.
pub(crate) const NODE_WINDOW_BYTES: u32 = 64 << 10;

/// Calls of a connection at once.
pub(crate) const MAX_NODE_CALLS: u32 = 8;

/// Bytes of the headers of a call.
pub(crate) const MAX_NODE_HEAD_BYTES: u32 = 16 << 10;

/// How often a connection is looked at. It ends when a message is not whole, or an answer not taken, after this many looks.
pub(crate) const NODE_LOOK_EVERY: Duration = Duration::from_secs(1);
/// See [`NODE_LOOK_EVERY`].
pub(crate) const NODE_LATE_LOOKS: u64 = 10;

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

/// How long changes are gathered before a node gets them that asks for all, so that those of many nodes go in one message.
pub(crate) const PEER_GATHER: Duration = Duration::from_millis(20);

/// A child that was away for this long, in milliseconds, is let go. A node that has started and not read all in this time is waited for no longer.
pub(crate) const PEER_CHILD_GONE_MS: i64 = 3_600_000;

/// Names of nodes above a node.
pub(crate) const MAX_PEER_ABOVE: usize = 100;

/// How often a name is resolved again.
pub(crate) const PEER_RESOLVE_EVERY: Duration = Duration::from_secs(5);

/// Addresses that a name may have. Further ones are left out.
pub(crate) const MAX_PEER_ADDRESSES: usize = 1_000;

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

/// The most hits of a record of Kafka.
pub(crate) const KAFKA_MOST_HITS: u64 = 1 << 32;

/// Bytes of the value of such a record.
#[cfg(feature = "kafka")]
pub(crate) const MAX_KAFKA_VALUE_BYTES: usize = 4_096;

/// Bytes of the name of a topic, and of a group: the name of its origin is as long at most, and that of a topic gets a suffix.
pub(crate) const MAX_KAFKA_TOPIC_BYTES: usize = lately::limits::MAX_NODE_BYTES;

/// Parts of the counts that are tidied one after the other.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_PARTS: usize = 256;

/// How much longer than they are read counts of partitions are kept, in milliseconds: the clocks of nodes may differ.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_SLACK_MS: i64 = 120_000;

/// How often some of the parts are tidied, in milliseconds: all of them in this many turns.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_TIDY_EVERY_MS: i64 = 1_000;
/// See [`KAFKA_TIDY_EVERY_MS`].
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_TIDY_ROUNDS: usize = 64;

/// Texts about keys that are tidied with each of the parts.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_TIDIED_TEXTS: usize = 1_000;

/// Records that are counted together, at most.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_BATCH: usize = 100_000;

/// Records that are written together, at most.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_AT_ONCE: usize = 20_000;

/// One part in this many of the memory that the counts of all nodes may take is for ids of hits at most. Past it, those that would be over next are
/// forgotten.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_IDS_PART: usize = 2;

/// Then one id in this many is forgotten, about.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_IDS_FORGOTTEN_AT_ONCE: usize = 16;

/// Ids in a record of the state topic, at most.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_IDS_OF_A_RECORD: usize = 1_000;

/// The most records of ids of a partition that are removed from the state topic at once. Their ids are over.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_IDS_OVER_AT_ONCE: usize = 1_000;

/// Members of records that are not written may take one part in this many of the memory for the counts of all nodes. Past it, they are written early.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_MEMBERS_PART: usize = 8;

/// The texts about keys may take one part in this many of that memory. Past it, keys without members get none from records.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_TEXTS_PART: usize = 2;

/// The most bytes of texts with members that are written at once, beside the last of them.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_MEMBERS_AT_ONCE_BYTES: usize = 4 << 20;

/// How often members of records are written, in milliseconds.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_MEMBERS_EVERY_MS: i64 = 1_000;

/// How fast they are written, in bytes each millisecond. If they take more, they are written less often, up to this time.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_MEMBERS_BYTES_A_MS: usize = 1_000;
/// See [`KAFKA_MEMBERS_BYTES_A_MS`].
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_MEMBERS_SELDOM_MS: i64 = 60_000;

/// How long the library tries to deliver a record.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_DELIVERY: Duration = Duration::from_secs(10);

/// Records that the brokers have not acknowledged. Past it, hits of clients are refused.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_QUEUE_RECORDS: usize = 4 * KAFKA_AT_ONCE;

/// Memory of the hits of clients that the brokers have not acknowledged, in KiB. Past it, hits are refused.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_QUEUE_KBYTES: usize = 65_536;

/// The timeout of a question to the brokers.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest that a thread waits for records.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_POLL: Duration = Duration::from_millis(100);

/// The timeout of the first question about a topic. A client that the brokers refuse knows it by then.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_FIRST_ASK: Duration = Duration::from_millis(500);

/// The pause after a failure.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_RETRY: Duration = Duration::from_millis(500);

/// How long the compaction leaves records of the state topic alone, in milliseconds.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_COMPACTION_LAG_MS: i64 = 3_600_000;

/// The least that the state topic may have, in milliseconds: twice as long as a mark is good for.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_LEAST_COMPACTION_LAG_MS: i64 = 2 * KAFKA_ASKED_WITHIN_MS;

/// A node reads its own record in the state topic within this time, or writes another one, in milliseconds. Less than the lag of the compaction: so
/// nothing that came later can have replaced a record that was there before.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_ASKED_WITHIN_MS: i64 = 600_000;

/// How often a node writes such a record until it has read one, in milliseconds.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_ASK_EVERY_MS: i64 = 5_000;

/// How often a node asks about brokers that did not answer, and about records that are not in their topic, in milliseconds.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_LOST_EVERY_MS: i64 = 1_000;

/// The most bytes of a key or a value in a dead letter. Both, with the headers, are shorter than the longest record of most brokers, 1 MB.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_DEAD_BYTES: usize = 384 << 10;

/// How long a node that stops waits for its last counts to be written.
#[cfg(feature = "kafka")]
pub(crate) const KAFKA_STOP: Duration = Duration::from_secs(15);
