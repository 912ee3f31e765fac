//! A server with its disk, and the truth about the hits it was given.

use std::sync::Arc;

use lately::{
    DeltaBatch, HitError, LimitError, Op, Outcome, Request, Retry, Span, Store, Timestamp,
};
use lately_classics::{ModelSettings, Truth};
use lately_journal::limits::Bounds;
use lately_journal::{Durability, Intent, Journal, Progress, Receipt, Verdict, recover};

use super::class::{Classes, KEYS};
use super::play::{Fault, Kind, fault, guarded};
use super::script::{Limit, Script};
use crate::sim_disk::SimDisk;

/// How often a journal is asked to get over a failure of the disk that is over.
const MENDS: usize = 100;

pub(crate) fn time(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms).expect("a time")
}

pub(crate) fn span(ms: i64) -> Span {
    Span::from_millis(ms).expect("a span")
}

/// A store and its journal.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) store: Arc<Store>,
    pub(crate) journal: Arc<Journal<SimDisk>>,
}

/// What one write is made for.
pub(crate) type Group = Vec<DeltaBatch>;

/// Blocks of a checkpoint are small, so that things happen between them.
pub(crate) fn bounds() -> Bounds {
    Bounds { block_bytes: 4 << 10, reserve_bytes: 32 << 10, ..Bounds::default() }
}

/// A dump that was made, and what was true then.
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    pub(crate) truths: [Truth; KEYS.len()],
}

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) now_ms: i64,
    pub(crate) disk: SimDisk,
    pub(crate) server: Server,
    pub(crate) classes: Classes,
    pub(crate) models: [ModelSettings; KEYS.len()],
    pub(crate) truths: [Truth; KEYS.len()],
    /// Keys that were limited since the last start: what limits need of them is kept.
    pub(crate) is_limited: [bool; KEYS.len()],
    pub(crate) kept: Option<Kept>,
}

impl Server {
    pub(crate) fn start(disk: &SimDisk, classes: &Classes, seed: u64) -> Result<Server, Fault> {
        let store = Arc::new(classes.store(seed));
        let threads = if seed.is_multiple_of(2) { 1 } else { 2 };
        let recovery = recover(disk, &store, Intent::GoOn, threads, &Progress::default())
            .map_err(|error| fault(Kind::Unreadable, format!("a start: {error}")))?;
        if let Some(loss) = recovery.losses.first() {
            return Err(fault(Kind::Unreadable, format!("a start: {loss}")));
        }
        guarded(Kind::Inconsistent, || store.check_consistency())?;
        let (disk, bounds) = (disk.clone(), bounds());
        let journal = Journal::begin_within(bounds, disk, Arc::clone(&store), Durability::Interval, &recovery)
            .map_err(|error| fault(Kind::Unwritten, format!("a start: {error}")))?;
        Ok(Server { store, journal: Arc::new(journal) })
    }
}

