//! Threads that replay what a journal kept: the keys of a checkpoint, which they share; then the changes of
//! the log, each thread those of its own keys, in order.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use lately::{Deltas, Generation, Malformed, Portion, Replay, Sequence, Store, Timestamp, Unreadable};

use crate::error::JournalError;
use crate::frame::delta_format;
use crate::limits::{CHUNK_BYTES, CHUNKS, MAX_AHEAD};
use crate::loss::{Loss, LossKind};
use crate::part::{WrittenPart, take_part, take_time};

/// Loads and replays into a store.
pub(crate) struct Replayer<'s> {
    store: &'s Store,
    /// For each part: the last change that the checkpoint includes, and the time of the part.
    included: Vec<(AtomicU64, AtomicI64)>,
    /// The highest number of a change.
    last: AtomicU64,
    /// The latest time of a record, or of the checkpoint.
    now_ms: AtomicI64,
    failed: AtomicBool,
    failure: Mutex<Option<JournalError>>,
    clock: Timestamp,
    /// Whether data was written far ahead of the clock.
    is_ahead: AtomicBool,
    /// Whether to continue without data that cannot be recovered.
    repair: bool,
    losses: Mutex<Vec<Loss>>,
}

/// Distributes the work to the threads.
pub(crate) struct Feed<'r> {
    replayer: &'r Replayer<'r>,
    queues: Vec<SyncSender<Work>>,
    records: Chunk,
    next: usize,
}

/// Work for a thread.
enum Work {
    Parts(Chunk),
    Records(Arc<Chunk>),
    /// Changes that are missing by now never come. Later numbers are higher than this one.
    Settled(u64),
}

/// Successive payloads of a file, without the byte of their kind.
#[derive(Default)]
struct Chunk {
    path: Arc<PathBuf>,
    /// The version of the file.
    version: u8,
    bytes: Vec<u8>,
    /// For each payload, its offset in the file and its end in `bytes`.
    ends: Vec<(u64, usize)>,
}

impl Chunk {
    fn push(&mut self, offset: u64, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.ends.push((offset, self.bytes.len()));
    }

    fn payloads(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let starts = [0].into_iter().chain(self.ends.iter().map(|&(_, end)| end));
        starts.zip(&self.ends).map(|(start, &(offset, end))| (offset, &self.bytes[start..end]))
    }
}

impl<'s> Replayer<'s> {
    pub(crate) fn new(store: &'s Store, clock: Timestamp, repair: bool) -> Replayer<'s> {
        Replayer {
            store,
            included: (0..Store::PARTS).map(|_| Default::default()).collect(),
            last: AtomicU64::new(0),
            now_ms: AtomicI64::new(0),
            failed: AtomicBool::new(false),
            failure: Mutex::default(),
            clock,
            is_ahead: AtomicBool::new(false),
            repair,
            losses: Mutex::default(),
        }
    }

    /// Runs `threads` threads, and `read`, which feeds them. Returns when all work is done.
    pub(crate) fn run<T>(
        &self,
        threads: usize,
        read: impl FnOnce(&mut Feed<'_>) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let result = std::thread::scope(|scope| {
            let start = |portion| {
                let (queue, work) = sync_channel(CHUNKS);
                scope.spawn(move || self.work(&work, portion));
                queue
            };
            let queues = Portion::each(threads.max(1)).map(start).collect();
            let mut feed = Feed { replayer: self, queues, records: Chunk::default(), next: 0 };
            let result = read(&mut feed);
            feed.flush();
            result
        });
        // The threads process earlier data than `read`, so their error comes first.
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(result, Err)
    }

    /// Sets the store's time to that of the last record. New changes get higher numbers.
    pub(crate) fn finish(&self, generation: Generation) {
        self.store.set_now(time_of(&self.now_ms));
        self.store.start_after(generation, self.last.load(Relaxed));
    }

    fn work(&self, work: &Receiver<Work>, portion: Portion) {
        let mut replay = Replay::new(self.store, portion);
        for (part, included) in (0..).zip(&self.included) {
            let (number, now) = (included.0.load(Relaxed), time_of(&included.1));
            replay.include(part, number, now).expect("what is included was looked at");
        }
        let mut path = Arc::default();
        while let Ok(work) = work.recv() {
            match work {
                Work::Parts(chunk) => {
                    self.each(&chunk, |payload, unreadable| {
                        self.load_payload(payload, chunk.version, unreadable)
                    });
                }
                Work::Records(chunk) => {
                    self.each(&chunk, |payload, unreadable| {
                        let replayed = self.replay(payload, &chunk, &mut replay);
                        unreadable.extend(replay.take_unreadable());
                        replayed
                    });
                    path = Arc::clone(&chunk.path);
                }
                Work::Settled(number) => self.settle(&mut replay, number, &path),
            }
        }
        self.settle(&mut replay, 0, &path);
        self.last.fetch_max(replay.last(), Relaxed);
    }

