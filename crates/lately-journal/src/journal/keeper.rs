//! The two threads of a journal. One syncs and recovers from faults. The other makes checkpoints, so that the
//! log stays short.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use super::lock::lock;
use super::{Fault, Journal};
use crate::checkpoint::Checkpoint;
use crate::disk::Disk;
use crate::limits::{
    BLOCK_PAUSE, CHECK_BYTES, CHECKPOINT_RETRY_MOST, FIRST_TRIES, LOG_TO_CHECKPOINT, RETRY_EVERY, SYNC_EVERY,
    TRIES,
};

impl<D: Disk> Journal<D> {
    /// Asks the checkpoint thread for a checkpoint soon.
    pub fn want_checkpoint(&self) {
        self.wanted.store(true, Relaxed);
        self.checkpoint_wakeup.wake();
    }

    /// Starts a checkpoint.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn checkpoint(&self) -> io::Result<Checkpoint<'_, D>> {
        Checkpoint::begin(self)
    }

    /// Makes a checkpoint. Calls `pause` after each block.
    ///
    /// # Errors
    /// Errors of the system. The log is still complete then.
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

    /// Whether to wake the checkpoint thread, after the log has grown by `more` to `log_bytes`. If a
    /// checkpoint is wanted already, the thread knows: it was woken for that, or it waits for its next
    /// attempt.
    pub(super) fn must_check(&self, log_bytes: u64, more: u64) -> bool {
        let before = log_bytes - more;
        let is_long_now = self.is_long(log_bytes) && !self.is_long(before);
        (is_long_now || log_bytes / CHECK_BYTES > before / CHECK_BYTES) && !self.wanted.load(Relaxed)
    }

    /// Whether this many bytes must be synced before the next regular sync.
    pub(super) fn must_sync(&self, unsynced_bytes: u64) -> bool {
        unsynced_bytes >= self.bounds.sync_bytes
    }

    /// Whether a checkpoint would free more room by cutting the log than it takes, as far as is known.
    pub(super) fn is_worth_cutting(&self) -> bool {
        self.log_bytes.load(Relaxed) > self.checkpoint_bytes.load(Relaxed)
    }

    /// Tries to recover from a fault. Returns true if there is none any more.
    pub fn try_recover(&self) -> bool {
        // All refused batches must be rolled back before the present state is made durable.
        self.alone(|| ());
        let fault = self.fault();
        let recovered = match fault {
            Fault::None => true,
            Fault::Write => {
                let has_room = self.sync() && self.log().try_room().is_ok();
                // If hits would not be replayed as they were counted, a checkpoint is needed, too.
                let is_enough = has_room && !self.store.is_mixed();
                // If the log is what fills the disk, a checkpoint makes room.
                is_enough || (has_room || self.is_worth_cutting()) && self.checkpoint_if_due()
            }
            // It is unknown what of the log is on the disk, so a checkpoint must replace it.
            Fault::Sync => self.holds.load(Acquire) == 0 && self.checkpoint_if_due(),
        };
        let recovered = recovered && (fault == Fault::None || self.accept_again().is_ok());
        if !recovered {
            self.wake();
        }
        recovered
    }

    /// Accepts batches again. Refused changes left gaps in the numbers. The log records that these gaps stay.
    fn accept_again(&self) -> io::Result<()> {
        let _exclusive = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut log = self.log();
        let bytes = log.settle(self.store.level_numbers())?;
        self.written.store(log.number(), Relaxed);
        self.log_bytes.fetch_add(bytes, Relaxed);
        self.tries.store(0, Relaxed);
        self.store.end_rollback();
        self.fault.store(Fault::None as u8, Relaxed);
        Ok(())
    }

    /// Makes a checkpoint. Since it writes all keys, only a few of the attempts do: the first ones, and then
    /// one in [`TRIES`].
    fn checkpoint_if_due(&self) -> bool {
        let tries = self.tries.fetch_add(1, Relaxed);
        let is_due = tries < FIRST_TRIES || tries.is_multiple_of(TRIES);
        is_due && self.make_checkpoint(|| ()).is_ok()
    }

    /// Syncs, and recovers from faults, until the journal is closed. Runs in a thread of its own.
    pub fn keep_synced(&self) {
        while !self.closing.load(Acquire) {
            let fault = self.fault() != Fault::None;
            // During a sync, enough for another one may have been written.
            if fault || !self.must_sync(self.log().unsynced_bytes()) {
                self.sync_wakeup.wait(if fault { RETRY_EVERY } else { SYNC_EVERY });
            }
            if self.fault() == Fault::None {
                self.sync();
            } else {
                self.try_recover();
            }
        }
    }

    /// Whether a checkpoint is due (the log is long, or one was requested) and there is no fault.
    pub fn needs_checkpoint(&self) -> bool {
        let wanted = self.is_long(self.log_bytes.load(Relaxed)) || self.wanted.load(Relaxed);
        wanted && self.fault() == Fault::None
    }

    /// Makes checkpoints when they are due, until the journal is closed. Runs in a thread of its own.
    pub fn keep_short(&self) {
        self.keep_short_with(|most| self.checkpoint_wakeup.wait(most));
    }

    /// Like [`Journal::keep_short`], with the function that sleeps until a wakeup.
    fn keep_short_with(&self, wait: impl Fn(Duration)) {
        let mut pause = SYNC_EVERY;
        while !self.closing.load(Acquire) {
            self.grow_reserve();
            self.check_log_room();
            if self.needs_checkpoint() {
                // If it fails, the log is still complete, and the next attempt comes after a longer pause:
                // each attempt writes all keys in vain and adds a segment to the log. Clear the request
                // first, so that a new one is not lost.
                self.wanted.store(false, Relaxed);
                let made = self.make_checkpoint(|| wait(BLOCK_PAUSE));
                self.wanted.fetch_or(made.is_err(), Relaxed);
                *lock(&self.checkpoint_error) = made.as_ref().err().map(ToString::to_string);
                pause = if made.is_ok() { SYNC_EVERY } else { (2 * pause).min(CHECKPOINT_RETRY_MOST) };
            }
            // A pause of the checkpoint may have taken the wakeup of `close`.
            if !self.closing.load(Acquire) {
                wait(pause);
            }
        }
    }

    /// Ends the threads and the log. Everything is synced, and the log says so.
    ///
    /// # Errors
    /// Errors of the system. A loss of power may then lose hits that were acknowledged in the last second.
    pub fn close(&self) -> io::Result<()> {
        // Pairs with the loads in the loops.
        self.closing.store(true, Release);
        self.sync_wakeup.wake();
        self.checkpoint_wakeup.wake();
        let _no_checkpoint = lock(&self.checkpointing);
        let sync = || if self.sync() { Ok(()) } else { Err(io::Error::other(lock(&self.why).clone())) };
        // Sync also before the last record. It records that everything before it is on the disk, so damage
        // there is not taken for a torn end.
        sync()?;
        let mut log = self.log();
        log.close()?;
        self.written.store(log.number(), Relaxed);
        drop(log);
        sync()
    }

    /// Replaces damaged files by a checkpoint.
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
    use std::cell::RefCell;
    use std::sync::Arc;

    use lately::Store;

    use super::*;
    use crate::folder::Folder;
    use crate::journal::Durability;
    use crate::recover::Recovery;

    fn journal(root: &tempfile::TempDir) -> Journal<Folder> {
        let folder = Folder::open(root.path()).expect("made");
        let store = Arc::new(Store::builder().build().expect("valid"));
        Journal::begin(folder, store, Durability::Interval, &Recovery::default()).expect("begun")
    }

    /// Symptom: a stop during a checkpoint took a second. Cause: the pause of the checkpoint took the wakeup
    /// of the stop, and the thread then waited before its next attempt. Fix: it checks for the stop first.
    #[test]
    fn a_stop_during_a_checkpoint_is_not_followed_by_a_wait() {
        let root = tempfile::tempdir().expect("a folder");
        let journal = journal(&root);
        journal.want_checkpoint();
        let waits = RefCell::new(Vec::new());
        journal.keep_short_with(|most| {
            waits.borrow_mut().push(most);
            journal.closing.store(true, Release);
            journal.checkpoint_wakeup.wake();
            journal.checkpoint_wakeup.wait(most);
        });
        assert_eq!(waits.into_inner(), [BLOCK_PAUSE]);
    }

    /// Symptom: a checkpoint that did not fit was tried again with each MiB of the log. Cause: the thread
    /// that waited before the next attempt was woken. Fix: it is not woken while a checkpoint is wanted.
    #[test]
    fn a_growing_log_does_not_wake_the_retry_of_a_checkpoint() {
        let root = tempfile::tempdir().expect("a folder");
        let journal = journal(&root);
        let long = journal.bounds.log_bytes;
        let steps = [(CHECK_BYTES - 1, 1), (CHECK_BYTES, 1), (CHECK_BYTES + 1, 1), (long + 1, 2)];
        assert_eq!(steps.map(|(bytes, more)| journal.must_check(bytes, more)), [false, true, false, true]);
        journal.want_checkpoint();
        assert_eq!(steps.map(|(bytes, more)| journal.must_check(bytes, more)), [false; 4]);
    }
}
