//! A store and its journal, as a server has them, from a start to an end.

use std::sync::Arc;

use lately::limits::MAX_KEY_BYTES;
use lately::{DeltaBatch, Op, Outcome, Span, Store, Timestamp, days, hours, minutes, seconds};
use lately_journal::limits::Bounds;
use lately_journal::{
    Durability, Hold, Journal, JournalError, Progress, Receipt, Recovery, Verdict, recover,
};

use crate::sim_disk::SimDisk;

pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// What a client asks for.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Hit { key: Vec<u8>, weight: u64, late_ms: i64 },
    Delete { key: Vec<u8> },
    Flush,
}

/// What several clients ask for at a time.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) now: Timestamp,
    pub(crate) actions: Vec<Action>,
}

pub(crate) fn time(ms: i64) -> Timestamp {
    Timestamp::from_millis(START_MS + ms).expect("a time")
}

fn store(seed: u64) -> Store {
    Store::builder().seed(seed).build().expect("the defaults are valid")
}

/// Applies an action; gives whether anything came of it. A flush is for the caller.
fn apply(store: &Store, action: &Action, now: Timestamp, deltas: &mut DeltaBatch) -> bool {
    match action {
        Action::Hit { key, weight, late_ms } => {
            let at = (*late_ms > 0)
                .then(|| Span::from_millis(*late_ms).map_or(now, |late| now.saturating_sub(late)));
            let mut out = Vec::new();
            store.apply_into(&[Op::Hit { key, weight: *weight, at }], now, &mut out, deltas);
            matches!(out[..], [Outcome::Hit(Ok(_))])
        }
        Action::Delete { key } => store.forget_into(key, now, Some(deltas)),
        Action::Flush => true,
    }
}

/// A store that batches were applied to, without a journal.
pub(crate) fn reference<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> Store {
    let store = store(0);
    for batch in batches {
        apply_all(&store, batch);
    }
    store
}

fn apply_all(store: &Store, batch: &Batch) {
    let mut deltas = DeltaBatch::default();
    for action in &batch.actions {
        match action {
            Action::Flush => store.flush(),
            action => {
                apply(store, action, batch.now, &mut deltas);
            }
        }
    }
}

/// What came of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Acknowledged,
    Waits,
    Refused,
}

/// A server, without sockets.
pub(crate) struct Life {
    pub(crate) store: Arc<Store>,
    pub(crate) journal: Arc<Journal<SimDisk>>,
    /// Batches that wait, by their numbers.
    held: Vec<(usize, Hold, DeltaBatch)>,
}

impl Life {
    pub(crate) fn start(
        disk: &SimDisk,
        seed: u64,
        durability: Durability,
        repair: bool,
    ) -> Result<(Life, Recovery), JournalError> {
        Life::start_within(disk, seed, durability, repair, Bounds::default())
    }

    pub(crate) fn start_within(
        disk: &SimDisk,
        seed: u64,
        durability: Durability,
        repair: bool,
        bounds: Bounds,
    ) -> Result<(Life, Recovery), JournalError> {
        let store = Arc::new(store(seed));
        let recovery = recover(disk, &store, repair, 2, &Progress::default())?;
        store.check_consistency();
        let journal = Journal::begin(disk.clone(), Arc::clone(&store), durability, &recovery)
            .map_err(|error| JournalError::Disk { what: "begin", path: "".into(), error })?;
        let journal = Arc::new(journal.with_bounds(bounds));
        Ok((Life { store, journal, held: Vec::new() }, recovery))
    }

    /// Runs a batch as a server does.
    pub(crate) fn run(&mut self, number: usize, batch: &Batch) -> Fate {
        if let [Action::Flush] = batch.actions[..] {
            let _gate = self.journal.enter();
            let write = |deltas: &DeltaBatch| self.journal.write_through(deltas).is_ok();
            let kept = self.journal.check().is_ok() && self.store.flush_when(batch.now, write);
            return if kept { Fate::Acknowledged } else { Fate::Refused };
        }
        self.run_group(number, std::slice::from_ref(batch), || ())
    }

    /// Runs batches that one write is made for, as a server does; the first has the number. Between applying
    /// and writing them other threads do what they do.
    pub(crate) fn run_group(&mut self, number: usize, batches: &[Batch], others: impl FnOnce()) -> Fate {
        let gate = self.journal.enter();
        if self.journal.check().is_err() {
            return Fate::Refused;
        }
        let mut changed = Vec::new();
        for (number, batch) in (number..).zip(batches) {
            let mut deltas = DeltaBatch::default();
            for action in &batch.actions {
                apply(&self.store, action, batch.now, &mut deltas);
            }
            if !deltas.is_empty() {
                changed.push((number, deltas));
            }
        }
        others();
        if changed.is_empty() {
            return Fate::Acknowledged;
        }
        match self.journal.write(changed.iter().map(|(_, deltas)| deltas)) {
            Ok(Receipt::Kept) => Fate::Acknowledged,
            Ok(Receipt::Wait(hold)) => {
                drop(gate);
                self.held.extend(changed.into_iter().map(|(number, deltas)| (number, hold.clone(), deltas)));
                Fate::Waits
            }
            Err(_) => {
                changed.iter_mut().rev().for_each(|(_, deltas)| self.store.take_back(deltas));
                Fate::Refused
            }
        }
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.held.is_empty()
    }

    /// What became of batches that waited: their numbers, and whether they are kept.
    pub(crate) fn verdicts(&mut self) -> Vec<(usize, bool)> {
        let (mut told, mut waiting) = (Vec::new(), Vec::new());
        // The last first: so they are taken back.
        for (number, hold, mut deltas) in self.held.drain(..).rev() {
            match self.journal.verdict(&hold) {
                Verdict::Pending => waiting.push((number, hold, deltas)),
                Verdict::Kept => told.push((number, true)),
                Verdict::Lost => {
                    self.store.take_back(&mut deltas);
                    told.push((number, false));
                }
            }
        }
        waiting.reverse();
        self.held = waiting;
        told
    }
}

/// The names that actions use: short, longer, and a few as long as they may be.
pub(crate) fn keys() -> Vec<Vec<u8>> {
    let length = |n: usize| if n % 10 == 9 { MAX_KEY_BYTES } else { 6 + n % 5 * 7 };
    (0..40).map(|n| format!("{n:x<width$}", width = length(n)).into_bytes()).collect()
}

/// The first answer in which two stores differ, of keys over many windows.
pub(crate) fn difference(keys: &[Vec<u8>], found: &Store, wanted: &Store, now: Timestamp) -> Option<String> {
    let windows = [seconds(1), minutes(5), hours(1), days(1), days(7)];
    for key in keys {
        for ago in [None, Some(minutes(4)), Some(hours(5))] {
            let at = ago.map(|ago| now.saturating_sub(ago));
            for window in windows {
                let [found, wanted] = [found, wanted].map(|store| store.count(key, Some(window), at, now));
                if found != wanted {
                    let key = String::from_utf8_lossy(key);
                    return Some(format!("{key}, {window} ending {at:?}: {found:?}, not {wanted:?}"));
                }
            }
        }
    }
    None
}
