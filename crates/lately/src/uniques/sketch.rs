//! A sketch of any number of members, which estimates how many of them were hit since the start of any pane.
//!
//! It is the bitmap of probabilistic counting (Flajolet and Martin, "Probabilistic counting algorithms for data base
//! applications", 1985) with a stamp for each bit: the pane in which a member last set it. The bits whose stamps are in a
//! window are the bitmap of the members of this window.

use crate::settings::Settings;
use crate::time::Timestamp;

use super::Member;
use super::cells::{Cells, Place};
use super::coarse::Coarse;
use super::estimate::Estimate;
use super::panes::{Edge, Panes, Stamp};

/// A sketch.
#[derive(Clone, Debug)]
pub(super) struct Sketch {
    panes: Panes,
    cells: Cells,
}

impl Sketch {
    pub(super) fn new(settings: &Settings) -> Sketch {
        Sketch { panes: Panes::new(settings), cells: Cells::default() }
    }

    /// Adds a member that was hit at a time.
    #[inline]
    pub(super) fn add(&mut self, member: Member, at_ms: i64, settings: &Settings, now: Timestamp) {
        let at_ms = self.panes.place(at_ms, settings, now);
        let stamp = self.panes.newest_at(at_ms).unwrap_or_else(|| {
            let (stamp, new_stamps) = self.panes.stamp_of(at_ms, settings, now);
            new_stamps.inspect(|new_stamps| self.cells.restamp(new_stamps));
            stamp
        });
        self.cells.set(Place::of(member), stamp);
    }

    /// Adds the members of another sketch.
    pub(super) fn merge(&mut self, other: &Sketch, settings: &Settings, now: Timestamp) {
        let starts_ms = other.panes.starts_ms();
        self.panes.note_coarse(other.panes.coarse());
        for &start_ms in &starts_ms {
            let (_, new_stamps) = self.panes.stamp_of(start_ms, settings, now);
            new_stamps.inspect(|new_stamps| self.cells.restamp(new_stamps));
        }
        let mut new = [0; 256];
        for (&start_ms, new) in starts_ms.iter().zip(&mut new[1..]) {
            *new = self.panes.last_before(start_ms);
        }
        self.cells.merge(&other.cells, &new);
    }

    /// How many members are in panes that begin at this time or later.
    pub(super) fn estimate(&self, from_ms: i64) -> Estimate {
        Estimate::of(&self.cells.tally(self.panes.first_from(from_ms)))
    }

    /// Where the panes are cut at a time.
    pub(super) fn edge(&self, at_ms: i64, settings: &Settings, now: Timestamp) -> Edge {
        self.panes.edge(at_ms, settings, now)
    }

    /// Some times are known less well.
    pub(super) fn note_coarse(&mut self, coarse: Coarse) {
        self.panes.note_coarse(coarse);
    }

    pub(super) fn coarse(&self) -> Coarse {
        self.panes.coarse()
    }

    /// Fits what was counted in another class to this one.
    pub(super) fn fit(&mut self, settings: &Settings, now: Timestamp) {
        let new_stamps = self.panes.fit(settings, now);
        new_stamps.iter().for_each(|new_stamps| self.cells.restamp(new_stamps));
    }

    pub(super) fn tidy(&mut self, settings: &Settings, now: Timestamp) {
        let new_stamps = self.panes.tidy(settings, now);
        self.cells.restamp(&new_stamps);
    }

    /// Removes the members whose last pane begins at this time or before.
    pub(super) fn drop_until(&mut self, until_ms: i64) {
        let last = self.panes.last_before(until_ms);
        let mut new_stamps = [0; 256];
        for (new, stamp) in new_stamps.iter_mut().zip(0..=Stamp::MAX).skip(usize::from(last) + 1) {
            *new = stamp;
        }
        self.cells.restamp(&new_stamps);
    }

    pub(super) fn end_by(&mut self, latest_ms: i64, settings: &Settings, now: Timestamp) {
        let new_stamps = self.panes.end_by(latest_ms, settings, now);
        self.cells.restamp(&new_stamps);
    }

    /// The number of panes.
    #[cfg(test)]
    pub(super) fn panes(&self) -> u8 {
        self.panes.newest()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.panes.heap_bytes() + self.cells.heap_bytes()
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.panes.write(out);
        self.cells.write(out);
    }

    pub(super) fn read(bytes: &mut &[u8]) -> Option<Sketch> {
        let panes = Panes::read(bytes)?;
        let cells = Cells::read(bytes, panes.newest())?;
        Some(Sketch { panes, cells })
    }

    pub(super) fn check_consistency(&self) {
        self.panes.check_consistency();
        self.cells.check_consistency(self.panes.newest());
    }
}
