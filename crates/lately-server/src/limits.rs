//! Every bound of the server, by name. Bounds on frames are in `lately_resp::limits`.

use std::time::Duration;

/// Clients served at once where the config names no other number.
pub const DEFAULT_MAX_CLIENTS: usize = 10_000;

/// A client that sends nothing for so long is disconnected, where the config names no other time.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// How often is looked for clients that are silent or take no replies: they are disconnected so much
/// late, and a little more.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A client that does not take its replies for so long is disconnected.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Replies gathered before they are written: the replies of a run, or one reply, more may be held.
pub const OUTPUT_BYTES: usize = 64 << 10;

/// When so much has come, from one connection or several, it is run before more is read: a run's worth
/// of requests, of which more at once gain nothing and make the first wait.
pub const BATCH_BYTES: usize = 2 << 10;

/// Batches that are run before the first of them is answered: who sleeps until it is answered is woken once for all,
/// and the first is still answered soon.
pub const GROUP_BATCHES: usize = 2;

/// When so much has come, in several batches, all of it is run and answered before more is read. Where changes are written
/// to the journal, all at once, this alone bounds a group: a write for less costs more than it lets others wait.
pub const GROUP_BYTES: usize = 32 * BATCH_BYTES;

/// Bytes of replies of batches that are sent before the next batch runs.
pub const GROUP_OUTPUT_BYTES: usize = 256 << 10;

/// News of sockets taken from the system at once.
pub const EVENTS: usize = 1_024;

/// Operations given to the store at once: as many as it fetches the memory of together.
pub const RUN_OPERATIONS: usize = 64;

/// The same once one is of several keys, of which the store fetches the memory of no more together. Each has memory of its
/// own, which the next ones use again.
pub const RUN_JOINT_OPERATIONS: usize = 4;

/// Bytes asked of the socket in one read.
pub const READ_BYTES: usize = 64 << 10;

/// What has come of a request is moved to a connection's own buffer until more comes, and back; one
/// longer than this stays there.
pub const SHORT_BYTES: usize = 4 << 10;

/// What a batch keeps of a buffer that a long request or reply has made larger. A thread has some thirty batches.
pub const KEPT_BYTES: usize = 64 << 10;

/// Bytes of keys after which a page of `SCAN` ends, however many places it was to look at; looked for
/// after each [`SCAN_STEP`].
pub const SCAN_BYTES: usize = 1 << 20;

/// Bytes of a pattern, looked at again and again, after which it ends, too: some ten milliseconds.
pub const SCAN_WORK: u64 = 8 << 20;

/// A request of several keys with more arguments than this runs a part of them at a time, of half as many keys.
pub const LONG_ARGUMENTS: usize = 1_024;

/// Points of a `SERIES` that are read and written at once: a quarter of a millisecond.
pub const SERIES_STEP: usize = 2_048;

/// Places of the store looked at in one step of a walk over all keys that counts their hits.
pub const WALK_STEP: usize = 1_024;

/// Places of the store looked at in one step of a `SCAN`.
pub const SCAN_STEP: usize = 256;

/// With a pattern longer than this they are fewer by as much, as each may take longer.
pub const SCAN_STEP_PATTERN_BYTES: usize = 16;

/// What a connection takes without buffers: its socket as the system knows it, its state, the names its
/// client gave it, its place among the clients.
pub const CONNECTION_BYTES: usize = 2 << 10;

/// Commands one `MULTI` queues.
pub const MAX_QUEUED_COMMANDS: usize = 1 << 20;

/// Bytes of commands one `MULTI` queues.
pub const MAX_QUEUED_BYTES: usize = 64 << 20;

/// HTTP connections of a listener at once. One more takes the place of the oldest that the server waits for, if there is
/// one at the next look, but for dumps and restores; else it waits until one ends.
pub const MAX_HTTP_CONNECTIONS: usize = 64;

/// Bytes of an HTTP request up to its body, which none has.
pub const MAX_HTTP_HEAD_BYTES: usize = 8 << 10;

/// How long the server waits for an HTTP client at most, from the start of a connection to the end of its one answer.
/// Bytes of a dump or a restore that move give back what they may take at [`HTTP_LEAST_BYTES`].
pub const HTTP_TIMEOUT: Duration = Duration::from_secs(10);

/// Windows in a request over HTTP for the hits of a key.
pub const MAX_HTTP_WINDOWS: usize = 100;

/// Bytes of a dump or a restore that a client has to move in a second.
pub const HTTP_LEAST_BYTES: u64 = 32_000;

/// How often is looked whether HTTP clients keep up.
pub const HTTP_LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the system holds of an answer over HTTP that its client has not taken, at most; Linux takes twice as much for it.
/// A larger buffer hides for long that a slow client takes anything.
pub const HTTP_SEND_BYTES: usize = 128 << 10;

/// Bytes of a body that are read and thrown away after it was refused: a client that is answered while it sends may not
/// look at the answer.
pub const HTTP_DISCARD_BYTES: usize = 64 << 20;

/// How long a stop waits for clients to take their last replies.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// What a client has sent and its own system still holds, at most: the default of Linux. So much is read
/// and answered after a stop beside what has been received, and no more; and so much is thrown away after the end of a
/// connection.
pub const DRAIN_BYTES: usize = 4 << 20;

