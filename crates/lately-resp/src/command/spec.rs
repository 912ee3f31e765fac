//! The table of commands: one entry per command, for lookup, arity and the replies of `COMMAND`.

use crate::args::ArgList;
use crate::command::instead::unknown_command;
use crate::command::{
    Among, Command, Coolest, acl, alerts, client, connection, coolest, hits, ingest, keys, limits, server,
    throttle, top, transaction,
};
use crate::error::{CommandError, echo};

/// What a command does, where its keys are, and its documentation.
#[derive(Debug)]
#[non_exhaustive]
pub struct CommandSpec {
    /// The name in lower case; `client|setname` for a subcommand.
    pub name: &'static str,
    /// The number of arguments, including the name. `-n` means at least `n`.
    pub arity: i64,
    /// The permission that it needs. `None`: every client may run it.
    pub verb: Option<Verb>,
    /// Its properties, besides those that follow from the verb.
    pub flags: &'static [CommandFlag],
    /// Whether it may run before the keys are loaded.
    pub runs_while_loading: bool,
    /// Whether a client of version 2 may send it while it is subscribed.
    pub runs_while_subscribed: bool,
    /// Whether it runs the queued commands of a transaction. If its arguments are wrong, it ends the transaction.
    pub runs_transaction: bool,
    /// The index of the first key; 0 if there is none.
    pub first_key: i64,
    /// The index of the last key; negative values count from the end.
    pub last_key: i64,
    /// The distance from one key to the next.
    pub key_step: i64,
    /// The family, for `COMMAND DOCS`.
    pub group: Group,
    /// A one-line summary.
    pub summary: &'static str,
    /// Its complexity.
    pub complexity: &'static str,
    /// Its arguments.
    pub arguments: &'static [ArgumentSpec],
    /// Its subcommands.
    pub subcommands: &'static [CommandSpec],
    pub(crate) parse: for<'a> fn(ArgList<'a>) -> Result<Command<'a>, CommandError>,
}

/// The permission that a request needs, in any protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Verb {
    /// Reads keys.
    Read,
    /// Counts hits.
    Hit,
    /// Decides limits, and counts what they allow.
    Limit,
    /// Deletes keys.
    Delete,
    /// Operates the server, or reads or replaces all of it.
    Admin,
}

impl Verb {
    /// All verbs.
    pub const ALL: &[Verb] = &[Verb::Read, Verb::Hit, Verb::Limit, Verb::Delete, Verb::Admin];

    /// Its name in the config file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Hit => "hit",
            Verb::Limit => "limit",
            Verb::Delete => "delete",
            Verb::Admin => "admin",
        }
    }

    /// Whether requests with it change counts.
    #[must_use]
    pub fn changes_counts(self) -> bool {
        matches!(self, Verb::Hit | Verb::Limit | Verb::Delete)
    }

    /// The flag in `COMMAND INFO`.
    pub(crate) fn flag_name(self) -> &'static str {
        match self {
            Verb::Read => "readonly",
            Verb::Hit | Verb::Limit | Verb::Delete => "write",
            Verb::Admin => "admin",
        }
    }
}

/// A family of commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Group {
    /// Counts hits and reads counts.
    Hits,
    /// Limits.
    Limits,
    /// Alerts.
    Alerts,
    /// Keys as such.
    Generic,
    /// The connection and its login.
    Connection,
    /// The server.
    Server,
    /// Transactions.
    Transactions,
    /// Messages.
    PubSub,
}

impl Group {
    /// Its name in `COMMAND DOCS`. Families of Redis have its names.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Group::Hits => "hits",
            Group::Limits => "limits",
            Group::Alerts => "alerts",
            Group::Generic => "generic",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Transactions => "transactions",
            Group::PubSub => "pubsub",
        }
    }

    /// Its category in `COMMAND INFO`.
    pub(crate) fn category(self) -> Option<&'static str> {
        match self {
            Group::Generic => Some("@keyspace"),
            Group::Connection => Some("@connection"),
            Group::Transactions => Some("@transaction"),
            Group::PubSub => Some("@pubsub"),
            Group::Hits | Group::Limits | Group::Alerts | Group::Server => None,
        }
    }

    /// Whether its commands are those of Redis, with the errors of Redis, which clients compare.
    pub(crate) fn is_of_redis(self) -> bool {
        !matches!(self, Group::Hits | Group::Limits | Group::Alerts)
    }
}

/// A property of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CommandFlag {
    /// Takes constant or logarithmic time.
    Fast,
    /// Is refused if the store is full and no key can be evicted.
    DenyOutOfMemory,
    /// Needs no login.
    NoAuth,
    /// Is not allowed inside `MULTI`.
    NoMulti,
    /// Has keys that only `COMMAND GETKEYS` finds.
    MovableKeys,
}

