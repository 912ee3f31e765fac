//! Every bound of the server, by name. Bounds on frames are in `lately_resp::limits`.

use std::time::Duration;

/// Clients served at once where the config names no other number.
pub const DEFAULT_MAX_CLIENTS: usize = 10_000;

/// A client that sends nothing for so long is disconnected, where the config names no other time.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// A client that does not take its replies for so long is disconnected.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Replies gathered before they are written: a reply more may be held.
pub const OUTPUT_BYTES: usize = 1 << 20;

/// Bytes asked of the socket in one read.
pub const READ_BYTES: usize = 64 << 10;

/// What a connection keeps of a buffer that a long request or reply has made larger.
pub const KEPT_BYTES: usize = 256 << 10;

/// Commands one `MULTI` queues.
pub const MAX_QUEUED_COMMANDS: usize = 1 << 20;

/// Bytes of commands one `MULTI` queues.
pub const MAX_QUEUED_BYTES: usize = 64 << 20;

/// How long a connection that is to stop waits to hear of requests that came before the stop.
pub const DRAIN_NOTICE: Duration = Duration::from_millis(1);

/// How long a stop waits for clients to take their last replies.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the listener waits after a connection could not be taken.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Connections the system holds for a listener that has not taken them yet.
pub const LISTEN_BACKLOG: u32 = 1_024;

/// The smallest memory ceiling a config may name: less would evict what was just counted.
pub const MIN_CEILING_BYTES: u64 = 1 << 20;

/// Slots looked at in one step of the background sweep, and the time between steps.
pub const SWEEP_SLOTS: usize = 10_000;
/// See [`SWEEP_SLOTS`].
pub const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// A wall clock set by more than this is told: hits stamped by it would be refused as too far ahead.
pub const CLOCK_STEP_MS: i64 = 10_000;

/// Evictions are told at most this often.
pub const EVICTIONS_TOLD_EVERY_MS: i64 = 60_000;

/// The memory ceiling where the config names none: 1 GiB.
pub const DEFAULT_CEILING_BYTES: u64 = 1 << 30;

/// The longest config file, in bytes.
pub const MAX_CONFIG_BYTES: u64 = 16 << 20;
