//! Every bound of the protocol, by name. Input beyond a bound is refused, never truncated.

/// The longest bulk string a request may have, in bytes.
pub const MAX_BULK_BYTES: usize = 1 << 20;

/// Arguments of one request, including the command's name.
pub const MAX_ARGUMENTS: usize = 1 << 20;

/// The longest inline command, in bytes before its newline, and the longest line with a length.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// The longest request, in bytes.
pub const MAX_REQUEST_BYTES: usize = 64 << 20;

/// The longest name a client may give itself, and the longest value of `CLIENT SETINFO`, in bytes.
pub const MAX_CLIENT_NAME_BYTES: usize = 128;

/// Windows of one `HITS`: each may be a walk over a million panes.
pub const MAX_WINDOWS: usize = 128;

/// Keys of one `MHIT` or `MHITS`. Each has a reply, which may be an error of a hundred bytes.
pub const MAX_COUNTED_KEYS: usize = 16_384;

/// Keys that one `TOP` returns.
pub const MAX_TOP_KEYS: usize = 10_000;

/// Names of one `COMMAND DOCS` or `COMMAND INFO`. More than there are commands; but a name of seven bytes may
/// have a description of kilobytes.
pub const MAX_COMMAND_NAMES: usize = 128;

/// Ids of one `CLIENT LIST`.
pub const MAX_CLIENT_IDS: usize = 1_024;

/// Patterns of one `CONFIG GET`: far more than there are settings.
pub const MAX_PATTERNS: usize = 128;

/// Bytes of the patterns of one `CONFIG GET`. Each byte may be compared with each byte of the names.
pub const MAX_PATTERN_BYTES: usize = 1_024;

/// Sections of one `INFO`: far more than there are.
pub const MAX_SECTIONS: usize = 128;

/// Arguments of the request in `COMMAND GETKEYS`, including its name.
pub const MAX_GETKEYS_ARGUMENTS: usize = 1_024;

/// Options of one `SHUTDOWN`: as many as there are.
pub const MAX_SHUTDOWN_OPTIONS: usize = 5;

/// The bytes of a request that an error repeats.
pub const MAX_ECHOED_BYTES: usize = 128;

/// Arguments of the requests of one batch. A request with more is parsed alone.
pub const MAX_BATCH_ARGUMENTS: usize = 4_096;

/// Room for arguments, and for bytes of inline commands, that is kept for the next request.
pub(crate) const KEPT_CAPACITY: usize = 1_024;

/// Room for arguments that is kept while a connection is idle.
pub(crate) const IDLE_ARGUMENTS: usize = 8;

/// Room for requests, their arguments, and bytes of inline commands that is kept for the next batch.
pub(crate) const KEPT_BATCH: usize = 2 * MAX_BATCH_ARGUMENTS;

/// Bounds of a short request: its arguments, and the bytes of each, have two digits. Larger requests take the
/// general path.
pub(crate) const SHORT_ARGUMENTS: usize = 99;
/// See [`SHORT_ARGUMENTS`].
pub(crate) const SHORT_BYTES: usize = 99;

/// The bounds of [`parse_request`](crate::parse_request).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest bulk string, in bytes.
    pub bulk_bytes: usize,
    /// The most arguments.
    pub arguments: usize,
    /// The longest inline command or line with a length, in bytes.
    pub line_bytes: usize,
    /// The longest request, in bytes.
    pub request_bytes: usize,
}

/// The bounds of a request before the login: as in Redis, it has 10 arguments of at most 16 KiB.
pub const BEFORE_LOGIN: Limits =
    Limits { bulk_bytes: 16 << 10, arguments: 10, line_bytes: 16 << 10, request_bytes: 256 << 10 };

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bulk_bytes: MAX_BULK_BYTES,
            arguments: MAX_ARGUMENTS,
            line_bytes: MAX_LINE_BYTES,
            request_bytes: MAX_REQUEST_BYTES,
        }
    }
}
