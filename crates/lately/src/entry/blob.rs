//! One key's hits as bytes that mean the same in every process: what a checkpoint and a dump keep.
//!
//! Hits are pieces of time with a count: moments, cells of a ring, panes. Moments are as they are in a list.
//! Other pieces of one kind and width that follow each other are a run: a byte, its kind and its width; and
//! for each piece a number, and a second one if it has several hits. The table is in the design document.

use super::Entry;
use super::inline::Inline;
use super::large::Large;
use super::list::{Gap, Items, MOST_MOMENTS, list_of, list_of_any, read_items};
use super::moment::{Moment, PackedTime};
use crate::error::Malformed;
use crate::ladder::RUNGS_MS;
use crate::limits::MAX_TOTAL;
use crate::panes::{Pane, Panes};
use crate::settings::Settings;
use crate::time::Timestamp;
use crate::varint;

/// What a piece of time is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    /// Old hits.
    Pane,
    /// A pane of a ring.
    Cell,
    /// A millisecond that is kept apart.
    Moment,
    /// Not hits: the time of the newest, where the pieces are too wide to tell it.
    Newest,
}

impl Kind {
    /// By the highest bits of a run's first byte. Moments have two: their gaps were plain numbers at first.
    const ALL: [Kind; 5] = [Kind::Pane, Kind::Cell, Kind::Moment, Kind::Newest, Kind::Moment];
}

/// The first byte of moments, and what it was at first.
const MOMENTS: u8 = 4 << RUNG_BITS;
const MOMENTS_BEFORE: u8 = 2 << RUNG_BITS;

/// A piece of time and its hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    kind: Kind,
    pane: Pane,
}

impl Piece {
    fn moment(kind: Kind, Moment { at_ms, hits }: Moment) -> Piece {
        Piece { kind, pane: Pane { start_ms: at_ms, width_ms: 1, hits } }
    }

    fn as_moment(self) -> Moment {
        Moment { at_ms: self.pane.start_ms, hits: self.pane.hits }
    }
}

/// Bits of a run's first byte that say its width, as a place on the ladder.
const RUNG_BITS: u32 = 5;
/// What a run ends with.
const END: u64 = 0;

impl Entry {
    /// Appends the hits as bytes.
    pub(crate) fn write(&self, settings: &Settings, out: &mut Vec<u8>) {
        match self {
            Entry::Inline(inline) => write_inline(inline, out),
            Entry::List { head, bytes } => write_list(super::List { head, bytes }, out),
            Entry::Large { newest, large } => {
                let mut writer = Writer { out, run: None };
                large.panes().for_each(|pane| writer.piece(Piece { kind: Kind::Pane, pane }));
                large.cells(settings).for_each(|pane| writer.piece(Piece { kind: Kind::Cell, pane }));
                writer.end();
                if let Some(list) = large.list() {
                    write_list(list, out);
                }
                out.push((Kind::Newest as u8) << RUNG_BITS);
                varint::push(out, newest.get().cast_unsigned());
            }
        }
    }

    /// The entry that [`Entry::write`] wrote. Settings may have changed since: hits keep the panes they had,
    /// but those of a ring of another width.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not an entry.
    pub(crate) fn read(bytes: &[u8], settings: &Settings, now: Timestamp) -> Result<Entry, Malformed> {
        // Most keys have nothing but moments.
        if let Some((moments, [])) = Moments::read(bytes) {
            return Ok(moments.entry());
        }
        let pieces = Reader { bytes, total: 0 }.pieces().ok_or(Malformed::Entry)?;
        Entry::from_pieces(&pieces, settings, now).ok_or(Malformed::Entry)
    }

    /// Takes back hits that were counted at a time: those of the piece that covers it, as many as there are.
    pub(crate) fn take_back(&mut self, at: Timestamp, hits: u64, settings: &Settings, now: Timestamp) {
        let mut pieces = Vec::new();
        self.each_piece(settings, |piece| pieces.push(piece));
        let covers = |Piece { kind, pane }: &&mut Piece| {
            *kind != Kind::Newest && (pane.start_ms..pane.end_ms()).contains(&at.as_millis())
        };
        // The newer of two that cover it: an older pane may reach into a ring.
        if let Some(piece) = pieces.iter_mut().rev().find(covers) {
            piece.pane.hits = piece.pane.hits.saturating_sub(hits);
        }
        pieces.retain(|piece| piece.pane.hits > 0);
        if pieces.iter().all(|piece| piece.kind == Kind::Newest) {
            pieces.clear();
        }
        *self = Entry::from_pieces(&pieces, settings, now).expect("fewer hits are an entry too");
    }

