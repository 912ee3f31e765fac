//! Replies that describe the commands: `COMMAND`, `COMMAND INFO`, `COMMAND DOCS`, `COMMAND LIST` and the
//! `HELP` subcommands. All are generated from the table.

use std::fmt::Display;

use crate::args::ArgList;
use crate::command::server::CommandQuery;
use crate::command::spec::{
    ArgumentSpec, CommandFlag, CommandSpec, ContainerName, Verb, commands, find_command, spec_of,
};
use crate::error::CommandError;
use crate::reply::Encoder;

/// The version that first had the commands of the table.
const SINCE: &str = "0.1.0";

/// Answers any `COMMAND` request.
impl CommandQuery<'_> {
    /// Writes the whole reply.
    pub fn answer(self, out: &mut Encoder<'_>) {
        match self {
            CommandQuery::All => write_command_info(out, None),
            CommandQuery::Count => out.integer(i64::try_from(commands().count()).unwrap_or(i64::MAX)),
            CommandQuery::Docs(names) => write_command_docs(out, Some(names).filter(|n| !n.is_empty())),
            CommandQuery::Info(names) => write_command_info(out, Some(names).filter(|n| !n.is_empty())),
            CommandQuery::List => write_command_list(out),
            CommandQuery::Keys(request) => write_keys(out, request),
        }
    }
}

/// The reply of `COMMAND INFO`: all commands, or those named, with null for an unknown name.
pub fn write_command_info(out: &mut Encoder<'_>, names: Option<ArgList<'_>>) {
    match names {
        None => {
            out.array(commands().count());
            commands().for_each(|spec| write_info(out, spec));
        }
        Some(names) => {
            out.array(names.len());
            for name in names.iter() {
                match find_command(name) {
                    Some(spec) => write_info(out, spec),
                    None => out.null(),
                }
            }
        }
    }
}

/// The reply of `COMMAND DOCS`: all commands, or those named, without unknown names.
pub fn write_command_docs(out: &mut Encoder<'_>, names: Option<ArgList<'_>>) {
    match names {
        None => {
            out.map(commands().count());
            commands().for_each(|spec| write_docs(out, spec));
        }
        Some(names) => {
            let known = names.iter().filter_map(find_command);
            out.map(known.clone().count());
            known.for_each(|spec| write_docs(out, spec));
        }
    }
}

/// The reply of `COMMAND LIST`.
pub fn write_command_list(out: &mut Encoder<'_>) {
    out.array(commands().count());
    commands().for_each(|spec| out.bulk(spec.name));
}

/// The reply of `COMMAND GETKEYS`.
fn write_keys(out: &mut Encoder<'_>, request: ArgList<'_>) {
    let spec = spec_of(request).map_err(|_| CommandError::KeysOfNoCommand);
    match spec.and_then(|spec| spec.keys_of(request)) {
        Ok(keys) => {
            out.array(keys.len());
            keys.iter().for_each(|key| out.bulk(key));
        }
        Err(error) => out.error(error),
    }
}

/// How a command is used: `HIT <key> [<count>] [AT <time>] [ID <id>] [MEMBER <member>]`.
pub(super) fn usage_of(command: &str) -> String {
    let arguments = find_command(command.as_bytes()).map_or(&[][..], |spec| spec.arguments);
    let arguments: String = arguments.iter().map(|argument| format!(" {}", usage(argument))).collect();
    command.to_ascii_uppercase().replace('|', " ") + &arguments
}

impl CommandError {
    /// An error of the store or the config about an argument, with the usage of the command of this name.
    #[must_use]
    pub fn about_argument(error: impl Display, command: &'static str) -> CommandError {
        CommandError::Refused { error: error.to_string() }.with_usage_of(command)
    }

    fn with_usage_of(self, command: &str) -> CommandError {
        CommandError::Usage { error: Box::new(self), usage: usage_of(command) }
    }
}

impl CommandSpec {
    /// An error of its arguments, with its usage. Commands of Redis keep the words of Redis, which clients compare.
    pub(super) fn explain(&self, error: CommandError) -> CommandError {
        if self.group.is_of_redis() { error } else { error.with_usage_of(self.name) }
    }
}

