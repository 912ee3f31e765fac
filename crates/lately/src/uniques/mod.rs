//! The distinct members of a key's hits.
//!
//! A key with few members keeps each of them, with the pane of its last hit (`recent.rs`). With more, it keeps the most recent ones, and
//! a sketch of all of them (`sketch.rs`). A window that ends now has the members whose last hit is not before its start, so
//! last times are all that answers need, and one structure answers for every window.

mod cells;
mod coarse;
mod estimate;
mod member_set;
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

use coarse::Coarse;
pub use member_set::MemberSet;
use panes::Edge;
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

/// The members of a key.
#[derive(Clone, Default, Debug)]
pub(crate) struct Uniques {
    recent: Recent,
    sketch: Option<Box<Sketch>>,
    /// When the first of them was counted, whenever it was hit. The epoch if that is not known: some were loaded or merged.
    since: Timestamp,
}

impl Uniques {
    /// Adds a member that was hit at a time.
    pub(crate) fn add(&mut self, member: Member, at: Timestamp, settings: &Settings, now: Timestamp) {
        let at_ms = settings.pane_start(at).as_millis();
        if self.is_empty() {
            self.since = now;
        }
        if self.sketch.is_none() && self.recent.is_full_without(member) {
            self.recent.drop_before(settings.retention_edge_ms(now));
            if self.recent.is_full_without(member) {
                self.sketch = Some(self.sketch_of_recent(settings, now));
            }
        }
        self.recent.add(member, at_ms);
        if let Some(sketch) = &mut self.sketch {
            sketch.add(member, at_ms, settings, now);
        }
    }

    /// A sketch of the recent members.
    fn sketch_of_recent(&self, settings: &Settings, now: Timestamp) -> Box<Sketch> {
        let mut sketch = Sketch::new(settings);
        sketch.note_coarse(self.recent.coarse());
        self.recent.iter().for_each(|(member, at_ms)| sketch.add(member, at_ms, settings, now));
        Box::new(sketch)
    }

    /// Adds the members of another part of the key's life.
    pub(crate) fn absorb(&mut self, other: Uniques, settings: &Settings, now: Timestamp) {
        if let Some(sketch) = other.sketch {
            let held = self.sketch.take();
            let mut merged = held.unwrap_or_else(|| self.sketch_of_recent(settings, now));
            merged.merge(&sketch, settings, now);
            self.sketch = Some(merged);
            self.recent.forget_until(other.recent.floor_ms());
        }
        self.recent.note_coarse(other.recent.coarse());
        if let Some(sketch) = &mut self.sketch {
            sketch.note_coarse(other.recent.coarse());
        }
        for (member, at_ms) in other.recent.iter() {
            self.add(member, Timestamp::from_millis(at_ms).unwrap_or(now), settings, now);
        }
        self.since = Timestamp::MIN;
    }

    /// The distinct members in the window of a length that ends now.
    pub(crate) fn count(&self, span: Span, settings: &Settings, now: Timestamp) -> Count {
        let window = Window::ending_at(now, span, settings, now);
        let (from_ms, _) = window.edges_ms();
        let upper = |upper| window.is_known().then_some(upper);
        let (few, most_few) = self.recent.count_from(from_ms);
        let sketch = match &self.sketch {
            Some(sketch) if !self.recent.has_all_from(from_ms) => sketch,
            _ => {
                let width_ms = self.recent.coarse().width_ms();
                let cell = if few == most_few { settings.resolution() } else { cell(width_ms, settings) };
                let estimate = few + (most_few - few).div_ceil(2);
                return Count { estimate, lower: few, upper: upper(most_few), cell };
            }
        };
        let Edge { earliest_ms, certain_ms, share } = sketch.edge(from_ms, settings, now);
        let [all, fewer] = [earliest_ms, certain_ms].map(|from_ms| sketch.estimate(from_ms));
        // Of the panes that the edge cuts, their share by time.
        let between = fewer.members + (all.members - fewer.members).max(0.0) * share;
        let (lower, most) = (fewer.lower().max(few), all.upper().max(most_few));
        let estimate = estimate::rounded(between).clamp(lower, most);
        Count { estimate, lower, upper: upper(most), cell: cell(certain_ms - earliest_ms, settings) }
    }

    /// Prefetches the recent members.
    pub(crate) fn prefetch(&self) {
        self.recent.prefetch();
    }

