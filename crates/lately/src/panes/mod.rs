//! A sorted list of disjoint panes: the form of old hits.
//!
//! Panes are encoded ([`coded`]) in segments. A segment has its start and the hits before it, so that a sum
//! over any range decodes at most two segments, and a late hit rewrites one.

mod coded;

use std::cmp::Reverse;
use std::ops::Range;

use crate::allocation::{allocated, filled};
use crate::ladder::RUNGS_MS;
use crate::settings::Settings;
use crate::time::Timestamp;
use coded::{Context, Reader};

/// A slice of time and the hits in it. Its start is a multiple of its width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pane {
    pub(crate) start_ms: i64,
    pub(crate) width_ms: i64,
    pub(crate) hits: u64,
}

impl Pane {
    pub(crate) fn end_ms(self) -> i64 {
        self.start_ms + self.width_ms
    }
}

/// Disjoint panes of any widths of the ladder, oldest first.
#[derive(Clone, Default, Debug)]
pub(crate) struct Panes {
    /// All panes but the newest, encoded.
    bytes: Vec<u8>,
    segments: Vec<Segment>,
    /// The context of the next encoded pane.
    end: Context,
    /// The hits of the encoded panes.
    written: u64,
    /// The newest pane, which still grows.
    newest: Option<Pane>,
    len: u32,
    /// The number of panes after the last merge.
    merged_len: u32,
}

/// Panes that can be decoded from their start.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// The start of its first pane.
    start_ms: i64,
    /// The hits before it.
    before: u64,
    offset: u32,
    rung: u16,
    len: u16,
}

/// The panes of a new segment, and the most that late hits may add up to.
const SEGMENT_LEN: usize = 128;
const MAX_SEGMENT_LEN: usize = 2 * SEGMENT_LEN;

/// The most bytes a pane takes.
const MOST_BYTES: usize = 4 * crate::leb128::MAX_BYTES;

/// Buffers grow in steps of this many bytes, so that freed ones can be reused.
const STEP_BYTES: usize = 256;

/// Shorter lists are not worth a merge.
const MERGE_FROM: usize = 32;

impl Panes {
    pub(crate) fn total(&self) -> u64 {
        self.written + self.newest.map_or(0, |newest| newest.hits)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    pub(crate) fn newest(&self) -> Option<Pane> {
        self.newest
    }

    fn len(&self) -> usize {
        self.len as usize
    }

    /// The mean of the hits of a pane. 0 if there is none.
    pub(crate) fn mean(&self) -> u64 {
        self.total().checked_div(u64::from(self.len)).unwrap_or(0)
    }

    /// The end of the newest pane.
    pub(crate) fn end_ms(&self) -> Option<i64> {
        self.newest.map(Pane::end_ms)
    }

    /// Panes in any order. If some overlap, the widest of them gets the hits of all.
    pub(crate) fn from_any(panes: Vec<Pane>) -> Panes {
        let mut sorted = Panes::default();
        sorted.rebuild(apart(panes).into_iter());
        sorted
    }

    /// The panes, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Pane> + '_ {
        (0..self.segments.len()).flat_map(|index| self.read(index)).chain(self.newest)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        allocated(self.bytes.capacity()) + allocated(self.segments.capacity() * size_of::<Segment>())
    }

    /// Adds `hits` at `time_ms`: to the pane that covers it, or to a new pane of the resolution. Call
    /// [`Panes::merge_if_long`] afterwards, because there may be too many panes.
    pub(crate) fn add(&mut self, time_ms: i64, hits: u64, settings: &Settings) {
        let width_ms = settings.resolution().as_millis();
        let fresh = Pane { start_ms: settings.pane_of(time_ms) * width_ms, width_ms, hits };
        match &mut self.newest {
            Some(newest) if time_ms < newest.start_ms => self.add_late(fresh, time_ms),
            // Hits that move out of a finer form come in order.
            Some(newest) if time_ms < newest.end_ms() => newest.hits += hits,
            Some(newest) if fresh.start_ms < newest.end_ms() => self.insert(fresh),
            _ => self.push(fresh),
        }
    }

    /// Merges if there are many more panes than after the last merge, or more than allowed.
    pub(crate) fn merge_if_long(&mut self, settings: &Settings, now: Timestamp) {
        let most = merge_threshold(settings);
        let merged_len = self.merged_len as usize;
        if self.len() >= (merged_len + merged_len / 8).clamp(MERGE_FROM, most) {
            self.merge(settings, now);
        }
    }

