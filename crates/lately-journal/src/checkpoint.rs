//! A checkpoint: all keys of a store, a part at a time, while hits continue. A part has the number of its
//! last change, so that replaying the log does not count a change twice.
//!
//! A checkpoint is valid once it has its final name. Before that, every change in its parts has been written
//! to the log, so it has no half of a batch and no refused change; and all parts have been read back and
//! compared.

use std::io;
use std::sync::Arc;

use lately::{Content, Store, Unreadable};

use crate::disk::{Disk, DiskFile};
use crate::frame::{self, HEAD_BYTES, Head, Kind, MAGIC_BYTES, VERSION};
use crate::journal::Journal;
use crate::names;
use crate::part::{END, HEAD, PARTS, take_part, write_part};

/// A checkpoint that is being written.
pub struct Checkpoint<'a, D: Disk> {
    journal: &'a Journal<D>,
    file: D::File,
    /// The segment of the log that follows it.
    segment: u64,
    /// The number of failures of the journal at its start.
    failures: u64,
    next_part: u16,
    /// Summaries of the parts that were written, and of those that were read back.
    written: Content,
    checked: Content,
    /// The start of the bytes that must be read back.
    check_from: u64,
    block: Block,
    unsynced: u64,
}

/// The bytes to write.
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
    /// Starts a checkpoint. From now on the log is written to a new segment.
    pub(crate) fn begin(journal: &'a Journal<D>) -> io::Result<Checkpoint<'a, D>> {
        journal.free_start_room();
        let begun = Checkpoint::begin_in_room(journal);
        if begun.is_err() {
            journal.keep_reserve();
        }
        begun
    }

    fn begin_in_room(journal: &'a Journal<D>) -> io::Result<Checkpoint<'a, D>> {
        let failures = journal.failures();
        let segment = journal.rotate()?;
        let file = journal.take_reserve(&names::unfinished(segment))?;
        let mut block = Block::default();
        block.bytes.extend_from_slice(&Kind::Checkpoint.magic());
        block.frame(|payload| {
            payload.push(HEAD);
            payload.extend_from_slice(&segment.to_le_bytes());
        });
        let (written, checked) = (Content::default(), Content::default());
        let check_from = MAGIC_BYTES as u64;
        let (next_part, unsynced) = (0, 0);
        Ok(Checkpoint {
            journal,
            file,
            segment,
            failures,
            next_part,
            written,
            checked,
            check_from,
            block,
            unsynced,
        })
    }

    /// Whether the next step writes parts or reads them back. If not, it waits for batches that are applied
    /// but not written yet.
    pub fn has_parts_left(&self) -> bool {
        self.next_part < Store::PARTS || self.check_from < self.block.written
    }

    /// Writes the next few parts. When all are written, reads the next few back and compares them. Then
    /// writes the end and returns true: the checkpoint is valid.
    ///
    /// # Errors
    /// Errors of the system. The checkpoint has failed then, and the log is still complete.
    pub fn step(&mut self) -> io::Result<bool> {
        let is_last = !self.has_parts_left();
        if is_last {
            self.check_content()?;
            self.add_end();
        } else if self.next_part < Store::PARTS {
            self.add_parts();
        } else {
            self.check_block()?;
            return Ok(false);
        }
        self.journal.hold_block(self.block.bytes.capacity());
        self.unsynced += self.block.write(&self.file)?;
        if is_last {
            // The reserved room was larger.
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
        let Checkpoint { block, next_part, written, .. } = self;
        block.frame(|payload| {
            payload.push(PARTS);
            while *next_part < Store::PARTS && payload.len() < block_bytes {
                written.merge(write_part(store, *next_part, payload).content);
                *next_part += 1;
            }
        });
    }

    fn add_end(&mut self) {
        let store: &Arc<Store> = self.journal.store();
        let (generation, now, keys) = (store.generation().0, store.now().as_millis(), self.written.keys);
        self.block.frame(|payload| {
            payload.push(END);
            payload.extend_from_slice(&generation.to_le_bytes());
            payload.extend_from_slice(&now.to_le_bytes());
            payload.extend_from_slice(&keys.to_le_bytes());
        });
    }

    /// Reads a block back: the log is cut behind the checkpoint, so it must be readable.
    fn check_block(&mut self) -> io::Result<()> {
        let unreadable = |what: String| {
            let at = self.check_from;
            io::Error::other(format!("the checkpoint cannot be read again at byte {at}: {what}"))
        };
        let mut head = [0; HEAD_BYTES];
        self.file.read_bytes(&mut head, self.check_from)?;
        let head = Head::read(&head).ok_or_else(|| unreadable("a block has no head".to_owned()))?;
        let mut payload = vec![0; head.len];
        self.journal.hold_block(payload.len());
        let from = self.check_from + HEAD_BYTES as u64;
        let read = self.file.read_bytes(&mut payload, from)?;
        if read < head.len || !head.fits(&payload) {
            return Err(unreadable("a block does not fit its checksum".to_owned()));
        }
        if let Some((&PARTS, mut parts)) = payload.split_first() {
            while !parts.is_empty() {
                let part =
                    take_part(&mut parts, VERSION).ok_or_else(|| unreadable("it is no part".to_owned()))?;
                let content = Store::check_part(part.keys).map_err(|Unreadable { key, why }| {
                    unreadable(format!("key {} is {why}", key.escape_ascii()))
                })?;
                self.checked.merge(content);
            }
        }
        self.check_from = from + head.len as u64;
        Ok(())
    }

    /// Compares the parts that were read back with those that were written.
    fn check_content(&self) -> io::Result<()> {
        if self.checked == self.written {
            return Ok(());
        }
        let (wrote, read) = (self.written, self.checked);
        Err(io::Error::other(format!(
            "the checkpoint has {} keys with {} hits, and {} with {} were written",
            read.keys, read.hits, wrote.keys, wrote.hits
        )))
    }

    /// Removes the unfinished checkpoint, and reserves its room again.
    pub fn abandon(self) {
        self.journal.restore_reserve(&names::unfinished(self.segment));
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
