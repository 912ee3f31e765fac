//! Every bound of the server, by name. Bounds on frames are in `lately_resp::limits`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use lately::{Span, days, hours, milliseconds, minutes, seconds};

/// The default of `max_clients`: RESP clients served at once.
pub const DEFAULT_MAX_CLIENTS: usize = 10_000;

/// The default of `idle_timeout`: a client that sends nothing for this long is disconnected.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Time between checks for clients that are idle or read no replies. They are disconnected at most this much too
/// late.
pub const TIMEOUT_CHECK_EVERY: Duration = Duration::from_millis(500);

/// Time between two looks of an event loop at its load.
pub const LOOK_EVERY: Duration = Duration::from_millis(80);

/// An event loop is busy when it works this part of the time, in percent.
pub const BUSY: u8 = 85;

/// It hands clients over once this many cores were idle meanwhile, for [`LOOKS`] looks in a row.
pub const IDLE_CORE: f64 = 0.3;

/// See [`IDLE_CORE`]. A single look may be mistaken.
pub const LOOKS: u32 = 3;

/// A loop takes clients over if it is busy for no more than this part of the time, in percent.
pub const MOST_BUSY_TAKER: u8 = 50;

/// The extra loop gives its clients back once it was busy for no more than this part of the time, in percent, for
/// [`QUIET_TIME`].
pub const QUIET: u8 = 30;

/// See [`QUIET`].
pub const QUIET_TIME: Duration = Duration::from_secs(5);

/// A client that reads no replies for this long is disconnected.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Replies collected before they are written. The replies of one run, or one long reply, may exceed it.
pub const OUTPUT_BYTES: usize = 64 << 10;

/// Input bytes of a batch. When this much was read, from one connection or several, the batch is executed. A larger
/// batch gains nothing and delays its first reply.
pub const BATCH_BYTES: usize = 2 << 10;

/// Batches that are executed before the first of them is answered. So a client that sleeps until its reply is woken
/// once for all of them.
pub const GROUP_BATCHES: usize = 2;

/// Input bytes of a commit group. When this much was read, in several batches, all of it is executed and answered.
/// With a journal this alone bounds a group, because one write for many changes is cheaper.
pub const GROUP_BYTES: usize = 32 * BATCH_BYTES;

/// Reply bytes of the batches of a group after which they are sent, before the next batch runs.
pub const GROUP_OUTPUT_BYTES: usize = 256 << 10;

/// Socket events taken from the system at once.
pub const EVENTS: usize = 1_024;

/// Operations given to the store at once: as many as it prefetches together.
pub const RUN_OPERATIONS: usize = 64;

/// Operations that name a time, given to the store at once. A late hit, or a limit at an earlier time, may take a
/// millisecond in a class of many panes.
pub const RUN_TIMED_OPERATIONS: usize = 16;

/// `MLIMIT` operations given to the store at once. Each holds memory of its own, which the next ones reuse.
pub const RUN_JOINT_OPERATIONS: usize = 4;

/// Bytes asked of the socket in one read.
pub const READ_BYTES: usize = 64 << 10;

/// The incomplete request of a connection is kept in its own buffer until more arrives, and then moved back. A longer
/// one stays in that buffer.
pub const SHORT_BYTES: usize = 4 << 10;

/// Capacity that each of the first [`GROUP_BATCHES`] batches of a thread keeps of a buffer after a long request or reply.
pub const KEPT_BYTES: usize = 64 << 10;

/// Capacity that each of the other batches keeps, of which a thread with a journal has about thirty: enough for the changes
/// and the replies of 64 limits.
pub const KEPT_OF_FURTHER_BATCHES: usize = 4 * BATCH_BYTES;

/// Bytes of keys after which a page of `SCAN` ends, whatever its `COUNT`. Checked after each [`SCAN_STEP`].
pub const SCAN_BYTES: usize = 1 << 20;

/// Pattern bytes, summed over the keys matched, after which a page of `SCAN` ends: some ten milliseconds of work.
pub const SCAN_WORK: u64 = 8 << 20;

/// A request of several keys with more arguments than this runs a part of them at a time, of half as many keys.
pub const LONG_ARGUMENTS: usize = 1_024;

/// A connection whose requests have taken this long waits until the others had their slices. Its next operations
/// are given to the store in parts that take about as long.
pub const TIME_SLICE: Duration = Duration::from_micros(250);

/// A connection that executed requests with this many arguments waits until the others had their slices. An
/// operation of up to [`LIGHT_ARGUMENTS`] arguments, such as `HIT` or `LIMIT`, is not counted: it is bounded by
/// [`TIME_SLICE`] and by the bytes of a read and of replies.
pub const SLICE_ARGUMENTS: usize = LONG_ARGUMENTS;

/// See [`SLICE_ARGUMENTS`].
pub const LIGHT_ARGUMENTS: usize = 8;

/// Lines of `CLIENT LIST` that are written at once: a millisecond.
pub const CLIENTS_STEP: usize = 256;

/// Keys named in a `COOLEST` that are counted at once.
pub const COOLEST_STEP: usize = LONG_ARGUMENTS;

/// Points of a `SERIES` that are read and written at once: a quarter of a millisecond.
pub const SERIES_STEP: usize = 2_048;

/// Slots visited in one slice of a walk that counts the hits of all keys.
pub const WALK_STEP: usize = 1_024;

/// Walks over all keys for clients of HTTP and gRPC at once. Further ones wait: each takes memory for the keys that it has found.
pub const MAX_WALKS: usize = 4;

/// Keys that the most-hit keys over HTTP and gRPC are, if the request has no number.
pub const DEFAULT_TOP_KEYS: usize = 10;

/// A piece of the answer about the most-hit keys over HTTP ends after this many bytes and a key.
pub const TOP_PIECE_BYTES: usize = HTTP_ANSWER_BYTES / 4;

/// Slots visited in one slice of a `SCAN`.
pub const SCAN_STEP: usize = 256;

/// A `SCAN` with a pattern longer than this visits proportionally fewer slots in a slice.
pub const SCAN_STEP_PATTERN_BYTES: usize = 16;

/// Memory of a connection without buffers: its socket in the kernel, its state, the names its client set, its entry
/// in the client list.
pub const CONNECTION_BYTES: usize = 2 << 10;

/// The share of the memory ceiling that has places for clients, of [`CONNECTION_BYTES`] each: one sixteenth. The rest of
/// [`CONNECTIONS_SHARE`] is for their buffers. Clients past the places are refused.
pub const CLIENTS_SHARE: u64 = 16;

/// Clients that are served however low the ceiling is, if `max_clients` allows it.
pub const LEAST_CLIENTS: usize = 64;

/// Commands one `MULTI` queues.
pub const MAX_QUEUED_COMMANDS: usize = 1 << 20;