    /// Takes over the hits of another entry of the key.
    pub(crate) fn absorb(&mut self, other: Entry, settings: &Settings, now: Timestamp) {
        if self.is_empty() {
            *self = other;
            return;
        }
        other.each_piece(settings, |Piece { kind, pane }| {
            if kind != Kind::Newest
                && let Some(at) = Timestamp::from_millis(pane.start_ms)
            {
                // Both were counted: that they fit together was checked then.
                let _ = self.add(at, pane.hits, settings, now);
            }
        });
    }

    fn each_piece(&self, settings: &Settings, mut visit: impl FnMut(Piece)) {
        let moment = |moment| Piece::moment(Kind::Moment, moment);
        match self {
            Entry::Inline(inline) => inline.oldest_first().for_each(|held| visit(moment(held))),
            Entry::List { head, bytes } => {
                super::List { head, bytes }.moments().for_each(|held| visit(moment(held)));
            }
            Entry::Large { newest, large } => {
                large.panes().for_each(|pane| visit(Piece { kind: Kind::Pane, pane }));
                large.cells(settings).for_each(|pane| visit(Piece { kind: Kind::Cell, pane }));
                large.list().into_iter().flat_map(super::List::moments).for_each(|held| visit(moment(held)));
                visit(Piece::moment(Kind::Newest, Moment { at_ms: newest.get(), hits: 1 }));
            }
        }
    }

    /// `None` when they are of no entry.
    fn from_pieces(pieces: &[Piece], settings: &Settings, now: Timestamp) -> Option<Entry> {
        let of = |kind| pieces.iter().filter(move |piece| piece.kind == kind);
        let moments = || of(Kind::Moment).map(|piece| piece.as_moment());
        let mut entry = Entry::new();
        if moments().count() == pieces.len() && pieces.len() <= MOST_MOMENTS {
            for Moment { at_ms, hits } in moments() {
                entry.add(Timestamp::from_millis(at_ms)?, hits, settings, now).ok()?;
            }
            return Some(entry);
        }
        let newest_ms = pieces.last()?.pane.start_ms;
        let panes = Panes::from_sorted(of(Kind::Pane).map(|piece| piece.pane));
        let cells: Vec<Pane> = of(Kind::Cell).map(|piece| piece.pane).collect();
        let large = Large::restored(panes, &cells, moments(), settings, now);
        Some(Entry::Large { newest: PackedTime::pack(newest_ms), large: Box::new(large) })
    }
}

/// Moments as they stand in bytes: the byte of their kind, their length, what the first counts from, and then
/// each as in a list.
struct Moments<'a> {
    origin_ms: i64,
    /// Their bytes, if they are as in a list.
    items: Option<&'a [u8]>,
    held: Vec<Moment>,
}

fn write_list(list: super::List<'_>, out: &mut Vec<u8>) {
    if let Some((origin_ms, items)) = list.items() {
        begin_moments(origin_ms, items.len(), out);
        out.extend_from_slice(items);
    }
}

fn write_inline(inline: &Inline, out: &mut Vec<u8>) {
    if let Some((origin_ms, items)) = Items::of(inline.oldest_first()) {
        begin_moments(origin_ms, items.bytes().len(), out);
        out.extend_from_slice(items.bytes());
    }
}

fn begin_moments(origin_ms: i64, len: usize, out: &mut Vec<u8>) {
    out.push(MOMENTS);
    varint::push(out, len as u64);
    // The origin may be a millisecond before time starts.
    varint::push(out, (origin_ms + 1).cast_unsigned());
}

impl<'a> Moments<'a> {
    /// The moments that bytes begin with, and what follows; `None` when they do not begin with some.
    fn read(bytes: &'a [u8]) -> Option<(Moments<'a>, &'a [u8])> {
        let (&first, mut bytes) = bytes.split_first()?;
        let len = usize::try_from(varint::take(&mut bytes)?).ok()?;
        let origin = i64::try_from(varint::take(&mut bytes)?).ok()?;
        let items = bytes.split_off(..len)?;
        let origin_ms = origin.checked_sub(1).filter(|&ms| ms <= Timestamp::MAX.as_millis())?;
        let (held, items) = match first {
            MOMENTS => (read_items(items, origin_ms, Gap::take)?, Some(items)),
            MOMENTS_BEFORE => (read_items(items, origin_ms, Gap::take_number)?, None),
            _ => return None,
        };
        Some((Moments { origin_ms, items, held }, bytes))
    }

