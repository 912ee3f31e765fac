//! Dump and restore of a data folder that no server uses. Hits keep their panes, whatever the classes of the config.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use lately::{Clock, Pattern, Settings, SettingsError};
use lately_journal::{Folder, Intent, Journal, JournalError, Loss};
use thiserror::Error;

use crate::config::Config;
use crate::config::Storage;
use crate::service::Service;
use crate::service::dumps::{RestoreError, Restored};
use crate::service::spool_file::spool_folder;

/// Why a folder could not be dumped or restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OfflineError {
    /// The folder cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The folder has keys, and `replace` was not given.
    #[error(
        "the folder has {keys} key{}: the dump would replace keys with the same names",
        if *keys == 1 { "" } else { "s" }
    )]
    NotEmpty {
        /// Keys in the folder.
        keys: usize,
    },
    /// The dump cannot be restored.
    #[error("{0}")]
    Restore(String),
    /// The dump or the folder cannot be written.
    #[error(transparent)]
    Disk(#[from] io::Error),
}

impl From<RestoreError> for OfflineError {
    fn from(error: RestoreError) -> OfflineError {
        match error {
            RestoreError::NotEmpty { keys } => OfflineError::NotEmpty { keys },
            error => OfflineError::Restore(error.to_string()),
        }
    }
}

/// A service that keeps all panes as they are, without a ceiling.
fn carrier(clock: Arc<dyn Clock>) -> Result<Service, SettingsError> {
    let classes = vec![(Pattern::new(b"*"), Settings::to_carry())];
    Service::new(Config { classes, ceiling_bytes: u64::MAX, ..Config::default() }, clock)
}

/// The result of [`dump_folder`].
#[derive(Debug)]
pub struct Dumped {
    /// Keys in the dump.
    pub keys: usize,
    /// Data that could not be read.
    pub losses: Vec<Loss>,
}

/// Passes the dump of a folder to `send` in pieces. The folder does not change.
///
/// # Errors
/// [`OfflineError`]: the folder cannot be read, or `send` failed.
pub fn dump_folder(
    path: &Path,
    clock: Arc<dyn Clock>,
    mut send: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<Dumped, OfflineError> {
    let folder = Folder::open_read_only(path)?;
    let service = carrier(clock).map_err(io::Error::other)?;
    let recovery = service.recover_folder(&folder, Intent::ReadOnly)?;
    let mut sent = Ok(());
    let dumped = service.dump(|piece| {
        sent = send(&piece);
        sent.is_ok()
    });
    sent?;
    dumped.map_err(io::Error::other)?;
    Ok(Dumped { keys: service.key_count(), losses: recovery.losses })
}

/// Restores a dump into a folder, which is created if it does not exist. Either all keys are restored or none.
///
/// # Errors
/// [`OfflineError`]: the dump is incomplete or damaged, or the folder cannot be loaded or written.
pub fn restore_folder(
    storage: &Storage,
    clock: Arc<dyn Clock>,
    input: &mut impl Read,
    replace: bool,
) -> Result<Restored, OfflineError> {
    let service = carrier(clock).map_err(io::Error::other)?;
    // Read first: an invalid dump leaves no folder behind.
    let dump = service.read_dump(input, &spool_folder(Some(&storage.path)))?;
    let folder = Folder::open(&storage.path)?;
    let recovery = service.recover_folder(&folder, Intent::Continue)?;
    let restored = service.take_in(dump, replace)?;
    // The keys are not in the log: they are durable once the checkpoint has its final name.
    service.begin(folder, storage, &recovery)?;
    if let Some(journal) = service.journal() {
        journal.make_checkpoint(|| ())?;
        Journal::close(journal)?;
    }
    Ok(restored)
}
