//! Fjall: a log-structured tree. Its own journal carries what is appended until a memtable is full and is written
//! again, as a sorted table.

use std::io::{Error, Result};
use std::path::Path;

use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::carrier::Carrier;

/// The least of what its documentation recommends: the default of 64 MiB would hide what a long run pays.
const MEMTABLE_BYTES: u64 = 8 << 20;
/// One alone may wait forever: version 3.1 has it send to a queue that nobody but itself takes from.
const WORKERS: usize = 2;

/// One keyspace, a value for each batch.
pub(super) struct Fjall {
    database: Database,
    batches: Keyspace,
}

impl Fjall {
    pub(super) fn open(folder: &Path) -> Result<Fjall> {
        let database = Database::builder(folder).worker_threads(WORKERS).open().map_err(Error::other)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let batches = database.keyspace("batches", options).map_err(Error::other)?;
        Ok(Fjall { database, batches })
    }
}

impl Carrier for Fjall {
    /// Its default: the bytes are with the operating system when the call returns.
    fn append(&mut self, number: u64, batch: &[u8]) -> Result<()> {
        self.batches.insert(number.to_be_bytes(), batch).map_err(Error::other)
    }

    fn sync(&mut self) -> Result<()> {
        self.database.persist(PersistMode::SyncData).map_err(Error::other)
    }

    fn replay(&mut self, take: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        for entry in self.batches.iter() {
            let (key, batch) = entry.into_inner().map_err(Error::other)?;
            take(u64::from_be_bytes(key.as_ref().try_into().map_err(Error::other)?), &batch);
        }
        Ok(())
    }

    /// A range cannot be removed at once. What the removed ones took comes back with a compaction.
    fn cut(&mut self, before: u64) -> Result<()> {
        for number in 0..before {
            self.batches.remove(number.to_be_bytes()).map_err(Error::other)?;
        }
        self.sync()?;
        self.batches.rotate_memtable_and_wait().map_err(Error::other)?;
        self.batches.major_compact().map_err(Error::other)
    }
}
