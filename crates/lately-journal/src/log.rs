//! The log: a segment, to which records are appended.
//!
//! A segment starts with a frame that has its number, the end of the segment before, and how far that one was
//! synced. Bytes of the earlier segment behind that end were refused.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use lately::DeltaBatch;

use crate::disk::{Disk, DiskFile};
use crate::frame::{self, Kind};
use crate::limits::{KEPT_BYTES, ROOM_BYTES};
use crate::names;

/// The kinds of records: the first byte of a payload.
pub(crate) const SEGMENT: u8 = 0;
pub(crate) const BATCH: u8 = 1;
/// The server stopped here, after everything was written.
pub(crate) const CLOSED: u8 = 2;
/// No batch was applied but not written here: earlier changes that are missing will never come. The record
/// has a number; all later changes have higher ones.
pub(crate) const SETTLED: u8 = 3;
/// Everything before it is on the disk. Each record says how far the file was synced before it, so this one is written when
/// no other follows a sync.
pub(crate) const SYNCED: u8 = 4;

/// The previous segment, while it is not synced.
pub(crate) struct Before<F> {
    file: Arc<F>,
    synced: u64,
    /// See [`Log`].
    acknowledged: (u64, u64),
}

/// The current segment of the log.
pub(crate) struct Log<F> {
    file: Arc<F>,
    segment: u64,
    /// What the segment says about the previous one, and where its records start.
    previous: (u64, u64),
    start: u64,
    /// The end of valid records, of synced ones, and of the bytes that the system need not keep in memory.
    end: u64,
    synced: u64,
    released: u64,
    /// How far the last record says that the file was synced.
    said: u64,
    /// The previous segment, until it is synced.
    before: Option<Before<F>>,
    /// The last record here that was acknowledged before a sync, and where it ends.
    acknowledged: (u64, u64),
    /// A sync failed. It is unknown which of the earlier records are on the disk.
    is_lost: bool,
    /// The number of the last record.
    number: u64,
    /// Whether no batch was written to it.
    is_empty: bool,
    /// The buffer for encoding records.
    records: Vec<u8>,
}

impl<F: DiskFile> Log<F> {
    /// Creates the file of a segment, which is not part of the log yet.
    pub(crate) fn prepare<D: Disk<File = F>>(disk: &D, segment: u64) -> io::Result<F> {
        let file = disk.create(&names::log(segment))?;
        disk.sync()?;
        Ok(file)
    }

    /// Starts a segment in its file. `previous` is the end of the previous segment and how far that was
    /// synced; `number` is its last record.
    pub(crate) fn begin(file: F, segment: u64, previous: (u64, u64), number: u64) -> io::Result<Log<F>> {
        let (file, records) = (Arc::new(file), Kind::Log.magic().to_vec());
        let (start, end, synced, released, acknowledged, before, is_lost) = (0, 0, 0, 0, (0, 0), None, false);
        let (is_empty, said) = (true, 0);
        let mut log = Log {
            file,
            segment,
            previous,
            start,
            end,
            synced,
            released,
            said,
            acknowledged,
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

    /// Switches to another segment, in its file. After an error the current one stays.
    pub(crate) fn rotate_to(&mut self, file: F) -> io::Result<()> {
        let (segment, previous) = self.next();
        let mut next = Log::begin(file, segment, previous, self.number)?;
        if self.synced < self.end && !self.is_lost {
            next.before = Some(Before {
                file: Arc::clone(&self.file),
                synced: self.synced,
                acknowledged: self.acknowledged,
            });
        }
        *self = next;
        Ok(())
    }

    /// The files to sync, in this order: a later one may not be synced before an earlier one.
    pub(crate) fn unsynced(&self) -> impl Iterator<Item = Arc<F>> + use<F> {
        let before = self.before.as_ref().map(|before| Arc::clone(&before.file));
        before.into_iter().chain([Arc::clone(&self.file)])
    }

    /// The number of the next segment, and what it says about the previous one. That is the current segment,
    /// unless the current one has no valid records that are certainly on the disk. Then it is created again:
    /// otherwise the end of the segment before it would be unknown.
    pub(crate) fn next(&self) -> (u64, (u64, u64)) {
        if self.is_lost && self.synced == 0 && self.end <= self.start {
            (self.segment, self.previous)
        } else {
            (self.segment + 1, (self.end, self.synced))
        }
    }

    /// Whether a checkpoint can use this segment, because it is empty.
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

    /// The bytes that were written since the last sync.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.end.saturating_sub(self.synced)
    }

    /// Whether a sync failed. If so, no later sync proves that earlier records are on the disk.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    pub(crate) fn set_lost(&mut self) {
        self.is_lost = true;
    }

