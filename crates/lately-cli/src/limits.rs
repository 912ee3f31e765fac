//! Every bound of the command line, by name.

use std::time::Duration;

use lately::{Span, hours, milliseconds, minutes, seconds};

/// How long a client command waits for a connection, and then for each answer.
pub(crate) const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The most threads `serve` may be asked for.
pub(crate) const MAX_THREADS: usize = 1_024;

/// Threads that serve clients and share an arena of the allocator. What is freed in one arena is no room in another: with an arena
/// for each four threads, floods of keys took up to 1.8 times the ceiling.
pub(crate) const THREADS_PER_ARENA: usize = 16;

/// Arenas of the allocator at most.
pub(crate) const MAX_ARENAS: usize = 2;

/// Blocks of memory from this size on are given back to the system when they are freed.
pub(crate) const LARGE_BLOCK_BYTES: u32 = 64 << 10;

/// File descriptors the server needs for each thread that serves clients, but the first: an event queue, and what wakes it.
pub(crate) const FILES_PER_THREAD: u64 = 2;

/// Bytes of a log that are parsed in a second: with fewer, a regular expression is called slow.
pub(crate) const SLOW_BYTES_PER_SECOND: u64 = 20_000_000;

/// How long lines are parsed before a slow expression is reported.
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

/// Bytes of one log that `top` reads before it looks at the keys and the other logs again.
pub(crate) const FOLLOW_POLL_BYTES: usize = 4 << 20;

/// Bytes before the place a log was read to that tell whether it was written anew.
pub(crate) const FOLLOW_CHECK_BYTES: usize = 1_024;

/// How long a log that was renamed is read after the last write to it, when another has its name.
pub(crate) const FORMER_KEPT: Span = minutes(1);

/// How far the times of files lag behind the clock: a tick of the kernel, and some.
pub(crate) const FILE_TIME_SLACK: Span = milliseconds(20);

/// Renamed files of one log that are read on, by `top` and by `ship`.
pub(crate) const MAX_FORMER_FILES: usize = 16;

/// Files whose names may change that `top` knows it has read. When there are more, the oldest of those that were renamed is
/// forgotten.
pub(crate) const MAX_CLAIMS: usize = 256;

/// How often `top` looks at its logs, and draws on a terminal.
pub(crate) const POLL_EVERY: Span = milliseconds(250);

/// Ranking the keys may take this share of the time: with very many keys the screen is drawn less often, and counting
/// goes on.
pub(crate) const RANKING_SHARE: i64 = 4;

/// The shortest time between rows of `top`.
pub(crate) const MIN_EVERY: Span = milliseconds(100);

/// Bytes that the keys of `top` and their hits may take, before the coldest are forgotten.
pub(crate) const TOP_MEMORY_BYTES: u64 = 256 << 20;

/// How far back `top` knows the peaks of windows.
pub(crate) const PEAK_SPAN: Span = hours(1);

/// How far ahead of the clock a line may be to be counted when its time comes.
pub(crate) const LINE_SKEW: Span = seconds(10);

/// Pieces of streams that wait to be counted.
pub(crate) const WAITING_EVENTS: usize = 64;

/// Hits by key and time in a batch of `ship`, after which the next begins.
pub(crate) const SHIP_BATCH_HITS: usize = 1_000;

/// Bytes of a batch of `ship`, after which the next begins: a server with the smallest ceiling takes so much from one client.
pub(crate) const SHIP_BATCH_BYTES: usize = 32 << 10;

/// Bytes of a hit in a batch, beside its key.
pub(crate) const SHIP_HIT_BYTES: usize = 40;

/// How often `ship` looks at its logs.
pub(crate) const SHIP_EVERY: Duration = Duration::from_millis(200);

/// When `ship` has not looked at a log for longer, files may have come and gone.
pub(crate) const SHIP_LATE: Span = seconds(5);

/// How long `ship` waits until it tries a server again: at first, and at most.
pub(crate) const SHIP_RETRY: Duration = Duration::from_millis(100);
/// See [`SHIP_RETRY`].
pub(crate) const SHIP_RETRY_MOST: Duration = Duration::from_secs(5);

/// How often at most `ship` reports further hits that were refused, and lines that do not parse.
pub(crate) const SHIP_REPORT_EVERY: Span = minutes(1);

/// First bytes of a log that may tell it from others. A line may be as long.
pub(crate) const SHIP_HEAD_BYTES: usize = 1 << 20;

/// Digits of a line that has a time in a format of the user's, at least.
pub(crate) const SHIP_HEAD_DIGITS: usize = 8;

/// The largest position of a source.
pub(crate) const MAX_POSITION: u64 = i64::MAX.unsigned_abs();

/// Positions in the file of `ship --state`.
pub(crate) const MAX_SHIP_POSITIONS: usize = 1_000;

/// Characters of the text that keys are filtered by.
pub(crate) const MAX_FILTER_CHARS: usize = 256;

/// Columns of a terminal that `top` draws on. Some terminals say that they have 65,535.
pub(crate) const MAX_SCREEN_COLUMNS: u16 = 1_600;

/// Lines of a terminal that `top` draws on.
pub(crate) const MAX_SCREEN_LINES: u16 = 600;