    fn entry(&self) -> Entry {
        let mut inline = Inline::default();
        if self.held.iter().all(|&moment| inline.add(moment)) {
            return Entry::Inline(inline);
        }
        let held = self.held.iter().copied();
        let (head, bytes) = match self.items {
            Some(items) => list_of(items, self.origin_ms, held),
            None => list_of_any(held),
        };
        Entry::List { head, bytes }
    }
}

/// Writes pieces, oldest first.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// The last piece.
    run: Option<Piece>,
}

impl Writer<'_> {
    fn piece(&mut self, piece: Piece) {
        let Pane { start_ms, width_ms, hits } = piece.pane;
        let same_run = |last: &Piece| {
            (last.kind, last.pane.width_ms) == (piece.kind, width_ms) && last.pane.end_ms() <= start_ms
        };
        let from_ms = match self.run {
            Some(last) if same_run(&last) => last.pane.end_ms(),
            _ => {
                self.end();
                let rung = RUNGS_MS.iter().position(|&rung_ms| rung_ms == width_ms);
                let rung = u8::try_from(rung.expect("widths are rungs of the ladder")).expect("there are 21");
                self.out.push((piece.kind as u8) << RUNG_BITS | rung);
                0
            }
        };
        let gap = (start_ms - from_ms).cast_unsigned() / width_ms.cast_unsigned();
        varint::push(self.out, (gap << 1 | u64::from(hits > 1)) + 1);
        if hits > 1 {
            varint::push(self.out, hits);
        }
        self.run = Some(piece);
    }

    /// Ends a run, if one was begun.
    fn end(&mut self) {
        if self.run.take().is_some() {
            varint::push(self.out, END);
        }
    }
}

/// Reads pieces, oldest first, and checks that they are such.
struct Reader<'a> {
    bytes: &'a [u8],
    total: u64,
}

impl Reader<'_> {
    fn pieces(mut self) -> Option<Vec<Piece>> {
        let mut pieces: Vec<Piece> = Vec::new();
        while let Some(&first) = self.bytes.first() {
            let kind = *Kind::ALL.get(usize::from(first >> RUNG_BITS))?;
            let last = pieces.last().copied();
            if last.is_some_and(|last| last.kind > kind || last.kind == Kind::Newest) {
                return None;
            }
            match kind {
                Kind::Moment => {
                    let (moments, rest) = Moments::read(self.bytes)?;
                    self.bytes = rest;
                    for moment in moments.held {
                        pieces.push(self.checked(Piece::moment(kind, moment), last)?);
                    }
                }
                Kind::Newest => {
                    self.bytes.split_off_first()?;
                    let at_ms = i64::try_from(varint::take(&mut self.bytes)?).ok()?;
                    pieces.push(self.checked(Piece::moment(kind, Moment { at_ms, hits: 1 }), last)?);
                }
                Kind::Pane | Kind::Cell => self.run(&mut pieces)?,
            }
        }
        Some(pieces)
    }

    /// Reads a run.
    fn run(&mut self, pieces: &mut Vec<Piece>) -> Option<()> {
        let first = *self.bytes.split_off_first()?;
        let kind = *Kind::ALL.get(usize::from(first >> RUNG_BITS))?;
        let width_ms = *RUNGS_MS.get(usize::from(first & ((1 << RUNG_BITS) - 1)))?;
        let mut from_ms = 0;
        loop {
            let number = varint::take(&mut self.bytes)?;
            if number == END {
                return Some(());
            }
            let hits = if (number - 1) & 1 == 0 { 1 } else { varint::take(&mut self.bytes)? };
            let gap = i64::try_from((number - 1) >> 1).ok()?;
            let start_ms = gap.checked_mul(width_ms)?.checked_add(from_ms)?;
            let piece = Piece { kind, pane: Pane { start_ms, width_ms, hits } };
            let piece = self.checked(piece, pieces.last().copied())?;
            from_ms = piece.pane.end_ms();
            pieces.push(piece);
        }
    }

    /// The piece, if it may follow the last.
    fn checked(&mut self, piece: Piece, last: Option<Piece>) -> Option<Piece> {
        let Pane { start_ms, hits, .. } = piece.pane;
        // A cell may start inside the pane before it: the ring does not begin at a border of wide panes.
        let previous_ms = last
            .map_or(0, |last| if last.kind == piece.kind { last.pane.end_ms() } else { last.pane.start_ms });
        if piece.kind != Kind::Newest {
            self.total = self.total.checked_add(hits).filter(|&total| total <= MAX_TOTAL)?;
        }
        (start_ms >= previous_ms && start_ms <= Timestamp::MAX.as_millis() && hits > 0).then_some(piece)
    }
}

#[cfg(test)]
mod tests;
