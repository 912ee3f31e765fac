//! A store and its journal, used as a server uses them, from a start to an end.

use std::collections::BTreeSet;
use std::sync::Arc;

use lately::limits::MAX_KEY_BYTES;
use lately::{
    Cell, Count, Delta, DeltaBatch, Forgotten, HitOnce, MemberHit, Op, Outcome, Request, Settings, Source,
    Span, Store, Timestamp, days, hours, minutes, seconds,
};
use lately_journal::limits::Bounds;
use lately_journal::{
    Durability, Hold, Intent, Journal, JournalError, Progress, Receipt, Recovery, Verdict, recover,
};

use crate::sim_disk::SimDisk;

pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// A request of a client.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Hit {
        key: Vec<u8>,
        weight: u64,
        late_ms: i64,
    },
    /// Hits with an id.
    HitOnce {
        key: Vec<u8>,
        weight: u64,
        late_ms: i64,
        id: u8,
    },
    /// Hits with a member.
    HitMember {
        key: Vec<u8>,
        weight: u64,
        late_ms: i64,
        member: u8,
    },
    Deny {
        key: Vec<u8>,
        hits: u64,
    },
    /// Hits are given back.
    Refund {
        key: Vec<u8>,
        hits: u64,
    },
    /// Hits of the last `width_ms` that another node has deleted are taken back.
    TakeBack {
        key: Vec<u8>,
        width_ms: i64,
        hits: u64,
    },
    Delete {
        key: Vec<u8>,
    },
    /// A source was read up to this position, with the hits of the batch.
    Read {
        source: usize,
        position: u64,
    },
    /// A hit that is rolled back before its batch is written.
    Abandon {
        key: Vec<u8>,
        weight: u64,
    },
    Flush,
}

/// The requests of several clients that are applied together.
#[derive(Clone, Default, Debug)]
pub(crate) struct Batch {
    pub(crate) now: Timestamp,
    pub(crate) actions: Vec<Action>,
}

pub(crate) fn time(ms: i64) -> Timestamp {
    Timestamp::from_millis(START_MS + ms).expect("a time")
}

/// The memory ceiling of a store. Keys alone do not reach it.
const CEILING_BYTES: usize = 64 << 20;

fn store(seed: u64) -> Store {
    let settings = Settings::builder().dedupe(hours(6)).unique(true);
    let builder = Store::builder().seed(seed).settings(settings).memory_ceiling(CEILING_BYTES as u64);
    builder.build().expect("the defaults are valid")
}

/// The keys that were evicted.
fn evicted(deltas: &DeltaBatch) -> Vec<Action> {
    let evicted = |delta| match delta {
        Ok((_, Delta::Forget { key, why: Forgotten::Evicted, .. })) => {
            Some(Action::Delete { key: key.to_vec() })
        }
        _ => None,
    };
    deltas.deltas().filter_map(evicted).collect()
}

/// Hits that were given back or taken back as it was applied, after the first `before` changes: fewer hits if there were fewer,
/// and a deletion if none are left.
fn as_applied(action: Action, deltas: &DeltaBatch, before: usize) -> Action {
    if !matches!(action, Action::Refund { .. } | Action::TakeBack { .. }) {
        return action;
    }
    // Evictions may follow.
    match (action, deltas.deltas().nth(before)) {
        (Action::Refund { key, .. }, Some(Ok((_, Delta::GivenBack { hits, .. })))) => {
            Action::Refund { key, hits }
        }
        (Action::TakeBack { key, width_ms, .. }, Some(Ok((_, Delta::TakenBack { hits, .. })))) => {
            Action::TakeBack { key, width_ms, hits }
        }
        (Action::Refund { key, .. } | Action::TakeBack { key, .. }, Some(Ok((_, Delta::Forget { .. })))) => {
            Action::Delete { key }
        }
        (action, change) => panic!("{action:?} made {change:?}"),
    }
}

