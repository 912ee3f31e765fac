//! The folder that counts are kept in: opened before the server listens, read while it listens already, and
//! written to until it stops.

pub(crate) mod dumps;
mod offline;
pub(crate) mod spool_file;

use std::sync::Arc;
use std::thread::{JoinHandle, available_parallelism};

use lately_journal::{Folder, Intent, Journal, JournalError, Loss, Recovery, recover};

pub use dumps::Restored;
pub use offline::{Dumped, OfflineError, dump_folder, restore_folder};

use crate::config::Storage;
use crate::service::Service;

/// What was found in the folder.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Keys that were put back.
    pub keys: usize,
    /// Bytes that were read.
    pub bytes: u64,
    /// What could not be put back.
    pub losses: Vec<Loss>,
}

/// Puts back what the folder has and begins to write to it. Takes as long as it takes.
pub(crate) fn load(service: &Service, folder: Folder, storage: &Storage) -> Result<Loaded, JournalError> {
    let intent = if storage.repair { Intent::Repair } else { Intent::GoOn };
    let recovery = put_back(service, &folder, intent)?;
    // What was kept may be ahead of a clock that was set back: time goes on from there, slower, as in a server that runs.
    service.go_on_from_the_store();
    service.store.keep_to_ceiling(service.store.now());
    let keys = service.store.len();
    begin(service, folder, storage, &recovery)?;
    let bytes = recovery.checkpoint_bytes + recovery.log_bytes;
    Ok(Loaded { keys, bytes, losses: recovery.losses })
}

/// Puts back what the folder has.
pub(crate) fn put_back(service: &Service, folder: &Folder, intent: Intent) -> Result<Recovery, JournalError> {
    let threads = available_parallelism().map_or(1, usize::from);
    recover(folder, &service.store, intent, service.now(), threads, &service.progress)
}

/// Begins to write to the folder.
pub(crate) fn begin(
    service: &Service,
    folder: Folder,
    storage: &Storage,
    from: &Recovery,
) -> Result<(), JournalError> {
    let (store, path) = (Arc::clone(&service.store), storage.path.clone());
    let journal = Journal::begin(folder, store, storage.durability, from)
        .map_err(|error| JournalError::Disk { what: "write in", path, error })?;
    service.loaded(journal);
    Ok(())
}

/// Starts the threads that sync and shorten the journal. They end when it is closed.
pub(crate) fn tend(service: &Arc<Service>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let thread = |name: &str, work: fn(&Journal<Folder>)| {
        let service = Arc::clone(service);
        let tend = move || service.journal().map_or((), work);
        std::thread::Builder::new().name(name.to_owned()).spawn(tend)
    };
    // Both at the usual priority: a thread that lost the processor while it has a lock is waited for.
    Ok(vec![thread("lately-sync", Journal::keep_synced)?, thread("lately-checkpoint", Journal::keep_short)?])
}
