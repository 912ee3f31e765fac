//! `lately restore`: the counts of a dump back into a server or a folder.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lately::SystemClock;
use lately_server::restore_folder;

use super::dump::refusal;
use crate::error::{CliError, Outcome};
use crate::output;
use crate::progress::Progress;
use crate::server::ServerArgs;
use crate::storage::FolderArgs;

/// Take the counts of a dump into a server.
///
/// Nothing is changed before all of the dump has come and is whole. The server must have no keys, unless
/// --replace says that keys of the dump take the place of those of the same names.
#[derive(Args)]
pub(crate) struct Restore {
    /// The dump; - is standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,

    /// Replace keys of the same names; other keys stay.
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    folder: FolderArgs,

    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(restore: &Restore) -> Result<Outcome, CliError> {
    let progress = Progress::new();
    let input: Box<dyn Read> = if restore.file.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        let path = restore.file.display().to_string();
        let opened = std::fs::File::open(&restore.file);
        Box::new(opened.map_err(|error| CliError::new(path, error, "give a file that lately dump wrote"))?)
    };
    let mut input = progress.watch(input);
    let keys = match restore.folder.storage() {
        Some(storage) => {
            let config = restore.folder.config()?;
            restore_folder(config, &storage, Arc::new(SystemClock::new()), &mut input, restore.replace)
                .map_err(|error| refusal("restore", &error))?
        }
        None => restore.server.http()?.restore(&mut input, restore.replace)?,
    };
    drop(progress);
    output::message(&format_args!("lately: {keys} keys restored"));
    Ok(Outcome::Done)
}