fn earlier(now: Timestamp, by_ms: i64) -> Timestamp {
    Span::from_millis(by_ms).map_or(now, |by| now.saturating_sub(by))
}

/// Applies an action. Returns whether it was accepted. The caller applies a flush.
fn apply(store: &Store, action: &Action, now: Timestamp, deltas: &mut DeltaBatch) -> bool {
    match action {
        Action::Hit { key, weight, late_ms } => {
            let at = (*late_ms > 0).then(|| earlier(now, *late_ms));
            let mut out = Vec::new();
            store.apply_into(&[Op::Hit { key, weight: *weight, at }], now, &mut out, deltas);
            !matches!(out[..], [Outcome::Hit(Err(_))])
        }
        Action::HitOnce { key, weight, late_ms, id } => {
            let at = (*late_ms > 0).then(|| earlier(now, *late_ms));
            let hit = HitOnce { key, weight: *weight, at, id: &[*id] };
            let mut out = Vec::new();
            store.apply_into(&[Op::of_once(hit)], now, &mut out, deltas);
            // A repeated hit changes nothing, whichever of the batches before are kept.
            matches!(out[..], [Outcome::Hit(Ok(_))])
        }
        Action::HitMember { key, weight, late_ms, member } => {
            let at = (*late_ms > 0).then(|| earlier(now, *late_ms));
            let hit = MemberHit { key, weight: *weight, at, id: None, member: &[*member] };
            let mut out = Vec::new();
            store.apply_into(&[Op::HitMember(Box::new(hit))], now, &mut out, deltas);
            !matches!(out[..], [Outcome::Hit(Err(_))])
        }
        Action::Deny { key, hits } => {
            let denials = |deltas: &DeltaBatch| {
                deltas.deltas().filter(|delta| matches!(delta, Ok((_, Delta::Denied { .. })))).count()
            };
            let before = denials(deltas);
            let request = Request::new(key, 0, minutes(1), *hits);
            store.apply_into(&[Op::of(request)], now, &mut Vec::new(), deltas);
            // Without memory, a denial creates no key.
            denials(deltas) > before
        }
        Action::Refund { key, hits } => {
            let before = deltas.bytes().len();
            let request = Request::new(key, 0, days(7), *hits);
            store.apply_into(&[Op::Refund(Box::new(request))], now, &mut Vec::new(), deltas);
            deltas.bytes().len() > before
        }
        Action::TakeBack { key, width_ms, hits } => {
            let before = deltas.bytes().len();
            let cell = Cell::of(now.as_millis(), *width_ms);
            store.take_back(key, &[(cell, *hits)], now, deltas);
            deltas.bytes().len() > before
        }
        Action::Delete { key } => {
            // It is written even if another batch, which may be rolled back, has just deleted the key.
            store.forget_into(key, now, Some(deltas));
            true
        }
        Action::Read { source, position } => {
            store.set_position(source_of(&name_of(*source)), *position, now, Some(deltas));
            true
        }
        Action::Abandon { key, weight } => {
            let mark = deltas.mark();
            store.apply_into(&[Op::Hit { key, weight: *weight, at: None }], now, &mut Vec::new(), deltas);
            store.roll_back_since(deltas, &mark);
            false
        }
        Action::Flush => true,
    }
}

/// The ids of hits.
pub(crate) const IDS: u8 = 4;

/// The members of hits. Their number is exact.
pub(crate) const MEMBERS: u8 = 20;

/// The sources of batches.
pub(crate) const SOURCES: usize = 8;

fn name_of(source: usize) -> String {
    format!("access.log:{source}")
}

fn source_of(name: &str) -> Source<'_> {
    Source::new(name.as_bytes()).expect("a short name")
}

/// The source whose position a batch has.
pub(crate) fn source_in(batch: &Batch) -> Option<usize> {
    batch.actions.iter().find_map(|action| match action {
        Action::Read { source, .. } => Some(*source),
        _ => None,
    })
}

