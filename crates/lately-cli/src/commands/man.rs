//! `lately man`: the help as man pages.

use std::path::PathBuf;

use clap::Args;

use crate::error::{CliError, Outcome};
use crate::table::printable_path;

/// Write a man page for each command into a folder.
///
/// The pages are lately.1, lately-serve.1 and so on. The folder must exist.
#[derive(Args)]
pub(crate) struct Man {
    /// The folder, such as ~/.local/share/man/man1.
    folder: PathBuf,
}

/// Writes the pages of `lately`, which is all commands.
pub(crate) fn run(man: &Man, lately: clap::Command) -> Result<Outcome, CliError> {
    // Without the pages of `lately help`, which would repeat all others.
    let command = lately.disable_help_subcommand(true);
    let failed = |error| {
        let cause = format!("{}: {error}", printable_path(&man.folder));
        CliError::new("man", cause, "name a folder that exists and can be written")
    };
    clap_mangen::generate_to(command, &man.folder).map_err(failed)?;
    Ok(Outcome::Done)
}
