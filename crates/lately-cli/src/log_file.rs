//! The logs a command reads: files, standard input, either of them compressed with gzip.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

use crate::error::CliError;
use crate::table::printable_path;

/// What a gzip file starts with.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Compressed bytes read at once.
const READ_BYTES: usize = 128 * 1024;

/// Refuses what cannot be read before anything is: missing files, directories, standard input twice.
pub(crate) fn check(paths: &[PathBuf]) -> Result<(), CliError> {
    for path in paths.iter().filter(|path| !is_stdin(path)) {
        let metadata = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
        if metadata.is_dir() {
            let hint = format!("name the files in it, such as {}", printable_path(&path.join("access.log")));
            return Err(CliError::new(name(path), "is a directory", hint));
        }
        // Only a plain file can be opened twice: a pipe would lose its writer.
        if metadata.is_file() {
            File::open(path).map_err(|error| unreadable(path, &error))?;
        }
    }
    if paths.iter().filter(|path| is_stdin(path)).count() > 1 {
        let hint = "name '-' once; a file of this name is './-'";
        return Err(CliError::new("-", "standard input cannot be read twice", hint));
    }
    Ok(())
}

/// Opens a log and decompresses it when its first bytes, whatever its name is, are those of gzip.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>, CliError> {
    let raw: Box<dyn Read> = if is_stdin(path) {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(|error| unreadable(path, &error))?)
    };
    // A pipe may give one byte first: what was peeked at is put back in front.
    let mut reader = BufReader::with_capacity(READ_BYTES, raw);
    let mut magic = Vec::new();
    let peeked = reader.by_ref().take(2).read_to_end(&mut magic);
    peeked.map_err(|error| unreadable(path, &error))?;
    let is_gzip = magic == GZIP_MAGIC;
    let whole = io::Cursor::new(magic).chain(reader);
    Ok(if is_gzip { decompress(whole) } else { Box::new(whole) })
}

fn decompress(reader: impl BufRead + 'static) -> Box<dyn Read> {
    Box::new(Members { member: Some(GzDecoder::new(reader)) })
}

/// The members of a gzip file, one after the other. Zeros behind one are left out, as gzip does: tapes and some disks pad
/// files with them.
struct Members<R> {
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let reader = self.member.take().map(GzDecoder::into_inner);
            self.member = reader.map(next_member).transpose()?.flatten();
        }
        Ok(0)
    }
}

/// The member behind the one that ended there, if there is more than zeros.
fn next_member<R: BufRead>(mut reader: R) -> io::Result<Option<GzDecoder<R>>> {
    loop {
        let rest = reader.fill_buf()?;
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        match (rest.len(), zeros) {
            (0, _) => return Ok(None),
            (len, zeros) if zeros < len => {
                reader.consume(zeros);
                return Ok(Some(GzDecoder::new(reader)));
            }
            (_, zeros) => reader.consume(zeros),
        }
    }
}

/// The error of a log that could be opened and not be read to its end.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> CliError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "give the path of a log, or - for standard input",
        io::ErrorKind::PermissionDenied => "read it as a user who may, or pipe it in and give -",
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            "the gzip data is damaged or cut off: check it with gzip -t"
        }
        _ => "nothing was counted",
    };
    CliError::new(name(path), error, hint)
}

/// How messages name a log.
pub(crate) fn name(path: &Path) -> String {
    if is_stdin(path) { "standard input".into() } else { printable_path(path) }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