/// Bytes of commands one `MULTI` queues.
pub const MAX_QUEUED_BYTES: usize = 64 << 20;

/// HTTP connections of a listener at once: one for each [`HTTP_ANSWER_BYTES`] of [`CONNECTIONS_SHARE`], at most this many, and
/// at least as many as may speak HTTP/2. Another one replaces the oldest that the server is waiting for, dumps and restores
/// excepted. If there is none, it waits until one ends.
pub const MAX_HTTP_CONNECTIONS: usize = 1_024;
/// Those among them that speak HTTP/2. They may send bodies ahead, so there are as many as the least of
/// [`HTTP2_CONNECTION_BYTES`] fits in [`HTTP2_BODIES_SHARE`], at least [`LEAST_HTTP_CONNECTIONS`] and at most this many. Another
/// one replaces the oldest in the same way.
pub const MAX_HTTP2_CONNECTIONS: usize = 64;
/// Connections of a listener that have sent nothing yet, and as many that have and wait for a place. Further silent ones are accepted once the
/// oldest has had [`HTTP_LOOK_EVERY`], and take its place; further ones that wait are refused.
pub const MAX_ARRIVALS: usize = MAX_HTTP_CONNECTIONS;
/// What each of them is charged to the memory ceiling.
pub const ARRIVAL_BYTES: usize = 1 << 10;
/// Places of a listener for requests for health and metrics while all others are taken.
pub const MAX_PROBES: usize = 8;
/// See [`MAX_HTTP2_CONNECTIONS`] and [`MAX_GRPC_CONNECTIONS`].
pub const LEAST_HTTP_CONNECTIONS: usize = 24;

/// What a connection over HTTP or gRPC is charged to the memory ceiling, without its requests and TLS: what one of HTTP/2
/// takes. The connections of a listener together are charged no more than [`CONNECTIONS_SHARE`].
pub const HTTP_CONNECTION_BYTES: usize = 48 << 10;

/// Bytes of the request line and headers of an HTTP request.
pub const MAX_HTTP_HEAD_BYTES: usize = 16 << 10;

/// Bytes that are read of an HTTP client before others have their turn.
pub const HTTP_SLICE_BYTES: usize = MAX_HTTP_HEAD_BYTES;

/// Headers of an HTTP request.
pub const MAX_HTTP_HEADERS: usize = 100;

/// How long the server waits for an HTTP client, from the start of a request to the end of its answer. The bytes of a
/// dump or restore extend this, at [`HTTP_LEAST_BYTES`] a second.
pub const HTTP_TIMEOUT: Duration = Duration::from_secs(10);

/// Windows in a request over HTTP for the hits of a key.
pub const MAX_HTTP_WINDOWS: usize = 100;

/// Bytes of a body with hits.
pub const MAX_HTTP_BODY_BYTES: u64 = 1 << 30;

/// Bytes of a line in a body with hits.
pub const MAX_HTTP_LINE_BYTES: usize = 8 << 10;

/// Lines of a body with hits that are counted and committed at once.
pub const NDJSON_BATCH_LINES: usize = 1_024;

/// Lines that the answer to a body with hits names as rejected. Further ones are only counted.
pub const MAX_REJECTED_LINES: usize = 1_000;

/// What a request in progress is charged to the memory ceiling: its head, and the state of its stream.
pub const REQUEST_BYTES: usize = 16 << 10;

/// Memory that a request over HTTP may take: a piece of a long answer, and what of it waits in the buffer of a stream. A
/// listener has as many places for requests as fit in [`CONNECTIONS_SHARE`], and at least one for each connection.
pub const HTTP_ANSWER_BYTES: usize = 128 << 10;

/// Requests over HTTP/2 that wait for a place. Further ones are refused. Requests over HTTP/1 all wait.
pub const MAX_WAITING_REQUESTS: usize = MAX_HTTP2_CONNECTIONS;

/// A request that has waited for a place for this many looks of [`HTTP_LOOK_EVERY`] is refused.
pub const PLACE_LOOKS: usize = 10;

/// While the server has worked on a request for fewer looks of [`HTTP_LOOK_EVERY`], its connection is not closed for another.
pub const WORK_LOOKS: u64 = 3;

/// Requests that an HTTP/2 client may send at once on a connection: one [`HTTP2_STREAMS_SHARE`]th of the places for requests,
/// or for gRPC calls of one message, and at most this many.
pub const MAX_HTTP2_STREAMS: u32 = 64;
/// See [`MAX_HTTP2_STREAMS`].
pub const HTTP2_STREAMS_SHARE: usize = 4;

/// Bytes of bodies that an HTTP/2 client may send ahead on a connection: its part of [`HTTP2_BODIES_SHARE`], within these
/// bounds. The library closes a connection when what the server has not read yet is in too many short frames: it counts the
/// bytes by which they are shorter than 256, up to half of this number.
pub const HTTP2_CONNECTION_BYTES: RangeInclusive<u32> = 384 << 10..=4 << 20;

/// The share of the memory ceiling that has the bodies which HTTP/2 clients send ahead: one sixth.
pub const HTTP2_BODIES_SHARE: u64 = 6;

/// The part of [`HTTP2_CONNECTION_BYTES`] that a client may send ahead on a stream. So it can send the shortest lines, each in
/// a frame, as fast as it likes: 12 bytes, which count as 244. At the default ceiling and above it is more than the 65,535 bytes that a client
/// may send before it knows the settings of the server. With less, some clients fail, httpx among them.
pub const HTTP2_STREAM_SHARE: u32 = 42;

/// Bytes of answers that wait in the buffer of an HTTP/2 stream.
pub const HTTP2_SEND_BYTES: usize = 64 << 10;

/// Streams that an HTTP/2 client may reset before they were handled. One more ends the connection: this is how floods of
/// resets begin.
pub const MAX_HTTP2_RESETS: usize = 64;

/// Streams that the server may reset on an HTTP/2 connection for errors of the client. One more ends the connection. A client
/// that does not know the bound on its streams yet may open 100, and each that is refused counts twice when it has a body.
pub const MAX_HTTP2_ERRORS: usize = 256;

/// gRPC connections at once: as many as the least of [`GRPC_CONNECTION_BYTES`] fits in [`CONNECTIONS_SHARE`], at least
/// [`LEAST_HTTP_CONNECTIONS`] and at most this many. Another one replaces the oldest without an open request. If there is none, it waits until one ends.
pub const MAX_GRPC_CONNECTIONS: usize = 256;

/// Bytes of a message that a gRPC client sends.
pub const MAX_GRPC_MESSAGE_BYTES: usize = 64 << 10;