/// The content of a disk, for a read-only look.
pub(crate) fn look(disk: &SimDisk, seed: u64) -> Result<Store, JournalError> {
    let store = store(seed);
    recover(disk, &store, Intent::ReadOnly, Timestamp::MAX, 2, &Progress::default()).map(|_| store)
}

/// A store with these batches, without a journal.
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
                let is_taken = apply(store, action, batch.now, &mut deltas);
                if let Action::HitOnce { key, weight, late_ms, .. } = action
                    && !is_taken
                {
                    // It counted, because the ids of the key had ended by a change that was refused afterwards.
                    let hit = Action::Hit { key: key.clone(), weight: *weight, late_ms: *late_ms };
                    apply(store, &hit, batch.now, &mut deltas);
                }
            }
        }
    }
}

/// The result of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Acknowledged,
    Waits,
    Refused,
}

/// The changes of batches, with their numbers.
pub(crate) type Changed = Vec<(usize, DeltaBatch)>;

/// The keys that were hit.
pub(crate) fn hit_keys(deltas: &DeltaBatch) -> BTreeSet<Vec<u8>> {
    let hit = |delta| match delta {
        Ok((
            _,
            Delta::Hits { key, .. }
            | Delta::Denied { key, .. }
            | Delta::GivenBack { key, .. }
            | Delta::TakenBack { key, .. },
        )) => Some(key.to_vec()),
        _ => None,
    };
    deltas.deltas().filter_map(hit).collect()
}

