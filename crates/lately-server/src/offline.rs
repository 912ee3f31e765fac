//! Dumps from a folder that no server has, and into one.

use std::io::{self, Read};
use std::sync::Arc;

use lately::Clock;
use lately_journal::{Folder, Journal, JournalError};
use thiserror::Error;

use crate::config::Config;
use crate::engine::Engine;
use crate::storage::{self, Loaded, Storage};
use crate::transfer::RestoreError;

/// Why a folder could not be dumped, or a dump not restored to it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OfflineError {
    /// The folder cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The settings do not hold.
    #[error(transparent)]
    Settings(#[from] lately::SettingsError),
    /// The dump cannot be restored.
    #[error("{0}")]
    Restore(String),
    /// The dump cannot be written, or the folder.
    #[error(transparent)]
    Disk(#[from] io::Error),
}

impl From<RestoreError> for OfflineError {
    fn from(error: RestoreError) -> OfflineError {
        let text = error.to_string();
        OfflineError::Restore(text.replace("the server has", "the folder has"))
    }
}

/// A folder, loaded.
struct Opened {
    engine: Engine,
    loaded: Loaded,
}

impl Opened {
    fn new(config: Config, storage: &Storage, clock: Arc<dyn Clock>) -> Result<Opened, OfflineError> {
        let folder = Folder::open(&storage.path)?;
        let engine = Engine::new(Config { storage: Some(storage.clone()), ..config }, clock)?;
        let loaded = storage::load(&engine, folder, storage)?;
        Ok(Opened { engine, loaded })
    }

    fn close(&self) -> io::Result<()> {
        self.engine.journal().map_or(Ok(()), Journal::close)
    }
}

/// Gives the dump of a folder to `send`, a piece at a time; gives what was loaded.
///
/// # Errors
/// [`OfflineError`] when the folder cannot be loaded, or `send` fails.
pub fn dump_folder(
    config: Config,
    storage: &Storage,
    clock: Arc<dyn Clock>,
    mut send: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<Loaded, OfflineError> {
    let opened = Opened::new(config, storage, clock)?;
    let mut sent = Ok(());
    let dumped = opened.engine.dump(|piece| {
        sent = send(&piece);
        sent.is_ok()
    });
    sent?;
    dumped.map_err(io::Error::other)?;
    opened.close()?;
    Ok(opened.loaded)
}

/// Takes the keys of a dump into a folder; gives how many.
///
/// # Errors
/// [`OfflineError`] when the folder cannot be loaded or written, or the dump is not whole.
pub fn restore_folder(
    config: Config,
    storage: &Storage,
    clock: Arc<dyn Clock>,
    input: &mut impl Read,
    replace: bool,
) -> Result<usize, OfflineError> {
    let opened = Opened::new(config, storage, clock)?;
    let keys = opened.engine.restore(input, replace)?;
    if let Some(journal) = opened.engine.journal() {
        journal.make_checkpoint(|| ())?;
    }
    opened.close()?;
    Ok(keys)
}
