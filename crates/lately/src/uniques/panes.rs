//! The panes that a sketch distinguishes, which are wider than those of hits: at most an eighth of their age.
//!
//! Widths double, so that panes nest, like those of hits.

use thin_vec::ThinVec;

use crate::allocation::allocated;
use crate::leb128;
use crate::settings::Settings;
use crate::time::Timestamp;

use super::coarse::Coarse;
use super::take_ms;

/// A pane is at most one part in this many of its age.
const PARTS_OF_AGE: i64 = 8;
/// The most panes. Of each width there are at most 10, and of the narrowest 18, and some are ahead of the clock. So after merging there are at
/// most 246 (`UNIQUE_OCTAVES`), and one byte says which.
const MOST: usize = 254;
/// After this number of further panes, those that are old enough are merged.
const MORE: usize = 16;

/// The number of a pane: 1 is the oldest. 0 is none.
pub(super) type Stamp = u8;

/// What has become of each stamp.
pub(super) type NewStamps = [Stamp; 256];

/// Panes that are ahead of the clock.
const AHEAD: i64 = 16;

/// The widest pane that may have a time in it now: its start and its width. The panes of all times are disjoint or equal.
fn cell_of(at_ms: i64, narrowest_ms: i64, now: Timestamp) -> (i64, i64) {
    let age_ms = (now.as_millis() - at_ms).max(0);
    let times = age_ms / PARTS_OF_AGE / narrowest_ms;
    for octave in (0..=times.checked_ilog2().unwrap_or(0)).rev() {
        let width_ms = narrowest_ms << octave;
        let start_ms = at_ms.div_euclid(width_ms) * width_ms;
        if octave == 0 || now.as_millis() - (start_ms + width_ms) >= PARTS_OF_AGE * width_ms {
            return (start_ms, width_ms);
        }
    }
    unreachable!("the narrowest may have any age")
}

/// The starts of the panes that have members, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Panes {
    /// Starts are multiples of the unit, counted from the first one.
    first_ms: i64,
    unit_ms: i64,
    starts: ThinVec<u32>,
    /// The number of panes at which those that are old enough are merged.
    most: u8,
    coarse: Coarse,
}

/// Where a time falls into panes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Edge {
    /// Hits of this time or later are in panes that begin here or later.
    pub(super) earliest_ms: i64,
    /// All hits of panes that begin here or later are of this time or later.
    pub(super) certain_ms: i64,
    /// The share of the hits of the panes between that are of this time or later.
    pub(super) share: f64,
}

impl Panes {
    pub(super) fn new(settings: &Settings) -> Panes {
        let (unit_ms, starts, coarse) = (settings.unique_pane_ms(), ThinVec::new(), Coarse::default());
        Panes { first_ms: 0, unit_ms, starts, most: Stamp::MAX, coarse }.with_starts(&[])
    }

    /// Where the panes are cut at a time.
    pub(super) fn edge(&self, at_ms: i64, settings: &Settings, now: Timestamp) -> Edge {
        if self.coarse.has(at_ms) {
            return Edge { earliest_ms: self.earliest_ms(at_ms, now), certain_ms: at_ms, share: 0.5 };
        }
        let (start_ms, width_ms) = cell_of(at_ms, settings.unique_pane_ms(), now);
        if at_ms == start_ms {
            return Edge { earliest_ms: at_ms, certain_ms: at_ms, share: 1.0 };
        }
        let certain_ms = start_ms + width_ms;
        Edge { earliest_ms: start_ms, certain_ms, share: (certain_ms - at_ms) as f64 / width_ms as f64 }
    }

    /// A coarse pane that begins at this time or later may have hits of `at_ms` or later.
    fn earliest_ms(&self, at_ms: i64, now: Timestamp) -> i64 {
        // Panes of another class may lie across those of this one. Both are narrowest, or at most an eighth of their age.
        let earliest_ms = self.coarse.earliest_ms(at_ms) - self.unit_ms;
        earliest_ms - (now.as_millis() - earliest_ms).max(0) / (PARTS_OF_AGE / 2)
    }

    /// Some panes are wider than the class has them.
    pub(super) fn note_coarse(&mut self, coarse: Coarse) {
        self.coarse.note(coarse);
    }

    pub(super) fn coarse(&self) -> Coarse {
        self.coarse
    }

