//! A journal that is written to by many threads, and kept in order by two of its own.
//!
//! What a batch changed is written before its replies leave. When it cannot be, the batch is refused and
//! is to be taken back; from then on nothing is taken until the disk has recovered.

mod keeper;
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
pub use verdict::{Hold, Receipt, Verdict};
use wakeup::Wakeup;

/// When an acknowledged hit survives what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The end of the process at once; a loss of power if it is a second old.
    Interval,
    /// A loss of power, too: replies wait for the disk.
    Always,
}

/// The word that a config has for it.
impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Interval => "interval",
            Durability::Always => "always",
        })
    }
}

/// A journal of a store.
pub struct Journal<D: Disk> {
    disk: D,
    store: Arc<Store>,
    durability: Durability,
    bounds: Bounds,
    log: Mutex<Log<D::File>>,
    /// Held while something is synced, and while the log goes over to another segment.
    syncing: Mutex<()>,
    /// Held while a checkpoint is written.
    checkpointing: Mutex<()>,
    /// The last record that was written, and the last that was synced.
    written: AtomicU64,
    kept: AtomicU64,
    /// What cannot be done, as a [`Trouble`].
    trouble: AtomicU8,
    why: Mutex<String>,
    failures: AtomicU64,
    /// Records that were written and then refused: first and last.
    lost: Mutex<Vec<(u64, u64)>>,
    /// The time of the oldest record that is not synced, 0 when there is none, and of the newest.
    unsynced_ms: AtomicI64,
    newest_ms: AtomicI64,
    /// Held, shared, from before a batch is applied until it is written or taken back.
    gate: RwLock<()>,
    /// Batches that wait for a verdict.
    holds: Arc<AtomicU64>,
    log_bytes: AtomicU64,
    checkpoint_bytes: AtomicU64,
    checkpoints: AtomicU64,
    /// Room on the disk that is kept.
    reserved_bytes: AtomicU64,
    /// Below 0 before there is one.
    checkpoint_ms: AtomicI64,
    syncs: AtomicU64,
    wanted: AtomicBool,
    /// Why the last checkpoint that was asked for, or due, came to nothing.
    checkpoint_trouble: Mutex<Option<String>>,
    /// Memory of the checkpoint that is being written.
    block_bytes: AtomicUsize,
    /// How often it was tried to mend a failure.
    tries: AtomicU64,
    closing: AtomicBool,
    /// The thread that syncs waits here.
    sync_wakeup: Wakeup,
    /// The thread that makes checkpoints waits here.
    checkpoint_wakeup: Wakeup,
    wakers: Mutex<Vec<Waker>>,
}

/// Who is told when there is a verdict.
type Waker = Box<dyn Fn() + Send + Sync>;

/// What is wrong with the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Trouble {
    None,
    /// A record could not be written.
    Write,
    /// What was written could not be synced: what of it is on the disk is not known.
    Sync,
}