    /// Appends a pane after the newest.
    fn push(&mut self, pane: Pane) {
        self.len += 1;
        if let Some(last) = self.newest.replace(pane) {
            self.write(last);
        }
    }

    /// Encodes a pane after the encoded ones.
    fn write(&mut self, pane: Pane) {
        let len = self.bytes.len();
        if self.bytes.capacity() - len < MOST_BYTES {
            self.bytes.reserve_exact(filled((len + MOST_BYTES).next_multiple_of(STEP_BYTES)) - len);
        }
        if self.segments.last().is_none_or(|segment| usize::from(segment.len) >= SEGMENT_LEN) {
            self.start_segment(pane);
        }
        self.end = coded::write(&mut self.bytes, pane, self.end);
        self.segments.last_mut().expect("one was started").len += 1;
        self.written += pane.hits;
    }

    /// Starts a new segment.
    fn start_segment(&mut self, pane: Pane) {
        self.end = Context::before(pane);
        let offset = u32::try_from(self.bytes.len()).expect("bounded by the most panes");
        if self.segments.len() == self.segments.capacity() {
            self.segments.reserve_exact(1 + self.segments.len() / 8);
        }
        let Context { end_ms: start_ms, rung } = self.end;
        self.segments.push(Segment { start_ms, before: self.written, offset, rung, len: 0 });
    }

    /// Adds hits before the newest pane: to the pane that covers the time, or as a new pane.
    #[cold]
    fn add_late(&mut self, fresh: Pane, time_ms: i64) {
        let after = self.segments.partition_point(|segment| segment.start_ms <= time_ms);
        let index = after.saturating_sub(1);
        let mut panes: Vec<Pane> = self.read(index).collect();
        let next = panes.partition_point(|pane| pane.start_ms <= time_ms);
        match panes[..next].last_mut().filter(|pane| time_ms < pane.end_ms()) {
            Some(pane) => pane.hits += fresh.hits,
            None => {
                let (before, after) = (next.checked_sub(1).map(|last| panes[last]), panes.get(next).copied());
                let after_ms = after.map_or_else(|| self.next_start_ms(index), |pane| pane.start_ms);
                if before.is_some_and(|pane| pane.end_ms() > fresh.start_ms) || after_ms < fresh.end_ms() {
                    return self.insert(fresh);
                }
                panes.insert(next, fresh);
                self.len += 1;
            }
        }
        self.replace(index..index + 1, &panes);
    }

    /// The start of the first pane behind a segment.
    fn next_start_ms(&self, index: usize) -> i64 {
        let newest_ms = self.newest.map_or(i64::MAX, |newest| newest.start_ms);
        self.segments.get(index + 1).map_or(newest_ms, |next| next.start_ms)
    }

    /// Adds a pane that overlaps narrower ones. It takes their hits.
    #[cold]
    fn insert(&mut self, pane: Pane) {
        let panes = apart(self.iter().chain([pane]).collect());
        self.rebuild(panes.into_iter());
    }

    /// Encodes these panes in place of those of some segments.
    fn replace(&mut self, range: Range<usize>, panes: &[Pane]) {
        let segments = range.start..range.end.min(self.segments.len());
        let border = |index: usize| {
            let segment = self.segments.get(index);
            segment
                .map_or((self.bytes.len(), self.written), |segment| (segment.offset as usize, segment.before))
        };
        let ((start, before), (end, after)) = (border(segments.start), border(segments.end));
        let mut part = Panes { written: before, ..Panes::default() };
        let parts = panes.len().div_ceil(MAX_SEGMENT_LEN).max(1);
        for of_segment in panes.chunks(panes.len().div_ceil(parts).max(1)) {
            part.start_segment(of_segment[0]);
            for &pane in of_segment {
                part.end = coded::write(&mut part.bytes, pane, part.end);
                part.written += pane.hits;
            }
            let segment = part.segments.last_mut().expect("one was started");
            segment.len = u16::try_from(of_segment.len()).expect("few");
        }
        let grown = (self.bytes.len() + part.bytes.len()).saturating_sub(end - start);
        if grown > self.bytes.capacity() {
            self.bytes.reserve_exact(filled(grown.next_multiple_of(STEP_BYTES)) - self.bytes.len());
        }
        let moved = |offset: usize| u32::try_from(offset).expect("bounded by the most panes");
        let (added, new_end) = (part.segments.len(), start + part.bytes.len());
        part.segments.iter_mut().for_each(|segment| segment.offset += moved(start));
        self.bytes.splice(start..end, part.bytes);
        self.segments.splice(segments.clone(), part.segments);
        for later in &mut self.segments[segments.start + added..] {
            later.offset = moved(later.offset as usize - end + new_end);
            later.before = later.before - after + part.written;
        }
        self.written = self.written - after + part.written;
        if segments.start + added == self.segments.len() {
            self.end = self.last_context();
        }
    }

