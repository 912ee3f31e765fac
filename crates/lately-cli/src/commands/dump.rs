//! `lately dump`: all counts of a server or a folder as a file.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lately::SystemClock;
use lately_server::{OfflineError, Storage, dump_folder};

use crate::error::{CliError, Outcome};
use crate::output;
use crate::server::ServerArgs;
use crate::storage::FolderArgs;

/// Write all counts of a server to a file that lately restore reads.
///
/// The dump is of the moment it ends, and hits go on meanwhile. It has a version and checksums; a dump that
/// was cut short is refused when it is restored. It goes to standard output unless --output names a file.
#[derive(Args)]
pub(crate) struct Dump {
    /// The file to write; one of that name is replaced once the dump is whole.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    folder: FolderArgs,

    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(dump: &Dump) -> Result<Outcome, CliError> {
    let Some(path) = &dump.output else {
        if io::stdout().is_terminal() {
            return Err(CliError::new(
                "dump",
                "a dump is no text for a terminal",
                "name a file with --output, or redirect standard output",
            ));
        }
        let mut out = io::stdout().lock();
        write(dump, &mut out)?;
        out.flush().map_err(|error| CliError::output(&error))?;
        return Ok(Outcome::Done);
    };
    let unfinished = path.with_added_extension("part");
    let failed = |error: io::Error| {
        CliError::new(unfinished.display().to_string(), error, "is there room, and may it be written?")
    };
    let mut file = File::create(&unfinished).map_err(failed)?;
    let written = write(dump, &mut file)
        .and_then(|()| file.sync_all().and_then(|()| std::fs::rename(&unfinished, path)).map_err(failed));
    if written.is_err() {
        // What there is of it is no use.
        let _ = std::fs::remove_file(&unfinished);
    }
    written.map(|()| Outcome::Done)
}

fn write(dump: &Dump, out: &mut dyn Write) -> Result<(), CliError> {
    let Some(storage) = dump.folder.storage() else { return from_server(dump, out) };
    if !storage.path.is_dir() {
        let path = storage.path.display().to_string();
        return Err(CliError::new(
            path,
            "there is no such folder",
            "name the folder of a server with --data",
        ));
    }
    from_folder(dump, &storage, out)
}

fn from_folder(dump: &Dump, storage: &Storage, out: &mut dyn Write) -> Result<(), CliError> {
    let mut failed = None;
    let dumped = dump_folder(dump.folder.config()?, storage, Arc::new(SystemClock::new()), |piece| {
        out.write_all(piece).map_err(|error| {
            failed = Some(CliError::output(&error));
            io::Error::other("it cannot be written")
        })
    });
    match (dumped, failed) {
        (_, Some(error)) => Err(error),
        (Ok(loaded), None) => {
            loaded.losses.iter().for_each(|loss| output::message(&format_args!("lately: {loss}")));
            Ok(())
        }
        (Err(error), None) => Err(refusal("dump", &error)),
    }
}

/// Why a folder could not be used.
pub(crate) fn refusal(what: &str, error: &OfflineError) -> CliError {
    let hint = match error {
        OfflineError::Journal(lately_journal::JournalError::InUse { .. }) => {
            "a server has it: dump from it or restore to it with --server"
        }
        OfflineError::Restore(text) if text.contains(" keys: ") => "say --replace if that is meant",
        OfflineError::Restore(_) => "nothing was restored",
        _ => "look at the folder: lately serve says more of it",
    };
    CliError::new(what, error, hint)
}

fn from_server(dump: &Dump, out: &mut dyn Write) -> Result<(), CliError> {
    let mut body = dump.server.http()?.get("/v1/dump")?;
    io::copy(&mut body, out).map(|_| ()).map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return CliError::output(&error);
        }
        CliError::new("dump", error, "the dump is not whole: try again")
    })
}
