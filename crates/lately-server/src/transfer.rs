//! All keys of a server out, as a dump, and in again. No I/O: the listener carries the bytes.

use std::io::Read;

use lately::{DeltaBatch, MemoryStats, Store};
use lately_journal::limits::MAX_AHEAD;
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

    /// Takes in the keys of a dump, once all of it has come and is whole. Keys of the same names go, if they may be
    /// replaced; else there must be none. One at a time: it holds all keys of the dump.
    ///
    /// # Errors
    /// [`RestoreError`]; nothing changed, unless the journal failed meanwhile.
    pub(crate) fn restore(&self, input: &mut impl Read, replace: bool) -> Result<Restored, RestoreError> {
        let dump = self.read_dump(input)?;
        self.take_in(&dump, replace)
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
        // A dump of a clock that was ahead is one of now.
        dump.turn_back(Some((self.now().saturating_add(MAX_AHEAD), self.now())));
        read_dump(input, &dump)?;
        dump.turn_back(None);
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
            if let Err(refused) = self.commit_through(&deltas) {
                self.store.take_back(&mut deltas);
                return Err(RestoreError::Refused { refused, keys });
            }
            keys += brought;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lately::{ManualClock, Timestamp, days, minutes};

    use super::*;
    use crate::config::Config;

    fn engine(now: Timestamp) -> Engine {
        Engine::new(Config::default(), Arc::new(ManualClock::new(now))).expect("the defaults are valid")
    }

    #[test]
    fn a_dump_of_a_clock_that_was_ahead_is_one_of_now() {
        let now = Timestamp::from_seconds(1_700_000_000).expect("a time");
        let ahead = engine(now.saturating_add(days(3_650)));
        ahead.store.hit_n(b"k", 5, None, ahead.now()).expect("counted");
        ahead.store.limit_until(b"locked", ahead.now().saturating_add(minutes(15)), ahead.now(), None);
        let mut bytes = Vec::new();
        let send = |piece: Vec<u8>| {
            bytes.extend(piece);
            true
        };
        ahead.dump(send).expect("dumped");
        let here = engine(now);
        let restored =
            here.take_in(&here.read_dump(&mut &bytes[..]).expect("read"), false).expect("restored");
        assert_eq!((restored.keys, here.store.now()), (2, now));
        assert_eq!(here.store.hits(b"k", minutes(5), now).estimate, 5);
        assert_eq!(here.store.limited_until(b"locked", now), Some(now.saturating_add(minutes(15))));
        assert_eq!(here.store.hit(b"k", now).expect("counted"), 6);
        here.store.check_consistency();
    }
}