    /// The context behind the encoded panes.
    fn last_context(&self) -> Context {
        let Some(last) = self.segments.len().checked_sub(1) else { return Context::default() };
        let mut reader = self.read(last);
        reader.by_ref().for_each(drop);
        reader.context
    }

    /// Removes the hits with these ranks, counted from the oldest, and returns them. Only the segments that have them are
    /// written again.
    pub(crate) fn take(&mut self, ranks: Range<u64>) -> Panes {
        let mut taken = Panes::default();
        let mut kept = Vec::new();
        let mut before = self.written;
        let mut newest = self.newest.take();
        let mut segments = self.segments.len()..self.segments.len();
        if ranks.start < self.written {
            let first = self.segments.partition_point(|segment| segment.before <= ranks.start) - 1;
            segments = first..self.segments.partition_point(|segment| segment.before < ranks.end);
            before = self.segments[first].before;
            let behind =
                self.segments.get(segments.end).map_or(self.bytes.len(), |next| next.offset as usize);
            taken.bytes.reserve_exact(behind - self.segments[first].offset as usize);
        }
        let mut gone = 0;
        for pane in segments.clone().flat_map(|index| self.read(index)).chain(newest) {
            let hits = common(before..before + pane.hits, &ranks);
            before += pane.hits;
            if hits > 0 {
                taken.push(Pane { hits, ..pane });
            }
            if hits < pane.hits {
                kept.push(Pane { hits: pane.hits - hits, ..pane });
            } else {
                gone += 1;
            }
        }
        newest = kept.pop_if(|last| newest.is_some_and(|newest| last.start_ms == newest.start_ms));
        if !segments.is_empty() {
            self.replace(segments, &kept);
        }
        self.newest = newest.or_else(|| self.pop());
        self.len -= gone;
        self.merged_len = self.merged_len.min(self.len);
        if gone > 0 {
            self.shrink();
        }
        taken
    }

    /// Removes the last encoded pane.
    fn pop(&mut self) -> Option<Pane> {
        let last = self.segments.len().checked_sub(1)?;
        let mut panes: Vec<Pane> = self.read(last).collect();
        let pane = panes.pop();
        self.replace(last..last + 1, &panes);
        pane
    }

    /// Frees memory if much is unused.
    fn shrink(&mut self) {
        if self.bytes.capacity() > most_room(self.bytes.len()) {
            self.bytes.shrink_to(self.bytes.len() + MOST_BYTES);
        }
        if self.segments.capacity() * size_of::<Segment>()
            > most_room(self.segments.len() * size_of::<Segment>())
        {
            self.segments.shrink_to_fit();
        }
    }

    /// Removes the panes that start at `from_ms` or later.
    pub(crate) fn split_off(&mut self, from_ms: i64) -> Vec<Pane> {
        let (kept, split) = self.iter().partition::<Vec<Pane>, _>(|pane| pane.start_ms < from_ms);
        self.rebuild(kept.into_iter());
        split
    }

    /// The hits between two pane borders.
    pub(crate) fn sum(&self, from_ms: i64, to_ms: i64) -> u64 {
        self.before(to_ms) - self.before(from_ms)
    }

    /// The hits of panes that start before `edge_ms`.
    fn before(&self, edge_ms: i64) -> u64 {
        self.started_before(edge_ms).0
    }

    /// The hits of panes that start before `edge_ms`, and the last of these panes.
    pub(crate) fn started_before(&self, edge_ms: i64) -> (u64, Option<Pane>) {
        if self.newest.is_none_or(|newest| newest.start_ms < edge_ms) {
            return (self.total(), self.newest);
        }
        let after = self.segments.partition_point(|segment| segment.start_ms < edge_ms);
        let Some(index) = after.checked_sub(1) else { return (0, None) };
        let earlier = self.read(index).take_while(|pane| pane.start_ms < edge_ms);
        let before = self.segments[index].before;
        earlier.fold((before, None), |(hits, _), pane| (hits + pane.hits, Some(pane)))
    }

    /// The hits of panes that end by `edge_ms`.
    pub(crate) fn ended_by(&self, edge_ms: i64) -> u64 {
        let (started, last) = self.started_before(edge_ms);
        started - last.filter(|last| last.end_ms() > edge_ms).map_or(0, |last| last.hits)
    }