    /// Fits the panes of another class to this one. Stamps change, as the result says.
    pub(super) fn fit(&mut self, settings: &Settings, now: Timestamp) -> Option<NewStamps> {
        if self.unit_ms == settings.unique_pane_ms() {
            return None;
        }
        if let Some(&newest) = self.starts.last() {
            self.coarse.note(Coarse::until(self.start_ms(newest) + self.unit_ms, self.unit_ms));
        }
        Some(self.tidy(settings, now))
    }

    /// Where the pane of a time begins. There are only a few panes ahead of the clock: if they have to be wider for that, this is
    /// noted.
    pub(super) fn place(&mut self, at_ms: i64, settings: &Settings, now: Timestamp) -> i64 {
        if at_ms <= now.as_millis() {
            return at_ms;
        }
        let unit_ms = settings.unique_pane_ms();
        let mut width_ms = unit_ms;
        while settings.max_skew().as_millis() > AHEAD * width_ms {
            width_ms *= 2;
        }
        if width_ms == unit_ms {
            return at_ms;
        }
        let start_ms = at_ms.div_euclid(width_ms) * width_ms;
        self.coarse.note(Coarse::until(start_ms + width_ms, width_ms));
        start_ms
    }

    /// The stamp of a time, if its pane is the newest one.
    pub(super) fn newest_at(&self, at_ms: i64) -> Option<Stamp> {
        let newest_ms = self.start_ms(*self.starts.last()?);
        (newest_ms..newest_ms + self.unit_ms).contains(&at_ms).then_some(self.newest())
    }

    /// The stamp of a time that has a pane, and otherwise that of the last pane before it.
    pub(super) fn last_before(&self, at_ms: i64) -> Stamp {
        stamp(self.starts.partition_point(|&start| self.start_ms(start) <= at_ms))
    }

    /// The first stamp of the panes from a time on.
    pub(super) fn first_from(&self, from_ms: i64) -> Stamp {
        stamp(self.starts.partition_point(|&start| self.start_ms(start) < from_ms) + 1)
    }

    /// The start of the pane with a stamp.
    fn start_of(&self, stamp: Stamp) -> Option<i64> {
        self.starts.get(usize::from(stamp).checked_sub(1)?).map(|&start| self.start_ms(start))
    }

    /// The starts of all panes.
    pub(super) fn starts_ms(&self) -> Vec<i64> {
        self.starts.iter().map(|&start| self.start_ms(start)).collect()
    }

    /// The stamp of a time. If it is a new pane, or panes were merged, stamps change as the second result says.
    pub(super) fn stamp_of(
        &mut self,
        at_ms: i64,
        settings: &Settings,
        now: Timestamp,
    ) -> (Stamp, Option<NewStamps>) {
        let unit_ms = self.unit_ms;
        let cell = |at_ms| cell_of(at_ms, unit_ms, now).0;
        let start_ms = cell(at_ms);
        let before = self.last_before(at_ms);
        if self.start_of(before).is_some_and(|held_ms| cell(held_ms) == start_ms) {
            return (before, None);
        }
        let is_newest = before == self.newest();
        if is_newest && self.starts.len() + 1 < usize::from(self.most) {
            let first_ms = if self.starts.is_empty() { start_ms } else { self.first_ms };
            if let Ok(start) = u32::try_from((start_ms - first_ms) / unit_ms) {
                self.first_ms = first_ms;
                if self.starts.len() == self.starts.capacity() {
                    self.starts.reserve_exact(MORE / 2);
                }
                self.starts.push(start);
                return (self.newest(), None);
            }
        }
        let new_stamps = self.rebuild(Some(start_ms), settings, now);
        (self.last_before(start_ms).max(1), Some(new_stamps))
    }

    /// Merges the panes that are old enough, and drops those that are older than the retention.
    pub(super) fn tidy(&mut self, settings: &Settings, now: Timestamp) -> NewStamps {
        self.rebuild(None, settings, now)
    }

    /// Later panes than this time become one.
    pub(super) fn end_by(&mut self, latest_ms: i64, settings: &Settings, now: Timestamp) -> NewStamps {
        self.coarse.end_by(latest_ms);
        let held: Vec<_> = self.starts_ms().iter().map(|&start_ms| start_ms.min(latest_ms)).collect();
        self.replace(&held, None, settings, now)
    }

