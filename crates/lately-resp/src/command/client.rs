//! `CLIENT` and its subcommands, which client libraries send when they connect.

use std::collections::BTreeSet;

use crate::args::ArgList;
use crate::command::Command;
use crate::command::options::{at_most, is_word, required};
use crate::command::spec::{ArgumentSpec, CommandSpec, ContainerName, Group, Verb};
use crate::error::{CommandError, echo};
use crate::integer::parse_integer;
use crate::limits::{MAX_CLIENT_IDS, MAX_CLIENT_NAME_BYTES};

const GROUP: Group = Group::Connection;
const ON_OR_OFF: ArgumentSpec = ArgumentSpec::group(
    "enabled",
    "oneof",
    &[ArgumentSpec::word("on", "ON"), ArgumentSpec::word("off", "OFF")],
);

pub(super) static CLIENT: CommandSpec =
    CommandSpec::new("client", -2, None, |_| Err(CommandError::Arity { name: "client" }))
        .doc(GROUP, "A container for commands about connections")
        .complexity("Depends on the subcommand")
        .subcommands(&SUBCOMMANDS);

static SUBCOMMANDS: [CommandSpec; 11] = [
    CommandSpec::new("client|id", 2, None, |_| Ok(Command::Client(ClientCommand::Id)))
        .while_loading()
        .doc(GROUP, "Returns the number of this connection"),
    CommandSpec::new("client|setname", 3, None, parse_set_name)
        .while_loading()
        .doc(GROUP, "Names this connection")
        .arguments(&[ArgumentSpec::of("connection-name", "string")]),
    CommandSpec::new("client|getname", 2, None, |_| Ok(Command::Client(ClientCommand::GetName)))
        .while_loading()
        .doc(GROUP, "Returns the name of this connection"),
    CommandSpec::new("client|setinfo", 4, None, parse_set_info)
        .while_loading()
        .doc(GROUP, "Tells which library this connection uses")
        .arguments(&[ArgumentSpec::group(
            "attr",
            "oneof",
            &[
                ArgumentSpec::of("libname", "string").after("LIB-NAME"),
                ArgumentSpec::of("libver", "string").after("LIB-VER"),
            ],
        )]),
    CommandSpec::new("client|info", 2, None, |_| Ok(Command::Client(ClientCommand::Info)))
        .while_loading()
        .doc(GROUP, "Describes this connection"),
    CommandSpec::new("client|list", -2, Some(Verb::Admin), parse_list)
        .while_loading()
        .doc(GROUP, "Describes all connections, or those of a type, or with these ids")
        .complexity("O(N) with N the number of connections")
        .arguments(&[
            ArgumentSpec::of("client-type", "string").after("TYPE").optional(),
            ArgumentSpec::of("client-id", "integer").after("ID").optional().multiple(),
        ]),
    CommandSpec::new("client|no-evict", 3, Some(Verb::Admin), |args| {
        on_or_off(args).map(ClientCommand::NoEvict).map(Command::Client)
    })
    .while_loading()
    .doc(GROUP, "Takes ON and OFF and changes nothing: connections are not evicted")
    .arguments(&[ON_OR_OFF]),
    CommandSpec::new("client|no-touch", 3, None, |args| {
        on_or_off(args).map(ClientCommand::NoTouch).map(Command::Client)
    })
    .while_loading()
    .doc(GROUP, "Takes ON and OFF and changes nothing: reads do not touch keys")
    .arguments(&[ON_OR_OFF]),
    CommandSpec::new("client|tracking", -3, None, parse_tracking)
        .while_loading()
        .doc(GROUP, "Takes OFF only: client-side caching is not supported")
        .arguments(&[ON_OR_OFF]),
    CommandSpec::new("client|reply", 3, None, parse_reply)
        .while_loading()
        .doc(GROUP, "Takes ON only: every command is answered")
        .arguments(&[ArgumentSpec::word("on", "ON")]),
    CommandSpec::new("client|help", 2, None, |_| Ok(Command::Help { container: ContainerName::Client }))
        .while_loading()
        .doc(GROUP, "Lists the subcommands"),
];