/// A server, without sockets.
pub(crate) struct Life {
    pub(crate) store: Arc<Store>,
    pub(crate) journal: Arc<Journal<SimDisk>>,
    /// Waiting batches, by number.
    held: Vec<(usize, Hold, DeltaBatch)>,
    /// Memory that is charged to the store.
    taken_bytes: usize,
    /// Whether keys were evicted that are still on the disk, because the eviction could not be written.
    is_short: bool,
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
        let intent = if repair { Intent::Repair } else { Intent::Continue };
        let recovery = recover(disk, &store, intent, Timestamp::MAX, 2, &Progress::default())?;
        store.check_consistency();
        let disk = disk.clone();
        let journal = Journal::begin_within(bounds, disk, Arc::clone(&store), durability, &recovery)
            .map_err(|error| JournalError::Disk { what: "begin", path: "".into(), error })?;
        Ok((
            Life { store, journal: Arc::new(journal), held: Vec::new(), taken_bytes: 0, is_short: false },
            recovery,
        ))
    }

    /// Runs a batch like a server.
    pub(crate) fn run(&mut self, number: usize, batch: &Batch) -> Fate {
        if let [Action::Flush] = batch.actions[..] {
            let _gate = self.journal.enter();
            let write = |deltas: &DeltaBatch| self.journal.write_through(deltas).is_ok();
            let kept = self.journal.check().is_ok() && self.store.flush_when(batch.now, write);
            return if kept { Fate::Acknowledged } else { Fate::Refused };
        }
        self.run_group(number, &mut [batch.clone()], || ())
    }

    /// Limits the memory for keys until it is released, and evicts what does not fit. That is a batch if it
    /// changed anything.
    pub(crate) fn squeeze(
        &mut self,
        number: usize,
        left_bytes: usize,
        now: Timestamp,
    ) -> Option<(Batch, Fate)> {
        let journal = Arc::clone(&self.journal);
        let _gate = journal.enter();
        if journal.check().is_err() {
            return None;
        }
        let (bytes, mut deltas) = (CEILING_BYTES - left_bytes.min(CEILING_BYTES), DeltaBatch::default());
        self.store.charge_into(0, bytes, now, Some(&mut deltas));
        self.taken_bytes = bytes;
        let batch = Batch { now, actions: evicted(&deltas) };
        let changed = if deltas.is_empty() { return None } else { vec![(number, deltas)] };
        Some((batch, self.write(changed)))
    }

    pub(crate) fn release(&mut self) {
        self.store.charge(std::mem::take(&mut self.taken_bytes), 0);
    }

    /// Runs batches that are committed by one write, like a server. The first has the number. Their evictions
    /// are added to them, and hits without memory are removed. `others` runs between applying and writing
    /// them, as other threads.
    pub(crate) fn run_group(&mut self, number: usize, batches: &mut [Batch], others: impl FnOnce()) -> Fate {
        let journal = Arc::clone(&self.journal);
        let _gate = journal.enter();
        if journal.check().is_err() {
            return Fate::Refused;
        }
        let changed = self.apply(number, batches);
        others();
        self.write(changed)
    }

    /// Applies batches, which must be written.
    pub(crate) fn apply(&self, number: usize, batches: &mut [Batch]) -> Changed {
        let mut changed = Vec::new();
        for (number, batch) in (number..).zip(batches) {
            let mut deltas = DeltaBatch::default();
            let (mut done, mut gone) = (Vec::new(), 0);
            for action in batch.actions.drain(..) {
                let before = deltas.deltas().count();
                let is_done = apply(&self.store, &action, batch.now, &mut deltas);
                done.extend(
                    Some(action).filter(|_| is_done).map(|action| as_applied(action, &deltas, before)),
                );
                let evicted = evicted(&deltas).split_off(gone);
                gone += evicted.len();
                done.extend(evicted);
            }
            // Batches without changes, such as the deletion of an absent key, are not written, and no other
            // batch depends on them.
            if !deltas.is_empty() {
                batch.actions = done;
                changed.push((number, deltas));
            }
        }
        changed
    }

    /// Writes the changes of batches.
    pub(crate) fn write(&mut self, mut changed: Changed) -> Fate {
        if changed.is_empty() {
            return Fate::Acknowledged;
        }
        match self.journal.write(changed.iter().map(|(_, deltas)| deltas)) {
            Ok(Receipt::Kept) => Fate::Acknowledged,
            Ok(Receipt::Wait(hold)) => {
                self.held.extend(changed.into_iter().map(|(number, deltas)| (number, hold.clone(), deltas)));
                Fate::Waits
            }
            Err(_) => {
                changed.iter_mut().rev().for_each(|(_, deltas)| self.take_back(deltas));
                Fate::Refused
            }
        }
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether a batch waits that has a position of the source: no other one is sent meanwhile.
    pub(crate) fn is_busy(&self, source: usize) -> bool {
        let name = name_of(source);
        let is_its =
            |delta| matches!(delta, Ok((_, Delta::Position { source, .. })) if source == name.as_bytes());
        self.held.iter().any(|(_, _, deltas)| deltas.deltas().any(is_its))
    }

    pub(crate) fn is_waiting(&self, number: usize) -> bool {
        self.held.iter().any(|(waiting, ..)| *waiting == number)
    }

    /// The results of batches that waited: their numbers, and whether they are kept.
    pub(crate) fn verdicts(&mut self) -> Vec<(usize, bool)> {
        let (mut verdicts, mut waiting, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        // The last comes first, which is the order of rollback.
        for (number, hold, deltas) in self.held.drain(..).rev() {
            match self.journal.verdict(&hold) {
                Verdict::Pending => waiting.push((number, hold, deltas)),
                Verdict::Kept => verdicts.push((number, true)),
                Verdict::Lost => {
                    lost.push(deltas);
                    verdicts.push((number, false));
                }
            }
        }
        waiting.reverse();
        self.held = waiting;
        lost.iter_mut().for_each(|deltas| self.take_back(deltas));
        verdicts
    }

    fn take_back(&mut self, deltas: &mut DeltaBatch) {
        self.is_short |= !evicted(deltas).is_empty();
        self.store.roll_back(deltas);
    }

    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }
}