impl World {
    pub(crate) fn begin(script: &Script) -> Result<World, Fault> {
        let seed = script.start_ms.unsigned_abs();
        let disk = SimDisk::new(seed);
        Ok(World {
            seed,
            now_ms: script.start_ms,
            server: Server::start(&disk, &script.classes, seed)?,
            disk,
            classes: script.classes,
            models: script.classes.models(),
            truths: Default::default(),
            is_limited: Default::default(),
            kept: None,
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        time(self.now_ms)
    }

    /// Takes note that a server with other classes takes over, or with the same.
    pub(crate) fn change_classes(&mut self, classes: Classes) {
        let models = classes.models();
        for ((truth, old), new) in self.truths.iter_mut().zip(&self.models).zip(&models) {
            truth.leave(old, self.now_ms, old == new);
        }
        (self.classes, self.models) = (classes, models);
    }

    /// Counts hits, at a time of their own or now, and compares the answer with that of a read.
    pub(crate) fn hit(
        &mut self,
        key: usize,
        at_ms: Option<i64>,
        weight: u64,
        group: &mut Group,
    ) -> Result<(), Fault> {
        let (model, now, at) = (self.models[key], self.now(), at_ms.map(time));
        let outcome = self.apply(&Op::Hit { key: KEYS[key], weight, at }, group);
        let refusal = Truth::refusal(&model, at_ms.unwrap_or(self.now_ms), self.now_ms);
        let hits = match (outcome, refusal) {
            (Outcome::Hit(Ok(hits)), None) => hits,
            (Outcome::Hit(Err(HitError::Late { .. })), Some(true))
            | (Outcome::Hit(Err(HitError::Future { .. })), Some(false)) => return Ok(()),
            (outcome, _) => return Err(fault(Kind::Refusal, format!("HIT at {at:?}: {outcome:?}"))),
        };
        self.truths[key].add(at_ms.unwrap_or(self.now_ms), weight, &model);
        let read = self.server.store.count(KEYS[key], None, at, now);
        if hits != read.estimate.max(weight) {
            let what = format!("{weight} hits at {at:?}: answered {hits}, a read {read:?}");
            return Err(fault(Kind::HitAnswer, what));
        }
        Ok(())
    }

    /// Makes a request under a limit.
    pub(crate) fn limit(
        &mut self,
        key: usize,
        at_ms: Option<i64>,
        limit: Limit,
        group: &mut Group,
    ) -> Result<(), Fault> {
        let Limit { max, window_ms, cost } = limit;
        let (model, then_ms) = (self.models[key], at_ms.unwrap_or(self.now_ms));
        let used = self.truths[key].used(then_ms, window_ms, &model, self.now_ms);
        let request = Request { at: at_ms.map(time), ..Request::new(KEYS[key], max, span(window_ms), cost) };
        let Outcome::Limit(decided) = self.apply(&Op::of(request), group) else {
            unreachable!("a request is answered with a decision")
        };
        self.is_limited[key] |= decided.is_ok();
        let about = || format!("LIMIT {max} {}ms COST {cost} AT {at_ms:?}: {decided:?}, true: {used:?}", window_ms);
        let longest_ms = model.retain_ms - (self.now_ms - then_ms);
        let decision = match &decided {
            Ok(decision) => decision,
            Err(LimitError::Window { .. }) if window_ms > model.retain_ms => return Ok(()),
            Err(LimitError::WindowThen { .. }) if window_ms > longest_ms => return Ok(()),
            Err(LimitError::Hit(HitError::Late { .. } | HitError::Future { .. }))
                if Truth::refusal(&model, then_ms, self.now_ms).is_some() =>
            {
                return Ok(());
            }
            Err(_) => return Err(fault(Kind::Refusal, about())),
        };
        if decision.is_allowed() {
            if used.certain + cost > max || decision.remaining > max - used.certain - cost {
                return Err(fault(Kind::LimitAdmits, about()));
            }
            self.truths[key].add(then_ms, cost, &model);
            return Ok(());
        }
        let is_never = decision.retry == Retry::Never;
        let is_wrong = used.outer + cost <= max && self.truths[key].is_denied_by_hits_only();
        if is_never != (cost > max) || is_wrong {
            return Err(fault(Kind::LimitDenies, about()));
        }
        Ok(())
    }

    fn apply(&self, op: &Op<'_>, group: &mut Group) -> Outcome {
        let (mut out, mut deltas) = (Vec::new(), DeltaBatch::default());
        self.server.store.apply_into(std::slice::from_ref(op), self.now(), &mut out, &mut deltas);
        group.extend(Some(deltas).filter(|deltas| !deltas.is_empty()));
        out.pop().expect("an outcome")
    }

    pub(crate) fn forget(&mut self, key: usize, group: &mut Group) {
        let mut deltas = DeltaBatch::default();
        self.server.store.forget_into(KEYS[key], self.now(), Some(&mut deltas));
        group.extend(Some(deltas).filter(|deltas| !deltas.is_empty()));
        (self.truths[key], self.is_limited[key]) = (Truth::new(), false);
    }

    /// Applies what is given, and writes what that changed: a disk that is well takes it.
    pub(crate) fn kept(
        &mut self,
        change: impl FnOnce(&mut World, &mut Group) -> Result<(), Fault>,
    ) -> Result<Group, Fault> {
        let journal = Arc::clone(&self.server.journal);
        let _gate = journal.enter();
        let mut group = Group::new();
        change(self, &mut group)?;
        self.write(&group).map_err(|why| fault(Kind::Unwritten, why))?;
        Ok(group)
    }

    /// Applies what is given on a disk that does not take it, mostly: then it is taken back.
    pub(crate) fn refused(
        &mut self,
        change: impl FnOnce(&mut World, &mut Group) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let journal = Arc::clone(&self.server.journal);
        let gate = journal.enter();
        let (mut group, before) = (Group::new(), self.truths.clone());
        change(self, &mut group)?;
        self.disk.fail_writes(true);
        if self.write(&group).is_err() {
            group.iter_mut().rev().for_each(|deltas| self.server.store.take_back(deltas));
            self.truths = before;
            self.truths.iter_mut().for_each(Truth::take_back);
        }
        self.disk.fail_writes(false);
        drop(gate);
        let is_mended = (0..MENDS).any(|_| journal.mend());
        if is_mended { Ok(()) } else { Err(fault(Kind::Unwritten, "the disk is well again".to_owned())) }
    }

    fn write(&self, group: &Group) -> Result<(), String> {
        if group.is_empty() {
            return Ok(());
        }
        let journal = &self.server.journal;
        let hold = match journal.write(group.iter()).map_err(|refused| refused.to_string())? {
            Receipt::Kept => return Ok(()),
            Receipt::Wait(hold) => hold,
        };
        journal.sync();
        match journal.verdict(&hold) {
            Verdict::Kept => Ok(()),
            verdict => Err(format!("what waited is {verdict:?}")),
        }
    }
}