/// Bytes of messages that a gRPC client may send ahead on a connection. See [`HTTP2_CONNECTION_BYTES`].
pub const GRPC_CONNECTION_BYTES: RangeInclusive<u32> = 128 << 10..=1 << 20;

/// The part of [`GRPC_CONNECTION_BYTES`] that a client may send ahead on a stream, which bounds what a stream carries in the time
/// of a round trip. The shortest hits are 8 bytes, and count as 248 of half of the bytes of the connection: a larger part would
/// have a connection with few streams closed for its short frames. hyper does not let a server choose that half.
pub const GRPC_STREAM_SHARE: u32 = 128;

/// The least that a client may send ahead on a stream.
pub const GRPC_STREAM_BYTES: u32 = 2 << 10;

/// The share of the memory ceiling that has places for gRPC calls in progress, of [`REQUEST_BYTES`] each: one sixteenth.
pub const GRPC_CALLS_SHARE: u64 = 16;

/// gRPC calls that are in progress at once however low the ceiling is.
pub const LEAST_GRPC_CALLS: usize = 64;

/// The parts of the places for gRPC calls: one half for calls of one message, one quarter for `HitStream`, and one eighth each
/// for health checks and for streams that need no login.
pub const GRPC_UNARY_PART: usize = 2;
/// See [`GRPC_UNARY_PART`].
pub const GRPC_HIT_STREAM_PART: usize = 4;
/// See [`GRPC_UNARY_PART`].
pub const GRPC_OPEN_PART: usize = 8;

/// A gRPC connection without traffic is pinged this often, and closed when a ping is not answered within
/// [`GRPC_PING_TIMEOUT`].
pub const GRPC_PING_EVERY: Duration = Duration::from_secs(30);
/// See [`GRPC_PING_EVERY`].
pub const GRPC_PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Hits of a stream over gRPC that are counted and committed at once, if they have arrived.
pub const STREAM_BATCH_HITS: usize = 16;

/// Descriptors of a request of Envoy: they are decided in one batch.
pub const MAX_DESCRIPTORS: usize = RUN_OPERATIONS;

/// Entries of a descriptor.
pub const MAX_DESCRIPTOR_ENTRIES: usize = 32;

// A rule that no request could match would be a mistake in a file.
const _: () = assert!(lately_ratelimit::limits::MAX_RULE_DEPTH == MAX_DESCRIPTOR_ENTRIES);

/// Files in a folder of rules of envoyproxy/ratelimit.
pub const MAX_RULE_FILES: usize = 256;

/// Names of statistics of rules, beside the paths of the rules: `detailed_metric` and `value_to_metric` make one for each
/// value. Further ones are added to those of the path.
pub const MAX_DETAILED_RULE_SERIES: usize = 1_000;

/// Bytes of such a name. A longer one is added to the statistics of the path.
pub const MAX_RULE_LABEL_BYTES: usize = 256;

/// The lowest rate of a dump or restore, in bytes a second.
pub const HTTP_LEAST_BYTES: u64 = 32_000;

/// Time between checks of the rates of HTTP clients.
pub const HTTP_LOOK_EVERY: Duration = Duration::from_millis(100);

/// The socket send buffer of an HTTP connection; Linux doubles it. A larger buffer hides how slowly a client reads.
pub const HTTP_SEND_BYTES: usize = 128 << 10;

/// Named limits in a piece of `/v1/limits`, which waits until the client has taken the piece before it.
pub(crate) const LIMITS_A_PIECE: usize = 16;

/// Limits, rules or alerts whose samples are read at once, for `/metrics` and for OTLP.
pub(crate) const METRIC_ITEMS_A_PART: usize = 16;

/// A piece of `/metrics` ends with the first part that brings it to this size.
pub(crate) const METRICS_PIECE_BYTES: usize = 12 << 10;

/// Sources whose positions a restore writes with one commit.
pub(crate) const SOURCES_A_COMMIT: usize = 1_000;

/// Bytes of a refused body that are read and discarded. A client that is answered while it sends may not read the
/// answer.
pub const HTTP_DISCARD_BYTES: usize = 64 << 20;

/// How long a stop waits for clients to read their last replies.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The most that a client may have sent and its own system still holds: the default send buffer of Linux. After a stop
/// at most this much is read and answered beyond what the server has received. After the end of a connection at most
/// this much is discarded.
pub const DRAIN_BYTES: usize = 4 << 20;

/// A connection that the server ends is closed once its client has closed it, too, or has sent nothing for this long.
/// Input is discarded meanwhile, for at most [`DRAIN_TIMEOUT`] and [`DRAIN_BYTES`].
pub const LINGER: Duration = Duration::from_millis(200);

/// How long a listener waits after it could not accept a connection.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Connections that the system queues until the listener accepts them.
pub const LISTEN_BACKLOG: u32 = 1_024;

/// A server prints its addresses once it has loaded its counts, or after this long.
pub const READY_WITHIN: Duration = Duration::from_secs(1);

/// How often the progress of loading is logged.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The most ended connections over HTTP or gRPC whose memory is still held, beyond the number of open ones. Each holds some KiB.
pub const MOST_ENDED: usize = 8;

/// Dumps made at once.
pub const MAX_DUMPS: usize = 4;

/// Restores at once. Each holds a part of its keys in memory, and files on the disk.
pub const MAX_RESTORES: usize = 1;

/// How long a slow dump or restore keeps its place when another one waits. Only time spent waiting for the client
/// counts.
pub const FAIR_SHARE: Duration = Duration::from_secs(30);

/// The rate above which a dump or restore keeps its place, in bytes a second over the last [`FAIR_SHARE`].
pub const FAIR_BYTES: u64 = 1_000_000;

/// The share of the memory ceiling for changes that dumps have not taken yet, one thirty-second. Beyond it, the dump that
/// is furthest behind fails.
pub const FEED_SHARE: u64 = 32;

/// The least room for such changes: some hundredths of a second at full load.
pub const FEED_LEAST_BYTES: u64 = 512 << 10;

/// The largest share of a low ceiling for such changes, one eighth.
pub const FEED_MOST_SHARE: u64 = 8;

/// The overhead of such a change, beside its bytes.
pub const FEED_RECORD_BYTES: usize = 64;

/// A dump is kept in files while it is checked. They leave this share of the free disk, one eighth, unused.
pub const SPOOL_LEAVES_SHARE: u64 = 8;

/// Bytes written to such a file between two checks of the free disk.
pub const SPOOL_CHECK_BYTES: u64 = 1 << 20;

/// A piece of a dump is sent once it has this many bytes of changes.
pub const DUMP_PIECE_BYTES: usize = 64 << 10;

/// Pieces of a dump or restore that are queued between the client and the thread that works on it.
pub const TRANSFER_PIECES: usize = 2;