/// The keys of actions: short ones, longer ones, and a few of the greatest length.
pub(crate) fn keys() -> Vec<Vec<u8>> {
    let length = |n: usize| if n % 10 == 9 { MAX_KEY_BYTES } else { 6 + n % 5 * 7 };
    (0..40).map(|n| format!("{n:x<width$}", width = length(n)).into_bytes()).collect()
}

/// Whether a count is as another one may be.
fn is_within(found: &Count, wanted: &Count) -> bool {
    let upper = |count: &Count| count.upper.unwrap_or(u64::MAX);
    wanted.lower <= found.lower && upper(found) <= upper(wanted)
}

/// Members of keys.
pub(crate) type Members = BTreeSet<(Vec<u8>, u8)>;

/// The members of the hits of a batch.
pub(crate) fn members_of(batch: &Batch) -> Members {
    let member = |action: &Action| match action {
        Action::HitMember { key, member, .. } => Some((key.clone(), *member)),
        _ => None,
    };
    batch.actions.iter().filter_map(member).collect()
}

/// The first answer in which two stores differ, for keys over many windows. Members of `refused` hits may be there, too. Denials are
/// compared on demand.
pub(crate) fn difference(
    keys: &[Vec<u8>],
    found: &Store,
    wanted: &Store,
    refused: &Members,
    has_denials: bool,
    now: Timestamp,
) -> Option<String> {
    for source in 0..SOURCES {
        let name = name_of(source);
        let [found, wanted] = [found, wanted].map(|store| store.position(source_of(&name)));
        if found != wanted {
            return Some(format!("{name} is at {found:?}, not {wanted:?}"));
        }
    }
    let windows = [seconds(1), minutes(5), hours(1), days(1), days(7)];
    for key in keys {
        let more = refused.iter().filter(|(of, _)| of == key).count() as u64;
        for window in windows {
            let [found, wanted] = [found, wanted].map(|store| store.unique(key, Some(window), now));
            let is_right = match (&found, &wanted) {
                (Ok(found), Ok(wanted)) => {
                    let most = wanted.upper.map(|upper| upper + more);
                    // The same at the edge of the retention.
                    let is_at_edge = window == days(7) && found.upper <= most;
                    let has_more = wanted.lower <= found.lower && found.upper <= most;
                    found == wanted || is_at_edge || (more > 0 && has_more)
                }
                _ => found == wanted,
            };
            if !is_right {
                let key = String::from_utf8_lossy(key);
                return Some(format!("{key}, members in {window}: {found:?}, not {wanted:?}"));
            }
        }
        for ago in [None, Some(minutes(4)), Some(hours(5))] {
            let at = ago.map(|ago| now.saturating_sub(ago));
            for id in 0..IDS {
                let hit = HitOnce { key, weight: 1, at, id: &[id] };
                let [found, wanted] = [found, wanted].map(|store| store.is_repeated(&hit, now));
                if found != wanted {
                    let key = String::from_utf8_lossy(key);
                    return Some(format!("{key}, id {id} at {at:?} is known: {found}, not {wanted}"));
                }
            }
            for window in windows {
                let counts = |store: &Store| {
                    let denied = has_denials.then(|| store.denied(key, Some(window), at, now));
                    (store.count(key, Some(window), at, now), denied)
                };
                let (found, wanted) = (counts(found), counts(wanted));
                // Hits that leave the retention may be gone early: when newer ones were given back, the key was dropped with
                // them, and then the newer ones were restored by a rollback.
                let is_at_edge = window == days(7) && is_within(&found.0, &wanted.0) && found.1 == wanted.1;
                if found != wanted && !is_at_edge {
                    let key = String::from_utf8_lossy(key);
                    return Some(format!("{key}, {window} ending {at:?}: {found:?}, not {wanted:?}"));
                }
            }
        }
    }
    None
}
