//! Loads the data folder while the server listens, and starts the journal, which writes to the folder until the stop.

use std::sync::Arc;
use std::thread::{JoinHandle, available_parallelism};

use lately_journal::{Folder, Intent, Journal, JournalError, Loss, Recovery, recover};

use crate::config::Storage;
use crate::service::Service;

/// What was loaded from the folder.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Keys in the store.
    pub keys: usize,
    /// Bytes read.
    pub bytes: u64,
    /// Data that could not be read.
    pub losses: Vec<Loss>,
}

impl Service {
    /// Loads the folder into the store. Blocks until it is done. Then the caller ends loading with the journal, unless the
    /// server stops: nobody would sync what is counted after that.
    pub(crate) fn load(
        &self,
        folder: Folder,
        storage: &Storage,
    ) -> Result<(Loaded, Journal<Folder>), JournalError> {
        let intent = if storage.repair { Intent::Repair } else { Intent::Continue };
        let recovery = self.recover_folder(&folder, intent)?;
        // The newest hit may be ahead of a clock that was set back. The server's clock continues from that hit, and
        // runs slower.
        self.clock.go_on_from(self.store.now());
        self.store.keep_to_ceiling(self.store.now());
        let keys = self.store.len();
        let journal = self.journal_in(folder, storage, &recovery)?;
        let bytes = recovery.checkpoint_bytes + recovery.log_bytes;
        Ok((Loaded { keys, bytes, losses: recovery.losses }, journal))
    }

    /// Loads the folder into the store.
    pub(crate) fn recover_folder(&self, folder: &Folder, intent: Intent) -> Result<Recovery, JournalError> {
        let threads = available_parallelism().map_or(1, usize::from);
        recover(folder, &self.store, intent, self.now(), threads, &self.progress)
    }

    /// Starts the journal in the folder.
    pub(crate) fn begin(
        &self,
        folder: Folder,
        storage: &Storage,
        from: &Recovery,
    ) -> Result<(), JournalError> {
        self.loaded(self.journal_in(folder, storage, from)?);
        Ok(())
    }

    fn journal_in(
        &self,
        folder: Folder,
        storage: &Storage,
        from: &Recovery,
    ) -> Result<Journal<Folder>, JournalError> {
        let (store, path) = (Arc::clone(&self.store), storage.path.clone());
        Journal::begin(folder, store, storage.durability, from).map_err(|error| JournalError::Disk {
            what: "write in",
            path,
            error,
        })
    }

    /// Starts the threads that sync the journal and write checkpoints. They end when it is closed.
    pub(crate) fn start_journal_threads(self: &Arc<Service>) -> std::io::Result<Vec<JoinHandle<()>>> {
        let thread = |name: &str, work: fn(&Journal<Folder>)| {
            let service = Arc::clone(self);
            let tend = move || service.journal().map_or((), work);
            std::thread::Builder::new().name(name.to_owned()).spawn(tend)
        };
        // Both threads have normal priority: others wait for a thread that was preempted while it held a lock.
        Ok(vec![
            thread("lately-sync", Journal::keep_synced)?,
            thread("lately-checkpoint", Journal::keep_short)?,
        ])
    }
}