    /// The panes that end after `edge_ms`, oldest first.
    pub(crate) fn ending_after(&self, edge_ms: i64) -> impl Iterator<Item = Pane> + '_ {
        let after = self.segments.partition_point(|segment| segment.start_ms <= edge_ms);
        let panes = (after.saturating_sub(1)..self.segments.len()).flat_map(|index| self.read(index));
        panes.chain(self.newest).skip_while(move |pane| pane.end_ms() <= edge_ms)
    }

    /// The panes that start before `edge_ms`, newest first.
    pub(crate) fn newest_first(&self, edge_ms: i64) -> impl Iterator<Item = Pane> + '_ {
        let newest = self.newest.filter(|newest| newest.start_ms < edge_ms);
        let started = self.segments.partition_point(|segment| segment.start_ms < edge_ms);
        let older = (0..started).rev().flat_map(move |index| {
            let panes: Vec<Pane> = self.read(index).take_while(|pane| pane.start_ms < edge_ms).collect();
            panes.into_iter().rev()
        });
        newest.into_iter().chain(older)
    }

    /// The pane in which the hits of the panes from `from_ms` on, summed from the oldest, reach `hits`, which
    /// is at least one. If they do not, the missing rest.
    pub(crate) fn reach(&self, from_ms: i64, hits: u64) -> Result<Pane, u64> {
        let before = self.before(from_ms);
        let reached = before.saturating_add(hits);
        if reached > self.total() {
            return Err(reached - self.total());
        }
        let after = self.segments.partition_point(|segment| segment.before < reached);
        let index = after.saturating_sub(1);
        let mut sum = self.segments.get(index).map_or(0, |segment| segment.before);
        let found = self.read(index).chain(self.newest).find(|pane| {
            sum += pane.hits;
            sum >= reached
        });
        Ok(found.expect("the total reaches it"))
    }

    /// The panes of a segment; none past the last.
    fn read(&self, index: usize) -> Reader<'_> {
        let start_of = |index: usize| self.segments.get(index).map(|segment| segment.offset as usize);
        let offset = start_of(index).unwrap_or(self.bytes.len());
        let end = start_of(index + 1).unwrap_or(self.bytes.len());
        let context = self
            .segments
            .get(index)
            .map_or(Context::default(), |segment| Context { end_ms: segment.start_ms, rung: segment.rung });
        Reader { bytes: &self.bytes[..end], offset, context }
    }

    /// Drops expired panes and merges neighbours as far as their age allows.
    pub(crate) fn merge(&mut self, settings: &Settings, now: Timestamp) {
        let horizon_ms = settings.horizon_ms(now);
        let old = std::mem::take(self);
        let mut panes = old.iter().skip_while(|pane| pane.end_ms() <= horizon_ms);
        let Some(first) = panes.next() else { return };
        self.bytes.reserve_exact(old.bytes.len() + MOST_BYTES);
        self.segments.reserve_exact(old.segments.len());
        let mut widths_ms = settings.ladder().pane_widths_ms();
        let mut most_ms = |pane: Pane| widths_ms(now.as_millis() - pane.end_ms());
        let mut last = widest(first, first, most_ms(first), settings, now).unwrap_or(first);
        for pane in panes {
            let most_ms = most_ms(pane);
            let next = if pane.width_ms >= most_ms {
                // Most panes are as wide as they may be.
                pane
            } else if let Some(joined) = widest(last, pane, most_ms, settings, now) {
                last = joined;
                continue;
            } else {
                // Widen a pane even if it is alone: neighbours of one width take a byte each.
                widest(pane, pane, most_ms, settings, now).unwrap_or(pane)
            };
            self.push(std::mem::replace(&mut last, next));
        }
        self.push(last);
        self.merged_len = self.len;
        let Panes { bytes, segments, .. } = old;
        // Reuse the old buffers: they have room to grow, and no holes are left.
        self.bytes = moved(&self.bytes, bytes);
        self.segments = moved(&self.segments, segments);
    }

    fn rebuild(&mut self, panes: impl Iterator<Item = Pane>) {
        *self = Panes::default();
        panes.for_each(|pane| self.push(pane));
        self.merged_len = self.len;
    }

    /// Panics unless the panes are in order, not narrower than the resolution, and as narrow as their age demands.
    pub(crate) fn check_consistency(&self, settings: &Settings, now: Timestamp) {
        self.check_order();
        for pane in self.iter() {
            let Pane { start_ms, width_ms, .. } = pane;
            let widest = settings.ladder().pane_width_ms(now.as_millis() - pane.end_ms());
            assert!(width_ms <= widest, "a pane of {width_ms} ms at {start_ms} may have {widest} at {now}");
            let least = settings.resolution().as_millis();
            assert!(width_ms >= least, "a pane of {width_ms} ms at {start_ms}, resolution {least}");
        }
        assert!(self.len() <= merge_threshold(settings), "{} panes", self.len);
    }

    /// Panics unless the panes are sorted, disjoint, aligned and not empty.
    pub(crate) fn check_order(&self) {
        let panes: Vec<Pane> = self.iter().collect();
        for &Pane { start_ms, width_ms, hits } in &panes {
            assert!(hits > 0, "an empty pane at {start_ms}");
            assert!(start_ms.rem_euclid(width_ms) == 0, "a pane of {width_ms} ms at {start_ms}");
        }
        for pair in panes.windows(2) {
            let (end_ms, start_ms) = (pair[0].end_ms(), pair[1].start_ms);
            assert!(end_ms <= start_ms, "panes overlap: {end_ms} > {start_ms}");
        }
        assert_eq!(self.total(), panes.iter().map(|pane| pane.hits).sum::<u64>(), "the total of the panes");
        assert_eq!(self.len(), panes.len(), "the count of panes");
        let mut before = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            let panes: Vec<Pane> = self.read(index).collect();
            assert_eq!((segment.before, usize::from(segment.len)), (before, panes.len()), "a segment");
            assert!(
                !panes.is_empty() && panes.len() <= MAX_SEGMENT_LEN && panes[0].start_ms == segment.start_ms
            );
            before += panes.iter().map(|pane| pane.hits).sum::<u64>();
        }
        assert_eq!(before, self.written, "the hits that are written");
    }
}

