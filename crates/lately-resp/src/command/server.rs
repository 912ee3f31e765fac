//! Commands for the server: `COMMAND INFO CONFIG TIME BGSAVE LASTSAVE SHUTDOWN CLUSTER`.

use crate::args::ArgList;
use crate::command::Command;
use crate::command::options::{at_most, is_word};
use crate::command::spec::{ArgumentSpec, CommandFlag, CommandSpec, ContainerName, Group, Verb};
use crate::error::CommandError;
use crate::limits::{
    MAX_COMMAND_NAMES, MAX_GETKEYS_ARGUMENTS, MAX_PATTERN_BYTES, MAX_PATTERNS, MAX_SECTIONS,
    MAX_SHUTDOWN_OPTIONS,
};

const GROUP: Group = Group::Server;
const NAMES: &[ArgumentSpec] = &[ArgumentSpec::of("command-name", "string").optional().multiple()];

pub(super) static SPECS: [CommandSpec; 6] = [
    CommandSpec::new("info", -1, None, parse_info)
        .while_loading()
        .doc(GROUP, "Describes the server in lines of name and value")
        .arguments(&[ArgumentSpec::of("section", "string").optional().multiple()]),
    CommandSpec::new("time", 1, None, |_| Ok(Command::Time))
        .flags(&[CommandFlag::Fast])
        .doc(GROUP, "Returns the server's time as seconds and microseconds"),
    CommandSpec::new("shutdown", -1, Some(Verb::Admin), parse_shutdown)
        .flags(&[CommandFlag::NoMulti])
        .while_loading()
        .doc(GROUP, "Stops the server")
        .arguments(&[
            ArgumentSpec::group(
                "save",
                "oneof",
                &[ArgumentSpec::word("save", "SAVE"), ArgumentSpec::word("nosave", "NOSAVE")],
            )
            .optional(),
            ArgumentSpec::word("now", "NOW").optional(),
            ArgumentSpec::word("force", "FORCE").optional(),
            ArgumentSpec::word("abort", "ABORT").optional(),
        ]),
    CommandSpec::new("bgsave", -1, Some(Verb::Admin), parse_save)
        .doc(GROUP, "Writes a checkpoint of all keys in the background, and cuts the log behind it")
        .arguments(&[ArgumentSpec::word("schedule", "SCHEDULE").optional()]),
    CommandSpec::new("lastsave", 1, Some(Verb::Admin), |_| Ok(Command::LastSave))
        .flags(&[CommandFlag::Fast])
        .doc(GROUP, "Returns when the last checkpoint was written, as Unix seconds"),
    CommandSpec::new("cluster", -2, Some(Verb::Admin), |_| Err(CommandError::ClusterDisabled))
        .doc(GROUP, "Answers that cluster mode is disabled"),
];

pub(super) static COMMAND: CommandSpec =
    CommandSpec::new("command", -1, None, |_| Ok(Command::Command(CommandQuery::All)))
        .while_loading()
        .doc(GROUP, "Describes all commands")
        .complexity("O(N) with N the number of commands")
        .subcommands(&COMMAND_SUBCOMMANDS);

static COMMAND_SUBCOMMANDS: [CommandSpec; 6] = [
    CommandSpec::new("command|count", 2, None, |_| Ok(Command::Command(CommandQuery::Count)))
        .while_loading()
        .doc(GROUP, "Returns the number of commands"),
    CommandSpec::new("command|docs", -2, None, |args| {
        names(args, "COMMAND DOCS").map(CommandQuery::Docs).map(Command::Command)
    })
    .while_loading()
    .doc(GROUP, "Documents all commands, or those named")
    .complexity("O(N) with N the number of commands")
    .arguments(NAMES),
    CommandSpec::new("command|info", -2, None, |args| {
        names(args, "COMMAND INFO").map(CommandQuery::Info).map(Command::Command)
    })
    .while_loading()
    .doc(GROUP, "Describes all commands, or those named")
    .complexity("O(N) with N the number of commands")
    .arguments(NAMES),
    CommandSpec::new("command|list", -2, None, parse_list)
        .while_loading()
        .doc(GROUP, "Returns the names of all commands")
        .complexity("O(N) with N the number of commands"),
    CommandSpec::new("command|getkeys", -3, None, |args| {
        let request = args.from(2);
        at_most(MAX_GETKEYS_ARGUMENTS, "arguments", request.len(), "COMMAND GETKEYS")?;
        Ok(Command::Command(CommandQuery::Keys(request)))
    })
    .while_loading()
    .doc(GROUP, "Returns the keys of a request")
    .complexity("O(N) with N the number of arguments")
    .arguments(&[
        ArgumentSpec::of("command", "string"),
        ArgumentSpec::of("arg", "string").optional().multiple(),
    ]),
    CommandSpec::new("command|help", 2, None, |_| Ok(Command::Help { container: ContainerName::Command }))
        .while_loading()
        .doc(GROUP, "Lists the subcommands"),
];