/// A connection that the server ends is closed once its client has sent nothing for so long, or has ended
/// it too; what comes meanwhile is thrown away. It takes a look more, and at most [`DRAIN_TIMEOUT`] and
/// [`DRAIN_BYTES`] beside what has been received.
pub const LINGER: Duration = Duration::from_millis(200);

/// How long the listener waits after a connection could not be taken.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Connections the system holds for a listener that has not taken them yet.
pub const LISTEN_BACKLOG: u32 = 1_024;

/// A server says where it listens once it has loaded its counts, or after so long: who starts one with few
/// counts finds them there.
pub const READY_WITHIN: Duration = Duration::from_secs(1);

/// How often is told how far loading is.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Dumps made at once.
pub const MAX_DUMPS: usize = 4;

/// Restores at once: each holds a share of the keys of its dump, and files on the disk.
pub const MAX_RESTORES: usize = 1;

/// How long a dump or a restore has its place though it is slow and another one waits: time in which the server waits for
/// its client.
pub const FAIR_SHARE: Duration = Duration::from_secs(30);

/// Bytes that a client has to move in a second, on the average of the last [`FAIR_SHARE`], to keep its place for longer.
pub const FAIR_BYTES: u64 = 1_000_000;

/// One in so many bytes of the memory ceiling is for changes that wait for dumps to be taken; when there are more, the
/// dump that is furthest behind fails.
pub const TAPS_SHARE: u64 = 16;

/// Below a low ceiling it is as much as this: what happens in some tenths of a second at full load.
pub const TAPS_LEAST_BYTES: u64 = 2 << 20;

/// But no more than one in so many bytes of the ceiling.
pub const TAPS_MOST_SHARE: u64 = 4;

/// What a change that waits takes beside its bytes.
pub const TAP_RECORD_BYTES: usize = 64;

/// A dump that is restored is kept in files while it is checked. They leave this share of the free disk, one eighth, to
/// others.
pub const SPOOL_LEAVES_SHARE: u64 = 8;

/// Bytes written to such a file between two looks at the free disk.
pub const SPOOL_LOOK_BYTES: u64 = 1 << 20;

/// When a piece of a dump has so many bytes of changes it is sent.
pub const DUMP_PIECE_BYTES: usize = 64 << 10;

/// Pieces of a dump that wait for whoever reads it, and of one that is restored.
pub const TRANSFER_PIECES: usize = 2;

/// The smallest memory ceiling a config may name: less would evict what was just counted.
pub const MIN_CEILING_BYTES: u64 = 1 << 20;

/// The most a ceiling may be: what a process can address.
pub const MAX_CEILING_BYTES: u64 = 128 << 40;

/// Slots looked at in one step of the background sweep, and the time between steps. Clients wait for a
/// step: some tenths of a millisecond.
pub const SWEEP_SLOTS: usize = 500;
/// See [`SWEEP_SLOTS`].
pub const SWEEP_EVERY: Duration = Duration::from_millis(10);

/// What the process may have beside the memory ceiling before it counts as fragmented: itself, its threads' buffers, and one in
/// so many bytes of the ceiling.
pub const PROCESS_BYTES: u64 = 12 << 20;
/// See [`PROCESS_BYTES`].
pub const RESIDENT_SHARE: u64 = 20;

/// One in so many bytes of the ceiling is the most that is charged for fragmented memory, and that is charged more at one look.
pub const FRAGMENTATION_SHARE: u64 = 2;
/// See [`FRAGMENTATION_SHARE`].
pub const FRAGMENTATION_STEPS: u64 = 64;

/// While it is fragmented, the allocator gives back what it can at most this often: it takes some milliseconds, and threads wait.
pub const RETURN_EVERY_MS: i64 = 250;

/// Time between looks at what should be told.
pub const WATCH_EVERY: Duration = Duration::from_millis(100);

/// Samples of the number of commands, one each [`WATCH_EVERY`], that `instantaneous_ops_per_sec` is the rate of.
pub(crate) const THROUGHPUT_SAMPLES: usize = 16;

/// A wall clock set by more than this is told: hits stamped by it would be refused as too far ahead.
pub const CLOCK_STEP_MS: i64 = 10_000;

/// Evictions, and failures that last no longer than a look, are told at most this often.
pub const TOLD_EVERY_MS: i64 = 60_000;

/// One in so many bytes of the memory ceiling is for connections: when they hold more in sum, one that
/// holds more than an equal part of it is disconnected as soon as it needs more.
pub const CONNECTIONS_SHARE: u64 = 8;

/// The memory ceiling where the config names none: 1 GiB.
pub const DEFAULT_CEILING_BYTES: u64 = 1 << 30;

/// The longest config file, in bytes.
pub const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// Host names in one config.
pub const MAX_HOSTS: usize = 64;

/// The longest host name, in bytes: that of DNS.
pub const MAX_HOST_BYTES: usize = 253;

/// Limits with names in one config.
pub const MAX_LIMITS: usize = 1_024;

/// The longest name of a limit, in bytes.
pub const MAX_LIMIT_NAME_BYTES: usize = 64;

/// Names of limits that are listed for who names one that is not there.
pub const MAX_LISTED_LIMITS: usize = 8;

/// Time between looks at the config file.
pub const CONFIG_LOOK_EVERY: Duration = Duration::from_secs(1);