/// The reply of `CLIENT HELP` and similar commands: lines for people.
pub fn write_help(out: &mut Encoder<'_>, container: ContainerName) {
    let spec = container.spec();
    out.array(1 + 2 * spec.subcommands.len());
    out.simple(&format!(
        "{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        spec.name.to_ascii_uppercase()
    ));
    for subcommand in spec.subcommands {
        let arguments: String = subcommand.arguments.iter().map(|arg| format!(" {}", usage(arg))).collect();
        out.simple(&format!("{}{arguments}", subcommand.short_name().to_ascii_uppercase()));
        out.simple(&format!("    {}.", subcommand.summary));
    }
}

/// The usage of an argument: `[AT <time>]`.
fn usage(argument: &ArgumentSpec) -> String {
    let parts: Vec<String> = argument.parts.iter().map(usage).collect();
    let value = match argument.kind {
        "pure-token" => String::new(),
        "oneof" if argument.optional => parts.join("|"),
        "oneof" => format!("({})", parts.join("|")),
        "block" => parts.join(" "),
        _ => format!("<{}>", argument.name),
    };
    let text = [argument.token.unwrap_or_default(), &value].join(" ").trim().to_owned();
    let text = if argument.multiple { format!("{text} ...") } else { text };
    if argument.optional { format!("[{text}]") } else { text }
}

fn write_info(out: &mut Encoder<'_>, spec: &CommandSpec) {
    out.array(10);
    out.bulk(spec.name);
    out.integer(spec.arity);
    let verb = spec.verb.map(Verb::flag_name);
    let loading = spec.runs_while_loading.then_some("loading");
    out.set(usize::from(verb.is_some()) + spec.flags.len() + usize::from(loading.is_some()));
    let flags = spec.flags.iter().map(|flag| flag.name());
    verb.into_iter().chain(flags).chain(loading).for_each(|name| out.simple(name));
    out.integer(spec.first_key);
    out.integer(spec.last_key);
    out.integer(spec.key_step);
    let categories = categories(spec);
    out.set(categories.len());
    categories.iter().for_each(|category| out.simple(category));
    // No tips and no key specifications: the three integers say where the keys are.
    out.set(0);
    out.set(0);
    out.set(spec.subcommands.len());
    spec.subcommands.iter().for_each(|subcommand| write_info(out, subcommand));
}

/// The access categories Redis would file the command under.
fn categories(spec: &CommandSpec) -> Vec<&'static str> {
    let mut categories = match spec.verb {
        None => vec![],
        Some(Verb::Read) => vec!["@read"],
        Some(Verb::Hit | Verb::Limit | Verb::Delete) => vec!["@write"],
        Some(Verb::Admin) => vec!["@admin", "@dangerous"],
    };
    categories.extend(spec.group.category());
    categories.push(if spec.has(CommandFlag::Fast) { "@fast" } else { "@slow" });
    categories
}

fn write_docs(out: &mut Encoder<'_>, spec: &CommandSpec) {
    out.bulk(spec.name);
    let has_arguments = !spec.arguments.is_empty();
    let has_subcommands = !spec.subcommands.is_empty();
    out.map(4 + usize::from(has_arguments) + usize::from(has_subcommands));
    let facts = [
        ("summary", spec.summary),
        ("since", SINCE),
        ("group", spec.group.name()),
        ("complexity", spec.complexity),
    ];
    for (name, value) in facts {
        out.bulk(name);
        out.bulk(value);
    }
    if has_arguments {
        out.bulk("arguments");
        write_arguments(out, spec.arguments);
    }
    if has_subcommands {
        out.bulk("subcommands");
        out.map(spec.subcommands.len());
        spec.subcommands.iter().for_each(|subcommand| write_docs(out, subcommand));
    }
}

fn write_arguments(out: &mut Encoder<'_>, arguments: &[ArgumentSpec]) {
    out.array(arguments.len());
    for argument in arguments {
        let flags = [(argument.optional, "optional"), (argument.multiple, "multiple")];
        let flag_count = flags.iter().filter(|(is_set, _)| *is_set).count();
        let has_parts = !argument.parts.is_empty();
        let entries =
            2 + usize::from(argument.token.is_some()) + usize::from(flag_count > 0) + usize::from(has_parts);
        out.map(entries);
        for (name, value) in [("name", argument.name), ("type", argument.kind)] {
            out.bulk(name);
            out.bulk(value);
        }
        if let Some(token) = argument.token {
            out.bulk("token");
            out.bulk(token);
        }
        if flag_count > 0 {
            out.bulk("flags");
            out.set(flag_count);
            flags.iter().filter(|(is_set, _)| *is_set).for_each(|(_, name)| out.simple(name));
        }
        if has_parts {
            out.bulk("arguments");
            write_arguments(out, argument.parts);
        }
    }
}
