//! The folder that counts are kept in: opened before the server listens, read while it listens already, and
//! written to until it stops.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{JoinHandle, available_parallelism};

use lately_journal::{Durability, Folder, Intent, Journal, JournalError, Loss, Recovery, recover};

use crate::engine::Engine;

/// Where counts are kept, and what survives what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Storage {
    /// The folder. It is made if there is none.
    pub path: PathBuf,
    /// What an acknowledged hit survives.
    pub durability: Durability,
    /// Start although files are damaged, without what is lost by that.
    pub repair: bool,
}

impl Default for Storage {
    fn default() -> Storage {
        Storage { path: PathBuf::from("./lately-data"), durability: Durability::Interval, repair: false }
    }
}

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
pub(crate) fn load(engine: &Engine, folder: Folder, storage: &Storage) -> Result<Loaded, JournalError> {
    let intent = if storage.repair { Intent::Repair } else { Intent::GoOn };
    let recovery = put_back(engine, &folder, intent)?;
    // What was kept may be ahead of a clock that was set back: time goes on from there, slower, as in a server that runs.
    engine.go_on_from_the_store();
    engine.store.keep_to_ceiling(engine.store.now());
    let keys = engine.store.len();
    begin(engine, folder, storage, &recovery)?;
    let bytes = recovery.checkpoint_bytes + recovery.log_bytes;
    Ok(Loaded { keys, bytes, losses: recovery.losses })
}

/// Puts back what the folder has.
pub(crate) fn put_back(engine: &Engine, folder: &Folder, intent: Intent) -> Result<Recovery, JournalError> {
    let threads = available_parallelism().map_or(1, usize::from);
    recover(folder, &engine.store, intent, engine.now(), threads, &engine.progress)
}

/// Begins to write to the folder.
pub(crate) fn begin(
    engine: &Engine,
    folder: Folder,
    storage: &Storage,
    from: &Recovery,
) -> Result<(), JournalError> {
    let (store, path) = (Arc::clone(&engine.store), storage.path.clone());
    let journal = Journal::begin(folder, store, storage.durability, from)
        .map_err(|error| JournalError::Disk { what: "write in", path, error })?;
    engine.loaded(journal);
    Ok(())
}

/// Starts the threads that sync and shorten the journal. They end when it is closed.
pub(crate) fn tend(engine: &Arc<Engine>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let thread = |name: &str, work: fn(&Journal<Folder>)| {
        let engine = Arc::clone(engine);
        let tend = move || engine.journal().map_or((), work);
        std::thread::Builder::new().name(name.to_owned()).spawn(tend)
    };
    // Both at the usual priority: a thread that lost the processor while it has a lock is waited for.
    Ok(vec![thread("lately-sync", Journal::keep_synced)?, thread("lately-checkpoint", Journal::keep_short)?])
}
