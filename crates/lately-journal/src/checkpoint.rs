//! A checkpoint: all keys of a store, a part at a time while hits go on. A part says which changes are in
//! it, so that replaying the log counts none of them twice.
//!
//! It is valid once it has its name. Before that, all that is in its parts has been written to the log: so
//! it has no half of a batch, and nothing that was refused.

use std::io;
use std::sync::Arc;

use lately::Store;

use crate::disk::{Disk, DiskFile};
use crate::frame::{self, Kind};
use crate::journal::Journal;
use crate::names;
use crate::part::{END, HEAD, PARTS, write_part};

/// A checkpoint that is being written.
pub struct Checkpoint<'a, D: Disk> {
    journal: &'a Journal<D>,
    file: D::File,
    /// The segment of the log that goes on behind it.
    segment: u64,
    /// Failures of the journal when it began.
    failures: u64,
    next_part: u16,
    keys: u64,
    block: Block,
    unsynced: u64,
}

/// Bytes to be written.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    written: u64,
    frames: u64,
}

impl Block {
    fn frame(&mut self, payload: impl FnOnce(&mut Vec<u8>)) {
        frame::append(&mut self.bytes, self.frames, 0, payload);
        self.frames += 1;
    }

    fn write(&mut self, file: &impl DiskFile) -> io::Result<u64> {
        file.write_bytes(&self.bytes, self.written)?;
        let bytes = self.bytes.len() as u64;
        self.written += bytes;
        self.bytes.clear();
        Ok(bytes)
    }
}

impl<'a, D: Disk> Checkpoint<'a, D> {
    /// Begins one: from here on the log is written to a new segment.
    pub(crate) fn begin(journal: &'a Journal<D>) -> io::Result<Checkpoint<'a, D>> {
        journal.spend_start();
        let begun = Checkpoint::begin_in_room(journal);
        if begun.is_err() {
            journal.keep_reserve();
        }
        begun
    }

    fn begin_in_room(journal: &'a Journal<D>) -> io::Result<Checkpoint<'a, D>> {
        let failures = journal.failures();
        let segment = journal.rotate()?;
        let file = journal.spend_reserve(&names::unfinished(segment))?;
        let mut block = Block::default();
        block.bytes.extend_from_slice(&Kind::Checkpoint.magic());
        block.frame(|payload| {
            payload.push(HEAD);
            payload.extend_from_slice(&segment.to_le_bytes());
        });
        Ok(Checkpoint { journal, file, segment, failures, next_part: 0, keys: 0, block, unsynced: 0 })
    }

    /// Whether the next step writes parts. If not, it waits for those who have applied and not yet written.
    pub fn has_parts_left(&self) -> bool {
        self.next_part < Store::PARTS
    }

    /// Writes the next few parts, or when there are no more the end; true when the checkpoint is valid by that.
    ///
    /// # Errors
    /// As the system says. The checkpoint came to nothing then, and the log holds all.
    pub fn step(&mut self) -> io::Result<bool> {
        let is_last = !self.has_parts_left();
        if is_last {
            self.add_end();
        } else {
            self.add_parts();
        }
        self.journal.hold_block(self.block.bytes.capacity());
        self.unsynced += self.block.write(&self.file)?;
        if is_last {
            // The room that was kept for it was more.
            self.file.truncate(self.block.written)?;
        }
        if is_last || self.unsynced >= self.journal.bounds().sync_bytes {
            self.file.sync()?;
            self.unsynced = 0;
        }
        if is_last {
            self.finish()?;
        }
        Ok(is_last)
    }

    fn add_parts(&mut self) {
        let store: &Arc<Store> = self.journal.store();
        let block_bytes = self.journal.bounds().block_bytes;
        let Checkpoint { block, next_part, keys, .. } = self;
        block.frame(|payload| {
            payload.push(PARTS);
            while *next_part < Store::PARTS && payload.len() < block_bytes {
                *keys += write_part(store, *next_part, payload).keys as u64;
                *next_part += 1;
            }
        });
    }

    fn add_end(&mut self) {
        let store: &Arc<Store> = self.journal.store();
        let (generation, now, keys) = (store.generation().0, store.now().as_millis(), self.keys);
        self.block.frame(|payload| {
            payload.push(END);
            payload.extend_from_slice(&generation.to_le_bytes());
            payload.extend_from_slice(&now.to_le_bytes());
            payload.extend_from_slice(&keys.to_le_bytes());
        });
    }

    /// Removes what there is of it; its room is kept.
    pub fn abandon(self) {
        self.journal.take_back_reserve(&names::unfinished(self.segment));
    }

    fn finish(&mut self) -> io::Result<()> {
        let disk = self.journal.disk();
        if !self.journal.settle(self.failures) {
            return Err(io::Error::other("the log failed meanwhile"));
        }
        disk.rename(&names::unfinished(self.segment), &names::checkpoint(self.segment))?;
        disk.sync()?;
        self.journal.cut(self.segment, self.block.written);
        Ok(())
    }
}

impl<D: Disk> Drop for Checkpoint<'_, D> {
    fn drop(&mut self) {
        self.journal.hold_block(0);
    }
}
