//! `lately completions`: completion scripts for shells.

use clap::Args;
use clap_complete::Shell;

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

/// Prints the script of `lately`, which is all commands.
pub(crate) fn run(completions: &Completions, mut lately: clap::Command) -> Result<Outcome, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut lately, "lately", &mut script);
    output::data(|out| out.write_all(&script))?;
    Ok(Outcome::Done)
}
