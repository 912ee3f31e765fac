//! The errors of clients and their texts. Where Redis has a text, it is the same, because clients look for
//! it.

use std::borrow::Cow;

use lately::limits::{MAX_ID_BYTES, MAX_KEY_BYTES, MAX_MEMBER_BYTES, MAX_SOURCE_BYTES};
use lately::{LockoutError, TimeError};
use thiserror::Error;

use crate::limits::{MAX_CLIENT_NAME_BYTES, MAX_ECHOED_BYTES};

/// Error replies that depend on the state of the connection.
pub mod texts {
    /// `EXEC` outside a transaction.
    pub const EXEC_WITHOUT_MULTI: &str = "ERR EXEC without MULTI";
    /// The start of the reply to an `EXEC` that is refused; the reason follows.
    pub const EXEC_REFUSED: &str = "EXECABORT Transaction discarded because of: ";
    /// `DISCARD` outside a transaction.
    pub const DISCARD_WITHOUT_MULTI: &str = "ERR DISCARD without MULTI";
    /// `MULTI` inside a transaction.
    pub const NESTED_MULTI: &str = "ERR MULTI calls can not be nested";
    /// `EXEC` after a command that could not be queued.
    pub const EXEC_ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
    /// A command whose table entry has the flag `no_multi`, inside a transaction.
    pub const NOT_IN_MULTI: &str = "ERR Command not allowed inside a transaction";
    /// A command whose keys other nodes have hit, when what is known of these hits would take too much memory.
    pub const NO_ROOM_FOR_KEYS: &str = "OOM no room for what other nodes counted of these keys: ask for fewer at once, or raise memory.ceiling";
    /// A command for keys, before they are loaded.
    pub const LOADING: &str = "LOADING Lately is loading the dataset in memory";
    /// A login that failed.
    pub const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
    /// Any command but those for the login, before it.
    pub const NOAUTH: &str = "NOAUTH Authentication required.";
    /// `HELLO` without a login, before one.
    pub const HELLO_NOAUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";
    /// A login, while too many others wait for their turn.
    pub const BUSY_LOGIN: &str = "ERR too many logins are waiting: try again later";
    /// `AUTH` with only a password, where none is set.
    pub const AUTH_WITHOUT_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";
    /// `SHUTDOWN ABORT` while none is under way.
    pub const NO_SHUTDOWN: &str = "ERR No shutdown in progress.";
}

/// Bytes that are not a request. `Display` gives the error reply without the leading `-`. The connection is
/// closed after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The number of arguments is not an integer, or is too large.
    #[error("ERR Protocol error: invalid multibulk length")]
    Count,
    /// The length of a bulk string is not an integer, or is negative.
    #[error("ERR Protocol error: invalid bulk length")]
    BulkLength,
    /// A bulk string that is too long.
    #[error("ERR Protocol error: invalid bulk length {bytes}: a bulk string has at most {most} bytes")]
    BulkTooLong {
        /// Its length in bytes.
        bytes: i64,
        /// The bound in bytes.
        most: usize,
    },
    /// Another type than a bulk string inside the array.
    #[error("ERR Protocol error: expected '$', got '{}'", char::from(*got))]
    ExpectedBulk {
        /// The first byte found.
        got: u8,
    },
    /// A bulk string is not followed by CR LF, so its length is wrong.
    #[error("ERR Protocol error: expected CRLF after bulk string")]
    BulkEnd,
    /// An inline command that is too long.
    #[error("ERR Protocol error: too big inline request")]
    InlineLine,
    /// The line of a number of arguments is too long.
    #[error("ERR Protocol error: too big mbulk count string")]
    CountLine,
    /// The line of a length of a bulk string is too long.
    #[error("ERR Protocol error: too big bulk count string")]
    BulkLine,
    /// A quote in an inline command that is not closed, or closed inside a word.
    #[error("ERR Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// A NUL in an inline command, which is then another protocol.
    #[error("ERR Protocol error: NUL in inline request: this port speaks the Redis protocol without TLS")]
    InlineNul,
    /// The first byte of a TLS handshake.
    #[error("ERR Protocol error: TLS handshake: this port speaks the Redis protocol without TLS")]
    Tls,
    /// The first line of an HTTP request.
    #[error(
        "ERR Protocol error: HTTP request: this port speaks the Redis protocol, HTTP has a port of its own"
    )]
    Http,
    /// Too many arguments, or one that is too long, before the login.
    #[error("ERR Protocol error: unauthenticated {what} length")]
    Unauthenticated {
        /// `multibulk` or `bulk`.
        what: &'static str,
    },
    /// The request is too long.
    #[error("ERR Protocol error: too big request, a request has at most {most} bytes")]
    RequestLength {
        /// The bound in bytes.
        most: usize,
    },
}

