//! What the two threads of a journal do: sync what was written and mend what fails; and make checkpoints, so
//! that the log stays short.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{Journal, Trouble, lock};
use crate::checkpoint::Checkpoint;
use crate::disk::Disk;
use crate::limits::{
    BLOCK_PAUSE, CHECKPOINT_RETRY_MOST, LOG_TO_CHECKPOINT, LOOK_BYTES, QUICK_TRIES, RETRY_EVERY, SYNC_EVERY,
    TRIES,
};

impl<D: Disk> Journal<D> {
    /// Asks for a checkpoint soon, by the thread that makes them.
    pub fn want_checkpoint(&self) {
        self.wanted.store(true, Relaxed);
        self.checkpoint_wakeup.wake();
    }

    /// Begins a checkpoint.
    ///
    /// # Errors
    /// As the system says.
    pub fn checkpoint(&self) -> io::Result<Checkpoint<'_, D>> {
        Checkpoint::begin(self)
    }

    /// Makes a checkpoint, with a pause after each block.
    ///
    /// # Errors
    /// As the system says. All is in the log then.
    pub fn make_checkpoint(&self, mut pause: impl FnMut()) -> io::Result<()> {
        let _one = lock(&self.checkpointing);
        let mut checkpoint = self.checkpoint()?;
        let mut made = checkpoint.step();
        while matches!(made, Ok(false)) {
            pause();
            made = if self.closing.load(Acquire) {
                Err(io::ErrorKind::Interrupted.into())
            } else {
                checkpoint.step()
            };
        }
        if made.is_err() {
            checkpoint.abandon();
        }
        made.map(|_| ())
    }

    pub(super) fn is_long(&self, log_bytes: u64) -> bool {
        log_bytes >= self.bounds.log_bytes.max(LOG_TO_CHECKPOINT * self.checkpoint_bytes.load(Relaxed))
    }

    /// Whether the thread that makes checkpoints is to look, the log having grown by `more` to so many bytes. When one
    /// is wanted already it knows: it was woken for that, or it could not be made and waits to try again.
    pub(super) fn is_to_look(&self, log_bytes: u64, more: u64) -> bool {
        let before = log_bytes - more;
        let is_long_now = self.is_long(log_bytes) && !self.is_long(before);
        (is_long_now || log_bytes / LOOK_BYTES > before / LOOK_BYTES) && !self.wanted.load(Relaxed)
    }

    /// Whether so many bytes are to be synced before it is time for that.
    pub(super) fn is_much(&self, unsynced_bytes: u64) -> bool {
        unsynced_bytes >= self.bounds.sync_bytes
    }

    /// Whether the disk would have more room without the log than a checkpoint takes, as far as is known.
    pub(super) fn is_worth_cutting(&self) -> bool {
        self.log_bytes.load(Relaxed) > self.checkpoint_bytes.load(Relaxed)
    }

    /// Tries to get over a failure; true when there is none any more.
    pub fn mend(&self) -> bool {
        // Batches that were refused are taken back, all of them, before what is there is kept for good.
        self.quiesce();
        let trouble = self.trouble();
        let mended = match trouble {
            Trouble::None => true,
            Trouble::Write => {
                let has_room = self.sync() && self.log().try_room().is_ok();
                // A checkpoint also where hits would not be replayed as they were counted.
                let is_enough = has_room && !self.store.is_mixed();
                // Room is made by one if the log is what fills the disk.
                is_enough || (has_room || self.is_worth_cutting()) && self.checkpoint_if_due()
            }
            // What the disk has of the log is not known: a checkpoint takes its place.
            Trouble::Sync => self.holds.load(Acquire) == 0 && self.checkpoint_if_due(),
        };
        let mended = mended && (trouble == Trouble::None || self.go_on().is_ok());
        if !mended {
            self.wake();
        }
        mended
    }

    /// Takes batches again. What was refused leaves gaps between the changes that were written: it is told that
    /// nothing fills them.
    fn go_on(&self) -> io::Result<()> {
        let _nobody_changes_anything = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut log = self.log();
        let bytes = log.settle(self.store.level_numbers())?;
        self.written.store(log.number(), Relaxed);
        self.log_bytes.fetch_add(bytes, Relaxed);
        self.tries.store(0, Relaxed);
        self.store.end_rollback();
        self.trouble.store(Trouble::None as u8, Relaxed);
        Ok(())
    }

    /// Makes a checkpoint, which writes all there is and so is tried seldom, but for so many times at first.
    fn checkpoint_if_due(&self) -> bool {
        let tries = self.tries.fetch_add(1, Relaxed);
        let is_due = tries < QUICK_TRIES || tries.is_multiple_of(TRIES);
        is_due && self.make_checkpoint(|| ()).is_ok()
    }

    /// Syncs, and mends what fails, until the journal is closed. For a thread of its own.
    pub fn keep_synced(&self) {
        while !self.closing.load(Acquire) {
            let trouble = self.trouble() != Trouble::None;
            // What came while something was synced may be as much again.
            if trouble || !self.is_much(self.log().unsynced_bytes()) {
                self.sync_wakeup.wait(if trouble { RETRY_EVERY } else { SYNC_EVERY });
            }
            if self.trouble() == Trouble::None {
                self.sync();
            } else {
                self.mend();
            }
        }
    }

    /// Whether a checkpoint is due: the log is long, or one was asked for; and the disk is well.
    pub fn needs_checkpoint(&self) -> bool {
        let wanted = self.is_long(self.log_bytes.load(Relaxed)) || self.wanted.load(Relaxed);
        wanted && self.trouble() == Trouble::None
    }

    /// Makes checkpoints when one is due, until the journal is closed. For a thread of its own.
    pub fn keep_short(&self) {
        let mut pause = SYNC_EVERY;
        while !self.closing.load(Acquire) {
            self.tend_reserve();
            self.tend_room();
            if self.needs_checkpoint() {
                // If it fails the log holds all, and it is tried again: less and less often, because all
                // there is was written for nothing, and each time the log has a segment more.
                // One that is asked for from here on is another.
                self.wanted.store(false, Relaxed);
                let made = self.make_checkpoint(|| self.checkpoint_wakeup.wait(BLOCK_PAUSE));
                self.wanted.fetch_or(made.is_err(), Relaxed);
                *lock(&self.checkpoint_trouble) = made.as_ref().err().map(ToString::to_string);
                pause = if made.is_ok() { SYNC_EVERY } else { (2 * pause).min(CHECKPOINT_RETRY_MOST) };
            }
            self.checkpoint_wakeup.wait(pause);
        }
    }

    /// Ends the threads and the log: all that was written is synced, and says so.
    ///
    /// # Errors
    /// As the system says: then what was acknowledged in the last second may be lost with the power.
    pub fn close(&self) -> io::Result<()> {
        // Pairs with the loads in the loops.
        self.closing.store(true, Release);
        self.sync_wakeup.wake();
        self.checkpoint_wakeup.wake();
        let _no_checkpoint = lock(&self.checkpointing);
        let sync = || if self.sync() { Ok(()) } else { Err(io::Error::other(lock(&self.why).clone())) };
        // Before the last record, too: it says that all before it is on the disk, and so none of that can be
        // taken for torn.
        sync()?;
        let mut log = self.log();
        log.close()?;
        self.written.store(log.number(), Relaxed);
        drop(log);
        sync()
    }

    /// Has a checkpoint take the place of damaged files.
    pub(super) fn end_repair(&self) -> io::Result<()> {
        self.make_checkpoint(|| ()).map_err(|error| {
            let what = format!("the repair is not ended, start with --repair again: {error}");
            io::Error::new(error.kind(), what)
        })?;
        self.wanted.store(false, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lately::Store;

    use super::*;
    use crate::folder::Folder;
    use crate::journal::Durability;
    use crate::recover::Recovery;

    /// Symptom: a checkpoint that did not fit was tried again with each MiB of the log. Cause: the thread that waits
    /// before the next try was woken. Fix: not while one is wanted.
    #[test]
    fn a_log_that_grows_is_looked_at_unless_a_checkpoint_is_wanted() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(root.path()).expect("made");
        let store = Arc::new(Store::builder().build().expect("valid"));
        let journal = Journal::begin(folder, store, Durability::Interval, &Recovery::default());
        let journal = journal.expect("begun");
        let long = journal.bounds.log_bytes;
        let steps = [(LOOK_BYTES - 1, 1), (LOOK_BYTES, 1), (LOOK_BYTES + 1, 1), (long + 1, 2)];
        assert_eq!(steps.map(|(bytes, more)| journal.is_to_look(bytes, more)), [false, true, false, true]);
        journal.want_checkpoint();
        assert_eq!(steps.map(|(bytes, more)| journal.is_to_look(bytes, more)), [false; 4]);
    }
}
