//! The distinct members of a key's hits.
//!
//! A key with few members keeps each of them, with the pane of its last hit (`recent.rs`). With more, it keeps the most recent ones, and
//! a sketch of all of them (`sketch.rs`). A window that ends now has the members whose last hit is not before its start, so
//! last times are all that answers need, and one structure answers for every window.

mod cells;
mod estimate;
mod panes;
mod recent;
mod sketch;

use crate::allocation::allocated;
use crate::count::Count;
use crate::fingerprint::fingerprint;
use crate::leb128;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};
use crate::window::Window;

pub(crate) use panes::narrowest_ms;

use recent::Recent;
use sketch::Sketch;

/// The part of a fingerprint that is kept of a member.
const HASH_BITS: u32 = 48;

/// A member of a key, as a hash of 48 bits. The same member has the same hash in every key and on every node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member(u64);

impl Member {
    /// The bytes of a hash.
    pub(crate) const BYTES: usize = HASH_BITS as usize / 8;

    pub(crate) fn new(member: &[u8]) -> Member {
        // The key of the hash is no secret: what nodes know of a key could not be merged else.
        Member::from_hash(fingerprint(0, member))
    }

    /// The member with this hash, of which only the low 48 bits count.
    pub(crate) fn from_hash(hash: u64) -> Member {
        Member(hash & ((1 << HASH_BITS) - 1))
    }

    pub(crate) fn hash(self) -> u64 {
        self.0
    }
}

/// What a member replaced, to roll it back.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Before {
    /// The last time of the member, if it was among the recent ones.
    recent_ms: Option<i64>,
    /// The last time of its cell in the sketch, if that had one.
    cell_ms: Option<i64>,
}

impl Before {
    /// Whether a hit at this time was replaced.
    pub(crate) fn is_of(self, at_ms: i64) -> bool {
        self.recent_ms == Some(at_ms)
    }
}

/// The members of a key.
#[derive(Default, Debug)]
pub(crate) struct Uniques {
    recent: Recent,
    sketch: Option<Box<Sketch>>,
}

impl Uniques {
    /// Adds a member that was hit at a time. Returns what it replaced.
    pub(crate) fn add(
        &mut self,
        member: Member,
        at: Timestamp,
        settings: &Settings,
        now: Timestamp,
    ) -> Before {
        let at_ms = settings.pane_start(at).as_millis();
        if self.sketch.is_none() && self.recent.is_full_without(member) {
            self.recent.drop_before(settings.retention_edge_ms(now));
            if self.recent.is_full_without(member) {
                let mut sketch = Sketch::new(settings);
                self.recent.iter().for_each(|(member, at_ms)| _ = sketch.add(member, at_ms, settings, now));
                self.sketch = Some(Box::new(sketch));
            }
        }
        Before {
            recent_ms: self.recent.add(member, at_ms),
            cell_ms: self.sketch.as_mut().and_then(|sketch| sketch.add(member, at_ms, settings, now)),
        }
    }

    /// Rolls back what [`Uniques::add`] did. Returns false if the member was hit at another time since, so that what it
    /// replaced is still to come back when that is rolled back.
    pub(crate) fn take_back(&mut self, member: Member, at_ms: i64, before: Before) -> bool {
        let is_last = self.recent.take_back(member, at_ms, before.recent_ms);
        if let Some(sketch) = &mut self.sketch {
            sketch.take_back(member, at_ms, before.cell_ms);
        }
        is_last
    }

    /// Adds the members of another part of the key's life.
    pub(crate) fn absorb(&mut self, other: Uniques, settings: &Settings, now: Timestamp) {
        if let Some(sketch) = other.sketch {
            let mut merged = match self.sketch.take() {
                Some(held) => held,
                None => {
                    let mut own = Sketch::new(settings);
                    self.recent.iter().for_each(|(member, at_ms)| _ = own.add(member, at_ms, settings, now));
                    Box::new(own)
                }
            };
            merged.merge(&sketch, settings, now);
            self.sketch = Some(merged);
            self.recent.forget_until(other.recent.floor_ms());
        }
        for (member, at_ms) in other.recent.iter() {
            self.add(member, Timestamp::from_millis(at_ms).unwrap_or(now), settings, now);
        }
    }

