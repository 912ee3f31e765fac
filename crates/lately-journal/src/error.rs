//! The errors of a journal: facts, and a sentence for an operator.

use std::io;
use std::path::PathBuf;

use lately::Timestamp;
use thiserror::Error;

/// Why a journal cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// An error of the system.
    #[error("cannot {what} {path}: {error}", path = path.display())]
    Disk {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The path cannot be used as a data folder.
    #[error("{path:?} is no folder of counts: {why}")]
    NoFolder {
        /// The path.
        path: PathBuf,
        /// Why not.
        why: &'static str,
    },
    /// The folder has other files, and none of a journal.
    #[error("{path} is no folder of counts: it has other files in it, such as {file}", path = path.display(), file = file.escape_debug())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// One of the files.
        file: String,
    },
    /// Another process uses the folder.
    #[error("{path} is in use by another process", path = path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// A file has other content than was written.
    #[error("{path} is damaged at byte {offset}: {what}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// Reading a file met a bug of this version.
    #[error("{path} cannot be read because of a bug, at byte {offset}: {what}", path = path.display())]
    Bug {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// The message of the bug.
        what: String,
    },
    /// A file is missing.
    #[error("{path} is missing: {what}", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// How that is known.
        what: String,
    },
    /// A file was written at a time that is far ahead of the clock.
    #[error(
        "{path} was written at {written}, which is {} ahead of the clock: one of the two is wrong",
        days_between(*clock, *written),
        path = path.display()
    )]
    Ahead {
        /// The file.
        path: PathBuf,
        /// The time at which it was written.
        written: Timestamp,
        /// The time of the clock.
        clock: Timestamp,
    },
    /// A file was written by an unknown version.
    #[error("{path} was written by another version: its format is {found}, this one reads those up to {known}", path = path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u8,
        /// The last version that can be read.
        known: u8,
    },
}

/// Why a batch was not written.
#[derive(Clone, Debug, Error)]
#[error("the journal cannot be written: {why}")]
pub struct Refused {
    /// The error of the system.
    pub why: String,
}

/// A number of whole days, in words.
fn days_between(from: Timestamp, to: Timestamp) -> String {
    match (to.as_millis() - from.as_millis()) / 86_400_000 {
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}