    fn settle(&self, replay: &mut Replay<'_>, number: u64, path: &Path) {
        if let Err(malformed) = replay.settle(number) {
            self.fail(path, 0, 0, &malformed);
        }
        self.fail_keys(path, 0, replay.take_unreadable());
    }

    /// Records that a payload has a correct checksum but cannot be applied, at least in part.
    fn fail(&self, path: &Path, offset: u64, bytes: usize, malformed: &Malformed) {
        let loss = Loss { path: path.to_owned(), offset, bytes: bytes as u64, kind: LossKind::Damaged };
        self.lose(loss, |Loss { path, offset, .. }| JournalError::Damaged {
            path,
            offset,
            what: malformed.to_string(),
        });
    }

    /// Records that some keys of a payload could not be loaded.
    fn fail_keys(&self, path: &Path, offset: u64, unreadable: Vec<Unreadable>) {
        for Unreadable { key, why } in unreadable {
            let what = format!("key {} is {why}", key.escape_ascii());
            let loss = Loss { path: path.to_owned(), offset, bytes: 0, kind: LossKind::Key(key) };
            self.lose(loss, |Loss { path, offset, .. }| JournalError::Damaged { path, offset, what });
        }
    }

    /// Records a loss, or an error unless this is a repair.
    fn lose(&self, loss: Loss, error: impl FnOnce(Loss) -> JournalError) {
        if self.repair {
            let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
            // Each thread finds the same loss.
            if !losses.contains(&loss) {
                losses.push(loss);
            }
            return;
        }
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| error(loss));
        self.failed.store(true, Relaxed);
    }

    /// Whether the time at which a file was written is acceptable: not far ahead of the clock, or this is a
    /// repair. Records the first file that is not.
    fn is_in_time(&self, path: &Path, written: Timestamp) -> bool {
        let clock = self.clock;
        if written <= clock.saturating_add(MAX_AHEAD) {
            return true;
        }
        if !self.is_ahead.swap(true, Relaxed) {
            let loss = Loss { path: path.to_owned(), offset: 0, bytes: 0, kind: LossKind::Ahead(written) };
            self.lose(loss, |Loss { path, .. }| JournalError::Ahead { path, written, clock });
        }
        self.repair
    }

    /// The losses of a repair.
    pub(crate) fn losses(self) -> Vec<Loss> {
        self.losses.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies each payload of a chunk. A panic is a bug of this version. It is returned as an error, so that
    /// the start ends with it.
    fn each(
        &self,
        chunk: &Chunk,
        mut apply: impl FnMut(&[u8], &mut Vec<Unreadable>) -> Result<(), Malformed>,
    ) {
        for (offset, payload) in chunk.payloads() {
            let mut unreadable = Vec::new();
            match catch_unwind(AssertUnwindSafe(|| apply(payload, &mut unreadable))) {
                Ok(Ok(())) => {}
                Ok(Err(malformed)) => self.fail(&chunk.path, offset, payload.len(), &malformed),
                Err(panic) => {
                    let path = PathBuf::clone(&chunk.path);
                    let loss = Loss { path, offset, bytes: payload.len() as u64, kind: LossKind::Damaged };
                    let what = panic_text(&*panic);
                    self.lose(loss, |Loss { path, offset, .. }| JournalError::Bug { path, offset, what });
                }
            }
            self.fail_keys(&chunk.path, offset, unreadable);
        }
    }

    fn load_payload(
        &self,
        mut payload: &[u8],
        version: u8,
        unreadable: &mut Vec<Unreadable>,
    ) -> Result<(), Malformed> {
        while !payload.is_empty() {
            let written = take_part(&mut payload, version).ok_or(Malformed::Entry)?;
            let WrittenPart { part, number, now, keys } = written;
            // Before version 3 only the checkpoint had a time, not its parts.
            let now = now.unwrap_or_else(|| time_of(&self.now_ms));
            unreadable.extend(self.store.read_part(keys, now)?);
            let included = self.included.get(usize::from(part)).filter(|_| number <= Sequence::MAX_NUMBER);
            let included = included.ok_or(Malformed::Entry)?;
            included.0.store(number, Relaxed);
            included.1.store(now.as_millis(), Relaxed);
            self.now_ms.fetch_max(now.as_millis(), Relaxed);
        }
        Ok(())
    }

    fn replay(&self, mut payload: &[u8], chunk: &Chunk, replay: &mut Replay<'_>) -> Result<(), Malformed> {
        let now = take_time(&mut payload).ok_or(Malformed::Delta)?;
        if !self.is_in_time(&chunk.path, now) {
            return Ok(());
        }
        self.now_ms.fetch_max(now.as_millis(), Relaxed);
        replay.record(Deltas::of_format(delta_format(chunk.version), now, payload))
    }
}