    /// The distinct members in the window of a length that ends now.
    pub(crate) fn count(&self, span: Span, settings: &Settings, now: Timestamp) -> Count {
        let window = Window::ending_at(now, span, settings, now);
        let (from_ms, _) = window.edges_ms();
        let upper = |upper| window.is_known().then_some(upper);
        let few = self.recent.count_from(from_ms);
        let sketch = match &self.sketch {
            Some(sketch) if !self.recent.has_all_from(from_ms) => sketch,
            _ => return Count { estimate: few, lower: few, upper: upper(few), cell: settings.resolution() },
        };
        let (start_ms, width_ms) = panes::cell(from_ms, settings, now);
        let cell = Span::from_millis(width_ms).unwrap_or(settings.resolution());
        let [all, fewer] = [start_ms, start_ms + width_ms].map(|from_ms| sketch.estimate(from_ms));
        let fewer = if from_ms == start_ms { all } else { fewer };
        // Of the pane that the edge cuts, its share by time.
        let share = (start_ms + width_ms - from_ms) as f64 / width_ms as f64;
        let between = fewer.members + (all.members - fewer.members).max(0.0) * share;
        let (lower, most) = (fewer.lower().max(few), all.upper().max(few));
        let estimate = estimate::rounded(between).clamp(lower, most);
        Count { estimate, lower, upper: upper(most), cell }
    }

    /// Prefetches the recent members.
    pub(crate) fn prefetch(&self) {
        self.recent.prefetch();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sketch.is_none() && self.recent.is_empty()
    }

    /// Drops what is older than the retention. Returns whether nothing is left.
    pub(crate) fn tidy(&mut self, settings: &Settings, now: Timestamp) -> bool {
        let oldest_ms = settings.retention_edge_ms(now);
        self.recent.drop_before(oldest_ms);
        if self.recent.has_all_from(oldest_ms) {
            self.sketch = None;
        }
        if let Some(sketch) = &mut self.sketch {
            sketch.tidy(settings, now);
        }
        self.is_empty()
    }

    /// What was later than `now` counts as of now: the clock that wrote it was ahead.
    pub(crate) fn end_by(&mut self, now: Timestamp, settings: &Settings) {
        let latest_ms = settings.pane_start(now).as_millis();
        self.recent.end_by(latest_ms);
        if let Some(sketch) = &mut self.sketch {
            sketch.end_by(latest_ms, settings, now);
        }
    }

    /// The heap memory, with that of this value in a box.
    pub(crate) fn bytes(&self) -> usize {
        let sketch = |sketch: &Sketch| allocated(size_of::<Sketch>()) + sketch.heap_bytes();
        allocated(size_of::<Uniques>()) + self.recent.heap_bytes() + self.sketch.as_deref().map_or(0, sketch)
    }

    /// Appends the members to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.sketch.is_some()));
        self.recent.write(out);
        if let Some(sketch) = &self.sketch {
            sketch.write(out);
        }
    }

    /// Reads what [`Uniques::write`] wrote. `None` if the bytes are none.
    pub(crate) fn read(mut bytes: &[u8]) -> Option<Uniques> {
        let bytes = &mut bytes;
        let has_sketch = match *bytes.split_off_first()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let recent = Recent::read(bytes)?;
        let sketch = if has_sketch { Some(Box::new(Sketch::read(bytes)?)) } else { None };
        bytes.is_empty().then_some(Uniques { recent, sketch })
    }

    pub(crate) fn check_consistency(&self) {
        self.recent.check_consistency();
        if let Some(sketch) = &self.sketch {
            sketch.check_consistency();
        }
    }
}

/// Reads a time in milliseconds.
fn take_ms(bytes: &mut &[u8]) -> Option<i64> {
    let ms = i64::try_from(leb128::take(bytes)?).ok()?;
    (ms <= Timestamp::MAX.as_millis()).then_some(ms)
}

#[cfg(test)]
mod tests;
