//! The history of a simulation, and the batches that are on the disk, certainly or possibly.

use std::collections::BTreeSet;

use lately::Store;

use crate::life::{Action, Batch, Life, Members, members_of, reference};
use test_support::trace;

/// The state of a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum State {
    /// Refused, and lost for certain.
    #[default]
    Gone,
    /// Refused, but may be on the disk after a loss of power.
    Refused,
    /// May be on the disk, but was not acknowledged.
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
    /// Its position in the order in which batches were applied.
    pub(crate) position: usize,
    /// The keys that it hit, if batches that were applied before are written after it.
    pub(crate) hit: BTreeSet<Vec<u8>>,
    /// Whether it was written after batches that were applied later.
    pub(crate) is_late: bool,
}

/// All batches.
#[derive(Default)]
pub(crate) struct Past {
    /// Their order of writing.
    pub(crate) ran: Vec<Ran>,
    positions: usize,
    /// Members of hits of earlier starts that were lost. A checkpoint may have them.
    lost: Members,
}

impl Past {
    /// The next position in the order in which batches are applied.
    pub(crate) fn position(&mut self) -> usize {
        self.positions += 1;
        self.positions
    }

    pub(crate) fn push(&mut self, batch: Batch, state: State) {
        let position = self.position();
        self.ran.push(Ran { batch, state, position, ..Ran::default() });
    }

    /// Records what was found. All other batches are lost.
    pub(crate) fn found(&mut self, sure: usize, found: usize, least: State, shadows: bool) {
        let synced = |(position, batch)| Ran { batch, state: State::Synced, position, ..Ran::default() };
        self.lost = self.refused_members();
        self.ran = self.seen(sure, found, least, shadows).into_iter().map(synced).collect();
    }

    /// The valid batches: those of the first `sure`, and all up to `found` that are at least so certain.
    /// Batches that are not valid and were written late may leave effects: deletions of keys that valid
    /// batches hit again.
    fn seen(&self, sure: usize, found: usize, least: State, shadows: bool) -> Vec<(usize, Batch)> {
        let least = |index: usize| if index < sure { State::Acknowledged } else { least };
        let counts = |index: usize| index < found && self.ran[index].state >= least(index);
        let shadow = |index: usize| {
            let Ran { batch, position, .. } = &self.ran[index];
            let others = (0..index).filter(|&other| counts(other) && self.ran[other].position > *position);
            let hit: BTreeSet<_> = others.flat_map(|other| &self.ran[other].hit).collect();
            let is_seen = |action: &&Action| matches!(action, Action::Delete { key } if hit.contains(key));
            Batch { now: batch.now, actions: batch.actions.iter().filter(is_seen).cloned().collect() }
        };
        let seen = |index: usize| {
            let Ran { batch, position, is_late, .. } = &self.ran[index];
            let is_shadow = shadows && *is_late && !counts(index);
            let batch = if is_shadow { shadow(index) } else { batch.clone() };
            (is_shadow || counts(index)).then_some((*position, batch))
        };
        let mut seen: Vec<_> = (0..self.ran.len()).filter_map(seen).collect();
        seen.sort_by_key(|&(position, _)| position);
        seen
    }

    /// Members that may be known although their hits are not.
    pub(crate) fn refused_members(&self) -> Members {
        let unkept = self.ran.iter().filter(|ran| ran.state < State::Acknowledged);
        unkept.flat_map(|ran| members_of(&ran.batch)).chain(self.lost.iter().cloned()).collect()
    }

    pub(crate) fn wanted(&self, sure: usize, found: usize, least: State, shadows: bool) -> Store {
        reference(self.seen(sure, found, least, shadows).iter().map(|(_, batch)| batch))
    }

    /// The age of the oldest acknowledged batch that would be lost if `found` batches were found, at the time
    /// when the last one is acknowledged. A batch may be written, and acknowledged, seconds after it was
    /// applied, and after batches that were applied later.
    pub(crate) fn lost_ms(&self, found: usize) -> i64 {
        let acknowledged = |ran: &&Ran| ran.state >= State::Acknowledged;
        let first_lost = (found..self.ran.len()).find(|&index| acknowledged(&&self.ran[index]));
        let newest = self.ran.iter().rposition(|ran| acknowledged(&ran));
        // Batches without changes are not written.
        let written = |ran: &&Ran| !ran.batch.actions.is_empty();
        let written_ms = |index: usize| {
            let times = self.ran[..=index].iter().filter(written).map(|ran| ran.batch.now.as_millis());
            times.max().unwrap_or(0)
        };
        first_lost.zip(newest).map_or(0, |(lost, newest)| written_ms(newest) - written_ms(lost))
    }

    /// Everything that was acknowledged before is on the disk.
    pub(crate) fn synced(&mut self) {
        trace(|| "all is synced".to_owned());
        for ran in &mut self.ran {
            if ran.state == State::Acknowledged {
                ran.state = State::Synced;
            }
        }
    }

    /// Whether a batch was rolled back, and a later one, which may have deleted the same keys, was not. It is
    /// then unknown which deletion was final: hits may be back wrongly until the next start.
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
