//! `lately dump`: writes all counts of a server or a data folder to a file.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lately::SystemClock;
use lately_journal::JournalError;
use lately_server::limits::{FAIR_BYTES, HTTP_LEAST_BYTES};
use lately_server::{OfflineError, dump_folder};

use crate::error::{CliError, Outcome};
use crate::http::Meter;
use crate::new_file::{self, NewFile};
use crate::output::{self, keys};
use crate::storage::PlaceArgs;
use crate::table::printable_path;

/// The mode of a dump: only its owner may read it, even if it replaces a file that others may read.
const DUMP_MODE: u32 = 0o600;

/// Write all counts of a server or a data folder to a file. lately restore reads it.
///
/// Hits go on while a server writes its dump; the dump has the counts of the moment at which it ends. It has a version
/// and checksums, and lately restore refuses an incomplete one. A server dumps to clients on its own machine only.
#[derive(Args)]
pub(crate) struct Dump {
    /// The file to write, with mode 0600. An existing file is replaced once the dump is complete. - is standard output
    /// [default: -].
    #[arg(long, short, value_name = "FILE", default_value = "-", hide_default_value = true)]
    output: PathBuf,

    #[command(flatten)]
    place: PlaceArgs,
}

pub(crate) fn run(dump: &Dump) -> Result<Outcome, CliError> {
    if dump.output.as_os_str() == "-" {
        to_standard_output(dump)?;
    } else {
        to_file(dump, &dump.output)?;
    }
    Ok(Outcome::Done)
}

fn to_standard_output(dump: &Dump) -> Result<(), CliError> {
    if io::stdout().is_terminal() {
        return Err(no_text());
    }
    write(dump, &mut io::stdout().lock(), CliError::output)
}

/// Refuses to write a dump, which is binary, to a terminal.
fn no_text() -> CliError {
    CliError::new(
        "dump",
        "a dump is binary, not text for a terminal",
        "name a file with --output FILE, or redirect standard output",
    )
}

fn to_file(dump: &Dump, path: &Path) -> Result<(), CliError> {
    let target = new_file::resolved(path);
    let folder = new_file::folder(&target);
    let is_same =
        |dumped| matches!([folder, dumped].map(fs::canonicalize), [Ok(one), Ok(other)] if one == other);
    if dump.place.folder().is_some_and(is_same) {
        let cause = "it is in the folder that is dumped";
        return Err(CliError::new(printable_path(path), cause, "name a file somewhere else"));
    }
    let mut file = NewFile::create(path, DUMP_MODE)?;
    if file.file().is_terminal() {
        return Err(no_text());
    }
    write(dump, file.file(), |error| new_file::failure(path, error))?;
    file.finish()
}

/// A writer that remembers its error.
struct Out<'a> {
    out: &'a mut dyn Write,
    failed: Option<io::Error>,
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).inspect_err(|error| {
            if error.kind() != ErrorKind::Interrupted {
                self.failed =
                    Some(error.raw_os_error().map_or(error.kind().into(), io::Error::from_raw_os_error));
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn write(dump: &Dump, out: &mut dyn Write, failed: impl Fn(&io::Error) -> CliError) -> Result<(), CliError> {
    let mut out = Out { out, failed: None };
    let written = match dump.place.folder() {
        Some(folder) => from_folder(folder, &mut out),
        None => from_server(dump, &mut out),
    };
    match out.failed {
        Some(error) => Err(failed(&error)),
        None => written.and_then(|()| out.flush().map_err(|error| failed(&error))),
    }
}

fn from_folder(folder: &Path, out: &mut Out<'_>) -> Result<(), CliError> {
    let dumped = dump_folder(folder, Arc::new(SystemClock::new()), |piece| out.write_all(piece));
    let dumped = dumped.map_err(|error| refusal("dump", &error))?;
    dumped.losses.iter().for_each(|loss| output::message(&format_args!("lately: {loss}")));
    output::message(&format_args!("lately: {} dumped", keys(dumped.keys)));
    Ok(())
}

fn from_server(dump: &Dump, out: &mut Out<'_>) -> Result<(), CliError> {
    let mut body = Meter::new(dump.place.http()?.get("/v1/dump")?);
    let mut head = Vec::new();
    let begun = body.by_ref().take(lately_journal::Dump::HEAD_BYTES as u64).read_to_end(&mut head);
    if begun.is_ok() && !lately_journal::Dump::is_head(&head) {
        let cause = "the HTTP address answered with something else than a dump";
        return Err(CliError::new("dump", cause, "give the address of the server's HTTP with --http"));
    }
    let is_to_file = dump.output.as_os_str() != "-";
    let copied = out.write_all(&head).and_then(|()| io::copy(&mut body, out));
    copied.map(|_| ()).map_err(|error| match body.too_slow() {
        Some(rate) => CliError::new(
            "dump",
                        format!("the server ended the dump: it was read slower than {rate} B/s"),
            if is_to_file {
                                "the dump is incomplete: write it to a faster disk"
            } else {
                                "the dump is incomplete: write it to a file on this machine with --output"
            },
        ),
        // Bytes in the buffers of the system say nothing about the speed of this process.
        None => CliError::new(
            "dump",
            error,
            format!(
                                "the dump is incomplete: try again; a server ends one that is read slower than {HTTP_LEAST_BYTES} B/s, or than {FAIR_BYTES} B/s when others wait"
            ),
        ),
    })
}

/// The error that explains why a folder could not be used.
pub(crate) fn refusal(what: &str, error: &OfflineError) -> CliError {
    let hint = match error {
        OfflineError::Journal(JournalError::InUse { .. }) => {
            "to dump or restore a running server, use --server in place of --data"
        }
        OfflineError::Journal(JournalError::Damaged { .. } | JournalError::Missing { .. }) => {
            "restore the folder from a copy; or start without what is lost: lately serve --repair"
        }
        OfflineError::Journal(JournalError::Bug { .. }) => {
            "keep a copy of the folder and report the bug with it; or start without what is lost: lately serve --repair"
        }
        OfflineError::Journal(JournalError::Version { .. }) => {
            "use the version of lately that wrote it; if this one did, keep a copy of the folder and repair it: lately serve --repair"
        }
        OfflineError::Journal(JournalError::Ahead { .. }) => {
            "correct the clock; if it is right, start with its time: lately serve --repair"
        }
        OfflineError::Journal(JournalError::NoFolder { .. }) => "name the folder of a server with --data",
        OfflineError::Journal(JournalError::Foreign { .. }) => {
            "name a folder of its own with --data: an empty one, or one that is not there yet"
        }
        OfflineError::NotEmpty { .. } => "use --replace to replace them",
        OfflineError::Restore(_) => "nothing was restored",
        _ => "check the disk: the system log may say more",
    };
    CliError::new(what, error, hint)
}
