//! The log: a segment that records are written to, one behind the other.
//!
//! A segment begins with a frame that says which it is, where the one before it ends, and how far that was
//! synced. What lies behind its end was refused.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use lately::DeltaBatch;

use crate::disk::{Disk, DiskFile};
use crate::frame::{self, Kind};
use crate::limits::{KEPT_BYTES, ROOM_BYTES};
use crate::names;

/// A record: what the first byte of a payload says.
pub(crate) const SEGMENT: u8 = 0;
pub(crate) const BATCH: u8 = 1;
/// The server stopped here and all was written.
pub(crate) const CLOSED: u8 = 2;
/// Nobody was between changing something and writing it: what was changed before and is not there never will
/// be. A number follows, which all changes from here on go on behind.
pub(crate) const SETTLED: u8 = 3;

/// A segment that is not written to any more, and not synced yet.
pub(crate) struct Before<F> {
    file: Arc<F>,
    synced: u64,
    /// As in [`Log`].
    told: (u64, u64),
}

/// The end of the log.
pub(crate) struct Log<F> {
    file: Arc<F>,
    segment: u64,
    /// What it says of the segment before, and where its records begin.
    previous: (u64, u64),
    start: u64,
    /// Where what counts ends, and where what was synced does; and where what the system need not keep in memory does.
    end: u64,
    synced: u64,
    released: u64,
    /// The segment before it, until it is synced.
    before: Option<Before<F>>,
    /// The last record here that was acknowledged though it was not synced, and where it ends.
    told: (u64, u64),
    /// A sync failed: whether the disk has what was written before is not known, and never will be.
    is_lost: bool,
    /// The number of the last record.
    number: u64,
    /// Whether it has nothing of a batch.
    is_empty: bool,
    /// Records that are being made.
    records: Vec<u8>,
}

impl<F: DiskFile> Log<F> {
    /// Makes the file of a segment, which is not part of the log yet.
    pub(crate) fn prepare<D: Disk<File = F>>(disk: &D, segment: u64) -> io::Result<F> {
        let file = disk.create(&names::log(segment))?;
        disk.sync()?;
        Ok(file)
    }

    /// Begins a segment in its file. `previous` is where the segment before it ends, and how far that was
    /// synced; `number` is its last record.
    pub(crate) fn begin(file: F, segment: u64, previous: (u64, u64), number: u64) -> io::Result<Log<F>> {
        let (file, records) = (Arc::new(file), Kind::Log.magic().to_vec());
        let (start, end, synced, released, told, before, is_lost) = (0, 0, 0, 0, (0, 0), None, false);
        let is_empty = true;
        let mut log = Log {
            file,
            segment,
            previous,
            start,
            end,
            synced,
            released,
            told,
            before,
            is_lost,
            number,
            is_empty,
            records,
        };
        log.add(&[&[SEGMENT], &segment.to_le_bytes(), &previous.0.to_le_bytes(), &previous.1.to_le_bytes()]);
        log.put()?;
        log.start = log.end;
        Ok(log)
    }

    /// Goes over to another segment, in its file. After an error it goes on in this one.
    pub(crate) fn go_over(&mut self, file: F) -> io::Result<()> {
        let (segment, previous) = self.next();
        let mut next = Log::begin(file, segment, previous, self.number)?;
        if self.synced < self.end && !self.is_lost {
            next.before = Some(Before { file: Arc::clone(&self.file), synced: self.synced, told: self.told });
        }
        *self = next;
        Ok(())
    }

    /// The files to sync, in this order: no later one says anything before the earlier are synced.
    pub(crate) fn unsynced(&self) -> impl Iterator<Item = Arc<F>> + use<F> {
        let before = self.before.as_ref().map(|before| Arc::clone(&before.file));
        before.into_iter().chain([Arc::clone(&self.file)])
    }

    /// The segment to go on with, and what it is to say of the one before. That is this one, unless nothing of
    /// it counts or is on the disk for certain: then it is made anew, or else nobody could tell any more where
    /// the one before it ends.
    pub(crate) fn next(&self) -> (u64, (u64, u64)) {
        if self.is_lost && self.synced == 0 && self.end <= self.start {
            (self.segment, self.previous)
        } else {
            (self.segment + 1, (self.end, self.synced))
        }
    }

