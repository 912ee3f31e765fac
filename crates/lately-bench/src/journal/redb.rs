//! Redb: a tree of pages that are never written over while they count. A commit without a sync is in its memory alone.

use std::fs::File;
use std::io::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::redb::backends::FileBackend;
use ::redb::{
    Builder, Database, Durability, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
};

use super::carrier::Carrier;

const FILE: &str = "batches.redb";
const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("batches");

/// One table, a value for each batch, a transaction for each batch.
pub(super) struct Redb {
    database: Database,
    /// How a batch is committed that need not be synced.
    lazy: Durability,
    /// Set while syncs are passed on, if they are not always.
    passes: Option<Arc<AtomicBool>>,
}

impl Redb {
    pub(super) fn open(folder: &Path) -> Result<Redb> {
        let database = Database::create(folder.join(FILE)).map_err(Error::other)?;
        Ok(Redb { database, lazy: Durability::None, passes: None })
    }

    /// Over a file whose syncs are held back: every commit is with the operating system.
    pub(super) fn open_held_back(folder: &Path) -> Result<Redb> {
        let path = folder.join(FILE);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let file = FileBackend::new(file).map_err(Error::other)?;
        // What is opened is brought to the disk, and so is what is repaired.
        let passes = Arc::new(AtomicBool::new(true));
        let backend = HeldBack { file, passes: Arc::clone(&passes) };
        let database = Builder::new().create_with_backend(backend).map_err(Error::other)?;
        passes.store(false, Ordering::Relaxed);
        Ok(Redb { database, lazy: Durability::Immediate, passes: Some(passes) })
    }

    /// Commits a batch, or nothing but what was committed before.
    fn commit(&self, batch: Option<(u64, &[u8])>, durability: Durability) -> Result<()> {
        let mut transaction = self.database.begin_write().map_err(Error::other)?;
        transaction.set_durability(durability).map_err(Error::other)?;
        if let Some((number, batch)) = batch {
            let mut table = transaction.open_table(TABLE).map_err(Error::other)?;
            table.insert(number, batch).map_err(Error::other)?;
        }
        transaction.commit().map_err(Error::other)
    }

    /// Commits so that a power loss does not reach it.
    fn commit_and_sync(&self, batch: Option<(u64, &[u8])>) -> Result<()> {
        self.pass(true);
        let done = self.commit(batch, Durability::Immediate);
        self.pass(false);
        done
    }

    fn pass(&self, passes: bool) {
        if let Some(place) = &self.passes {
            place.store(passes, Ordering::Relaxed);
        }
    }
}

impl Carrier for Redb {
    fn append(&mut self, number: u64, batch: &[u8]) -> Result<()> {
        self.commit(Some((number, batch)), self.lazy)
    }

    fn sync(&mut self) -> Result<()> {
        self.commit_and_sync(None)
    }

    fn append_and_sync(&mut self, number: u64, batch: &[u8]) -> Result<()> {
        self.commit_and_sync(Some((number, batch)))
    }

    fn replay(&mut self, take: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let transaction = self.database.begin_read().map_err(Error::other)?;
        let table = transaction.open_table(TABLE).map_err(Error::other)?;
        for entry in table.iter().map_err(Error::other)? {
            let (number, batch) = entry.map_err(Error::other)?;
            take(number.value(), batch.value());
        }
        Ok(())
    }

    /// The file shrinks when it is compacted, and not before.
    fn cut(&mut self, before: u64) -> Result<()> {
        self.pass(true);
        let transaction = self.database.begin_write().map_err(Error::other)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(Error::other)?;
            table.retain_in(..before, |_, _| false).map_err(Error::other)?;
        }
        transaction.commit().map_err(Error::other)?;
        self.database.compact().map_err(Error::other)?;
        self.pass(false);
        Ok(())
    }
}

/// A file that passes syncs on only when it is told to.
#[derive(Debug)]
struct HeldBack {
    file: FileBackend,
    passes: Arc<AtomicBool>,
}

impl StorageBackend for HeldBack {
    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.file.set_len(length)
    }

    fn sync_data(&self) -> Result<()> {
        if self.passes.load(Ordering::Relaxed) { self.file.sync_data() } else { Ok(()) }
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.file.write(offset, data)
    }
}
