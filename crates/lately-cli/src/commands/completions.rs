//! `lately completions`: completion scripts for shells.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::{CliError, Outcome};
use crate::output;

/// Print a completion script for a shell.
///
/// For bash: lately completions bash > ~/.local/share/bash-completion/completions/lately
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(completions: &Completions) -> Result<Outcome, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut Cli::command(), "lately", &mut script);
    output::data(|out| out.write_all(&script))?;
    Ok(Outcome::Done)
}