/// The smallest memory ceiling. A smaller one would evict keys that were just counted.
pub const MIN_CEILING_BYTES: u64 = 1 << 20;

/// The largest memory ceiling: the address space of a process.
pub const MAX_CEILING_BYTES: u64 = 128 << 40;

/// Slots visited in one step of the background sweep. Clients may wait for a step: some tenths of a millisecond.
pub const SWEEP_SLOTS: usize = 500;
/// Time between steps of the background sweep.
pub const SWEEP_EVERY: Duration = Duration::from_millis(10);

/// Memory of the process without keys and without its program: the buffers of threads. Beyond this and one [`RESIDENT_SHARE`]th of
/// the ceiling, memory that is not accounted for counts as fragmented.
pub const PROCESS_BYTES: u64 = 5 << 19;
/// The share of the ceiling that may be fragmented without a charge, one twentieth. See [`PROCESS_BYTES`].
pub const RESIDENT_SHARE: u64 = 20;

/// The bound on the resident memory of the process: the ceiling, this share of it, and these bytes.
pub const RESIDENT_BOUND_SHARE: u64 = 10;
/// See [`RESIDENT_BOUND_SHARE`].
pub const RESIDENT_BOUND_BYTES: u64 = 16 << 20;
/// The system takes out the pages of the program when the process is this near to the bound.
pub const NEAR_BOUND_BYTES: u64 = 7 << 20;
/// Room that is left between the bound and the memory that the process should have, for what dumps take until it is charged.
pub const SPARE_BYTES: u64 = 10 << 20;
/// The largest share of a low ceiling that is left so, one quarter.
pub const SPARE_SHARE: u64 = 4;
/// The most pages of the program that are charged: about what a server under load uses of it.
pub const PROGRAM_BYTES: u64 = 12 << 20;
/// The interval at which memory and the pages of the program are given back near the bound.
pub const RETURN_NEAR_BOUND_EVERY_MS: i64 = 50;
/// The interval over which the most pages of the program are taken.
pub const PROGRAM_PEAK_MS: i64 = 10_000;

/// The share of the ceiling that is charged for fragmented memory at most, one half.
pub const FRAGMENTATION_SHARE: u64 = 2;
/// The share of the ceiling, one part in 256, that bounds the growth charged at one check. Evicted keys are in the changes
/// that wait for dumps: those of one check must be few among them.
pub const FRAGMENTATION_GROWTH_STEPS: u64 = 256;
/// The share of the ceiling, one sixty-fourth, by which the charge becomes less at a time.
pub const FRAGMENTATION_LOWERING_STEPS: u64 = 64;
/// The charge becomes less at this interval, once there is no reason for it. That is slow, because memory
/// that the allocator has given back is needed again by keys that come.
pub const LOWER_EVERY_MS: i64 = 500;

/// Memory is charged in steps of this size. The evictions of a step are committed before the next, so they take little
/// memory themselves.
pub const CHARGE_STEP_BYTES: usize = 256 << 10;

/// When the process is this share of the ceiling below what it should have, or above it, its memory is checked every
/// [`SWEEP_EVERY`] instead of every [`WATCH_EVERY`].
pub const CLOSE_LOOK_SHARE: u64 = 16;

/// The interval at which the allocator of a fragmented process returns memory to the system. That takes some
/// milliseconds, during which threads wait.
pub const RETURN_EVERY_MS: i64 = 250;

/// Time between checks for something to log.
pub const WATCH_EVERY: Duration = Duration::from_millis(100);

/// Samples that `instantaneous_ops_per_sec` is computed from, one every [`WATCH_EVERY`].
pub(crate) const THROUGHPUT_SAMPLES: usize = 16;

/// A step of the system clock by more than this is logged: hits stamped by it would be refused as too far ahead.
pub const CLOCK_STEP_MS: i64 = 10_000;

/// Evictions, slow clients, and failures shorter than [`WATCH_EVERY`] are logged at most this often.
pub const LOG_EVERY_MS: i64 = 60_000;

/// The share of the memory ceiling for connections, one eighth. When all together hold more, a connection with more
/// than an equal part is disconnected as soon as it needs more, and at the next check ([`TIMEOUT_CHECK_EVERY`]) in
/// any case. Until then the others may grow to an equal part, up to half of the share beyond it.
pub const CONNECTIONS_SHARE: u64 = 8;

/// The default memory ceiling: 1 GiB.
pub const DEFAULT_CEILING_BYTES: u64 = 1 << 30;

/// The longest config file, in bytes.
pub const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// Host names in one config.
pub const MAX_HOSTS: usize = 64;

/// Networks of trusted proxies in one config.
pub const MAX_TRUSTED_PROXIES: usize = 256;

/// The longest host name, in bytes: that of DNS.
pub const MAX_HOST_BYTES: usize = 253;

/// Exemptions of one limit.
pub const MAX_EXEMPT: usize = 256;

/// Limits with names in one config.
pub const MAX_LIMITS: usize = 1_024;

/// The longest name of a limit, in bytes.
pub const MAX_LIMIT_NAME_BYTES: usize = 64;

/// Names of limits listed in the error about an unknown one.
pub const MAX_LISTED_LIMITS: usize = 8;

/// Time between checks of the config file.
pub const CONFIG_CHECK_EVERY: Duration = Duration::from_secs(1);

/// The topic of Kafka with the hits.
pub const DEFAULT_TOPIC: &str = "lately-hits";

/// The consumer group that counts it.
pub const DEFAULT_GROUP: &str = "lately";

/// A member of the group that is silent for this long loses its partitions; and the range of what can be set.
pub const DEFAULT_SESSION: Duration = Duration::from_secs(10);
/// See [`DEFAULT_SESSION`].
pub const SESSION_WITHIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// How much longer than the retention of any class the state topic of Kafka keeps counts: as long as the widest cells, and a day.
pub const KAFKA_KEPT_LONGER: Duration = Duration::from_secs(86_400);

/// The address where other nodes reach this one directly, if the config gives none.
pub const DEFAULT_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7382);

/// How long changes are gathered before they are sent to the engine of a cluster, where the config names no time.
pub const DEFAULT_FLUSH: Duration = Duration::from_millis(50);

/// How long a read waits for the counts of other nodes on a key that is not known, where the config names no time.
pub const DEFAULT_READ_TIMEOUT: Duration = Duration::from_millis(50);

/// The longest `read_timeout`. An HTTP request has [`HTTP_TIMEOUT`] in all.
pub(crate) const MAX_READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The age of the counts of other nodes from which a read waits for new ones. A longer `flush` is used instead.
pub(crate) const KNOWN_LASTS: Duration = Duration::from_secs(1);

/// How long the counts of other nodes on a key are kept after the last read of the key.
pub(crate) const INTEREST_LASTS: Duration = Duration::from_secs(10);