/// Makes panes disjoint. Rungs nest, so of two overlapping panes one contains the other.
fn apart(mut panes: Vec<Pane>) -> Vec<Pane> {
    panes.sort_unstable_by_key(|pane| (pane.start_ms, Reverse(pane.width_ms)));
    panes.dedup_by(|pane, wider| {
        let is_inside = pane.start_ms < wider.end_ms();
        if is_inside {
            wider.hits += pane.hits;
        }
        is_inside
    });
    panes
}

/// The numbers that two ranges have in common.
pub(crate) fn common(a: Range<u64>, b: &Range<u64>) -> u64 {
    a.end.min(b.end).saturating_sub(a.start.max(b.start))
}

/// The largest buffer for this length that is not much too large.
fn most_room(len: usize) -> usize {
    len + len / 4 + STEP_BYTES
}

/// Moves `items` to the buffer `room`, unless that is much too large.
fn moved<T: Copy>(items: &[T], mut room: Vec<T>) -> Vec<T> {
    if room.capacity() > most_room(items.len()) {
        return items.to_vec();
    }
    room.clear();
    room.extend_from_slice(items);
    room
}

/// The widest pane that may contain both panes at `now`, if any. `most_ms` is the width that the age of the
/// newer one allows. For one pane, pass it twice.
fn widest(older: Pane, newer: Pane, most_ms: i64, settings: &Settings, now: Timestamp) -> Option<Pane> {
    let narrowest_ms = newer.end_ms() - older.start_ms;
    // A wider pane ends later and so is younger. Each width is checked against its own age. None can be wider
    // than the end of the newer pane allows.
    let widths = &RUNGS_MS[..RUNGS_MS.partition_point(|&width_ms| width_ms <= most_ms)];
    let widths = widths.iter().rev().take_while(|&&width_ms| width_ms >= narrowest_ms);
    let mut panes = widths.map(|&width_ms| {
        let start_ms = older.start_ms.div_euclid(width_ms) * width_ms;
        let hits = if older == newer { older.hits } else { older.hits + newer.hits };
        Pane { start_ms, width_ms, hits }
    });
    panes.find(|pane| {
        let end_ms = pane.end_ms();
        end_ms == newer.end_ms()
            || end_ms > newer.end_ms()
                && pane.width_ms <= settings.ladder().pane_width_ms(now.as_millis() - end_ms)
    })
}

/// The most panes of a list: a quarter more than merging can leave, so that merging is rare.
pub(crate) fn merge_threshold(settings: &Settings) -> usize {
    let bound = settings.pane_bound();
    bound + bound / 4 + MERGE_FROM
}