/// A journal in figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalStats {
    /// What the server was told.
    pub durability: Durability,
    /// Bytes of the log behind the newest checkpoint.
    pub log_bytes: u64,
    /// Bytes of the newest checkpoint.
    pub checkpoint_bytes: u64,
    /// Checkpoints made since the start.
    pub checkpoints: u64,
    /// When the last was made since the start, if one was.
    pub checkpoint_at: Option<Timestamp>,
    /// Records written, over all starts.
    pub records: u64,
    /// How often the disk was waited for.
    pub syncs: u64,
    /// Whether one is being made.
    pub is_checkpointing: bool,
    /// Why the last came to nothing, if so.
    pub checkpoint_trouble: Option<String>,
    /// Why nothing can be written, while that is so.
    pub trouble: Option<String>,
    /// How often something could not be written or synced, and why the last time.
    pub failures: u64,
    /// See `failures`.
    pub failed: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Disk> Journal<D> {
    /// Goes on where a recovery ended, in a new segment of the log. After a repair a checkpoint takes the place of the
    /// damaged files first: so what is acknowledged from here on does not depend on them, and the next start is a plain one. That
    /// takes as long as writing all keys.
    ///
    /// # Errors
    /// As the system says.
    pub fn begin(
        disk: D,
        store: Arc<Store>,
        durability: Durability,
        from: &Recovery,
    ) -> io::Result<Journal<D>> {
        Journal::begin_within(Bounds::default(), disk, store, durability, from)
    }

    /// With other bounds.
    ///
    /// # Errors
    /// As the system says.
    pub fn begin_within(
        bounds: Bounds,
        disk: D,
        store: Arc<Store>,
        durability: Durability,
        from: &Recovery,
    ) -> io::Result<Journal<D>> {
        // On a full disk it is what the new segment finds room in.
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
            trouble: AtomicU8::new(Trouble::None as u8),
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
            // What was lost or cut is on the disk still: a checkpoint makes an end of it, and of many segments.
            wanted: AtomicBool::new(!from.losses.is_empty() || from.segments > SEGMENTS),
            checkpoint_trouble: Mutex::default(),
            block_bytes: AtomicUsize::new(0),
            tries: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            sync_wakeup: Wakeup::default(),
            checkpoint_wakeup: Wakeup::default(),
            wakers: Mutex::default(),
        };
        if !journal.keep_reserve() {
            journal.wanted.fetch_or(journal.is_worth_cutting(), Relaxed);
            // What room there is, is for a checkpoint, or the next start.
            let mut log = journal.log();
            if let Err(error) = log.try_room() {
                journal.fail(&mut log, Trouble::Write, &error);
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

    fn trouble(&self) -> Trouble {
        match self.trouble.load(Relaxed) {
            0 => Trouble::None,
            1 => Trouble::Write,
            _ => Trouble::Sync,
        }
    }

    /// To be held from before a batch is applied until it is written, and if that fails until it is taken
    /// back.
    pub fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all that was applied by now is written, or taken back.
    pub fn quiesce(&self) {
        drop(self.gate.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Why nothing can be written, while that is so: then nothing is to be applied either.
    ///
    /// # Errors
    /// [`Refused`] says why.
    #[inline]
    pub fn check(&self) -> Result<(), Refused> {
        if self.trouble.load(Relaxed) == Trouble::None as u8 {
            return Ok(());
        }
        Err(Refused { why: lock(&self.why).clone() })
    }

    /// Writes what batches changed. Each is one record: all of it survives, or none.
    ///
    /// # Errors
    /// [`Refused`]: nothing was written, and the batches are to be taken back, the last first.
    pub fn write<'b>(
        &self,
        batches: impl Iterator<Item = &'b DeltaBatch> + Clone,
    ) -> Result<Receipt, Refused> {
        let mut log = self.log();
        // Under the lock: who finds trouble here has found what came of all records before.
        self.check()?;
        let bytes = match log.write(batches.clone()) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.fail(&mut log, Trouble::Write, &error);
                drop(log);
                return Err(Refused { why: error.to_string() });
            }
        };
        let number = log.number();
        let batch_ms = batches.map(|batch| batch.now().as_millis()).max().unwrap_or(0);
        // Another thread may have written what it did later: by then it is at least as late.
        let now_ms = self.newest_ms.fetch_max(batch_ms, Relaxed).max(batch_ms);
        // Under the lock of the log, as all changes of these.
        self.written.store(number, Relaxed);
        let _ = self.unsynced_ms.compare_exchange(0, now_ms.max(1), Relaxed, Relaxed);
        let waits = match self.durability {
            Durability::Always => true,
            Durability::Interval => now_ms - self.unsynced_ms.load(Relaxed) > UNSYNCED_MS,
        };
        if !waits {
            log.set_told();
        }
        let unsynced = log.unsynced_bytes();
        drop(log);
        if self.is_much(unsynced) && !self.is_much(unsynced - bytes) {
            self.sync_wakeup.wake();
        }
        let log_bytes = self.log_bytes.fetch_add(bytes, Relaxed) + bytes;
        if self.is_to_look(log_bytes, bytes) {
            self.checkpoint_wakeup.wake();
        }
        if !waits || self.kept.load(Acquire) >= number {
            return Ok(Receipt::Kept);
        }
        self.holds.fetch_add(1, Relaxed);
        self.sync_wakeup.wake();
        Ok(Receipt::Wait(Hold { number, holds: Arc::clone(&self.holds) }))
    }

    /// Writes what a batch changed and waits for the verdict: for what cannot be taken back.
    ///
    /// # Errors
    /// [`Refused`]: nothing is to be changed.
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

    /// What became of a batch that waits.
    pub fn verdict(&self, hold: &Hold) -> Verdict {
        if lock(&self.lost).iter().any(|&(first, last)| (first..=last).contains(&hold.number)) {
            return Verdict::Lost;
        }
        // Pairs with the store in `sync`.
        if self.kept.load(Acquire) >= hold.number { Verdict::Kept } else { Verdict::Pending }
    }

    /// Has `waker` called whenever there may be a verdict.
    pub fn on_verdict(&self, waker: impl Fn() + Send + Sync + 'static) {
        lock(&self.wakers).push(Box::new(waker));
    }

    fn wake(&self) {
        if self.holds.load(Relaxed) > 0 {
            lock(&self.wakers).iter().for_each(|waker| waker());
        }
    }

    /// A journal in figures.
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
            checkpoint_trouble: lock(&self.checkpoint_trouble).clone(),
            trouble: self.check().err().map(|refused| refused.why),
            failures: self.failures(),
            failed: lock(&self.why).clone(),
        }
    }

    /// Bytes of memory it holds.
    pub fn held_bytes(&self) -> usize {
        self.log().held_bytes() + self.block_bytes.load(Relaxed)
    }

    /// Takes note of the memory of a checkpoint that is being written.
    pub(crate) fn hold_block(&self, bytes: usize) {
        self.block_bytes.store(bytes, Relaxed);
    }

    /// Syncs what was written by now; false when that failed, or had failed.
    pub fn sync(&self) -> bool {
        let synced = {
            let _one = lock(&self.syncing);
            self.sync_alone()
        };
        self.wake();
        // After a failure a segment that can be synced says nothing of the one before.
        synced && self.trouble() != Trouble::Sync
    }

    /// As `sync`, for who holds its lock.
    fn sync_alone(&self) -> bool {
        let (mut files, number, segment, end, released, newest_ms) = {
            let mut log = self.log();
            if log.is_lost() {
                return false;
            }
            if self.kept.load(Relaxed) >= log.number() {
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
            self.fail(&mut log, Trouble::Sync, &error);
            return false;
        }
        log.set_synced(segment, end);
        self.unsynced_ms.store(if log.number() == number { 0 } else { newest_ms.max(1) }, Relaxed);
        // Pairs with the load in `verdict`: who is told so finds it on the disk.
        self.kept.fetch_max(number, Release);
        true
    }

    /// Takes note that the disk failed. Nothing is taken until it is mended.
    fn fail(&self, log: &mut Log<D::File>, trouble: Trouble, error: &io::Error) {
        *lock(&self.why) = error.to_string();
        self.failures.fetch_add(1, Relaxed);
        self.trouble.fetch_max(trouble as u8, Relaxed);
        if trouble == Trouble::Sync {
            log.set_lost();
            // Nobody was told of what is cut off: it is not to come back. What waits and lies before something
            // that was acknowledged stays, and is acknowledged, too.
            let told = log.cut();
            let kept = self.kept.fetch_max(told, Release).max(told);
            lock(&self.lost).push((kept + 1, log.number()));
        }
        self.sync_wakeup.wake();
    }

    /// Goes over to a new segment of the log, unless there is nothing in this one; gives which. Nobody waits for
    /// the disk meanwhile: the segment before it is synced with it.
    pub(crate) fn rotate(&self) -> io::Result<u64> {
        let _one = lock(&self.syncing);
        // What was gone over from is synced before another takes its place.
        let is_lost = self.log().is_lost();
        if !is_lost && !self.sync_alone() {
            return Err(io::Error::other("the log cannot be synced"));
        }
        // A checkpoint never goes with the first segment: without it, that would be a folder of which nothing is missing.
        if self.log().is_empty() && self.log().segment() > 1 {
            return Ok(self.log().segment());
        }
        let segment = self.log().next().0;
        let file = Log::prepare(&self.disk, segment)?;
        let mut log = self.log();
        let before = log.number();
        log.go_over(file).inspect_err(|_| drop(self.disk.remove(&names::log(segment))))?;
        self.written.store(log.number(), Relaxed);
        if is_lost {
            // What was there is told as lost, and nobody waits for the beginning of a segment.
            self.unsynced_ms.store(0, Relaxed);
            self.kept.fetch_max(before, Release);
        }
        Ok(segment)
    }

    /// Waits until all that was applied by now is in the log and synced; false when something failed since
    /// there were so many failures.
    pub(crate) fn settle(&self, failures: u64) -> bool {
        // Nobody is between applying and writing.
        self.quiesce();
        let _one = lock(&self.syncing);
        self.sync_alone() && self.failures() == failures
    }

    /// Takes note of a checkpoint: what it stands for goes.
    pub(crate) fn cut(&self, segment: u64, checkpoint_bytes: u64) {
        self.checkpoint_bytes.store(checkpoint_bytes, Relaxed);
        self.checkpoints.fetch_add(1, Relaxed);
        self.checkpoint_ms.store(self.store.now().as_millis(), Relaxed);
        self.log_bytes.store(self.log().end(), Relaxed);
        // What cannot be removed is removed at the next start.
        let _ = remove_before(&self.disk, segment);
        self.keep_reserve();
    }
}