    /// Records that everything up to `end` of a segment is synced.
    pub(crate) fn set_synced(&mut self, segment: u64, end: u64) {
        if segment == self.segment {
            self.synced = self.synced.max(end);
            self.before = None;
        }
    }

    /// The bytes that the system need not keep in memory after the next sync, and their file. `None` if they
    /// are fewer than `least`. Each byte is returned once.
    pub(crate) fn take_unreleased(&mut self, least: u64) -> Option<(Arc<F>, Range<u64>)> {
        if self.end < self.released + least {
            return None;
        }
        let released = std::mem::replace(&mut self.released, self.end);
        Some((Arc::clone(&self.file), released..self.end))
    }

    /// Records that everything that was written is acknowledged.
    pub(crate) fn set_acknowledged(&mut self) {
        self.acknowledged = (self.number, self.end);
    }

    /// The memory that it holds, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.records.capacity()
    }

    /// Writes the changes of batches, a record for each. Returns the number of bytes. After an error nothing
    /// was written.
    pub(crate) fn write<'b>(&mut self, batches: impl Iterator<Item = &'b DeltaBatch>) -> io::Result<u64> {
        self.is_empty = false;
        for batch in batches {
            self.add(&[&[BATCH], &batch.now().as_millis().to_le_bytes(), batch.bytes()]);
        }
        self.put()
    }

    /// Writes a `SETTLED` record: later changes have numbers above `number`.
    pub(crate) fn settle(&mut self, number: u64) -> io::Result<u64> {
        self.add(&[&[SETTLED], &number.to_le_bytes()]);
        self.put()
    }

    /// Writes that everything is synced, if no record says so. The caller knows that it is. Returns the number of bytes.
    pub(crate) fn say_synced(&mut self) -> io::Result<u64> {
        if self.is_empty || self.said >= self.synced {
            return Ok(0);
        }
        self.add(&[&[SYNCED]]);
        self.put()
    }

    /// Writes the record of a regular stop.
    pub(crate) fn close(&mut self) -> io::Result<u64> {
        self.add(&[&[CLOSED]]);
        self.put()
    }

    fn add(&mut self, payload: &[&[u8]]) {
        self.number += 1;
        self.said = self.synced;
        frame::append(&mut self.records, self.number, self.synced, |out| {
            payload.iter().for_each(|part| out.extend_from_slice(part));
        });
    }

    /// Writes the records. The numbers of records that failed are not used again, because parts of them may
    /// be in the file.
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

    /// Removes everything behind the last synced or acknowledged record. Returns the last acknowledged
    /// record.
    pub(crate) fn cut(&mut self) -> u64 {
        let (number, acknowledged) = self.acknowledged;
        self.end = self.synced.max(acknowledged);
        // If this fails, the next segment says where this one ends.
        let _ = self.file.truncate(self.end);
        let Some(Before { file, synced, acknowledged: (number_before, acknowledged_before) }) =
            self.before.take()
        else {
            return number;
        };
        if number > 0 {
            // A record of this segment was acknowledged: everything in the segment before stays.
            return number;
        }
        let end = synced.max(acknowledged_before);
        let _ = file.truncate(end);
        self.previous = (end, synced);
        number_before
    }

    /// Whether there is room for some more records.
    pub(crate) fn try_room(&self) -> io::Result<()> {
        let tried = self.file.write_bytes(&[0; ROOM_BYTES], self.end).and_then(|()| self.file.sync());
        self.file.truncate(self.end)?;
        tried
    }
}
