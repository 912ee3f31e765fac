//! Every bound of this crate, by name. A key has at most [`lately::limits::MAX_KEY_BYTES`].

/// The longest line, in bytes, without its line end. A longer one counts as one that does not parse.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Fields in one key template.
pub const MAX_KEY_FIELDS: usize = 16;

/// Limits in one backtest.
pub const MAX_LIMITS: usize = 16;

/// How many lines that do not parse are named; the others are only counted.
pub const MAX_NAMED_LINES: usize = 3;
