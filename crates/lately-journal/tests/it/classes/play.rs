//! Runs a script, and checks answers after each step.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use lately::{Cursor, Timestamp};

use super::check::Answer;
use super::class::{Classes, KEYS};
use super::restore;
use super::script::{Act, Choices, End, Script, Step};
use super::world::{Group, Kept, Server, World};
use crate::sim_disk::SimDisk;
use test_support::trace;

/// The kinds of impossible results.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// The true hits are not between the bounds of a count.
    Bounds,
    /// The bounds are further apart than any pane allows.
    WideBounds,
    /// An upper bound exists that should not, or is missing.
    Unknown,
    /// An estimate is not between its bounds.
    Estimate,
    /// A wider window has fewer hits.
    Nested,
    /// The sum of a series' points is not the count.
    Series,
    /// The reply of a hit differs from a read after it, or is less than its weight.
    HitAnswer,
    /// A hit or a request was refused wrongly, or accepted wrongly.
    Refusal,
    /// A limit allowed too much.
    LimitAdmits,
    /// A limit denied a request although even the widest panes leave room.
    LimitDenies,
    /// Counts changed by a restart without a change of class; or limits became stricter without a replay.
    Restart,
    /// Written data cannot be read.
    Unreadable,
    /// A write to a healthy disk failed.
    Unwritten,
    /// An invariant of the store does not hold.
    Inconsistent,
    /// Something panicked.
    Panic,
}

/// A finding.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    pub(crate) what: String,
    /// The number of steps before it.
    pub(crate) steps: usize,
}

/// A finding whose step is not known yet.
pub(crate) type Fault = (Kind, String);

pub(crate) fn fault(kind: Kind, what: String) -> Fault {
    (kind, what)
}

/// Runs `work`. A panic is a fault.
pub(crate) fn guarded<T>(kind: Kind, run: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        fault(kind, text.unwrap_or_else(|| "a panic without words".to_owned()))
    })
}

/// Plays a script that is decoded from bytes.
///
/// # Panics
/// If there is a finding.
pub(crate) fn check(bytes: &[u8]) {
    let script = Script::any(&mut Choices::Bytes(bytes));
    if let Err(Finding { kind, what, steps }) = play(&script) {
        panic!("{kind:?} after {steps} steps: {what}\n{script:?}");
    }
}

/// Plays a script to its end or to the first finding.
pub(crate) fn play(script: &Script) -> Result<(), Finding> {
    let found = |steps: usize| move |(kind, what): Fault| Finding { kind, what, steps };
    trace(|| format!("classes {:?}", script.classes.0));
    let mut world =
        guarded(Kind::Panic, || World::begin(script)).and_then(|world| world).map_err(found(0))?;
    for (index, step) in script.steps.iter().enumerate() {
        trace(|| format!("{}: at {}, {step:?}", index + 1, world.now_ms));
        let played = guarded(Kind::Panic, || world.step(step)).and_then(|played| played);
        played.map_err(found(index + 1))?;
    }
    Ok(())
}

impl Act {
    /// The key of the step.
    fn key(&self) -> usize {
        match *self {
            Act::Hits { key, .. }
            | Act::Late { key, .. }
            | Act::Limit { key, .. }
            | Act::LimitAll { keys: [key, _], .. }
            | Act::Refused { key, .. }
            | Act::Forget { key }
            | Act::Tidy { key, .. }
            | Act::Checkpoint { key, .. }
            | Act::Dump { key, .. } => key,
            Act::Advance { .. } | Act::Restart { .. } | Act::Bring { .. } | Act::Move { .. } => 0,
        }
    }
}

