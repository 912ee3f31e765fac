//! A server with its disk, and the truth about its hits.

use std::collections::BTreeSet;
use std::sync::Arc;

use lately::{
    Decision, DeltaBatch, HitError, JointRequest, LimitError, Op, Outcome, Request, Retry, Span, Store,
    Timestamp,
};
use lately_classics::{ModelSettings, TrueHits, Truth};
use lately_journal::limits::Bounds;
use lately_journal::{Durability, Intent, Journal, LossKind, Progress, Receipt, Verdict, recover};

use super::class::{Classes, KEYS};
use super::play::{Fault, Kind, fault, guarded};
use super::script::{Limit, Script};
use crate::sim_disk::SimDisk;

/// The attempts of a journal to recover after the disk has recovered.
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

/// The changes of one write.
pub(crate) type Group = Vec<DeltaBatch>;

/// A small block of a checkpoint, so that there are steps between blocks.
pub(crate) fn bounds() -> Bounds {
    Bounds { block_bytes: 4 << 10, reserve_bytes: 32 << 10, ..Bounds::default() }
}

/// A dump, and the truth at its time.
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    pub(crate) truths: [KeyTruth; KEYS.len()],
}

/// The hits of a key: counted and denied ones.
#[derive(Clone, Default)]
pub(crate) struct KeyTruth {
    pub(crate) counted: Truth,
    pub(crate) denied: Truth,
}

impl KeyTruth {
    /// See [`Truth::leave`].
    pub(crate) fn leave(&mut self, class: &ModelSettings, now_ms: i64, is_same: bool) {
        self.counted.leave(class, now_ms, is_same);
        self.denied.leave(class, now_ms, is_same);
    }

    /// See [`Truth::blur`].
    pub(crate) fn blur(&mut self, other: &KeyTruth) {
        self.counted.blur(&other.counted);
        self.denied.blur(&other.denied);
    }

    /// Whether there is a hit that `class` certainly keeps, so that the key must exist.
    pub(crate) fn is_surely_kept(&self, class: &ModelSettings, now_ms: i64) -> bool {
        self.counted.is_surely_kept(class, now_ms) || self.denied.is_surely_kept(class, now_ms)
    }
}

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) now_ms: i64,
    pub(crate) disk: SimDisk,
    pub(crate) server: Server,
    pub(crate) classes: Classes,
    pub(crate) models: [ModelSettings; KEYS.len()],
    pub(crate) truths: [KeyTruth; KEYS.len()],
    pub(crate) kept: Option<Kept>,
}

impl Server {
    pub(crate) fn start(disk: &SimDisk, classes: &Classes, seed: u64) -> Result<Server, Fault> {
        let store = Arc::new(classes.store(seed));
        let threads = if seed.is_multiple_of(2) { 1 } else { 2 };
        let recovery = recover(disk, &store, Intent::Continue, Timestamp::MAX, threads, &Progress::default())
            .map_err(|error| fault(Kind::Unreadable, format!("a start: {error}")))?;
        // A kill during the start of a segment tears it.
        if let Some(loss) = recovery.losses.iter().find(|loss| loss.kind != LossKind::Torn) {
            return Err(fault(Kind::Unreadable, format!("a start: {loss}")));
        }
        guarded(Kind::Inconsistent, || store.check_consistency())?;
        let (disk, bounds) = (disk.clone(), bounds());
        let journal =
            Journal::begin_within(bounds, disk, Arc::clone(&store), Durability::Interval, &recovery)
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
            kept: None,
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        time(self.now_ms)
    }

    /// Records that a server with other classes, or the same, takes over.
    pub(crate) fn change_classes(&mut self, classes: Classes) {
        let models = classes.models();
        for ((truth, old), new) in self.truths.iter_mut().zip(&self.models).zip(&models) {
            truth.leave(old, self.now_ms, old == new);
        }
        (self.classes, self.models) = (classes, models);
    }

