//! Translates clap's errors to ours, and prints help, which clap returns as an error.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::error::{CliError, Outcome};

/// Prints help or version, or translates the error.
pub(crate) fn report(error: &clap::Error) -> Result<Outcome, CliError> {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => Err(CliError::output(&error)),
        };
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Err(CliError::new("command line", "no command is given", "lately --help lists the commands"));
    }
    // The first argument is the command, unless it is a flag. Unknown commands get a hint from clap.
    let command = std::env::args_os().nth(1).and_then(|command| command.into_string().ok());
    let command = command.filter(|command| !command.starts_with('-'));
    let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) => Some(flag.as_str()),
        _ => None,
    };
    let hint = unknown.and_then(|flag| match flag.as_bytes() {
        [b'-', b'0'..=b'9', ..] => Some("a value below 0 is invalid here"),
        _ => hint_for(command.as_deref()?, flag),
    });
    let translated = translate(&error.render().to_string(), command.as_deref());
    Err(match (translated, hint) {
        (CliError::Failed { what, cause, .. }, Some(hint)) => CliError::new(what, cause, hint),
        (other, _) => other,
    })
}

/// Hints for flags of other servers and clients.
fn hint_for(command: &str, flag: &str) -> Option<&'static str> {
    const SERVE: &[(&[&str], &str)] = &[
        (&["--port", "-p"], "use --resp 127.0.0.1:PORT; HTTP has its own port, --http 127.0.0.1:PORT"),
        (
            &["--bind", "--host", "--listen", "--addr", "--address"],
            "use --resp ADDR:PORT and --http ADDR:PORT",
        ),
        (&["--dir", "--data-dir", "--path", "--dbfilename"], "use --data DIR"),
        (
            &["--maxmemory", "--memory", "--ceiling"],
            "set ceiling = \"1GiB\" below [memory] in a config file, and pass it with --config",
        ),
        (
            &["--maxclients"],
            "set max_clients = 10000 below [server] in a config file, and pass it with --config",
        ),
        (
            &["--timeout"],
            "set idle_timeout = \"1h\" below [server] in a config file, and pass it with --config",
        ),
        (&["--appendonly", "--appendfsync", "--save"], "use --durability interval, always or off"),
        (
            &["--requirepass", "--password", "--aclfile"],
            "write the password to a file, and name it with password_file in [server] of the config file",
        ),
        (&["--daemonize", "-d"], "the server stays in the foreground: run it with systemd or in a container"),
        (&["-c"], "use --config FILE"),
    ];
    const CLIENT: &[(&[&str], &str)] =
        &[(&["--host", "-H", "--port", "-p", "--addr", "--url", "-u"], "use --server HOST:PORT")];
    const CHECK: &[(&[&str], &str)] =
        &[(&["--config", "-c", "--file", "-f"], "name the file alone: lately check FILE")];
    const COUNT: &[(&[&str], &str)] =
        &[(&["--limit", "-l"], "lately backtest FILE --limit 5/1m tries a limit on a log")];
    const WINDOW: &str = "use --window 5m";
    const OF_CLIENTS: [&str; 7] = ["hit", "hits", "limit", "bench", "cluster", "dump", "restore"];
    let hints = match command {
        "serve" => SERVE,
        "check" => CHECK,
        "hits" | "count" | "top" if flag == "-w" => return Some(WINDOW),
        "count" => COUNT,
        command if OF_CLIENTS.contains(&command) => CLIENT,
        _ => return None,
    };
    hints.iter().find(|(flags, _)| flags.contains(&flag)).map(|(_, hint)| *hint)
}

/// Translates clap's paragraphs: the first is the cause, `tip:` lines are hints, the rest is usage.
fn translate(rendered: &str, command: Option<&str>) -> CliError {
    let text = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let (cause, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let cause: Vec<&str> = cause.split_whitespace().collect();
    let tip = rest.lines().find_map(|line| line.trim_start().strip_prefix("tip: "));
    let usage = rest.lines().find_map(|line| line.strip_prefix("Usage: "));
    let hint = match (tip, usage) {
        (Some(tip), _) => tip.into(),
        (None, Some(usage)) => format!("usage: {usage}"),
        (None, None) => {
            command.map_or("see lately --help".into(), |command| format!("see lately {command} --help"))
        }
    };
    let cause = cause.join(" ");
    CliError::new("command line", without_repeated_value(&cause).unwrap_or(cause), hint)
}

/// The cause with the wrong value only once, if both clap and the parser of the value name it.
fn without_repeated_value(cause: &str) -> Option<String> {
    let rest = cause.strip_prefix("invalid value ")?;
    let (value, rest) = rest.split_once(" for '")?;
    let (argument, reason) = rest.split_once("': ")?;
    reason.contains(value).then(|| format!("{argument}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_errors_are_translated() {
        let check = |rendered: &str, expected: &str| {
            assert_eq!(translate(rendered, Some("count")).to_string(), expected);
        };
        check(
            "error: invalid value 'x' for '--top <K>': invalid digit\n\nFor more information, try '--help'.\n",
            "lately: command line: invalid value 'x' for '--top <K>': invalid digit\nhint: see lately count --help",
        );
        check(
            "error: invalid value '5x' for '--window <W>': invalid duration '5x': give seconds\n\nFor more\n",
            "lately: command line: --window <W>: invalid duration '5x': give seconds\nhint: see lately count --help",
        );
        check(
            "error: the following arguments were not provided:\n  <FILE>...\n\nUsage: lately count <FILE>...\n\nFor more\n",
            "lately: command line: the following arguments were not provided: <FILE>...\nhint: usage: lately count <FILE>...",
        );
        check(
            "error: unrecognized subcommand 'cuont'\n\n  tip: a similar subcommand exists: 'count'\n\nUsage: lately <COMMAND>\n",
            "lately: command line: unrecognized subcommand 'cuont'\nhint: a similar subcommand exists: 'count'",
        );
    }
}