pub(super) static CONFIG: CommandSpec =
    CommandSpec::new("config", -2, None, |_| Err(CommandError::Arity { name: "config" }))
        .doc(GROUP, "A container for commands about settings")
        .complexity("Depends on the subcommand")
        .subcommands(&CONFIG_SUBCOMMANDS);

static CONFIG_SUBCOMMANDS: [CommandSpec; 5] = [
    CommandSpec::new("config|get", -3, Some(Verb::Admin), parse_config_get)
        .while_loading()
        .doc(GROUP, "Returns the settings that match a pattern")
        .complexity("O(N) with N the number of settings")
        .arguments(&[ArgumentSpec::of("parameter", "string").multiple()]),
    CommandSpec::new("config|set", -4, Some(Verb::Admin), |_| read_only("SET"))
        .doc(GROUP, "Answers that settings come from the config file"),
    CommandSpec::new("config|rewrite", 2, Some(Verb::Admin), |_| read_only("REWRITE"))
        .doc(GROUP, "Answers that settings come from the config file"),
    CommandSpec::new("config|resetstat", 2, Some(Verb::Admin), |_| Err(CommandError::ResetStat))
        .doc(GROUP, "Answers that counters begin anew at a start"),
    CommandSpec::new("config|help", 2, None, |_| Ok(Command::Help { container: ContainerName::Config }))
        .while_loading()
        .doc(GROUP, "Lists the subcommands"),
];

/// A `COMMAND` request. This crate has the functions that write the replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CommandQuery<'a> {
    /// `COMMAND`
    All,
    /// `COMMAND COUNT`
    Count,
    /// `COMMAND DOCS [name …]`
    Docs(ArgList<'a>),
    /// `COMMAND INFO [name …]`
    Info(ArgList<'a>),
    /// `COMMAND LIST`
    List,
    /// `COMMAND GETKEYS command [arg …]`
    Keys(ArgList<'a>),
}

fn read_only<'a>(subcommand: &'static str) -> Result<Command<'a>, CommandError> {
    Err(CommandError::ConfigReadOnly { subcommand })
}

/// The named commands.
fn names<'a>(args: ArgList<'a>, command: &'static str) -> Result<ArgList<'a>, CommandError> {
    let names = args.from(2);
    at_most(MAX_COMMAND_NAMES, "names", names.len(), command)?;
    Ok(names)
}

fn parse_info(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let sections = args.from(1);
    at_most(MAX_SECTIONS, "sections", sections.len(), "INFO")?;
    Ok(Command::Info { sections })
}

fn parse_config_get(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let patterns = args.from(2);
    at_most(MAX_PATTERNS, "patterns", patterns.len(), "CONFIG GET")?;
    let bytes = patterns.iter().map(<[u8]>::len).sum();
    at_most(MAX_PATTERN_BYTES, "bytes of patterns", bytes, "CONFIG GET")?;
    Ok(Command::ConfigGet { patterns })
}

fn parse_list(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    match args.len() {
        2 => Ok(Command::Command(CommandQuery::List)),
        _ => Err(CommandError::Syntax),
    }
}

fn parse_save<'a>(args: ArgList<'a>) -> Result<Command<'a>, CommandError> {
    match args.get(1) {
        Some(word) if !is_word(word, "SCHEDULE") || args.len() > 2 => Err(CommandError::Syntax),
        _ => Ok(Command::BackgroundSave),
    }
}

fn parse_shutdown(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let options = args.from(1);
    if options.len() > MAX_SHUTDOWN_OPTIONS {
        return Err(CommandError::Syntax);
    }
    let has = |word| options.iter().any(|arg| is_word(arg, word));
    let known = |arg| ["SAVE", "NOSAVE", "NOW", "FORCE", "ABORT"].iter().any(|word| is_word(arg, word));
    let contradicts = (has("SAVE") && has("NOSAVE")) || (has("ABORT") && options.len() > 1);
    if contradicts || !options.iter().all(known) {
        return Err(CommandError::Syntax);
    }
    Ok(if has("ABORT") { Command::ShutdownAbort } else { Command::Shutdown })
}