    /// When the first of them was counted. The epoch if that is not known.
    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sketch.is_none() && self.recent.is_empty()
    }

    /// Whether all of them are older than the retention.
    pub(crate) fn have_expired(&self, settings: &Settings, now: Timestamp) -> bool {
        self.count(settings.retain(), settings, now).lower == 0 && self.clone().tidy(settings, now)
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

    /// Removes the members that were last hit in the pane of a time or before. A sketch removes the wider pane that has the time as a whole.
    pub(crate) fn drop_until(&mut self, until: Timestamp) {
        // By the start of their panes, which may be those of another class.
        let until_ms = until.as_millis();
        self.recent.drop_until(until_ms);
        if let Some(sketch) = &mut self.sketch {
            sketch.drop_until(until_ms);
        }
        if self.recent.has_all_from(until_ms + 1) {
            self.sketch = None;
        }
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

    /// Appends the members to `out`. They were counted with these settings.
    pub(crate) fn write(&self, settings: &Settings, out: &mut Vec<u8>) {
        out.push(u8::from(self.sketch.is_some()) | HAS_WIDTHS);
        leb128::push(out, settings.resolution().as_millis().cast_unsigned());
        self.recent.coarse().write(out);
        self.sketch.as_ref().map_or_else(Coarse::default, |sketch| sketch.coarse()).write(out);
        self.recent.write(out);
        if let Some(sketch) = &self.sketch {
            sketch.write(out);
        }
    }

    /// Reads what [`Uniques::write`] wrote. `None` if the bytes are none.
    pub(crate) fn read(mut bytes: &[u8]) -> Option<SavedUniques> {
        let bytes = &mut bytes;
        let flags = *bytes.split_off_first()?;
        if flags & !(HAS_SKETCH | HAS_WIDTHS) != 0 {
            return None;
        }
        let (resolution_ms, [coarse, of_sketch]) = match flags & HAS_WIDTHS {
            0 => (0, [Coarse::default(); 2]),
            _ => (take_ms(bytes)?, [Coarse::read(bytes)?, Coarse::read(bytes)?]),
        };
        let mut recent = Recent::read(bytes)?;
        recent.note_coarse(coarse);
        let sketch = if flags & HAS_SKETCH == 0 { None } else { Some(Box::new(Sketch::read(bytes)?)) };
        let mut uniques = Uniques { recent, sketch, since: Timestamp::MIN };
        uniques.sketch.iter_mut().for_each(|sketch| sketch.note_coarse(of_sketch));
        bytes.is_empty().then_some(SavedUniques { uniques, resolution_ms })
    }

    pub(crate) fn check_consistency(&self) {
        self.recent.check_consistency();
        if let Some(sketch) = &self.sketch {
            sketch.check_consistency();
        }
    }
}

/// The first byte of saved members.
const HAS_SKETCH: u8 = 1;
/// See [`HAS_SKETCH`].
const HAS_WIDTHS: u8 = 2;

/// Members that were saved.
#[derive(Debug)]
pub(crate) struct SavedUniques {
    uniques: Uniques,
    /// The width of the panes in which they were counted.
    resolution_ms: i64,
}

impl SavedUniques {
    /// The members, fitted to a class that may have other panes.
    pub(crate) fn fit(self, settings: &Settings, now: Timestamp) -> Uniques {
        let SavedUniques { mut uniques, resolution_ms } = self;
        let pane_ms = settings.resolution().as_millis();
        if resolution_ms > pane_ms {
            uniques.recent.note_coarse_until_newest(resolution_ms);
        } else {
            uniques.recent.forget_coarse_within(pane_ms);
        }
        if let Some(sketch) = &mut uniques.sketch {
            sketch.fit(settings, now);
        }
        uniques
    }
}

/// A width, at least that of the panes of hits.
fn cell(width_ms: i64, settings: &Settings) -> Span {
    Span::from_millis(width_ms).unwrap_or(settings.resolution()).max(settings.resolution())
}

/// Reads a time in milliseconds.
fn take_ms(bytes: &mut &[u8]) -> Option<i64> {
    let ms = i64::try_from(leb128::take(bytes)?).ok()?;
    (ms <= Timestamp::MAX.as_millis()).then_some(ms)
}

#[cfg(test)]
mod tests;
