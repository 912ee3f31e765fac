//! Commands for the connection: `PING ECHO HELLO AUTH SELECT RESET QUIT`. `CLIENT` has its own file.

use crate::args::ArgList;
use crate::command::Command;
use crate::command::client::client_name;
use crate::command::options::{is_word, required};
use crate::command::spec::{ArgumentSpec, CommandFlag, CommandSpec, Group};
use crate::error::{CommandError, echo};
use crate::integer::parse_integer;
use crate::reply::Protocol;

const GROUP: Group = Group::Connection;
const FAST: &[CommandFlag] = &[CommandFlag::Fast];
const LOGIN: &[CommandFlag] = &[CommandFlag::NoAuth, CommandFlag::Fast];
const USER: ArgumentSpec = ArgumentSpec::of("username", "string");
const PASSWORD: ArgumentSpec = ArgumentSpec::of("password", "string");

pub(super) static SPECS: [CommandSpec; 7] = [
    CommandSpec::new("ping", -1, None, parse_ping)
        .flags(FAST)
        .while_subscribed()
        .doc(GROUP, "Answers PONG, or the message")
        .arguments(&[ArgumentSpec::of("message", "string").optional()]),
    CommandSpec::new("echo", 2, None, |args| Ok(Command::Echo { message: required(args, 1)? }))
        .flags(FAST)
        .doc(GROUP, "Answers the message")
        .arguments(&[ArgumentSpec::of("message", "string")]),
    CommandSpec::new("hello", -1, None, parse_hello)
        .flags(LOGIN)
        .while_loading()
        .doc(GROUP, "Chooses the protocol version and describes the server")
        .arguments(&[ArgumentSpec::group(
            "arguments",
            "block",
            &[
                ArgumentSpec::of("protover", "integer"),
                ArgumentSpec::group("auth", "block", &[USER, PASSWORD]).after("AUTH").optional(),
                ArgumentSpec::of("clientname", "string").after("SETNAME").optional(),
            ],
        )
        .optional()]),
    CommandSpec::new("auth", -2, None, parse_auth)
        .flags(LOGIN)
        .while_loading()
        .doc(GROUP, "Logs the connection in")
        .arguments(&[USER.optional(), PASSWORD]),
    CommandSpec::new("select", 2, None, parse_select)
        .flags(FAST)
        .while_loading()
        .doc(GROUP, "Selects database 0, the only one")
        .arguments(&[ArgumentSpec::of("index", "integer")]),
    CommandSpec::new("reset", 1, None, |_| Ok(Command::Reset))
        .flags(LOGIN)
        .while_loading()
        .while_subscribed()
        .doc(GROUP, "Puts the connection back into its first state"),
    CommandSpec::new("quit", -1, None, |_| Ok(Command::Quit))
        .flags(LOGIN)
        .while_loading()
        .while_subscribed()
        .doc(GROUP, "Closes the connection"),
];

/// The arguments of `HELLO`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hello<'a> {
    /// The version to switch to before the reply is written. `None` keeps the version.
    pub protocol: Option<Protocol>,
    /// User and password.
    pub auth: Option<(&'a [u8], &'a [u8])>,
    /// The connection's name; empty for none.
    pub name: Option<&'a [u8]>,
}

fn parse_ping(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    if args.len() > 2 {
        return Err(CommandError::Arity { name: "ping" });
    }
    Ok(Command::Ping { message: args.get(1) })
}

fn parse_hello(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let mut hello = Hello::default();
    if let Some(version) = args.get(1) {
        hello.protocol = Some(match parse_integer(version).ok_or(CommandError::ProtocolVersion)? {
            2 => Protocol::V2,
            3 => Protocol::V3,
            _ => return Err(CommandError::UnsupportedProtocol),
        });
    }
    let mut index = 2;
    while let Some(word) = args.get(index) {
        let unknown = || CommandError::HelloOption { option: echo(word) };
        if is_word(word, "AUTH") {
            let user = args.get(index + 1).ok_or_else(unknown)?;
            hello.auth = Some((user, args.get(index + 2).ok_or_else(unknown)?));
            index += 3;
        } else if is_word(word, "SETNAME") {
            hello.name = Some(client_name(args.get(index + 1).ok_or_else(unknown)?)?);
            index += 2;
        } else {
            return Err(unknown());
        }
    }
    Ok(Command::Hello(hello))
}

fn parse_auth(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    match args.len() {
        2 => Ok(Command::Auth { user: None, password: required(args, 1)? }),
        3 => Ok(Command::Auth { user: args.get(1), password: required(args, 2)? }),
        _ => Err(CommandError::Syntax),
    }
}

fn parse_select(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    match parse_integer(required(args, 1)?) {
        Some(0) => Ok(Command::Select),
        Some(_) => Err(CommandError::Database),
        None => Err(CommandError::NotInteger),
    }
}