    /// Whether a checkpoint can go on with this segment: there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty && !self.is_lost
    }

    pub(crate) fn segment(&self) -> u64 {
        self.segment
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes that were written since a sync.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.end.saturating_sub(self.synced)
    }

    /// Whether a sync failed: then no later one says that what was written before is on the disk.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    pub(crate) fn set_lost(&mut self) {
        self.is_lost = true;
    }

    /// Takes note that all was synced up to `end` of a segment.
    pub(crate) fn set_synced(&mut self, segment: u64, end: u64) {
        if segment == self.segment {
            self.synced = self.synced.max(end);
            self.before = None;
        }
    }

    /// What the system need not keep in memory once all is synced, of so many bytes at least: that was not given before,
    /// and the file that it is in.
    pub(crate) fn take_unreleased(&mut self, least: u64) -> Option<(Arc<F>, Range<u64>)> {
        if self.end < self.released + least {
            return None;
        }
        let released = std::mem::replace(&mut self.released, self.end);
        Some((Arc::clone(&self.file), released..self.end))
    }

    /// Takes note that all that was written is acknowledged.
    pub(crate) fn set_told(&mut self) {
        self.told = (self.number, self.end);
    }

    /// Bytes of memory it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.records.capacity()
    }

    /// Writes what batches changed, a record for each; gives the bytes that took. After an error nothing was.
    pub(crate) fn write<'b>(&mut self, batches: impl Iterator<Item = &'b DeltaBatch>) -> io::Result<u64> {
        self.is_empty = false;
        for batch in batches {
            self.add(&[&[BATCH], &batch.now().as_millis().to_le_bytes(), batch.bytes()]);
        }
        self.put()
    }

    /// Writes that nobody is between changing something and writing it, and that changes go on behind a number.
    pub(crate) fn settle(&mut self, number: u64) -> io::Result<u64> {
        self.add(&[&[SETTLED], &number.to_le_bytes()]);
        self.put()
    }

    /// Writes that the server stops.
    pub(crate) fn close(&mut self) -> io::Result<u64> {
        self.add(&[&[CLOSED]]);
        self.put()
    }

    fn add(&mut self, payload: &[&[u8]]) {
        self.number += 1;
        frame::append(&mut self.records, self.number, self.synced, |out| {
            payload.iter().for_each(|part| out.extend_from_slice(part));
        });
    }

    /// Writes the records. The numbers of those that could not be written are not used again: their remains
    /// may lie in the file.
    fn put(&mut self) -> io::Result<u64> {
        let written = self.file.write_bytes(&self.records, self.end);
        let bytes = self.records.len() as u64;
        self.records.clear();
        self.records.shrink_to(KEPT_BYTES);
        match written {
            Ok(()) => {
                self.end += bytes;
                Ok(bytes)
            }
            Err(error) => {
                let _ = self.file.truncate(self.end);
                Err(error)
            }
        }
    }

    /// Takes back all behind what was synced or acknowledged; gives the last record that was acknowledged.
    pub(crate) fn cut(&mut self) -> u64 {
        let (number, told) = self.told;
        self.end = self.synced.max(told);
        // If that fails, what follows says where the segment ends.
        let _ = self.file.truncate(self.end);
        let Some(Before { file, synced, told: (number_before, told_before) }) = self.before.take() else {
            return number;
        };
        if number > 0 {
            // What was acknowledged here came after all that is there.
            return number;
        }
        let end = synced.max(told_before);
        let _ = file.truncate(end);
        self.previous = (end, synced);
        number_before
    }

    /// Whether some records more can be written.
    pub(crate) fn try_room(&self) -> io::Result<()> {
        let tried = self.file.write_bytes(&[0; ROOM_BYTES], self.end).and_then(|()| self.file.sync());
        self.file.truncate(self.end)?;
        tried
    }
}
