//! All keys of a server out, as a dump, and in again. No I/O: the listener carries the bytes.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use lately::{DeltaBatch, MemoryStats, Store};
use lately_journal::{Dump, DumpError, read_dump};
use serde::Serialize;
use thiserror::Error;

use crate::engine::Engine;
use crate::limits::DUMP_PIECE_BYTES;
use crate::taps::Tap;

/// Why keys were not taken in.
#[derive(Debug, Error)]
pub(crate) enum RestoreError {
    #[error("the dump cannot be restored: {0}")]
    Dump(#[from] DumpError),
    #[error("another restore is under way")]
    Busy,
    #[error(
        "the server has {keys} key{}: keys of the dump would take the place of those of the same names",
        if *keys == 1 { "" } else { "s" }
    )]
    NotEmpty { keys: usize },
    #[error("the dump has more than the memory ceiling of {ceiling_bytes} bytes has room for")]
    TooLarge { ceiling_bytes: u64 },
    #[error("{refused}; {keys} keys of the dump are there by now: restore all of it again with replace")]
    Refused { refused: lately_journal::Refused, keys: usize },
}

/// What was taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Restored {
    /// Keys of the dump that have hits still.
    pub keys: usize,
    /// Keys that were evicted meanwhile, of the dump or not.
    pub evicted_keys: u64,
}

impl Engine {
    /// Gives a dump to `send`, a piece at a time, while hits go on; it is as of the moment when all keys were given.
    ///
    /// # Errors
    /// Why there is no end to it. When `send` is false nobody wants the rest.
    pub(crate) fn dump(&self, mut send: impl FnMut(Vec<u8>) -> bool) -> Result<(), &'static str> {
        let tap = self.taps.open();
        // What is applied from here on is told.
        self.quiesce();
        let mut out = Vec::new();
        let mut dump = Dump::begin(&self.store, &mut out);
        loop {
            let more = dump.parts(&mut out);
            if !more {
                // All that is in the parts has been told.
                self.quiesce();
            }
            if !append_records(&mut dump, &tap, &mut out, &mut send)? {
                return Ok(());
            }
            if !more {
                break;
            }
            if !send(std::mem::take(&mut out)) {
                return Ok(());
            }
        }
        dump.end(&mut out);
        send(out);
        Ok(())
    }

    /// A place for a restore, which one at a time has: it holds all keys of the dump, and none of another may come between.
    pub(crate) fn begin_restore(self: &Arc<Engine>) -> Result<Restoring, RestoreError> {
        match self.restoring.swap(true, SeqCst) {
            true => Err(RestoreError::Busy),
            false => Ok(Restoring(Arc::clone(self))),
        }
    }

    pub(crate) fn check_empty(&self, replace: bool) -> Result<(), RestoreError> {
        match self.store.len() {
            keys if keys > 0 && !replace => Err(RestoreError::NotEmpty { keys }),
            _ => Ok(()),
        }
    }

    /// Reads all of a dump.
    pub(crate) fn read_dump(&self, input: &mut impl Read) -> Result<Store, RestoreError> {
        let dump = self.scratch();
        dump.set_now(self.now());
        read_dump(input, &dump)?;
        let MemoryStats { evicted_keys, ceiling_bytes, .. } = dump.memory();
        if evicted_keys > 0 {
            return Err(RestoreError::TooLarge { ceiling_bytes: ceiling_bytes.unwrap_or(0) });
        }
        Ok(dump)
    }

    /// Takes in the keys of a dump that was read.
    pub(crate) fn take_in(&self, dump: &Store, replace: bool) -> Result<Restored, RestoreError> {
        self.check_empty(replace)?;
        let (mut bytes, mut deltas, mut keys) = (Vec::new(), DeltaBatch::default(), 0);
        let evicted_keys = self.store.memory().evicted_keys;
        for part in 0..Store::PARTS {
            bytes.clear();
            dump.write_part(part, self.now(), &mut bytes);
            let _entered = self.enter();
            let brought = self.store.bring_part(&bytes, self.now(), &mut deltas);
            let brought =
                brought.map_err(|error| DumpError::Damaged { offset: 0, what: error.to_string() })?;
            if let Some(journal) = self.journal()
                && !deltas.is_empty()
                && let Err(refused) = journal.write_through(&deltas)
            {
                self.store.take_back(&mut deltas);
                return Err(RestoreError::Refused { refused, keys });
            }
            keys += brought;
            self.taps.tell(&deltas);
            deltas.clear();
        }
        Ok(Restored { keys, evicted_keys: self.store.memory().evicted_keys - evicted_keys })
    }
}

/// Appends what has happened by now, and sends it when it is much; false when nobody wants the rest.
fn append_records(
    dump: &mut Dump<'_>,
    tap: &Tap<'_>,
    out: &mut Vec<u8>,
    send: &mut impl FnMut(Vec<u8>) -> bool,
) -> Result<bool, &'static str> {
    let until = tap.end();
    loop {
        let records = tap.take(until, DUMP_PIECE_BYTES)?;
        if records.is_empty() {
            return Ok(true);
        }
        records.iter().for_each(|record| dump.record(record.now, &record.deltas, out));
        if out.len() >= DUMP_PIECE_BYTES && !send(std::mem::take(out)) {
            return Ok(false);
        }
    }
}

/// The place of a restore.
pub(crate) struct Restoring(Arc<Engine>);

impl Restoring {
    /// Takes in the keys of a dump, once all of it has come and is whole; gives how many. Keys of the same
    /// names go, if they may be replaced; else there must be none.
    ///
    /// # Errors
    /// [`RestoreError`]; nothing changed, unless the journal failed meanwhile.
    pub(crate) fn restore(&self, input: &mut impl Read, replace: bool) -> Result<Restored, RestoreError> {
        let dump = self.0.read_dump(input)?;
        self.0.take_in(&dump, replace)
    }
}

impl Drop for Restoring {
    fn drop(&mut self) {
        self.0.restoring.store(false, SeqCst);
    }
}
