//! The end of a command: an exit code, or an error in the form `lately: what: cause` with a `hint:` line.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::table::harmless;

/// The meaning of an exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    /// A negative answer, such as denied.
    Negative,
    /// An error.
    Failed,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        match outcome {
            Outcome::Done => ExitCode::SUCCESS,
            Outcome::Negative => ExitCode::from(1),
            Outcome::Failed => ExitCode::from(2),
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum CliError {
    /// Standard output was closed by its reader. The command ends without an error.
    ClosedOutput,
    /// Anything else.
    Failed { what: String, cause: String, hint: String },
}

impl CliError {
    pub(crate) fn new(
        what: impl Into<String>,
        cause: impl fmt::Display,
        hint: impl Into<String>,
    ) -> CliError {
        CliError::Failed { what: what.into(), cause: cause.to_string(), hint: hint.into() }
    }

    /// A failed write to standard output.
    pub(crate) fn output(error: &io::Error) -> CliError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CliError::ClosedOutput,
            _ => CliError::new("standard output", error, "the results are incomplete"),
        }
    }
}

/// Two lines: the error and its hint.
impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CliError::ClosedOutput => write!(f, "lately: standard output: closed"),
            CliError::Failed { what, cause, hint } => {
                let [what, cause, hint] = [what, cause, hint].map(|text| harmless(text));
                write!(f, "lately: {what}: {cause}\nhint: {hint}")
            }
        }
    }
}
