//! What a simulation did, and what of it is on the disk, for certain or maybe.

use std::collections::BTreeSet;

use lately::Store;

use crate::life::{Action, Batch, Life, reference};
use crate::rng::trace;

/// What is known of a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum State {
    /// Refused, and gone for good.
    #[default]
    Gone,
    /// Refused: it may be on the disk after a loss of power.
    Refused,
    /// It may be on the disk: nobody was told that it counts.
    InDoubt,
    /// It survives a kill.
    Acknowledged,
    /// It survives a loss of power.
    Synced,
}

#[derive(Default)]
pub(crate) struct Ran {
    pub(crate) batch: Batch,
    pub(crate) state: State,
    /// Where it stands in the order in which batches were applied.
    pub(crate) turn: usize,
    /// Keys it hit, if others wait to be written behind it that were applied before.
    pub(crate) hit: BTreeSet<Vec<u8>>,
    /// Whether it was written behind batches that were applied later.
    pub(crate) is_late: bool,
}

/// All batches.
#[derive(Default)]
pub(crate) struct Past {
    /// In the order they were written.
    pub(crate) ran: Vec<Ran>,
    turns: usize,
}

impl Past {
    /// The next place in the order in which batches are applied.
    pub(crate) fn turn(&mut self) -> usize {
        self.turns += 1;
        self.turns
    }

    pub(crate) fn push(&mut self, batch: Batch, state: State) {
        let turn = self.turn();
        self.ran.push(Ran { batch, state, turn, ..Ran::default() });
    }

    /// Takes note of what was found: the rest never was.
    pub(crate) fn found(&mut self, sure: usize, found: usize, least: State, shadows: bool) {
        let synced = |(turn, batch)| Ran { batch, state: State::Synced, turn, ..Ran::default() };
        self.ran = self.seen(sure, found, least, shadows).into_iter().map(synced).collect();
    }

    /// The batches that count of the first `sure`, and all up to `found` that are at least so certain. Of those that
    /// do not count and were written late there may be shadows: ends of keys that others, which count, hit again.
    fn seen(&self, sure: usize, found: usize, least: State, shadows: bool) -> Vec<(usize, Batch)> {
        let least = |index: usize| if index < sure { State::Acknowledged } else { least };
        let counts = |index: usize| index < found && self.ran[index].state >= least(index);
        let shadow = |index: usize| {
            let Ran { batch, turn, .. } = &self.ran[index];
            let others = (0..index).filter(|&other| counts(other) && self.ran[other].turn > *turn);
            let hit: BTreeSet<_> = others.flat_map(|other| &self.ran[other].hit).collect();
            let is_seen = |action: &&Action| matches!(action, Action::Delete { key } if hit.contains(key));
            Batch { now: batch.now, actions: batch.actions.iter().filter(is_seen).cloned().collect() }
        };
        let seen = |index: usize| {
            let Ran { batch, turn, is_late, .. } = &self.ran[index];
            let is_shadow = shadows && *is_late && !counts(index);
            let batch = if is_shadow { shadow(index) } else { batch.clone() };
            (is_shadow || counts(index)).then_some((*turn, batch))
        };
        let mut seen: Vec<_> = (0..self.ran.len()).filter_map(seen).collect();
        seen.sort_by_key(|&(turn, _)| turn);
        seen
    }

    pub(crate) fn wanted(&self, sure: usize, found: usize, least: State, shadows: bool) -> Store {
        reference(self.seen(sure, found, least, shadows).iter().map(|(_, batch)| batch))
    }

    /// How old what was acknowledged and would be lost if so many batches were found is, when the last is
    /// acknowledged. A batch may be written, and acknowledged, seconds after it was applied: after others that were applied
    /// then.
    pub(crate) fn lost_ms(&self, found: usize) -> i64 {
        let acknowledged = |ran: &&Ran| ran.state >= State::Acknowledged;
        let first_lost = (found..self.ran.len()).find(|&index| acknowledged(&&self.ran[index]));
        let newest = self.ran.iter().rposition(|ran| acknowledged(&ran));
        // What changed nothing was not written.
        let written = |ran: &&Ran| !ran.batch.actions.is_empty();
        let written_ms = |index: usize| {
            let times = self.ran[..=index].iter().filter(written).map(|ran| ran.batch.now.as_millis());
            times.max().unwrap_or(0)
        };
        first_lost.zip(newest).map_or(0, |(lost, newest)| written_ms(newest) - written_ms(lost))
    }

    /// Everything that was acknowledged by now is on the disk for good.
    pub(crate) fn synced(&mut self) {
        trace(|| "all is synced".to_owned());
        for ran in &mut self.ran {
            if ran.state == State::Acknowledged {
                ran.state = State::Synced;
            }
        }
    }

    /// Whether a batch was taken back, and one that was applied later and may have ended what it ended was not.
    /// Who ended it for good nobody can tell then: hits may be back that should not be, until the next start.
    pub(crate) fn is_torn_apart(&self, life: &Life) -> bool {
        (1..self.ran.len()).any(|index| {
            let [later, first] = [index - 1, index].map(|index| &self.ran[index]);
            first.is_late
                && first.state < State::Acknowledged
                && (later.state >= State::Acknowledged || life.is_waiting(index - 1))
                && !life.is_waiting(index)
        })
    }
}
