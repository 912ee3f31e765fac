//! A command line that cannot be read, told the way every error is; and help, which clap ends with
//! the same type.

use crate::error::{CliError, Outcome};

/// Prints the help or version that was asked for, or turns the error into ours.
pub(crate) fn report(error: &clap::Error) -> Result<Outcome, CliError> {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => Err(CliError::output(&error)),
        };
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Err(CliError::new("command line", "no command is given", "lately --help lists the commands"));
    }
    // What comes first and is no flag is a command: one there is not has a hint of its own.
    let command = std::env::args().nth(1).filter(|command| !command.starts_with('-'));
    Err(translate(&error.render().to_string(), command.as_deref()))
}

/// From clap's paragraphs: the first is the cause, `tip:` lines are hints, the rest is usage.
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
    CliError::new("command line", cause.join(" "), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_errors_become_ours() {
        let check = |rendered: &str, expected: &str| {
            assert_eq!(translate(rendered, Some("count")).to_string(), expected);
        };
        check(
            "error: invalid value 'x' for '--top <K>': invalid digit\n\nFor more information, try '--help'.\n",
            "lately: command line: invalid value 'x' for '--top <K>': invalid digit\nhint: see lately count --help",
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