impl CommandFlag {
    /// The flag in `COMMAND INFO`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CommandFlag::Fast => "fast",
            CommandFlag::DenyOutOfMemory => "denyoom",
            CommandFlag::NoAuth => "no_auth",
            CommandFlag::NoMulti => "no_multi",
            CommandFlag::MovableKeys => "movablekeys",
        }
    }
}

/// An argument, for `COMMAND DOCS`, from which clients show hints.
#[derive(Debug)]
#[non_exhaustive]
pub struct ArgumentSpec {
    /// Its name.
    pub name: &'static str,
    /// Its type: `key`, `string`, `integer`, `pattern`, `pure-token`, `oneof` or `block`.
    pub kind: &'static str,
    /// The option word before it.
    pub token: Option<&'static str>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may be repeated.
    pub multiple: bool,
    /// The parts of a `oneof` or a `block`.
    pub parts: &'static [ArgumentSpec],
}

impl ArgumentSpec {
    pub(crate) const fn of(name: &'static str, kind: &'static str) -> ArgumentSpec {
        ArgumentSpec { name, kind, token: None, optional: false, multiple: false, parts: &[] }
    }

    /// A literal word.
    pub(crate) const fn word(name: &'static str, word: &'static str) -> ArgumentSpec {
        ArgumentSpec::of(name, "pure-token").after(word)
    }

    pub(crate) const fn group(
        name: &'static str,
        kind: &'static str,
        parts: &'static [ArgumentSpec],
    ) -> ArgumentSpec {
        ArgumentSpec { name, kind, token: None, optional: false, multiple: false, parts }
    }

    pub(crate) const fn after(mut self, token: &'static str) -> ArgumentSpec {
        self.token = Some(token);
        self
    }

    pub(crate) const fn optional(mut self) -> ArgumentSpec {
        self.optional = true;
        self
    }

    pub(crate) const fn multiple(mut self) -> ArgumentSpec {
        self.multiple = true;
        self
    }
}

/// A command that has subcommands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ContainerName {
    /// `ACL`
    Acl,
    /// `CLIENT`
    Client,
    /// `COMMAND`
    Command,
    /// `CONFIG`
    Config,
}

impl ContainerName {
    pub(crate) fn spec(self) -> &'static CommandSpec {
        match self {
            ContainerName::Acl => &acl::ACL,
            ContainerName::Client => &client::CLIENT,
            ContainerName::Command => &server::COMMAND,
            ContainerName::Config => &server::CONFIG,
        }
    }
}

/// The families, in the order of lookup: the most frequent commands first.
static FAMILIES: [&[CommandSpec]; 11] = [
    &hits::SPECS,
    &limits::SPECS,
    &throttle::SPECS,
    &keys::SPECS,
    &transaction::SPECS,
    &connection::SPECS,
    &server::SPECS,
    &coolest::SPECS,
    &top::SPECS,
    &ingest::SPECS,
    &alerts::SPECS,
];

/// Commands with subcommands are separate statics, so that their help can refer to them.
static CONTAINERS: [&CommandSpec; 4] = [&client::CLIENT, &server::COMMAND, &server::CONFIG, &acl::ACL];

/// Every command, without subcommands.
pub fn commands() -> impl Iterator<Item = &'static CommandSpec> + Clone {
    FAMILIES.iter().copied().flatten().chain(CONTAINERS.iter().copied())
}

/// The command of this name in any case; a subcommand by `client|setname`.
#[must_use]
pub fn find_command(name: &[u8]) -> Option<&'static CommandSpec> {
    match memchr::memchr(b'|', name) {
        None => find_top(name),
        Some(bar) => find_top(&name[..bar])?.find_subcommand(&name[bar + 1..]),
    }
}

/// The command of a request, or its subcommand.
///
/// # Errors
/// [`CommandError::UnknownCommand`] or [`CommandError::UnknownSubcommand`].
pub fn spec_of(args: ArgList<'_>) -> Result<&'static CommandSpec, CommandError> {
    let spec = args.get(0).and_then(find_top).ok_or_else(|| unknown_command(args))?;
    match args.get(1) {
        Some(name) if !spec.subcommands.is_empty() => spec
            .find_subcommand(name)
            .ok_or_else(|| CommandError::UnknownSubcommand { name: echo(name), container: spec.name }),
        _ => Ok(spec),
    }
}

fn find_top(name: &[u8]) -> Option<&'static CommandSpec> {
    commands().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
}

