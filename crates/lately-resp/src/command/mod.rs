//! Commands: requests whose options are parsed and checked. Each family of commands has a file, with its part
//! of the command table. Names, arities and documentation come from the table.

mod acl;
mod alerts;
mod client;
mod connection;
mod coolest;
mod describe;
mod hits;
mod ingest;
mod instead;
mod keys;
mod limits;
mod options;
mod server;
mod spec;
mod throttle;
mod top;
mod transaction;

pub use alerts::ALERTS_CHANNEL;
pub use client::{ClientCommand, WhichClients};
pub use connection::Hello;
pub use coolest::{Among, Coolest};
pub use describe::{write_command_docs, write_command_info, write_command_list, write_help};
pub use hits::{Pairs, Windows};
pub use ingest::Stretch;
pub use keys::{DEFAULT_SCAN_COUNT, Scan};
pub use server::CommandQuery;
pub use spec::{
    ArgumentSpec, CommandFlag, CommandSpec, ContainerName, Group, Verb, commands, find_command, spec_of,
};
pub use top::Top;

use lately::{HitOnce, JointRequest, MemberHit, Request, Source, Span, Throttle, Timestamp};

use crate::args::ArgList;
use crate::error::CommandError;

/// A command. Keys and other byte strings borrow from the read buffer.
///
/// A window that is `None` is the default window of the key's class, a time that is `None` is now.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are the command's arguments, by the names in its documentation")]
pub enum Command<'a> {
    /// `HIT key [count] [AT time]`
    Hit { key: &'a [u8], count: u64, at: Option<Timestamp> },
    /// `HIT key [count] [AT time] ID id`
    HitOnce(HitOnce<'a>),
    /// `HIT key [count] [AT time] [ID id] MEMBER member`
    HitMember(MemberHit<'a>),
    /// `MHIT key count [key count …]`
    MultiHit { pairs: Pairs<'a> },
    /// `HITS key [window …] [AT time]`: one integer unless several windows are named.
    Hits { key: &'a [u8], windows: Windows<'a>, at: Option<Timestamp> },
    /// `HITS key [window] BOUNDS [AT time]`
    HitsBounds { key: &'a [u8], window: Option<Span>, at: Option<Timestamp> },
    /// `HITS key [window] DENIED [AT time]`
    HitsDenied { key: &'a [u8], window: Option<Span>, at: Option<Timestamp> },
    /// `HITS key [window] STALENESS [AT time]`
    HitsStaleness { key: &'a [u8], window: Option<Span>, at: Option<Timestamp> },
    /// `HITS key [window] BY ORIGIN [AT time]`
    HitsByOrigin { key: &'a [u8], window: Option<Span>, at: Option<Timestamp> },
    /// `MHITS window key [key …]`
    MultiHits { window: Span, keys: ArgList<'a> },
    /// `RATE key [window] [AT time]`
    Rate { key: &'a [u8], window: Option<Span>, at: Option<Timestamp> },
    /// `SERIES key window step [AT time]`
    Series { key: &'a [u8], window: Span, step: Span, at: Option<Timestamp> },
    /// `UNIQ key [window] [BOUNDS]`
    Unique { key: &'a [u8], window: Option<Span>, has_bounds: bool },
    /// `TOP k [window] [PREFIX p] [BOUNDS]`
    Top(Top<'a>),

    /// `ALERTS`
    Alerts,
    /// `SUBSCRIBE channel [channel …]`
    Subscribe { channels: ArgList<'a> },
    /// `UNSUBSCRIBE [channel …]`
    Unsubscribe { channels: ArgList<'a> },

    /// `INGEST source from to [key count time …]`
    Ingest(Stretch<'a>),
    /// `INGEST source`
    Position { source: Source<'a> },

    /// `LIMIT key max window [COST n] [PEEK] [OVERDRAFT] [LOCKOUT duration [FACTOR f] [MAX duration]] [AT time]`
    Limit(Request<'a>),
    /// The same with a cost below 0: its hits are given back.
    Refund(Request<'a>),
    /// `LIMIT key @name [COST n] [PEEK] [AT time]`: the config has the rest of the limit.
    LimitByRule { key: &'a [u8], name: &'a [u8], cost: i64, at: Option<Timestamp>, is_peek: bool },
    /// `MLIMIT key max window [key max window …] [COST n] [PEEK] [AT time]`
    LimitAll(JointRequest<'a>),
    /// `CL.THROTTLE key max_burst count_per_period period [quantity]`
    Throttle(Throttle<'a>),
    /// `COOLEST k [WINDOW w] [BELOW n] key [key …]`, or `PREFIX p` in place of the keys
    Coolest(Coolest<'a>),

    /// `DEL key [key …]`
    Delete { keys: ArgList<'a> },
    /// `EXISTS key [key …]`. A key that is named twice counts twice.
    Exists { keys: ArgList<'a> },
    /// `SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]`
    Scan(Scan<'a>),
    /// `DBSIZE`
    DatabaseSize,
    /// `FLUSHALL` and `FLUSHDB`
    FlushAll,
    /// `TYPE key`
    Type { key: &'a [u8] },
    /// `TTL key`, in seconds
    TimeToLive { key: &'a [u8] },
    /// `PTTL key`, in milliseconds
    TimeToLiveMillis { key: &'a [u8] },

    /// `MULTI`
    Multi,
    /// `EXEC`
    Exec,
    /// `DISCARD`
    Discard,

    /// `PING [message]`
    Ping { message: Option<&'a [u8]> },
    /// `ECHO message`
    Echo { message: &'a [u8] },
    /// `HELLO [version [AUTH user password] [SETNAME name]]`
    Hello(Hello<'a>),
    /// `AUTH [user] password`
    Auth { user: Option<&'a [u8]>, password: &'a [u8] },
    /// `ACL WHOAMI`
    WhoAmI,
    /// `SELECT 0`. Another database is an error.
    Select,
    /// `CLIENT …`
    Client(ClientCommand<'a>),
    /// `RESET`
    Reset,
    /// `QUIT`
    Quit,

    /// `COMMAND …`
    Command(CommandQuery<'a>),
    /// `INFO [section …]`
    Info { sections: ArgList<'a> },
    /// `CONFIG GET pattern [pattern …]`
    ConfigGet { patterns: ArgList<'a> },
    /// `TIME`
    Time,
    /// `BGSAVE`
    BackgroundSave,
    /// `LASTSAVE`
    LastSave,
    /// `SHUTDOWN [SAVE | NOSAVE] [NOW] [FORCE]`. The options have no effect: the configuration decides what
    /// is kept.
    Shutdown,
    /// `SHUTDOWN ABORT`
    ShutdownAbort,
    /// `CLIENT HELP` and similar commands; see [`write_help`].
    Help { container: ContainerName },
}

impl<'a> Command<'a> {
    /// Parses `args`, which start with the command's name.
    pub fn parse(args: ArgList<'a>) -> Result<Command<'a>, CommandError> {
        spec_of(args)?.read(args)
    }
}

#[cfg(test)]
mod tests;