/// How long the counts of other nodes on a key are fetched after the last request of a limit on it. A shorter window
/// is used instead.
pub(crate) const LIMITED_LASTS: Duration = Duration::from_secs(60);

/// The share of the memory ceiling, one quarter, for the keys that are read and the counts of other nodes on them.
/// Beyond it the least recently read keys are dropped.
pub const INTEREST_SHARE: u64 = 4;

/// The share of the memory ceiling, one half, for the counts of all nodes of a mesh. Beyond it no further counts are exchanged.
pub const MESH_SHARE: u64 = 2;

/// Memory of such a key, in addition to its name and the counts on it.
pub(crate) const INTEREST_KEY_BYTES: usize = 400;

/// The number of parts of these keys. Each part has a lock.
pub(crate) const INTEREST_PARTS: usize = 64;

/// Keys of each part that are looked at to find those that were asked for least recently.
pub(crate) const INTEREST_SAMPLE: usize = 64;

/// Keys that reads wait for at a time, counted once for each read. Further reads do not wait.
pub const MAX_WAITING_KEYS: usize = 10_000;

/// Keys that are read from the engine of a cluster between two flushes.
pub(crate) const CLUSTER_READ_KEYS: usize = 1_000;

/// Blocks that are read from an engine at a time: one for this share of the memory ceiling, in bytes, within
/// [`READ_BLOCKS_WITHIN`]. A full block takes some 10 KiB while it is read.
pub(crate) const READ_BLOCK_CEILING: u64 = 128 << 10;
/// See [`READ_BLOCK_CEILING`].
pub(crate) const READ_BLOCKS_WITHIN: (usize, usize) = (32, 1_000);

/// How much longer an engine keeps a block than it is read, for nodes whose clocks differ and for late hits.
pub(crate) const BLOCK_SLACK_MS: i64 = 3_600_000;

/// The interval at which the levels in which others count are read from an engine, in milliseconds.
pub(crate) const TABLES_EVERY_MS: i64 = 2_000;

/// The interval at which they are requested while the engine refuses them, in milliseconds.
pub(crate) const TABLES_RETRY_MS: i64 = 60_000;

/// A table of levels in an engine is renewed when its end is this near, in milliseconds.
pub(crate) const TABLE_RENEWED_AFTER_MS: i64 = 1_800_000;

/// The most tables of levels of others that are known. Those that are needed longest stay.
pub(crate) const MAX_LEVEL_TABLES: usize = 16;

/// Bytes of a table of levels in an engine. A longer one is left out.
pub(crate) const MAX_LEVEL_TABLE_BYTES: usize = 256 << 10;

/// How long a server owns the name of its node in a cluster after it last claimed it, and how often it claims it.
pub(crate) const CLAIM_LASTS: Duration = Duration::from_secs(5);
/// See [`CLAIM_LASTS`].
pub(crate) const CLAIM_EVERY: Duration = Duration::from_secs(1);

/// How often hits that were away when their key was deleted are marked, in milliseconds.
pub(crate) const LATE_HITS_EVERY_MS: i64 = 1_000;

/// Within this time it is noticed that a node is away, in milliseconds.
pub(crate) const AWAY_NOTICED_MS: i64 = 10_000;

/// The list of keys with such hits takes at most this part of the memory for deletions: one over it.
pub(crate) const LATE_HITS_PART: usize = 4;

/// They are marked until all nodes have been there for this long, in milliseconds: those that come back have much to send.
pub(crate) const LATE_HITS_MS: i64 = 60_000;

/// Such hits in a cell of the finest level that goes on after the deletion are marked if it is not wider than this, in milliseconds.
pub(crate) const LATE_HITS_CELL_MS: i64 = 10_000;

/// Deleted keys whose counts are marked together.
pub(crate) const CLUSTER_DELETE_KEYS: usize = 500;

/// A deletion that reaches the engine within this time deletes everything that is there, even counts of nodes whose
/// clocks are ahead. In milliseconds.
pub(crate) const PROMPT_DELETION_MS: i64 = 500;

/// The list of deletions in the data folder may have lines of this size that are over, in bytes, before it is written anew.
pub(crate) const DELETION_LOG_BYTES: u64 = 1 << 20;

/// How often a node writes its status to the engine of a cluster, and reads those of the others.
pub(crate) const NODES_EVERY: Duration = Duration::from_secs(2);

/// The interval at which the list of nodes is requested while the engine refuses it.
pub(crate) const NODES_RETRY: Duration = Duration::from_secs(60);

/// A node whose status is older than this is shown as degraded.
pub(crate) const NODE_SILENT: Duration = Duration::from_secs(10);

/// A node whose status is older than this is removed from the list.
pub(crate) const NODE_FORGOTTEN: Duration = Duration::from_secs(3_600);

/// The most nodes on a node's list.
pub(crate) const MAX_LISTED_NODES: usize = 1_000;

/// Within this time a node notices that an engine was emptied.
pub(crate) const LOSS_NOTICED_MS: i64 = 5_000;

/// If it has noticed nothing, it takes counts as the engine has them for this long. So it forgets hits that are gone for good.
pub(crate) const LOSS_FORGOTTEN_MS: i64 = 1_000;

/// Marks of deletions are sent to an upstream engine again if it has lost counts within this time.
pub(crate) const UPSTREAM_MARKS_MS: i64 = 60_000;

/// Time between two walks of a node of a cluster over its keys for the lists of busy keys, and between two readings of these lists.
pub(crate) const BUSY_EVERY_MS: i64 = 2_000;

/// With many nodes there is more time between two walks: this for each node.
pub(crate) const BUSY_NODE_MS: i64 = 100;

/// Slots that such a walk visits with an exchange.
pub(crate) const BUSY_STEP: usize = 1_024;

/// Exchanges between two such steps, while no client of any node has asked for the busy keys lately.
pub(crate) const BUSY_PAUSES: u32 = 7;

/// The windows that each node has a list for, as far as they are shorter than the longest retention. There is one for that, too, and one
/// for the default window of each key.
pub(crate) const BUSY_WINDOWS: [Span; 5] = [seconds(10), minutes(1), minutes(10), hours(1), days(1)];

/// The memory that the keys on a list may take, at least 32 bytes for each.
pub(crate) const BUSY_LIST_BYTES: usize = 8 << 10;

/// The memory of the keys of all lists of a node.
pub(crate) const BUSY_TEXT_BYTES: usize = 64 << 10;
/// Bytes of the lists of a node as text. A longer one is not read.
pub(crate) const MAX_BUSY_TEXT_BYTES: usize = 8 * BUSY_TEXT_BYTES;

