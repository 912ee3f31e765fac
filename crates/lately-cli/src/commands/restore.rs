//! `lately restore`: reads a dump into a server or a data folder.

use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lately::SystemClock;
use lately_server::{OfflineError, Storage, restore_folder};

use super::dump::refusal;
use crate::error::{CliError, Outcome};
use crate::log_file;
use crate::output::{self, keys};
use crate::progress::Progress;
use crate::storage::PlaceArgs;
use crate::table::printable_path;

/// Restore a dump into a server or a data folder.
///
/// Nothing changes until the whole dump was read and checked. The server or folder must have no keys, unless --replace
/// is given. A server accepts a dump from clients on its own machine only.
#[derive(Args)]
pub(crate) struct Restore {
    /// The dump. - is standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,

    /// Replace keys with the same names. Other keys stay, and so does the position of a source that was read further
    /// than in the dump.
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    place: PlaceArgs,
}

pub(crate) fn run(restore: &Restore) -> Result<Outcome, CliError> {
    let progress = Progress::new();
    let input: Box<dyn Read> = if restore.file.as_os_str() == "-" {
        if io::stdin().is_terminal() {
            let cause = "a dump cannot be typed at a terminal";
            return Err(CliError::new("restore", cause, "name a file, or redirect standard input"));
        }
        Box::new(io::stdin().lock())
    } else {
        let path = printable_path(&restore.file);
        if restore.file.is_dir() {
            return Err(CliError::new(path, "it is a folder", "name a file that lately dump wrote"));
        }
        let opened = std::fs::File::open(&restore.file);
        Box::new(opened.map_err(|error| CliError::new(path, error, "give a file that lately dump wrote"))?)
    };
    let name = log_file::name(&restore.file);
    let mut input = progress.watch(input);
    let restored = match restore.place.folder() {
        Some(folder) => {
            let storage = Storage { path: folder.to_owned(), ..Storage::default() };
            restore_folder(&storage, Arc::new(SystemClock::new()), &mut input, restore.replace).map_err(
                |error| match error {
                    OfflineError::Restore(_) => refusal(&name, &error),
                    _ => refusal("restore", &error),
                },
            )?
        }
        None => restore.place.http()?.restore(&name, &mut input, restore.replace)?,
    };
    drop(progress);
    output::message(&format_args!("lately: {} restored", keys(restored.keys)));
    if restored.sources_ahead > 0 {
        let (s, was, its) =
            if restored.sources_ahead == 1 { ("", "was", "its") } else { ("s", "were", "their") };
        output::message(&format_args!(
            "lately: {} source{s} of hits {was} read further than in the dump, and {its} position stays: other keys have the hits since then already",
            restored.sources_ahead
        ));
    }
    for (evicted_keys, which) in [
        (restored.evicted_dump_keys, "of the dump were evicted"),
        (restored.evicted_keys, "of the server were evicted for them"),
    ] {
        if evicted_keys > 0 {
            let evicted = keys(usize::try_from(evicted_keys).unwrap_or(usize::MAX));
            output::message(&format_args!(
                "lately: {evicted} {which}: the memory ceiling of the server is too low for all"
            ));
        }
    }
    Ok(Outcome::Done)
}