    /// Counts hits, at their own time or now, and compares the reply with a read.
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
        self.truths[key].counted.add(at_ms.unwrap_or(self.now_ms), weight, &model);
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
        let request = Request { at: at_ms.map(time), ..Request::new(KEYS[key], max, span(window_ms), cost) };
        let Outcome::Limit(decided) = self.apply(&Op::of(request), group) else {
            unreachable!("a request is answered with a decision")
        };
        let decided = decided.map(|decision| vec![decision]);
        self.decided(&[(key, limit)], cost, at_ms, &decided)
    }

    /// Makes a request under two limits, with the cost of the first.
    pub(crate) fn limit_all(
        &mut self,
        keys: [usize; 2],
        at_ms: Option<i64>,
        limits: [Limit; 2],
        group: &mut Group,
    ) -> Result<(), Fault> {
        let asked = [(keys[0], limits[0]), (keys[1], limits[1])];
        let cost = limits[0].cost;
        let limits = asked.map(|(key, Limit { max, window_ms, .. })| lately::Limit {
            key: KEYS[key],
            max,
            window: span(window_ms),
        });
        let request = JointRequest { limits: limits.to_vec(), cost, at: at_ms.map(time), is_peek: false };
        let Outcome::LimitAll(decided) = self.apply(&Op::LimitAll(Box::new(request)), group) else {
            unreachable!("a joint request is answered with a joint decision")
        };
        self.decided(&asked, cost, at_ms, &decided.map(|joint| joint.decisions))
    }

    /// Compares the decisions of limits with the truth. The cost is counted once for each key if all limits
    /// allow it. Otherwise it is denied, once for each key with a limit that denies it.
    fn decided(
        &mut self,
        asked: &[(usize, Limit)],
        cost: u64,
        at_ms: Option<i64>,
        decided: &Result<Vec<Decision>, LimitError>,
    ) -> Result<(), Fault> {
        let (now_ms, then_ms) = (self.now_ms, at_ms.unwrap_or(self.now_ms));
        let used = |world: &World, &(key, limit): &(usize, Limit)| {
            world.truths[key].counted.used(then_ms, limit.window_ms, &world.models[key], now_ms)
        };
        let used: Vec<TrueHits> = asked.iter().map(|asked| used(self, asked)).collect();
        let about =
            || format!("limits {asked:?} at a cost of {cost} AT {at_ms:?}: {decided:?}, true: {used:?}");
        let may_refuse = |&(key, Limit { window_ms, .. }): &(usize, Limit)| {
            let model = &self.models[key];
            let refuses_time = at_ms.is_some() && Truth::refusal(model, then_ms, now_ms).is_some();
            refuses_time || window_ms > model.retain_ms.min(model.retain_ms - (now_ms - then_ms))
        };
        let decisions = match decided {
            Ok(decisions) if !asked.iter().any(may_refuse) => decisions,
            Err(_) if asked.iter().any(may_refuse) => return Ok(()),
            _ => return Err(fault(Kind::Refusal, about())),
        };
        let is_allowed = decisions.iter().all(Decision::is_allowed);
        for (((key, limit), used), decision) in asked.iter().zip(&used).zip(decisions) {
            let taken = if is_allowed { cost } else { 0 };
            let left = limit.max.saturating_sub(used.certain);
            if decision.is_allowed() && cost > left || decision.left() > left.saturating_sub(taken) {
                return Err(fault(Kind::LimitAdmits, about()));
            }
            let is_wrong =
                used.outer + cost <= limit.max && self.truths[*key].counted.is_denied_by_hits_only();
            let is_never = decision.retry == Retry::Never;
            if is_never != (cost > limit.max) || is_wrong && !decision.is_allowed() {
                return Err(fault(Kind::LimitDenies, about()));
            }
        }
        let denies = |decision: &Decision| !decision.is_allowed();
        let changed = asked.iter().zip(decisions).filter(|(_, decision)| is_allowed || denies(decision));
        let keys: BTreeSet<usize> = changed.map(|((key, _), _)| *key).collect();
        for key in keys {
            let KeyTruth { counted, denied } = &mut self.truths[key];
            // A denied request does not count ahead of the clock.
            let (truth, at_ms) = if is_allowed { (counted, then_ms) } else { (denied, then_ms.min(now_ms)) };
            truth.add(at_ms, cost, &self.models[key]);
        }
        Ok(())
    }

    fn apply(&self, op: &Op<'_>, group: &mut Group) -> Outcome {
        let (mut out, mut deltas) = (Vec::new(), DeltaBatch::default());
        self.server.store.apply_into(std::slice::from_ref(op), self.now(), &mut out, &mut deltas);
        group.extend(Some(deltas).filter(|deltas| !deltas.is_empty()));
        out.pop().expect("an outcome")
    }

    pub(crate) fn forget(&mut self, key: usize, group: &mut Group) -> Result<(), Fault> {
        let (mut deltas, now) = (DeltaBatch::default(), self.now());
        let is_forgotten = self.server.store.forget_into(KEYS[key], now, Some(&mut deltas));
        group.extend(Some(deltas).filter(|deltas| !deltas.is_empty()));
        // A class with a longer retention does not find it on the disk, either.
        let truth = std::mem::take(&mut self.truths[key]);
        if !is_forgotten && truth.is_surely_kept(&self.models[key], self.now_ms) {
            Err(fault(Kind::Refusal, "a key with hits was not there to forget".to_owned()))
        } else {
            Ok(())
        }
    }

    /// Applies `change`, and writes it. A healthy disk accepts it.
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

    /// Applies `change` on a disk that most likely refuses it. Then it is rolled back.
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
            group.iter_mut().rev().for_each(|deltas| self.server.store.roll_back(deltas));
            self.truths = before;
            self.truths.iter_mut().for_each(|truth| truth.counted.roll_back());
        }
        self.disk.fail_writes(false);
        drop(gate);
        let is_mended = (0..MENDS).any(|_| journal.try_recover());
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