/// The memory of the lists of all nodes, also a share of the ceiling. Further ones are left out.
pub(crate) const BUSY_TEXTS_BYTES: usize = 4 << 20;
/// See [`BUSY_TEXTS_BYTES`].
pub(crate) const BUSY_LISTS_SHARE: u64 = 32;

/// The most bytes of lists that a node reads in a second. With many nodes it reads them less often.
pub(crate) const BUSY_READ_BYTES: usize = 256 << 10;

/// Lists that are read this much later than they are due, or whose walk began longer ago, have no bound for `TOP`.
pub(crate) const BUSY_OVERDUE_MS: i64 = 10_000;

/// Lists are kept for the longest retention, and at least this time.
pub(crate) const BUSY_LEAST_MS: i64 = 3_600_000;

/// Lists that did not change are stored again after this time.
pub(crate) const BUSY_RENEW_MS: i64 = 60_000;
/// The same while clients ask for them.
pub(crate) const BUSY_WATCHED_MS: i64 = 4_000;

/// Other windows and prefixes that each node has a list for, because `TOP` asked for them on some node, and for how long.
pub(crate) const BUSY_QUESTIONS: usize = 8;
/// See [`BUSY_QUESTIONS`].
pub(crate) const BUSY_ASKED_MS: i64 = 600_000;

/// Of the keys on the lists `TOP` reads the hits of twice as many as it is to name, and this many more.
pub(crate) const MORE_CANDIDATES: usize = 16;
/// The most of them.
pub(crate) const MAX_CANDIDATES: usize = 2_048;

/// Bytes of the status of a node. A longer one is not listed.
pub(crate) const MAX_NODE_STATUS_BYTES: usize = 4_096;

/// How long before an answer needs the cells of a wider level they are read from the engine, in milliseconds.
pub(crate) const READ_AHEAD_MS: i64 = 10_000;

/// How often the log says that something in the engine was left out, in milliseconds.
pub(crate) const WARNING_EVERY_MS: i64 = 60_000;

/// A node sends the members of a key with more than these bytes, in base64, this often at most.
pub(crate) const MANY_MEMBERS_BYTES: usize = 2 << 10;
/// See [`MANY_MEMBERS_BYTES`].
pub(crate) const MANY_MEMBERS_EVERY_MS: i64 = 5_000;

/// Keys whose members are sent at once, and those whose members are read at once.
pub(crate) const MEMBER_SEND_KEYS: usize = 128;
/// See [`MEMBER_SEND_KEYS`].
pub(crate) const MEMBER_READ_KEYS: usize = 32;

/// Keys whose members are to be sent. What changes of others is found by a comparison.
pub(crate) const MAX_CHANGED_MEMBERS: usize = 20_000;

/// Keys of which a node knows until when their members were deleted. The oldest deletions go first.
pub(crate) const MAX_MEMBER_DELETIONS: usize = 100_000;

/// Keys whose counts are sent together.
pub(crate) const CLUSTER_SEND_KEYS: usize = 500;

/// Keys whose counts are sent between two pauses, about. Others wait for the next exchange.
pub(crate) const CLUSTER_SEND_MOST_KEYS: usize = 10_000;

/// The pause after an exchange, as a multiple of the processor time that the exchange took. So exchanges take at most
/// a tenth of a core. Counts of others are as old as the pause is long.
pub(crate) const EXCHANGE_REST: u32 = 9;

/// The longest such pause.
pub(crate) const MAX_EXCHANGE_REST: Duration = Duration::from_secs(1);

/// The share of the ceiling, one sixteenth, for what a node knows of deletions, and once more for the marks that it sent last.
pub(crate) const DELETIONS_SHARE: u64 = 16;

/// Keys whose counts are compared with those in the engine between two flushes, after a start and when the engine may
/// have lost some counts.
pub(crate) const RECONCILE_KEYS: usize = 256;

/// At other times, all keys are compared once in this time, in milliseconds, some of them every
/// [`RECONCILE_PAUSE_MS`]. The counts of wider cells are read from 1,000 s after their first hit, so they have been
/// compared by then.
pub(crate) const RECONCILE_ROUND_MS: i64 = 300_000;
/// See [`RECONCILE_ROUND_MS`].
pub(crate) const RECONCILE_PAUSE_MS: i64 = 250;

/// In one of this many rounds, counts that have not changed since the last round are compared, too.
pub(crate) const RECONCILE_FULL_EVERY: u64 = 12;

/// Keys with late hits that are compared between two flushes.
pub(crate) const RECONCILE_OLDER_KEYS: usize = 256;

/// Keys with late hits that wait to be compared. If there are more, all keys are compared.
pub(crate) const RECONCILE_MOST_OLDER_KEYS: usize = 10_000;

/// The time between the end of a cell and its comparison, in milliseconds. By then hits that were being counted and
/// writes on their way have arrived.
pub(crate) const RECONCILE_SETTLE_MS: i64 = 2_000;

/// The most nodes that decide exact limits.
pub(crate) const MAX_OWNERS: usize = 100;

/// How long the owner of a key may take to answer. Then it is away, until it answers again.
pub(crate) const OWNER_TIMEOUT: Duration = Duration::from_millis(500);

/// The pause before an owner that is away is tried again.
pub(crate) const OWNER_RETRY: Duration = Duration::from_millis(200);

/// Requests that are sent to an owner at once, and those that wait for it. A further one has no answer.
pub(crate) const OWNER_ASKS: usize = 512;
/// See [`OWNER_ASKS`].
pub(crate) const MAX_ASKED: usize = 16_384;

/// Bytes of the requests that another node sends at once: each has a key, a name and an address.
pub(crate) const MAX_DECIDE_BYTES: usize = 2 << 20;

/// Requests of one connection that are sent to owners at once.
pub(crate) const ASKED_AHEAD: usize = 64;

/// For so long at least after an engine may have lost counts, in milliseconds, alerts wait for hits that may be missing. The nodes
/// first send what they had sent last, and the totals of alerts.
pub(crate) const RESEND_MS: i64 = 10_000;

/// The same for the upstream engine, which the data centres compare with theirs.
pub(crate) const UPSTREAM_RESEND_MS: i64 = 60_000;

/// The pause after a failure of the upstream engine.
pub(crate) const UPSTREAM_RETRY: Duration = Duration::from_secs(1);

/// Blocks that are copied to the upstream engine at once.
pub(crate) const UPSTREAM_COPY_BLOCKS: usize = 500;

/// Blocks that are copied between two pauses, about.
pub(crate) const UPSTREAM_PASS_BLOCKS: usize = 20_000;

/// Names of changed blocks that wait in the local engine while the upstream one is away. Of more, some are dropped, and
/// found by a comparison of all blocks.
pub(crate) const UPSTREAM_MOST_CHANGED: usize = 1_000_000;

