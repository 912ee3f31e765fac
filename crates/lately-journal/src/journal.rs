//! The journal: many threads write to it, and two threads of its own maintain it.
//!
//! The changes of a batch are written before its replies leave. If they cannot be written, the batch is
//! refused and must be rolled back. From then on every batch is refused until the disk has recovered.

mod keeper;
mod lock;
mod reserve;
mod verdict;
mod wakeup;

use std::fmt;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use lately::{DeltaBatch, Store, Timestamp};

use crate::disk::{Disk, DiskFile};
use crate::error::Refused;
use crate::limits::{Bounds, SEGMENTS, UNSYNCED_MS};
use crate::log::Log;
use crate::loss::LossKind;
use crate::names::{self, remove_before};
use crate::recover::Recovery;
use lock::lock;
pub use verdict::{Hold, Receipt, Verdict};
use wakeup::Wakeup;

/// What an acknowledged hit survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// A crash of the process at once; a loss of power once it is a second old.
    Interval,
    /// A loss of power, too: replies wait for the disk.
    Always,
}

/// The word for it in the config file.
impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Interval => "interval",
            Durability::Always => "always",
        })
    }
}

/// The journal of a store.
pub struct Journal<D: Disk> {
    disk: D,
    store: Arc<Store>,
    durability: Durability,
    bounds: Bounds,
    log: Mutex<Log<D::File>>,
    /// Held during a sync, and while the log switches to another segment.
    syncing: Mutex<()>,
    /// Held during a checkpoint.
    checkpointing: Mutex<()>,
    /// The number of the last record that was written, and of the last that was synced.
    written: AtomicU64,
    kept: AtomicU64,
    /// The present fault, as a [`Fault`].
    fault: AtomicU8,
    why: Mutex<String>,
    failures: AtomicU64,
    /// Records that were written and then refused: the first and the last of each range.
    lost: Mutex<Vec<(u64, u64)>>,
    /// The time of the oldest record that was not synced, or 0; and the time of the newest record.
    unsynced_ms: AtomicI64,
    newest_ms: AtomicI64,
    /// Read-locked from before a batch is applied until it is written or rolled back.
    gate: RwLock<()>,
    /// The number of batches that wait for a verdict.
    holds: Arc<AtomicU64>,
    log_bytes: AtomicU64,
    checkpoint_bytes: AtomicU64,
    checkpoints: AtomicU64,
    /// The disk space that is reserved.
    reserved_bytes: AtomicU64,
    /// Negative before the first checkpoint.
    checkpoint_ms: AtomicI64,
    syncs: AtomicU64,
    wanted: AtomicBool,
    /// The error of the last checkpoint, if it failed.
    checkpoint_error: Mutex<Option<String>>,
    /// The memory of the checkpoint that is being written.
    block_bytes: AtomicUsize,
    /// The number of attempts to recover from a fault.
    tries: AtomicU64,
    closing: AtomicBool,
    /// The thread that syncs waits here.
    sync_wakeup: Wakeup,
    /// The thread that makes checkpoints waits here.
    checkpoint_wakeup: Wakeup,
    wakers: Mutex<Vec<Waker>>,
}

/// A callback for when a verdict may be available.
type Waker = Box<dyn Fn() + Send + Sync>;

/// A fault of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Fault {
    None,
    /// A record could not be written.
    Write,
    /// A sync failed. It is unknown which of the written records are on the disk.
    Sync,
}

/// The statistics of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalStats {
    /// The configured durability.
    pub durability: Durability,
    /// Bytes of the log behind the newest checkpoint.
    pub log_bytes: u64,
    /// Bytes of the newest checkpoint.
    pub checkpoint_bytes: u64,
    /// Checkpoints made since the start.
    pub checkpoints: u64,
    /// The time of the last checkpoint since the start.
    pub checkpoint_at: Option<Timestamp>,
    /// Records written, over all starts.
    pub records: u64,
    /// The number of syncs.
    pub syncs: u64,
    /// Whether a checkpoint is being made.
    pub is_checkpointing: bool,
    /// The error of the last checkpoint, if it failed.
    pub checkpoint_error: Option<String>,
    /// The error, while nothing can be written.
    pub fault: Option<String>,
    /// The number of failed writes and syncs. The last error is in `failed`.
    pub failures: u64,
    /// See `failures`.
    pub failed: String,
}