impl World {
    /// Runs a step, and asks questions.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), Fault> {
        let mut choices = Choices::of_seed(step.salt);
        self.act(step, &mut choices)?;
        let other = choices.below(KEYS.len());
        self.check_key(step.act.key(), &mut choices)?;
        self.check_key(other, &mut choices)?;
        let store = Arc::clone(&self.server.store);
        guarded(Kind::Inconsistent, || store.check_consistency())
    }

    fn act(&mut self, step: &Step, choices: &mut Choices<'_>) -> Result<(), Fault> {
        match step.act {
            Act::Advance { ms } => self.now_ms += ms,
            Act::Hits { key, times, gap_ms, weight } => {
                self.kept(|world, group| {
                    (0..times).try_for_each(|_| {
                        world.now_ms += gap_ms;
                        world.hit(key, None, weight, group)
                    })
                })?;
            }
            Act::Late { key, times, back_ms, gap_ms, weight } => {
                let first_ms = self.now_ms - back_ms;
                self.kept(|world, group| {
                    let mut ats_ms = (0..).map(|number: i64| first_ms + number * gap_ms).take(times);
                    ats_ms.try_for_each(|at_ms| world.hit(key, Some(at_ms), weight, group))
                })?;
            }
            Act::Limit { key, times, gap_ms, back_ms, limit } => {
                self.kept(|world, group| {
                    (0..times).try_for_each(|_| {
                        world.now_ms += gap_ms;
                        let at_ms = Some(world.now_ms - back_ms).filter(|_| back_ms != 0);
                        world.limit(key, at_ms, limit, group)
                    })
                })?;
            }
            Act::LimitAll { keys, back_ms, limits } => {
                let at_ms = Some(self.now_ms - back_ms).filter(|_| back_ms != 0);
                self.kept(|world, group| world.limit_all(keys, at_ms, limits, group))?;
            }
            Act::Refused { key, times, back_ms, limit, forgets } => self.refused(|world, group| {
                for number in 0..times {
                    if forgets && number == times / 2 {
                        world.forget(key, group)?;
                    }
                    world.hit(key, None, 1, group)?;
                    world.hit(key, Some(world.now_ms - back_ms), 1, group)?;
                    world.limit(key, None, limit, group)?;
                }
                Ok(())
            })?,
            Act::Forget { key } => {
                self.kept(|world, group| world.forget(key, group))?;
            }
            Act::Tidy { key, sweeps: false } => self.server.store.merge_panes(KEYS[key], self.now()),
            Act::Tidy { .. } => {
                let store = Arc::clone(&self.server.store);
                let mut cursor = store.sweep(Cursor::START, 2_048, self.now());
                while cursor != Cursor::START {
                    cursor = store.sweep(cursor, 2_048, self.now());
                }
            }
            Act::Checkpoint { key, hits, given_up } => self.checkpoint(key, hits, given_up)?,
            Act::Restart { end, classes } => self.restart(end, classes, choices)?,
            Act::Dump { key, hits } => self.keep_dump(key, hits)?,
            Act::Bring { offline } => restore::bring(self, offline)?,
            Act::Move { dumped_offline, restored_offline, classes } => {
                restore::move_to(self, dumped_offline, restored_offline, classes)?;
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self, key: usize, hits: usize, given_up: bool) -> Result<(), Fault> {
        let journal = Arc::clone(&self.server.journal);
        let unwritten = |error: std::io::Error| fault(Kind::Unwritten, format!("a checkpoint: {error}"));
        let mut checkpoint = journal.checkpoint().map_err(unwritten)?;
        for number in 0.. {
            if number < hits {
                self.now_ms += 3;
                self.kept(|world, group| world.hit(key, None, 1, group))?;
            } else if given_up {
                checkpoint.abandon();
                return Ok(());
            }
            if checkpoint.step().map_err(unwritten)? {
                break;
            }
        }
        Ok(())
    }

    /// Ends the server in some way. Nothing uses its disk afterwards.
    pub(crate) fn end(&mut self, end: End) -> Result<(), Fault> {
        let journal = Arc::clone(&self.server.journal);
        match end {
            End::Stop => {
                journal.close().map_err(|error| fault(Kind::Unwritten, format!("a stop: {error}")))?;
            }
            End::Save => {
                let saved = journal.make_checkpoint(|| ()).and_then(|()| journal.close());
                saved.map_err(|error| fault(Kind::Unwritten, format!("a stop: {error}")))?;
            }
            End::Kill => {}
            End::KillInCheckpoint { bytes } => {
                self.disk.end_after(Some(bytes));
                // If it does not end before, the process ends behind the checkpoint.
                let _ = journal.make_checkpoint(|| ());
            }
        }
        self.disk.restart();
        Ok(())
    }

    fn restart(
        &mut self,
        end: End,
        classes: Option<Classes>,
        choices: &mut Choices<'_>,
    ) -> Result<(), Fault> {
        let classes = classes.unwrap_or(self.classes);
        let questions = if classes == self.classes { self.questions(choices) } else { Vec::new() };
        let before: Vec<Answer> = questions.iter().map(|question| self.answer(question)).collect();
        self.end(end)?;
        self.start(classes)?;
        for (question, before) in questions.iter().zip(before) {
            let after = self.answer(question);
            // Only the pane of a replayed hit is known at first, so a limit may count too much for a while.
            let is_stricter = end == End::Save && after.left() < before.left();
            if after.counts != before.counts || is_stricter {
                let what = format!("{question:?}: {before:?} before, {after:?} after");
                return Err(fault(Kind::Restart, what));
            }
            self.check_answer(question, &after)?;
        }
        Ok(())
    }

    /// Starts a server on the disk.
    pub(crate) fn start(&mut self, classes: Classes) -> Result<(), Fault> {
        self.change_classes(classes);
        self.seed = self.seed.wrapping_add(1);
        self.server = Server::start(&self.disk, &self.classes, self.seed)?;
        Ok(())
    }

    /// Switches to another disk.
    pub(crate) fn go_over(&mut self) {
        self.seed = self.seed.wrapping_add(1);
        self.disk = SimDisk::new(self.seed);
    }

    fn keep_dump(&mut self, key: usize, hits: usize) -> Result<(), Fault> {
        let bytes = self.dump(key, hits)?;
        let mut truths = self.truths.clone();
        for (truth, model) in truths.iter_mut().zip(&self.models) {
            truth.leave(model, self.now_ms, false);
        }
        self.kept = Some(Kept { bytes, truths });
        Ok(())
    }

    /// Dumps the running server, which is hit meanwhile.
    pub(crate) fn dump(&mut self, key: usize, hits: usize) -> Result<Vec<u8>, Fault> {
        let store = Arc::clone(&self.server.store);
        let hit = |world: &mut World| -> Result<Vec<(Timestamp, Vec<u8>)>, Fault> {
            world.now_ms += 3;
            let group: Group = world.kept(|world, group| world.hit(key, None, 1, group))?;
            Ok(group.iter().map(|deltas| (deltas.now(), deltas.bytes().to_vec())).collect())
        };
        restore::dump(&store, hits, || hit(self))
    }
}