fn time_of(ms: &AtomicI64) -> Timestamp {
    Timestamp::from_millis(ms.load(Relaxed)).unwrap_or(Timestamp::MIN)
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

impl Feed<'_> {
    /// Whether the time at which a file was written is acceptable.
    pub(crate) fn is_in_time(&self, path: &Path, written: Timestamp) -> bool {
        self.replayer.is_in_time(path, written)
    }

    /// Records the time of the checkpoint. The store is set to it at the end.
    pub(crate) fn set_now(&self, now: Timestamp) {
        self.replayer.now_ms.fetch_max(now.as_millis(), Relaxed);
    }

    /// Adds a payload of a checkpoint. False if an earlier one failed.
    pub(crate) fn parts(
        &mut self,
        path: &Arc<PathBuf>,
        version: u8,
        (offset, payload): (u64, &[u8]),
    ) -> bool {
        let mut chunk = Chunk { path: Arc::clone(path), version, ..Chunk::default() };
        chunk.push(offset, payload);
        // A thread that is gone had a bug, which is reported when it is joined.
        let _ = self.queues[self.next].send(Work::Parts(chunk));
        self.next = (self.next + 1) % self.queues.len();
        !self.replayer.failed.load(Relaxed)
    }

    /// Adds a record. False if an earlier one failed.
    pub(crate) fn record(
        &mut self,
        path: &Arc<PathBuf>,
        version: u8,
        (offset, payload): (u64, &[u8]),
    ) -> bool {
        if !Arc::ptr_eq(path, &self.records.path) || version != self.records.version {
            self.flush();
            (self.records.path, self.records.version) = (Arc::clone(path), version);
        }
        self.records.push(offset, payload);
        if self.records.bytes.len() >= CHUNK_BYTES {
            self.flush();
        }
        !self.replayer.failed.load(Relaxed)
    }

    /// Records that changes that are missing by now never come.
    pub(crate) fn settled(&mut self, number: u64) {
        self.flush();
        for queue in &self.queues {
            let _ = queue.send(Work::Settled(number));
        }
    }

    fn flush(&mut self) {
        let (path, version) = (Arc::clone(&self.records.path), self.records.version);
        let next = Chunk { path, version, ..Chunk::default() };
        let chunk = Arc::new(std::mem::replace(&mut self.records, next));
        for queue in &self.queues {
            let _ = queue.send(Work::Records(Arc::clone(&chunk)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk() -> Chunk {
        let mut chunk = Chunk { path: Arc::new(PathBuf::from("log-0000000007")), ..Chunk::default() };
        [7, 70].into_iter().for_each(|offset| chunk.push(offset, b"payload"));
        chunk
    }

    /// Symptom: a panic while a folder was read left a server that neither started nor stopped. Cause: the
    /// reading thread was gone, and others waited for it. Fix: a panic becomes an error that names the file.
    #[test]
    fn a_panic_during_a_replay_ends_the_start_with_an_error() {
        let store = Store::builder().build().expect("valid");
        let replayer = Replayer::new(&store, Timestamp::MAX, false);
        let read = replayer.run(1, |_| {
            replayer.each(&chunk(), |_, _| panic!("index out of bounds"));
            Ok(())
        });
        let error = read.expect_err("a bug").to_string();
        assert_eq!(error, "log-0000000007 cannot be read because of a bug, at byte 7: index out of bounds");
    }

    #[test]
    fn a_repair_continues_after_a_panic() {
        let store = Store::builder().build().expect("valid");
        let replayer = Replayer::new(&store, Timestamp::MAX, true);
        let mut payloads = 0;
        replayer.each(&chunk(), |_, _| {
            payloads += 1;
            assert!(payloads > 1, "the first is a bug");
            Ok(())
        });
        assert_eq!(payloads, 2);
        let losses = replayer.losses();
        assert_eq!((losses.len(), losses[0].offset, &losses[0].kind), (1, 7, &LossKind::Damaged));
    }
}