/// What was read longer ago is not copied, but read again, in milliseconds.
pub(crate) const UPSTREAM_COPY_WITHIN_MS: i64 = 1_000;

/// How long after a loss of the local engine the hits of this node are compared with what both engines have, in
/// milliseconds. By then what was read before the loss has been copied.
pub(crate) const UPSTREAM_SETTLE_MS: i64 = 5_000;

/// Deleted keys whose hits of other data centres are marked at once.
pub(crate) const UPSTREAM_DELETE_KEYS: usize = 50;
/// How often they are taken in an exchange, with a low memory ceiling.
pub(crate) const UPSTREAM_DELETE_ROUNDS: usize = 16;

/// How long counts are still sent at a stop, in milliseconds.
pub(crate) const DRAIN_SENDS_MS: i64 = 10_000;

/// Users in a config.
pub const MAX_USERS: usize = 128;

/// The longest name of a user, in bytes.
pub const MAX_USER_NAME_BYTES: usize = 64;

/// Key patterns of a user.
pub const MAX_USER_PATTERNS: usize = 64;

/// The longest password, in bytes.
pub const MAX_PASSWORD_BYTES: usize = 512;

/// The longest file of a password, a certificate or a key, in bytes.
pub const MAX_NAMED_FILE_BYTES: u64 = 256 << 10;

/// The memory that one verification of an Argon2 hash from a password file may take, in KiB.
pub const MAX_ARGON2_KIB: u32 = 256 << 10;

/// Passes over that memory, times lanes.
pub const MAX_ARGON2_PASSES: u32 = 16;

/// A client of RESP that has not logged in by then is disconnected, whatever it sends. While a login is verified, it has [`LOGIN_TIMEOUT`] more.
pub const LOGIN_WITHIN: Duration = Duration::from_secs(60);

/// How long a login waits for its turn and its verification. Then it is refused.
pub const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a login of HTTP waits. It is less than [`HTTP_TIMEOUT`], so that there is an answer.
pub const HTTP_LOGIN_TIMEOUT: Duration = Duration::from_secs(8);

/// Logins that wait at once, of all addresses. Others are refused.
pub const MAX_WAITING_LOGINS: usize = 1_024;

/// Groups of user names. The logins of an address and a group wait one after the other. A group has names of users and
/// names without a user, and the server's random key decides which.
pub const LOGIN_GROUPS: u64 = 16;

/// Logins that wait at once, of one address and group of names after a failed one. Then only the first login of a connection
/// gets a place, from a connection that has failed.
pub const MAX_WAITING_LOGINS_OF_ONE: usize = 16;

/// Logins that wait at once, of one address and group of names without a failed one: the clients behind one address that connect
/// again after a start.
pub const MAX_FIRST_LOGINS_OF_ONE: usize = 256;

/// Users whose passwords are remembered for one connection. The one that logged in longest ago is forgotten.
pub const MAX_USERS_OF_CONNECTION: usize = 8;

/// The delay of the next login of an address and a group of names after a failed one. It doubles with each.
pub const FIRST_LOGIN_DELAY: Duration = Duration::from_millis(250);

/// The longest such delay. It is below the timeouts of clients, which otherwise would not see the error.
pub const MOST_LOGIN_DELAY: Duration = Duration::from_secs(2);

/// Failed logins of an address and a group of names are forgotten this long after the last.
pub const FORGET_LOGINS: Duration = Duration::from_secs(600);

/// Addresses with groups of names whose failed logins are known. The one that failed longest ago is replaced.
pub const MAX_FAILED_LOGINS: usize = 4_096;

/// Memory of a connection with TLS, without buffers.
pub const TLS_BYTES: usize = 12 << 10;

/// Plain bytes that are encrypted at once: a whole record.
pub const TLS_PIECE_BYTES: usize = 16 << 10;

/// Encrypted bytes of a connection that the socket has not taken: a record and its frame, with room to spare.
pub const TLS_UNSENT_BYTES: usize = 2 * TLS_PIECE_BYTES;

/// A TLS handshake that takes longer is ended.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// TLS handshakes under way on one event loop. The oldest is ended for another one.
pub const MAX_HANDSHAKES: usize = 256;

/// Seconds of the total rate that a chart begins with.
pub const HISTORY_SECONDS: usize = 300;

/// Streams of `/v1/events` at once. Another one is refused.
pub const MAX_EVENT_STREAMS: usize = 32;

/// Time between two events about the server.
pub const EVENTS_EVERY: Duration = Duration::from_secs(1);

/// Seconds of the total rate in each event: a client that missed a few events has no gap.
pub const EVENTS_RATE_SECONDS: usize = 10;

/// The share of one processor that the search for the most-hit keys may take while somebody watches: one hundredth.
pub const EVENTS_TOP_SHARE: u32 = 100;

/// The most-hit keys that are among the events.
pub const EVENTS_TOP_KEYS: usize = 20;

/// Browsers that are logged in to the dashboard at once. For another one, the session that was not used for longest ends.
pub const MAX_SESSIONS: usize = 1_024;

/// Sessions of one user. For another one, the one of them that was not used for longest ends.
pub const MAX_SESSIONS_OF_USER: usize = 32;

/// Memory of a session.
pub const SESSION_BYTES: usize = 256;

/// A session ends when it was not used for a day, in milliseconds. An open page uses it.
pub const SESSION_IDLE_MS: i64 = 86_400_000;

/// A session ends after 30 days, in milliseconds.
pub const SESSION_LIFE_MS: i64 = 30 * SESSION_IDLE_MS;

/// The body of a login: a user and a password, as JSON.
pub const MAX_LOGIN_BODY_BYTES: usize = 8 << 10;

/// Named limits whose answer the state of a key has.
pub const MAX_LIMITS_OF_KEY: usize = 16;

/// Points of a series over HTTP, about, if the request has no step.
pub const DEFAULT_SERIES_POINTS: u64 = 60;

/// Most `[[class]]` of a config. The store has room for a few more, those of alerts and of the rules of envoyproxy/ratelimit.
pub const MAX_CONFIG_CLASSES: usize = 240;

/// Most `[[alert]]` of a config. Each is evaluated [`ALERTS_EVERY`], and each counted hit is compared with those whose
/// pattern begins like its key.
pub const MAX_ALERTS: usize = 64;

/// Longest pattern of an alert. The total of its keys is counted under it.
pub const MAX_ALERT_PATTERN_BYTES: usize = 512;

/// Longest URL of a webhook or an Alertmanager.
pub const MAX_ALERT_URL_BYTES: usize = 2_048;

/// Shortest window of an alert: the width of the newest panes of its total.
pub const LEAST_ALERT_WINDOW: Span = milliseconds(100);

/// Longest window of an alert.
pub const LONGEST_ALERT_WINDOW: Span = days(7);