/// A request that is not a valid command. `Display` gives the error reply without the leading `-`.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No such command.
    #[error("ERR unknown command '{name}', with args beginning with: {args}{instead}")]
    UnknownCommand {
        /// The name, truncated.
        name: String,
        /// The arguments, quoted and truncated.
        args: String,
        /// What to use instead, if it is a command of Redis.
        instead: String,
    },
    /// No such subcommand.
    #[error("ERR unknown subcommand '{name}'. Try {} HELP.", container.to_ascii_uppercase())]
    UnknownSubcommand {
        /// The name, truncated.
        name: String,
        /// The command that it was given to.
        container: &'static str,
    },
    /// Too few or too many arguments.
    #[error("ERR wrong number of arguments for '{name}' command")]
    Arity {
        /// The command's name; of a subcommand `client|setname`.
        name: &'static str,
    },
    /// The client has to log in first.
    #[error("{}", texts::NOAUTH)]
    NotLoggedIn,
    /// The user may not run the command.
    #[error("NOPERM User {user} has no permissions to run the '{name}' command")]
    ForbiddenCommand {
        /// The user's name.
        user: String,
        /// The command's name; of a subcommand `client|setname`.
        name: &'static str,
    },
    /// The user may run the command, but not on this key.
    #[error("NOPERM User {user} has no permissions to access the '{key}' key")]
    ForbiddenKey {
        /// The user's name.
        user: String,
        /// The key, truncated.
        key: String,
    },
    /// The command is about all keys, and the user may use only some of them.
    #[error("NOPERM User {user} has no permissions to run the '{name}' command on all keys")]
    ForbiddenOnAllKeys {
        /// The user's name.
        user: String,
        /// The command's name.
        name: &'static str,
    },
    /// Wrong options of a command that Redis has, in the words of Redis.
    #[error("ERR syntax error")]
    Syntax,
    /// A wrong argument of a command that Redis does not have, and the command's usage.
    #[error("{error}. Usage: {usage}")]
    Usage {
        /// The error.
        error: Box<CommandError>,
        /// The usage.
        usage: String,
    },
    /// An argument that the store or the config refuses.
    #[error("ERR {error}")]
    Refused {
        /// The reason.
        error: String,
    },
    /// An argument of the wrong form.
    #[error("ERR invalid {what} '{value}': {expected}")]
    Invalid {
        /// The name of the argument: `max`, `count`.
        what: &'static str,
        /// The argument, truncated.
        value: String,
        /// The right form.
        expected: Cow<'static, str>,
    },
    /// An unexpected argument.
    #[error("ERR unexpected argument '{value}'{hint}")]
    Unexpected {
        /// The argument, truncated.
        value: String,
        /// Where it belongs, after a colon, or nothing.
        hint: &'static str,
    },
    /// An option without its value.
    #[error("ERR {option} needs {needed} after it")]
    OptionValue {
        /// The option.
        option: &'static str,
        /// What it needs.
        needed: &'static str,
    },
    /// An option that is given twice.
    #[error("ERR {option} is given twice")]
    Twice {
        /// The option.
        option: &'static str,
    },
    /// A channel that there is not.
    #[error("ERR unknown channel '{channel}': the one channel is {known}")]
    Channel {
        /// The channel, truncated.
        channel: String,
        /// The channel that there is.
        known: &'static str,
    },
    /// A command that a subscribed client of RESP2 may not send, in the words of Redis.
    #[error(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    )]
    Subscribed {
        /// The command's name.
        name: &'static str,
    },
    /// An incomplete limit of `MLIMIT`.
    #[error("ERR the limit of '{key}' has no {missing}: give key, max and window of each limit")]
    Incomplete {
        /// The key, truncated.
        key: String,
        /// The missing argument.
        missing: &'static str,
    },
    /// No hits in a period, or a period of length 0.
    #[error("ERR zero rates are not supported")]
    ZeroRate,
    /// A burst that would take longer than any time at its rate.
    #[error("ERR invalid rate: max_burst hits at this rate would take longer than 146 million years")]
    LongBurst,
    /// An option of `LIMIT` in `MLIMIT`.
    #[error("ERR {option} does not go with MLIMIT")]
    AmongLimits {
        /// The option.
        option: &'static str,
    },
    /// Lockouts that cannot be.
    #[error("ERR {0}")]
    Lockout(#[from] LockoutError),
    /// `FACTOR` or `MAX` without `LOCKOUT`.
    #[error("ERR {option} goes with LOCKOUT: give the length of the first one, such as LOCKOUT 15m")]
    WithoutLockout {
        /// The option.
        option: &'static str,
    },
    /// Two forms of the reply of `HITS`.
    #[error("ERR {first} does not go with {second}")]
    TwoForms {
        /// The one that comes first in the documentation.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// Not an integer, or out of range, for a command that Redis has, in the words of Redis.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// The key is empty or too long.
    #[error("ERR invalid key of {bytes} bytes: a key has 1 to {MAX_KEY_BYTES} bytes")]
    KeyLength {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The id of a hit is empty or too long.
    #[error("ERR invalid id of {bytes} bytes: an id has 1 to {MAX_ID_BYTES} bytes")]
    IdLength {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The member of a hit is empty or too long.
    #[error("ERR invalid member of {bytes} bytes: a member has 1 to {MAX_MEMBER_BYTES} bytes")]
    MemberLength {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The name of a source is empty or too long.
    #[error("ERR invalid source of {bytes} bytes: a source has 1 to {MAX_SOURCE_BYTES} bytes")]
    SourceLength {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A range of a source that ends before it begins.
    #[error("ERR the stretch ends at {to}, before it begins at {from}")]
    Backward {
        /// Where it begins.
        from: u64,
        /// Where it ends.
        to: u64,
    },
    /// Not a time or not a duration.
    #[error("ERR {0}")]
    Time(#[from] TimeError),
    /// A known option that is not supported yet.
    #[error("ERR the {option} option of {command} is not supported by this version")]
    UnsupportedOption {
        /// The option.
        option: &'static str,
        /// The command.
        command: &'static str,
    },
    /// An option that a named limit has in the config.
    #[error("ERR {option} does not go with @name: the limit has its own in the config")]
    NamedOption {
        /// The option.
        option: &'static str,
    },
    /// Too many arguments of one kind.
    #[error("ERR {command} takes at most {most} {what}")]
    TooMany {
        /// The command.
        command: &'static str,
        /// The kind: `windows`, `keys`, `ids`, `names` or `patterns`.
        what: &'static str,
        /// The bound.
        most: usize,
    },
    /// An id in `CLIENT LIST` that is not an integer.
    #[error("ERR Invalid client ID")]
    ClientId,
    /// An unknown type in `CLIENT LIST`.
    #[error("ERR Unknown client type '{name}'")]
    ClientType {
        /// The type, truncated.
        name: String,
    },
    /// `COMMAND GETKEYS` of an unknown command.
    #[error("ERR Invalid command specified")]
    KeysOfNoCommand,
    /// `COMMAND GETKEYS` of a command without keys.
    #[error("ERR The command has no key arguments")]
    NoKeys,
    /// `COMMAND GETKEYS` with too few or too many arguments.
    #[error("ERR Invalid number of arguments specified for command")]
    KeysOfArity,
    /// `COMMAND GETKEYS` with wrong arguments.
    #[error("ERR Invalid arguments specified for command")]
    KeysOfArguments,
    /// The cursor of `SCAN` is not an unsigned integer.
    #[error("ERR invalid cursor")]
    Cursor,
    /// The version in `HELLO` is not an integer.
    #[error("ERR Protocol version is not an integer or out of range")]
    ProtocolVersion,
    /// The version in `HELLO` is neither 2 nor 3.
    #[error("NOPROTO unsupported protocol version")]
    UnsupportedProtocol,
    /// An option of `HELLO` that is unknown or incomplete.
    #[error("ERR Syntax error in HELLO option '{option}'")]
    HelloOption {
        /// The option, truncated.
        option: String,
    },
    /// A client's name with bytes other than printable ASCII.
    #[error("ERR Client names cannot contain spaces, newlines or special characters.")]
    ClientName,
    /// A client's name or library that is too long.
    #[error("ERR {what} is too long: it has at most {MAX_CLIENT_NAME_BYTES} bytes")]
    ClientNameLength {
        /// `Client name`, `lib-name` or `lib-ver`.
        what: &'static str,
    },
    /// A value of `CLIENT SETINFO` with bytes other than printable ASCII.
    #[error("ERR {attribute} cannot contain spaces, newlines or special characters.")]
    ClientInfoValue {
        /// `lib-name` or `lib-ver`.
        attribute: &'static str,
    },
    /// An unknown attribute of `CLIENT SETINFO`.
    #[error("ERR Unrecognized option '{attribute}'")]
    ClientInfoAttribute {
        /// The attribute, truncated.
        attribute: String,
    },
    /// `CLIENT TRACKING ON`.
    #[error("ERR client tracking is not supported")]
    Tracking,
    /// A database other than 0.
    #[error("ERR DB index is out of range")]
    Database,
    /// `CONFIG SET` and similar commands.
    #[error("ERR CONFIG {subcommand} is not supported: settings come from the config file")]
    ConfigReadOnly {
        /// The subcommand.
        subcommand: &'static str,
    },
    /// `CONFIG RESETSTAT`.
    #[error("ERR CONFIG RESETSTAT is not supported: counters begin anew at a start")]
    ResetStat,
    /// Any subcommand of `CLUSTER`.
    #[error("ERR This instance has cluster support disabled")]
    ClusterDisabled,
}

impl CommandError {
    /// Whether the error is returned at once inside `MULTI`, so that `EXEC` aborts. Other errors are the
    /// reply of their command when the transaction runs.
    #[must_use]
    pub fn aborts_transaction(&self) -> bool {
        match self {
            CommandError::UnknownCommand { .. }
            | CommandError::UnknownSubcommand { .. }
            | CommandError::Arity { .. }
            | CommandError::NotLoggedIn
            | CommandError::ForbiddenCommand { .. }
            | CommandError::ForbiddenKey { .. }
            | CommandError::ForbiddenOnAllKeys { .. } => true,
            CommandError::Usage { error, .. } => error.aborts_transaction(),
            _ => false,
        }
    }

    /// The user may not run the command on this key.
    #[must_use]
    pub fn forbidden_key(user: String, key: &[u8]) -> CommandError {
        CommandError::ForbiddenKey { user, key: echo(key) }
    }
}

/// The start of the input, as text.
pub(crate) fn echo(given: &[u8]) -> String {
    String::from_utf8_lossy(&given[..given.len().min(MAX_ECHOED_BYTES)]).into_owned()
}