impl CommandSpec {
    /// A command without keys, flags, arguments or subcommands. The table adds them.
    pub(crate) const fn new(
        name: &'static str,
        arity: i64,
        verb: Option<Verb>,
        parse: for<'a> fn(ArgList<'a>) -> Result<Command<'a>, CommandError>,
    ) -> CommandSpec {
        CommandSpec {
            name,
            arity,
            verb,
            flags: &[],
            runs_while_loading: false,
            runs_while_subscribed: false,
            runs_transaction: false,
            first_key: 0,
            last_key: 0,
            key_step: 0,
            group: Group::Generic,
            summary: "",
            complexity: "O(1)",
            arguments: &[],
            subcommands: &[],
            parse,
        }
    }

    pub(crate) const fn keys(mut self, first: i64, last: i64, step: i64) -> CommandSpec {
        self.first_key = first;
        self.last_key = last;
        self.key_step = step;
        self
    }

    pub(crate) const fn while_loading(mut self) -> CommandSpec {
        self.runs_while_loading = true;
        self
    }

    pub(crate) const fn while_subscribed(mut self) -> CommandSpec {
        self.runs_while_subscribed = true;
        self
    }

    pub(crate) const fn running_transaction(mut self) -> CommandSpec {
        self.runs_transaction = true;
        self
    }

    pub(crate) const fn flags(mut self, flags: &'static [CommandFlag]) -> CommandSpec {
        self.flags = flags;
        self
    }

    pub(crate) const fn doc(mut self, group: Group, summary: &'static str) -> CommandSpec {
        self.group = group;
        self.summary = summary;
        self
    }

    pub(crate) const fn complexity(mut self, complexity: &'static str) -> CommandSpec {
        self.complexity = complexity;
        self
    }

    pub(crate) const fn arguments(mut self, arguments: &'static [ArgumentSpec]) -> CommandSpec {
        self.arguments = arguments;
        self
    }

    pub(crate) const fn subcommands(mut self, subcommands: &'static [CommandSpec]) -> CommandSpec {
        self.subcommands = subcommands;
        self
    }

    /// Whether it has this property.
    #[must_use]
    pub fn has(&self, flag: CommandFlag) -> bool {
        self.flags.contains(&flag)
    }

    /// Parses a request of this command.
    ///
    /// # Errors
    /// [`CommandError`]: wrong arguments.
    #[inline]
    pub fn read<'a>(&'static self, args: ArgList<'a>) -> Result<Command<'a>, CommandError> {
        self.check_arity(args.len()).and_then(|()| (self.parse)(args)).map_err(|error| self.explain(error))
    }

    /// The keys of a request, its name first.
    ///
    /// # Errors
    /// [`CommandError::NoKeys`] when the command names no keys, or an error about the arguments.
    pub fn keys_of<'a>(&self, args: ArgList<'a>) -> Result<Vec<&'a [u8]>, CommandError> {
        let is_movable = self.has(CommandFlag::MovableKeys);
        if self.first_key == 0 && !is_movable {
            return Err(CommandError::NoKeys);
        }
        self.check_arity(args.len()).map_err(|_| CommandError::KeysOfArity)?;
        if is_movable {
            return match (self.parse)(args) {
                Ok(Command::LimitAll(request)) => Ok(request.limits.iter().map(|limit| limit.key).collect()),
                Ok(Command::Coolest(Coolest { among: Among::Keys(keys), .. })) => Ok(keys.iter().collect()),
                Ok(_) => Err(CommandError::NoKeys),
                Err(CommandError::Arity { .. }) => Err(CommandError::KeysOfArity),
                Err(_) => Err(CommandError::KeysOfArguments),
            };
        }
        let keys: Vec<_> = self.places_of_keys(args).collect();
        if keys.is_empty() { Err(CommandError::NoKeys) } else { Ok(keys) }
    }

    /// The first key of a request of this command for which `is_wanted` is true.
    ///
    /// # Errors
    /// Those of [`CommandSpec::keys_of`].
    #[inline]
    pub fn find_key<'a>(
        &self,
        args: ArgList<'a>,
        mut is_wanted: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<&'a [u8]>, CommandError> {
        if self.first_key == 0 || self.has(CommandFlag::MovableKeys) {
            return Ok(self.keys_of(args)?.into_iter().find(|key| is_wanted(key)));
        }
        Ok(self.places_of_keys(args).find(|key| is_wanted(key)))
    }

    /// The arguments that are keys, of a command whose keys are always at the same places.
    #[inline]
    fn places_of_keys<'a>(&self, args: ArgList<'a>) -> impl Iterator<Item = &'a [u8]> {
        let index = |index: i64| usize::try_from(index).unwrap_or(0);
        let count = if self.last_key < 0 { args.len() } else { index(self.last_key) + 1 };
        args.first(count).from(index(self.first_key)).iter().step_by(index(self.key_step).max(1))
    }

    /// The name of a subcommand, after the bar.
    pub(crate) fn short_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, short)| short)
    }

    pub(crate) fn find_subcommand(&self, name: &[u8]) -> Option<&'static CommandSpec> {
        self.subcommands.iter().find(|spec| spec.short_name().as_bytes().eq_ignore_ascii_case(name))
    }

    #[inline]
    fn check_arity(&self, count: usize) -> Result<(), CommandError> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let fits = if self.arity < 0 { count >= -self.arity } else { count == self.arity };
        if fits { Ok(()) } else { Err(CommandError::Arity { name: self.name }) }
    }
}