/// Longest window of an alert on a spike: [`BASELINE_WINDOWS`] of it are kept.
pub const LONGEST_SPIKE_WINDOW: Span = hours(6);

/// A hit with a larger weight counts as this one in the total of an alert. So no client can fill a total, whose sum has a bound, too.
pub const MAX_ALERT_WEIGHT: u64 = 1 << 40;

/// How long the total of an alert is kept: for [`BASELINE_DAYS`], each with a window or an hour around it.
pub const ALERT_TOTAL_KEPT: Span = days(8);

/// Fewer hits than this in the window are no spike, unless `least` says otherwise.
pub const DEFAULT_LEAST_SPIKE: u64 = 10;

/// Days before today whose same hour makes the baseline of a spike.
pub const BASELINE_DAYS: u64 = 7;

/// Windows before the current one whose average makes the baseline, where no day is kept.
pub const BASELINE_WINDOWS: usize = 30;

/// With fewer windows since the first hit there is no baseline.
pub const BASELINE_LEAST_WINDOWS: usize = 3;

/// Time between two evaluations of all alerts.
pub const ALERTS_EVERY: Duration = Duration::from_millis(50);

/// In a cluster, alerts that fire below a number are evaluated as of this time before the hits of others were read, in
/// milliseconds: the others may send their hits so late.
pub(crate) const BELOW_LAG_MS: i64 = 2_000;

/// Keys that an alert names.
pub const ALERT_KEYS: usize = 5;

/// Alerts that started or ended and that a subscriber or a stream of events has not taken. One that is further behind is
/// disconnected.
pub const MAX_UNREAD_ALERTS: usize = 64;

/// Alerts that have ended and are still shown. For another one, the oldest is forgotten.
pub const MAX_ENDED_ALERTS: usize = 32;

/// Bytes of the secret of a webhook, as Standard Webhooks says.
pub const WEBHOOK_SECRET_BYTES: RangeInclusive<usize> = 24..=64;

/// Alerts that wait for a webhook or an Alertmanager. Further ones are dropped.
pub const MAX_QUEUED_ALERTS: usize = 64;

/// A webhook or an Alertmanager that has not answered after this time has not taken the request.
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Time before a request is sent again for the first time. It doubles each time.
pub const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Longest time before a request is sent again.
pub const MAX_RETRY_PAUSE: Duration = Duration::from_secs(60);

/// How often metrics are sent by OTLP, without another time in the config.
pub(crate) const DEFAULT_METRICS_EVERY: Duration = Duration::from_secs(60);

/// How often metrics may be sent.
pub(crate) const METRICS_EVERY: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3_600);

/// Values of metrics after which a message of OTLP ends, with the part that they are of.
pub(crate) const POINTS_A_MESSAGE: usize = 256;

/// How often spans are sent by OTLP.
pub(crate) const SPANS_EVERY: Duration = Duration::from_secs(5);

/// Spans that wait until they are sent. Further ones are dropped.
pub(crate) const MAX_QUEUED_SPANS: usize = 2_048;

/// Spans in a message of OTLP.
pub(crate) const SPANS_A_MESSAGE: usize = 256;

/// How long a stop waits for the receivers of OTLP.
pub(crate) const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// The pauses after which a webhook that has not taken a message does not get it any more.
pub const DELIVERED_WITHIN: Duration = Duration::from_secs(900);

/// Most `[[history]]` of a config. For each, all keys are visited once an interval.
pub const MAX_HISTORIES: usize = 8;

/// The width of the panes that are sent, without another one in the config.
pub(crate) const DEFAULT_HISTORY_INTERVAL: Span = minutes(1);

/// The widths of panes that can be sent.
pub(crate) const HISTORY_INTERVAL: RangeInclusive<Span> = seconds(1)..=days(1);

/// How long after its end a pane is sent, without another time in the config.
pub(crate) const DEFAULT_HISTORY_DELAY: Span = seconds(10);

/// How long after its end a pane may be sent. It is longer than a batch takes, and than the disk may take to keep a hit.
pub(crate) const HISTORY_DELAY: RangeInclusive<Span> = seconds(1)..=hours(1);

/// Keys with samples within [`HISTORY_KEY_KEPT`], without another number in the config.
pub(crate) const DEFAULT_HISTORY_KEYS: usize = 10_000;

/// The most keys that a config may permit.
pub(crate) const HISTORY_KEYS: RangeInclusive<usize> = 1..=1_000_000;

/// A key without hits for this long makes room for another one.
pub(crate) const HISTORY_KEY_KEPT: Span = hours(1);

/// Longest name of a metric or a label of samples.
pub(crate) const MAX_HISTORY_NAME_BYTES: usize = 128;

/// Longest value of a label or a header in a `[[history]]`, and longest name of its user.
pub(crate) const MAX_HISTORY_VALUE_BYTES: usize = 1_024;

/// Most labels in a `[[history]]`.
pub(crate) const MAX_HISTORY_LABELS: usize = 16;

/// Most headers in a `[[history]]`.
pub(crate) const MAX_HISTORY_HEADERS: usize = 16;

/// Samples in a request.
pub(crate) const SAMPLES_A_REQUEST: usize = 1_000;

/// Bytes of the answer of a receiver that are read, for the log.
pub(crate) const RECEIVER_ANSWER_BYTES: usize = 4 << 10;

/// How long these bytes may take to come after the head of the answer.
pub(crate) const RECEIVER_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Characters of the answer of a receiver in a log line.
pub(crate) const RECEIVER_ANSWER_CHARS: usize = 256;

/// Requests that a pane may take beyond those that have all its samples. When a receiver refuses a request, its samples are sent in
/// two halves, because one sample may be at fault.
pub(crate) const SPLITS_A_PANE: usize = 64;

/// Longest time that a receiver may ask for before a request is sent again.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Longest time between two looks at the clock while no pane is closed.
pub(crate) const HISTORY_LOOK: Duration = Duration::from_secs(1);

/// How often the position in the history is written while panes have no samples.
pub(crate) const HISTORY_POSITION_EVERY: Span = minutes(1);

/// How much earlier than needed panes are taken for merged, so that they are not merged while they are read.
pub(crate) const HISTORY_MARGIN: Span = minutes(1);

/// A position in the history that is further than this ahead of the clock was written while the clock was wrong.
pub(crate) const HISTORY_AHEAD: Span = hours(1);

/// Time after which all alerts are sent to an Alertmanager again.
pub const ALERTMANAGER_EVERY: Duration = Duration::from_secs(60);

/// An alert that is not sent again ends there after this time.
pub const ALERTMANAGER_ENDS: Span = minutes(4);

/// How long an alert that has ended is sent to an Alertmanager again, as Prometheus does.
pub const ALERTMANAGER_ENDED: Span = minutes(15);