/// A subcommand of `CLIENT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ClientCommand<'a> {
    /// `CLIENT ID`
    Id,
    /// `CLIENT SETNAME name`; an empty name removes it.
    SetName(&'a [u8]),
    /// `CLIENT GETNAME`
    GetName,
    /// `CLIENT SETINFO LIB-NAME name`
    SetLibraryName(&'a [u8]),
    /// `CLIENT SETINFO LIB-VER version`
    SetLibraryVersion(&'a [u8]),
    /// `CLIENT INFO`
    Info,
    /// `CLIENT LIST [TYPE type | ID id [id …]]`
    List(WhichClients<'a>),
    /// `CLIENT NO-EVICT ON|OFF`
    NoEvict(bool),
    /// `CLIENT NO-TOUCH ON|OFF`
    NoTouch(bool),
    /// `CLIENT TRACKING OFF`
    TrackingOff,
    /// `CLIENT REPLY ON`
    ReplyOn,
}

/// The clients to list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WhichClients<'a> {
    /// All of them.
    All,
    /// Those that have not subscribed to anything: `normal`.
    Normal,
    /// Those that have: `pubsub`.
    Subscribed,
    /// Clients of a type that does not exist here: `master`, `replica`.
    None,
    /// Those with one of these ids, each of which is an integer.
    Ids(ArgList<'a>),
}

impl WhichClients<'_> {
    /// The requested ids. `None` if clients of all ids are.
    #[must_use]
    pub fn ids(self) -> Option<BTreeSet<u64>> {
        match self {
            WhichClients::All | WhichClients::Normal | WhichClients::Subscribed => None,
            WhichClients::None => Some(BTreeSet::new()),
            WhichClients::Ids(ids) => {
                let id = |arg| parse_integer(arg).and_then(|id| u64::try_from(id).ok());
                Some(ids.iter().filter_map(id).collect())
            }
        }
    }
}

/// Checks a name as Redis does, because lists of clients are parsed by spaces and lines.
pub(super) fn client_name(name: &[u8]) -> Result<&[u8], CommandError> {
    if !is_printable(name) {
        return Err(CommandError::ClientName);
    }
    short_enough(name, "Client name")
}

fn short_enough<'a>(value: &'a [u8], what: &'static str) -> Result<&'a [u8], CommandError> {
    if value.len() > MAX_CLIENT_NAME_BYTES {
        return Err(CommandError::ClientNameLength { what });
    }
    Ok(value)
}

fn is_printable(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b'!'..=b'~'))
}

fn parse_set_name(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    Ok(Command::Client(ClientCommand::SetName(client_name(required(args, 2)?)?)))
}

fn parse_set_info(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let (attribute, value) = (required(args, 2)?, required(args, 3)?);
    let known = ["lib-name", "lib-ver"].into_iter().find(|name| is_word(attribute, name));
    let Some(known) = known else {
        return Err(CommandError::ClientInfoAttribute { attribute: echo(attribute) });
    };
    if !is_printable(value) {
        return Err(CommandError::ClientInfoValue { attribute: known });
    }
    let value = short_enough(value, known)?;
    Ok(Command::Client(match known {
        "lib-name" => ClientCommand::SetLibraryName(value),
        _ => ClientCommand::SetLibraryVersion(value),
    }))
}

fn parse_list(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let which = match (args.get(2), args.from(3)) {
        (None, _) => WhichClients::All,
        (Some(word), ids) if is_word(word, "ID") && !ids.is_empty() => {
            at_most(MAX_CLIENT_IDS, "ids", ids.len(), "CLIENT LIST")?;
            if ids.iter().any(|id| parse_integer(id).is_none()) {
                return Err(CommandError::ClientId);
            }
            WhichClients::Ids(ids)
        }
        (Some(word), kinds) if is_word(word, "TYPE") && kinds.len() == 1 => {
            let kind = required(kinds, 0)?;
            match kind.to_ascii_lowercase().as_slice() {
                b"normal" => WhichClients::Normal,
                b"pubsub" => WhichClients::Subscribed,
                b"master" | b"replica" | b"slave" => WhichClients::None,
                _ => return Err(CommandError::ClientType { name: echo(kind) }),
            }
        }
        _ => return Err(CommandError::Syntax),
    };
    Ok(Command::Client(ClientCommand::List(which)))
}

fn on_or_off(args: ArgList<'_>) -> Result<bool, CommandError> {
    match required(args, 2)? {
        word if is_word(word, "ON") => Ok(true),
        word if is_word(word, "OFF") => Ok(false),
        _ => Err(CommandError::Syntax),
    }
}

fn parse_tracking(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    match on_or_off(args)? {
        true => Err(CommandError::Tracking),
        false if args.len() == 3 => Ok(Command::Client(ClientCommand::TrackingOff)),
        false => Err(CommandError::Syntax),
    }
}

fn parse_reply(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let unsupported = |option| CommandError::UnsupportedOption { option, command: "CLIENT REPLY" };
    match required(args, 2)? {
        word if is_word(word, "ON") => Ok(Command::Client(ClientCommand::ReplyOn)),
        word if is_word(word, "OFF") => Err(unsupported("OFF")),
        word if is_word(word, "SKIP") => Err(unsupported("SKIP")),
        _ => Err(CommandError::Syntax),
    }
}
