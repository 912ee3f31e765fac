//! Every bound of the protocol, by name. What is past one is refused, never cut down.

/// The longest bulk string a request may have, in bytes.
pub const MAX_BULK_BYTES: usize = 1 << 20;

/// Arguments of one request, the command's name among them.
pub const MAX_ARGUMENTS: usize = 1 << 20;

/// The longest inline command, in bytes before its newline, and the longest line with a length.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// The longest request, in bytes.
pub const MAX_REQUEST_BYTES: usize = 64 << 20;

/// The longest name a client may give itself, and the longest value of `CLIENT SETINFO`, in bytes.
pub const MAX_CLIENT_NAME_BYTES: usize = 128;

/// Windows of one `HITS`: each may be a walk over a million panes.
pub const MAX_WINDOWS: usize = 128;

/// Keys of one `MHIT` or `MHITS`: each has a reply of its own, which may be an error of a hundred bytes.
pub const MAX_COUNTED_KEYS: usize = 16_384;

/// Names of one `COMMAND DOCS` or `COMMAND INFO`: more than there are, because a name may be of seven
/// bytes and its description of kilobytes.
pub const MAX_COMMAND_NAMES: usize = 128;

/// Ids of one `CLIENT LIST`: more than there are clients, where the config says nothing else.
pub const MAX_CLIENT_IDS: usize = 16_384;

/// Patterns of one `CONFIG GET`: many more than there are settings, and each may take long to match.
pub const MAX_PATTERNS: usize = 128;

/// How much of a request's text an error repeats, in bytes.
pub const MAX_ECHOED_BYTES: usize = 128;

/// Arguments of the requests that are taken at once; a request with more is taken alone.
pub const MAX_BATCH_ARGUMENTS: usize = 4_096;

/// Room for arguments, and for bytes of inline commands, that is kept from one request to the next.
pub(crate) const KEPT_CAPACITY: usize = 1_024;

/// Room for arguments that is kept while nothing comes.
pub(crate) const IDLE_ARGUMENTS: usize = 8;

/// Room for requests, their arguments, and bytes of inline commands that is kept from one batch to
/// the next.
pub(crate) const KEPT_BATCH: usize = 2 * MAX_BATCH_ARGUMENTS;

/// Arguments of a short request at most, and bytes of each, in two digits: larger requests are read a longer way.
pub(crate) const SHORT_ARGUMENTS: usize = 99;
/// See [`SHORT_ARGUMENTS`].
pub(crate) const SHORT_BYTES: usize = 99;

/// The bounds [`parse_request`](crate::parse_request) holds a request to.
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
