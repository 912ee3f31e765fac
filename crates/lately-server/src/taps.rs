//! Who is told what happens while a dump is made.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lately::{DeltaBatch, Timestamp};

use crate::limits::TAP_BYTES;

/// What happened in a batch: its time, and its deltas as bytes.
type Record = (Timestamp, Vec<u8>);

/// The taps there are.
#[derive(Default)]
pub(crate) struct Taps {
    count: AtomicUsize,
    taps: Mutex<Vec<Arc<Tap>>>,
}

/// What happened since somebody last took it.
#[derive(Default)]
pub(crate) struct Tap(Mutex<State>);

#[derive(Default)]
struct State {
    records: Vec<Record>,
    bytes: usize,
    failed: Option<&'static str>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Taps {
    /// Whether somebody is to be told.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        // Who opens one waits until all have seen it, behind a lock: see `Engine::quiesce`.
        self.count.load(Relaxed) > 0
    }

    pub(crate) fn open(&self) -> Arc<Tap> {
        let tap = Arc::<Tap>::default();
        lock(&self.taps).push(Arc::clone(&tap));
        self.count.fetch_add(1, SeqCst);
        tap
    }

    pub(crate) fn close(&self, tap: &Arc<Tap>) {
        self.count.fetch_sub(1, SeqCst);
        lock(&self.taps).retain(|other| !Arc::ptr_eq(other, tap));
    }

    /// Tells what happened.
    pub(crate) fn tell(&self, deltas: &DeltaBatch) {
        if self.is_open() && !deltas.is_empty() {
            lock(&self.taps).iter().for_each(|tap| tap.push(deltas));
        }
    }

    /// Takes note that what was told did not happen after all.
    pub(crate) fn fail(&self, why: &'static str) {
        if self.is_open() {
            lock(&self.taps).iter().for_each(|tap| lock(&tap.0).failed = Some(why));
        }
    }
}

impl Tap {
    fn push(&self, deltas: &DeltaBatch) {
        let mut state = lock(&self.0);
        state.bytes += deltas.bytes().len();
        if state.bytes > TAP_BYTES {
            state.records = Vec::new();
            state.failed = Some("hits came faster than the dump was taken");
        } else {
            state.records.push((deltas.now(), deltas.bytes().to_vec()));
        }
    }

    /// What happened since it was last asked for.
    ///
    /// # Errors
    /// Why that is not known.
    pub(crate) fn take(&self) -> Result<Vec<Record>, &'static str> {
        let mut state = lock(&self.0);
        state.bytes = 0;
        let records = std::mem::take(&mut state.records);
        state.failed.map_or(Ok(records), Err)
    }
}
