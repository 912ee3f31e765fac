//! Dumps from a folder that no server has, and into one. Hits keep the panes they have, whatever the classes
//! of the server are.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use lately::{Clock, Pattern, Settings, SettingsError};
use lately_journal::{Folder, Intent, Journal, JournalError, Loss};
use thiserror::Error;

use crate::config::Config;
use crate::config::Storage;
use crate::service::Service;
use crate::storage;
use crate::storage::dumps::{RestoreError, Restored};
use crate::storage::spool_file::spool_folder;

/// Why a folder could not be dumped, or a dump not restored to it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OfflineError {
    /// The folder cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The folder has keys, and they are not to be replaced.
    #[error("the folder has {keys} keys: keys of the dump would take the place of those of the same names")]
    NotEmpty {
        /// So many.
        keys: usize,
    },
    /// The dump cannot be restored.
    #[error("{0}")]
    Restore(String),
    /// The dump cannot be written, or the folder.
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

/// An service that keeps whatever it is given as it is.
fn carrier(clock: Arc<dyn Clock>) -> Result<Service, SettingsError> {
    let classes = vec![(Pattern::new(b"*"), Settings::to_carry())];
    Service::new(Config { classes, ceiling_bytes: u64::MAX, ..Config::default() }, clock)
}

/// What was dumped.
#[derive(Debug)]
pub struct Dumped {
    /// Keys of the folder.
    pub keys: usize,
    /// What could not be read of it.
    pub losses: Vec<Loss>,
}

/// Gives the dump of a folder to `send`, a piece at a time. Nothing in the folder changes.
///
/// # Errors
/// [`OfflineError`] when the folder cannot be read, or `send` fails.
pub fn dump_folder(
    path: &Path,
    clock: Arc<dyn Clock>,
    mut send: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<Dumped, OfflineError> {
    let folder = Folder::open_to_look(path)?;
    let service = carrier(clock).map_err(io::Error::other)?;
    let recovery = storage::put_back(&service, &folder, Intent::Look)?;
    let mut sent = Ok(());
    let dumped = service.dump(|piece| {
        sent = send(&piece);
        sent.is_ok()
    });
    sent?;
    dumped.map_err(io::Error::other)?;
    Ok(Dumped { keys: service.store.len(), losses: recovery.losses })
}

/// Takes the keys of a dump into a folder, which is made if there is none; gives how many. All of them are
/// there afterwards, or none.
///
/// # Errors
/// [`OfflineError`] when the dump is not whole, or the folder cannot be loaded or written.
pub fn restore_folder(
    storage: &Storage,
    clock: Arc<dyn Clock>,
    input: &mut impl Read,
    replace: bool,
) -> Result<Restored, OfflineError> {
    let service = carrier(clock).map_err(io::Error::other)?;
    // What is no dump leaves no folder behind.
    let dump = service.read_dump(input, &spool_folder(Some(&storage.path)))?;
    let folder = Folder::open(&storage.path)?;
    let recovery = storage::put_back(&service, &folder, Intent::GoOn)?;
    let restored = service.take_in(dump, replace)?;
    // None of them is in the log: they count from when the checkpoint has its name.
    storage::begin(&service, folder, storage, &recovery)?;
    if let Some(journal) = service.journal() {
        journal.make_checkpoint(|| ())?;
        Journal::close(journal)?;
    }
    Ok(restored)
}