    fn rebuild(&mut self, added_ms: Option<i64>, settings: &Settings, now: Timestamp) -> NewStamps {
        self.replace(&self.starts_ms(), added_ms, settings, now)
    }

    /// Replaces the panes, which start at these times now.
    fn replace(
        &mut self,
        held: &[i64],
        added_ms: Option<i64>,
        settings: &Settings,
        now: Timestamp,
    ) -> NewStamps {
        self.unit_ms = settings.unique_pane_ms();
        let oldest_ms = settings.retention_edge_ms(now);
        // A pane goes when all of it is older.
        let starts_of = |&at_ms: &i64| {
            let (start_ms, width_ms) = cell_of(at_ms, self.unit_ms, now);
            let is_kept = start_ms + width_ms > oldest_ms
                || self.coarse.has(oldest_ms) && start_ms >= self.earliest_ms(oldest_ms, now);
            is_kept.then_some(start_ms)
        };
        let mut starts: Vec<_> = held.iter().chain(&added_ms).filter_map(starts_of).collect();
        starts.sort_unstable();
        starts.dedup();
        // More there are only where nothing leaves the retention. Then the oldest are one.
        starts.drain(..starts.len().saturating_sub(MOST));
        let mut new_stamps = [0; 256];
        for (held, new) in held.iter().zip(&mut new_stamps[1..]) {
            if let Some(start_ms) = starts_of(held) {
                *new = stamp(starts.partition_point(|&start| start <= start_ms).max(1));
            }
        }
        let (unit_ms, coarse) = (self.unit_ms, self.coarse);
        let panes = Panes { unit_ms, first_ms: 0, starts: ThinVec::new(), most: 0, coarse };
        *self = panes.with_starts(&starts);
        new_stamps
    }

    fn with_starts(mut self, starts_ms: &[i64]) -> Panes {
        self.first_ms = starts_ms.first().copied().unwrap_or(0);
        self.starts.reserve_exact(starts_ms.len());
        self.starts.extend(
            starts_ms
                .iter()
                .map(|start_ms| u32::try_from((start_ms - self.first_ms) / self.unit_ms).unwrap_or(u32::MAX)),
        );
        self.most = stamp((self.starts.len() + MORE).min(MOST + 1));
        self
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match self.starts.capacity() {
            0 => 0,
            capacity => allocated(16 + capacity * size_of::<u32>()),
        }
    }

    pub(super) fn newest(&self) -> Stamp {
        stamp(self.starts.len())
    }

    fn start_ms(&self, start: u32) -> i64 {
        self.first_ms + i64::from(start) * self.unit_ms
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        leb128::push(out, self.unit_ms.cast_unsigned());
        leb128::push(out, self.first_ms.cast_unsigned());
        leb128::push(out, self.starts.len() as u64);
        let mut before = 0;
        for &start in &self.starts {
            leb128::push(out, u64::from(start - before));
            before = start;
        }
    }

    pub(super) fn read(bytes: &mut &[u8]) -> Option<Panes> {
        let unit_ms = take_ms(bytes).filter(|&unit_ms| unit_ms > 0)?;
        let first_ms = take_ms(bytes)?;
        let len = usize::try_from(leb128::take(bytes)?).ok().filter(|&len| len < MOST + 1)?;
        let mut starts = ThinVec::with_capacity(len);
        let mut start = 0_u32;
        for index in 0..len {
            let more = u32::try_from(leb128::take(bytes)?).ok()?;
            start = start.checked_add(more)?;
            if (index == 0) != (more == 0) {
                return None;
            }
            starts.push(start);
        }
        let last_ms = i64::from(start).checked_mul(unit_ms)?.checked_add(first_ms)?;
        (last_ms <= Timestamp::MAX.as_millis()).then(|| Panes {
            first_ms,
            unit_ms,
            most: stamp((len + MORE).min(MOST + 1)),
            starts,
            coarse: Coarse::default(),
        })
    }

    pub(super) fn check_consistency(&self) {
        assert!(self.starts.is_sorted_by(|one, two| one < two), "panes are in order");
        assert!(self.starts.len() <= MOST, "panes are bounded");
    }
}

fn stamp(number: usize) -> Stamp {
    Stamp::try_from(number).expect("there are fewer panes")
}
