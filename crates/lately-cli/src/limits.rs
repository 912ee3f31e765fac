//! Every bound of the command line, by name.

use std::time::Duration;

use lately::{Span, hours, milliseconds, minutes, seconds};

/// The time that a client command waits for a connection, and then for each answer, or the answers to
/// commands that it sent together.
pub(crate) const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of an answer over HTTP that is no dump.
pub(crate) const MAX_ANSWER_BYTES: u64 = 10 << 20;

/// The most bytes of messages that wait until standard error of `serve` is read.
pub(crate) const MAX_LOG_BYTES: usize = 64 << 10;

/// How long a stop waits until the last messages are read.
pub(crate) const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// The most threads of `serve`.
pub(crate) const MAX_THREADS: usize = 1_024;

/// The memory ceiling that each thread of `serve` needs, below a ceiling for [`THREADS_WITHOUT_MORE`]: its buffers are a part of
/// the memory beyond the ceiling.
pub(crate) const CEILING_PER_THREAD_BYTES: u64 = 8 << 20;

/// Threads whose buffers are in the memory that a process has beyond the ceiling. Further ones take half a MiB each on top.
pub(crate) const THREADS_WITHOUT_MORE: usize = 16;

/// The number of client threads that share an arena of the allocator. Memory that is freed in one arena cannot be used in another:
/// with an arena for each four threads, floods of keys took up to 1.8 times the ceiling.
pub(crate) const THREADS_PER_ARENA: usize = 16;

/// The most arenas of the allocator.
pub(crate) const MAX_ARENAS: usize = 2;

/// Blocks of memory of at least this size are returned to the system when they are freed.
pub(crate) const LARGE_BLOCK_BYTES: u32 = 64 << 10;

/// File descriptors for each client thread except the first: an event queue, and its waker.
pub(crate) const FILES_PER_THREAD: u64 = 2;

/// A regular expression is reported as slow if fewer bytes of a log are parsed in a second.
pub(crate) const SLOW_BYTES_PER_SECOND: u64 = 20_000_000;

/// The parsing time before a slow expression is reported.
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

/// The most bytes of a report for the full texts of shortened ones.
pub(crate) const REPORT_TITLE_BYTES: usize = 64_000;

/// File descriptors of the server, without those of RESP, HTTP and gRPC clients and of threads.
pub(crate) const OWN_FILES: u64 = 64;

/// Bytes of one log that `top` reads before it handles keys of the keyboard and the other logs again.
pub(crate) const FOLLOW_POLL_BYTES: usize = 4 << 20;

/// The number of bytes before the position in a log that are compared, to detect that it was rewritten.
pub(crate) const FOLLOW_CHECK_BYTES: usize = 1_024;

/// The time after its last write during which a renamed log is still read, if another file has its name.
pub(crate) const FORMER_KEPT: Span = minutes(1);

/// The times of files may be behind the clock by this: a tick of the kernel, and a margin.
pub(crate) const FILE_TIME_SLACK: Span = milliseconds(20);

/// The times of files may be too early by up to this, in ns: some programs and file systems cut them to seconds.
pub(crate) const COARSE_FILE_TIME_NS: u64 = 1_000_000_000;

/// The most renamed files of a log that `top` and `ship` read.
pub(crate) const MAX_FORMER_FILES: usize = 16;

/// The most files that `top` remembers as read. When there are more, it forgets the oldest renamed one.
pub(crate) const MAX_CLAIMS: usize = 256;

/// The interval at which `top` polls its logs, and draws on a terminal.
pub(crate) const POLL_EVERY: Span = milliseconds(250);

/// The largest share of the time for ranking keys. With very many keys the screen is drawn less often, so that counting
/// continues.
pub(crate) const RANKING_SHARE: i64 = 4;

/// The interval at which `top` asks a server, which walks over all its keys.
pub(crate) const ASK_EVERY: Span = seconds(1);

/// The most keys that a server returns.
pub(crate) const MAX_SERVER_KEYS: usize = 10_000;

/// The number of keys of a server, the busiest first, that `top` looks for the text of a filter in.
pub(crate) const FILTERED_KEYS: usize = 1_000;

/// The shortest time between rows of `top`.
pub(crate) const MIN_EVERY: Span = milliseconds(100);

/// The memory ceiling of `top` for keys and hits. Beyond it, the coldest keys are evicted.
pub(crate) const TOP_MEMORY_BYTES: u64 = 256 << 20;

/// The period in which `top` finds the peaks of windows.
pub(crate) const PEAK_SPAN: Span = hours(1);

/// The longest lead of a line over the clock with which it is still counted, when its time comes.
pub(crate) const LINE_SKEW: Span = seconds(10);

/// The most pieces of streams that wait to be counted.
pub(crate) const WAITING_EVENTS: usize = 64;

/// The number of hits, by key and time, that fills a batch of `ship`.
pub(crate) const SHIP_BATCH_HITS: usize = 1_000;

/// The number of bytes that fills a batch of `ship`. A server with the smallest ceiling accepts as much from one client.
pub(crate) const SHIP_BATCH_BYTES: usize = 32 << 10;

/// The bytes of a hit in a batch, without its key.
pub(crate) const SHIP_HIT_BYTES: usize = 40;

/// The interval at which `ship` polls its logs.
pub(crate) const SHIP_EVERY: Duration = Duration::from_millis(200);

/// If `ship` has not polled a log for longer than this, files may have appeared and disappeared unnoticed.
pub(crate) const SHIP_LATE: Span = seconds(5);

/// The first wait of `ship` before it retries a server. Each further wait is twice as long.
pub(crate) const SHIP_RETRY: Duration = Duration::from_millis(100);
/// The longest wait before a retry; see [`SHIP_RETRY`].
pub(crate) const SHIP_RETRY_MOST: Duration = Duration::from_secs(5);

/// The least time between two reports of `ship` about refused hits and lines that do not parse.
pub(crate) const SHIP_REPORT_EVERY: Span = minutes(1);

/// The most bytes at the start of a log that distinguish it from others. A line may be as long.
pub(crate) const SHIP_HEAD_BYTES: usize = 1 << 20;

/// The least number of digits in a line with a time, if the user gives the format of times.
pub(crate) const SHIP_HEAD_DIGITS: usize = 8;

/// The largest position of a source.
pub(crate) const MAX_POSITION: u64 = i64::MAX.unsigned_abs();

/// The most positions in the file of `ship --state`.
pub(crate) const MAX_SHIP_POSITIONS: usize = 1_000;

/// The most characters of the filter text.
pub(crate) const MAX_FILTER_CHARS: usize = 256;

/// The most columns of a terminal that `top` draws on. Some terminals report 65,535.
pub(crate) const MAX_SCREEN_COLUMNS: u16 = 1_600;

/// The most lines of a terminal that `top` draws on.
pub(crate) const MAX_SCREEN_LINES: u16 = 600;

/// How long `produce` tries to deliver a record.
#[cfg(feature = "kafka")]
pub(crate) const PRODUCE_DELIVERY: Duration = Duration::from_secs(60);

/// The timeout of the first question to the brokers.
#[cfg(feature = "kafka")]
pub(crate) const PRODUCE_TIMEOUT: Duration = Duration::from_secs(10);

/// The wait for room for more records.
#[cfg(feature = "kafka")]
pub(crate) const PRODUCE_POLL: Duration = Duration::from_millis(100);
