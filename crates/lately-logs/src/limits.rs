//! Every bound of this crate, by name. A key has at most [`lately::limits::MAX_KEY_BYTES`].

use lately::{Span, Timestamp, seconds};

/// The longest line, in bytes, without its line end. A longer one counts as a line that does not parse.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// The longest line that is joined from parts, in bytes. A longer one counts as a line that does not parse, and its
/// parts are skipped.
pub const MAX_JOINED_BYTES: usize = MAX_LINE_BYTES;

/// Incomplete lines at one time, one per stream. When there are more, the oldest is parsed as it is.
pub const MAX_CUT_LINES: usize = 32;

pub use lately_keys::limits::MAX_KEY_FIELDS;

/// Limits in one backtest.
pub const MAX_LIMITS: usize = 16;

/// Conditions on the lines of one log.
pub const MAX_FILTERS: usize = 16;

/// Lines that are used to detect the format of a log.
pub const SAMPLE_LINES: usize = 100;

/// Bytes of lines that are kept to detect the format of a log. If lines are longer, those that fit decide.
pub const SAMPLE_BYTES: usize = 4 << 20;

/// Fields of a line that a message lists.
pub const MAX_LISTED_FIELDS: usize = 12;

/// Characters of the name of a field in such a list.
pub const MAX_LISTED_CHARACTERS: usize = 64;

/// Wrappers around one line, such as that of a container around that of syslog.
pub const MAX_WRAPPERS: usize = 3;

/// A smaller number is not a time: 1990 in Unix seconds.
pub const EARLIEST_NUMBER: Timestamp = match Timestamp::from_seconds(631_152_000) {
    Some(at) => at,
    None => Timestamp::MIN,
};

/// A number later than the reader's clock by more than this is not a time.
pub const FUTURE: Span = seconds(86_400);

/// Steps of one series.
pub const MAX_STEPS: usize = 1_000_000;