impl<D: Disk> Journal<D> {
    /// Continues after a recovery, in a new segment of the log. After a repair it first writes a checkpoint
    /// that replaces the damaged files. So new hits do not depend on these files, and the next start is a
    /// normal one. Writing the checkpoint takes as long as writing all keys.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn begin(
        disk: D,
        store: Arc<Store>,
        durability: Durability,
        from: &Recovery,
    ) -> io::Result<Journal<D>> {
        Journal::begin_within(Bounds::default(), disk, store, durability, from)
    }

    /// Like [`Journal::begin`], with other bounds.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn begin_within(
        bounds: Bounds,
        disk: D,
        store: Arc<Store>,
        durability: Durability,
        from: &Recovery,
    ) -> io::Result<Journal<D>> {
        // On a full disk, this makes room for the new segment.
        let _ = disk.remove(names::RESERVE);
        let file = Log::prepare(&disk, from.segment + 1)?;
        let mut log = Log::begin(file, from.segment + 1, (from.end, from.end), from.number)?;
        log.settle(store.level_numbers())?;
        log.unsynced().try_for_each(|file| file.sync())?;
        log.set_synced(log.segment(), log.end());
        let number = log.number();
        let log_bytes = AtomicU64::new(from.log_bytes + log.end());
        let journal = Journal {
            disk,
            store,
            durability,
            bounds,
            log: Mutex::new(log),
            syncing: Mutex::default(),
            checkpointing: Mutex::default(),
            written: AtomicU64::new(number),
            kept: AtomicU64::new(number),
            fault: AtomicU8::new(Fault::None as u8),
            why: Mutex::default(),
            failures: AtomicU64::new(0),
            lost: Mutex::default(),
            unsynced_ms: AtomicI64::new(0),
            newest_ms: AtomicI64::new(0),
            gate: RwLock::default(),
            holds: Arc::default(),
            log_bytes,
            checkpoint_bytes: AtomicU64::new(from.checkpoint_bytes),
            checkpoints: AtomicU64::new(0),
            reserved_bytes: AtomicU64::new(0),
            checkpoint_ms: AtomicI64::new(-1),
            syncs: AtomicU64::new(0),
            // Lost or cut data, or many segments, are still on the disk: a checkpoint replaces them.
            wanted: AtomicBool::new(!from.losses.is_empty() || from.segments > SEGMENTS),
            checkpoint_error: Mutex::default(),
            block_bytes: AtomicUsize::new(0),
            tries: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            sync_wakeup: Wakeup::default(),
            checkpoint_wakeup: Wakeup::default(),
            wakers: Mutex::default(),
        };
        if !journal.keep_reserve() {
            journal.wanted.fetch_or(journal.is_worth_cutting(), Relaxed);
            // The remaining room is for a checkpoint, or for the next start.
            let mut log = journal.log();
            if let Err(error) = log.try_room() {
                journal.fail(&mut log, Fault::Write, &error);
            }
        }
        if from.losses.iter().any(|loss| loss.kind != LossKind::Torn) {
            journal.end_repair()?;
        }
        Ok(journal)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(crate) fn disk(&self) -> &D {
        &self.disk
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    fn log(&self) -> MutexGuard<'_, Log<D::File>> {
        lock(&self.log)
    }

    fn fault(&self) -> Fault {
        match self.fault.load(Relaxed) {
            0 => Fault::None,
            1 => Fault::Write,
            _ => Fault::Sync,
        }
    }

    /// Must be held from before a batch is applied until it is written, or, after a failed write, rolled
    /// back.
    pub fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something while no batch is applied and not yet written: every batch before is written or rolled back, and the next
    /// ones wait.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// Whether the journal can be written. If not, no batch may be applied either.
    ///
    /// # Errors
    /// [`Refused`] has the reason.
    #[inline]
    pub fn check(&self) -> Result<(), Refused> {
        if self.fault.load(Relaxed) == Fault::None as u8 {
            return Ok(());
        }
        Err(Refused { why: lock(&self.why).clone() })
    }

    /// Writes the changes of batches. Each batch is one record: all of it survives, or none.
    ///
    /// # Errors
    /// [`Refused`]: nothing was written, and the batches must be rolled back, the last first.
    pub fn write<'b>(
        &self,
        batches: impl Iterator<Item = &'b DeltaBatch> + Clone,
    ) -> Result<Receipt, Refused> {
        let mut log = self.log();
        // Under the lock: a thread that sees no fault here follows only records that were written.
        self.check()?;
        let bytes = match log.write(batches.clone()) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.fail(&mut log, Fault::Write, &error);
                drop(log);
                return Err(Refused { why: error.to_string() });
            }
        };
        let number = log.number();
        let batch_ms = batches.map(|batch| batch.now().as_millis()).max().unwrap_or(0);
        // Another thread may have written later changes first. Use the latest time.
        let now_ms = self.newest_ms.fetch_max(batch_ms, Relaxed).max(batch_ms);
        // Under the lock of the log, like all changes of these fields.
        self.written.store(number, Relaxed);
        let _ = self.unsynced_ms.compare_exchange(0, now_ms.max(1), Relaxed, Relaxed);
        let waits = match self.durability {
            Durability::Always => true,
            Durability::Interval => now_ms - self.unsynced_ms.load(Relaxed) > UNSYNCED_MS,
        };
        if !waits {
            log.set_acknowledged();
        }
        let unsynced = log.unsynced_bytes();
        drop(log);
        if self.must_sync(unsynced) && !self.must_sync(unsynced - bytes) {
            self.sync_wakeup.wake();
        }
        let log_bytes = self.log_bytes.fetch_add(bytes, Relaxed) + bytes;
        if self.must_check(log_bytes, bytes) {
            self.checkpoint_wakeup.wake();
        }
        if !waits || self.kept.load(Acquire) >= number {
            return Ok(Receipt::Kept);
        }
        self.holds.fetch_add(1, Relaxed);
        self.sync_wakeup.wake();
        Ok(Receipt::Wait(Hold { number, holds: Arc::clone(&self.holds) }))
    }

    /// Writes the changes of a batch and waits for the verdict. For changes that cannot be rolled back.
    ///
    /// # Errors
    /// [`Refused`]: the change must not be made.
    pub fn write_through(&self, batch: &DeltaBatch) -> Result<(), Refused> {
        match self.write([batch].into_iter())? {
            Receipt::Kept => Ok(()),
            Receipt::Wait(hold) => {
                self.sync();
                match self.verdict(&hold) {
                    Verdict::Kept => Ok(()),
                    _ => Err(Refused { why: lock(&self.why).clone() }),
                }
            }
        }
    }

    /// The state of a batch that waits.
    pub fn verdict(&self, hold: &Hold) -> Verdict {
        if lock(&self.lost).iter().any(|&(first, last)| (first..=last).contains(&hold.number)) {
            return Verdict::Lost;
        }
        // Pairs with the store in `sync`.
        if self.kept.load(Acquire) >= hold.number { Verdict::Kept } else { Verdict::Pending }
    }

    /// Registers a callback that is called whenever a verdict may be available.
    pub fn on_verdict(&self, waker: impl Fn() + Send + Sync + 'static) {
        lock(&self.wakers).push(Box::new(waker));
    }

    fn wake(&self) {
        if self.holds.load(Relaxed) > 0 {
            lock(&self.wakers).iter().for_each(|waker| waker());
        }
    }

    /// The statistics of the journal.
    pub fn stats(&self) -> JournalStats {
        JournalStats {
            durability: self.durability,
            log_bytes: self.log_bytes.load(Relaxed),
            checkpoint_bytes: self.checkpoint_bytes.load(Relaxed),
            checkpoints: self.checkpoints.load(Relaxed),
            checkpoint_at: Timestamp::from_millis(self.checkpoint_ms.load(Relaxed)),
            records: self.written.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            is_checkpointing: self.checkpointing.try_lock().is_err(),
            checkpoint_error: lock(&self.checkpoint_error).clone(),
            fault: self.check().err().map(|refused| refused.why),
            failures: self.failures(),
            failed: lock(&self.why).clone(),
        }
    }

    /// The memory that the journal holds, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.log().held_bytes() + self.block_bytes.load(Relaxed)
    }

    /// Sets the memory of the checkpoint that is being written.
    pub(crate) fn hold_block(&self, bytes: usize) {
        self.block_bytes.store(bytes, Relaxed);
    }

    /// Syncs everything that was written before. False if that fails, or a sync had failed before.
    pub fn sync(&self) -> bool {
        let synced = {
            let _one = lock(&self.syncing);
            self.sync_alone()
        };
        self.wake();
        // If an earlier segment could not be synced, a successful sync of a later one proves nothing.
        synced && self.fault() != Fault::Sync
    }

    /// Like `sync`, for a caller that holds its lock.
    fn sync_alone(&self) -> bool {
        let (mut files, number, segment, end, released, newest_ms) = {
            let mut log = self.log();
            if log.is_lost() {
                return false;
            }
            if self.kept.load(Relaxed) >= log.number() {
                self.say_synced(&mut log);
                return true;
            }
            let released = log.take_unreleased(self.bounds.sync_bytes);
            let newest_ms = self.newest_ms.load(Relaxed);
            (log.unsynced(), log.number(), log.segment(), log.end(), released, newest_ms)
        };
        self.syncs.fetch_add(1, Relaxed);
        let synced = files.try_for_each(|file| file.sync());
        if let Some((file, bytes)) = released.filter(|_| synced.is_ok()) {
            file.release(bytes);
        }
        let mut log = self.log();
        if let Err(error) = synced {
            self.fail(&mut log, Fault::Sync, &error);
            return false;
        }
        log.set_synced(segment, end);
        self.unsynced_ms.store(if log.number() == number { 0 } else { newest_ms.max(1) }, Relaxed);
        // Pairs with the load in `verdict`: a caller that gets the verdict finds the record on the disk.
        self.kept.fetch_max(number, Release);
        true
    }

    /// Writes that everything is on the disk, if no record after the last sync says so: damage there would be taken for a torn
    /// end. The record itself need not be on the disk. If it cannot be written, the next batch fails, too.
    fn say_synced(&self, log: &mut Log<D::File>) {
        if self.fault() == Fault::None
            && let Ok(bytes) = log.say_synced()
        {
            self.log_bytes.fetch_add(bytes, Relaxed);
            self.written.store(log.number(), Relaxed);
            self.kept.fetch_max(log.number(), Release);
        }
    }

    /// Records a fault of the disk. Every batch is refused until recovery.
    fn fail(&self, log: &mut Log<D::File>, fault: Fault, error: &io::Error) {
        *lock(&self.why) = error.to_string();
        self.failures.fetch_add(1, Relaxed);
        self.fault.fetch_max(fault as u8, Relaxed);
        if fault == Fault::Sync {
            log.set_lost();
            // The records that are cut off were not acknowledged, so they must not come back. A waiting
            // record before an acknowledged one stays, and is acknowledged, too.
            let acknowledged = log.cut();
            let kept = self.kept.fetch_max(acknowledged, Release).max(acknowledged);
            lock(&self.lost).push((kept + 1, log.number()));
        }
        self.sync_wakeup.wake();
    }

    /// Switches to a new segment of the log, unless the current one is empty. Returns its number. No caller
    /// waits for the disk: the old segment is synced together with the new one.
    pub(crate) fn rotate(&self) -> io::Result<u64> {
        let _one = lock(&self.syncing);
        // The segment before the current one must be synced first.
        let is_lost = self.log().is_lost();
        if !is_lost && !self.sync_alone() {
            return Err(io::Error::other("the log cannot be synced"));
        }
        // A checkpoint never belongs to the first segment. Otherwise a folder without that checkpoint would
        // look complete.
        if self.log().is_empty() && self.log().segment() > 1 {
            return Ok(self.log().segment());
        }
        let segment = self.log().next().0;
        let file = Log::prepare(&self.disk, segment)?;
        let mut log = self.log();
        let before = log.number();
        log.rotate_to(file).inspect_err(|_| drop(self.disk.remove(&names::log(segment))))?;
        self.written.store(log.number(), Relaxed);
        if is_lost {
            // The old records are reported as lost, and no batch waits for the start of a segment.
            self.unsynced_ms.store(0, Relaxed);
            self.kept.fetch_max(before, Release);
        }
        Ok(segment)
    }

    /// Waits until every applied batch is in the log and synced. False if there was a failure since the
    /// counter had the value `failures`.
    pub(crate) fn settle(&self, failures: u64) -> bool {
        // Wait for batches that are applied but not written yet.
        self.alone(|| ());
        let _one = lock(&self.syncing);
        self.sync_alone() && self.failures() == failures
    }

    /// Records a new checkpoint, and removes the files that it replaces.
    pub(crate) fn cut(&self, segment: u64, checkpoint_bytes: u64) {
        self.checkpoint_bytes.store(checkpoint_bytes, Relaxed);
        self.checkpoints.fetch_add(1, Relaxed);
        self.checkpoint_ms.store(self.store.now().as_millis(), Relaxed);
        // A file that cannot be removed is removed at the next start.
        let _ = remove_before(&self.disk, segment);
        // The log is short when its room is free.
        self.log_bytes.store(self.log().end(), Relaxed);
        self.keep_reserve();
    }
}
