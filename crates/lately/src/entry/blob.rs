//! One key's hits as bytes that mean the same in every process: what a checkpoint and a dump keep.
//!
//! Hits are pieces of time with a count: moments, cells of a ring, panes. Pieces of one kind and width that
//! follow each other are a run. A run begins with a byte, its kind and its width; each piece of it is a
//! number, and a second one if it has several hits. The table is in the design document.

use super::Entry;
use super::inline::Inline;
use super::large::Large;
use super::moment::{Moment, PackedTime};
use crate::error::Malformed;
use crate::ladder::RUNGS_MS;
use crate::limits::{MAX_MOMENTS, MAX_TOTAL};
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
    const ALL: [Kind; 4] = [Kind::Pane, Kind::Cell, Kind::Moment, Kind::Newest];
}

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
/// What a run ends with, when another follows.
const END: u64 = 0;

impl Entry {
    /// Appends the hits as bytes.
    pub(crate) fn write(&self, settings: &Settings, out: &mut Vec<u8>) {
        let mut writer = Writer { out, run: None };
        self.each_piece(settings, |piece| writer.piece(piece));
    }

    /// The entry that [`Entry::write`] wrote. Settings may have changed since: hits keep the panes they had,
    /// but those of a ring of another width.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not an entry.
    pub(crate) fn read(bytes: &[u8], settings: &Settings, now: Timestamp) -> Result<Entry, Malformed> {
        let reader = Reader { bytes, run: None, total: 0 };
        let mut inline = Inline::default();
        // Most keys are that small.
        if reader
            .clone()
            .all(|piece| piece.is_ok_and(|piece| piece.kind == Kind::Moment && inline.add(piece.as_moment())))
        {
            return Ok(Entry::Inline(inline));
        }
        let pieces = reader.collect::<Result<Vec<_>, _>>()?;
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
                large.moments().for_each(|held| visit(moment(held)));
                visit(Piece::moment(Kind::Newest, Moment { at_ms: newest.get(), hits: 1 }));
            }
        }
    }

    /// `None` when they are of no entry.
    fn from_pieces(pieces: &[Piece], settings: &Settings, now: Timestamp) -> Option<Entry> {
        let of = |kind| pieces.iter().filter(move |piece| piece.kind == kind);
        let moments = || of(Kind::Moment).map(|piece| piece.as_moment());
        let mut entry = Entry::new();
        if moments().count() == pieces.len() && pieces.len() <= MAX_MOMENTS {
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
            last => {
                if last.is_some() {
                    varint::push(self.out, END);
                }
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
}

/// Reads pieces, oldest first, and checks that they are such.
#[derive(Clone)]
struct Reader<'a> {
    bytes: &'a [u8],
    /// The last piece; one with no hits before the first of a run.
    run: Option<Piece>,
    total: u64,
}

impl Reader<'_> {
    fn piece(&mut self) -> Option<Piece> {
        let last = match self.run {
            Some(last) => last,
            None => self.begin(None)?,
        };
        let (last, number) = match varint::take(&mut self.bytes)? {
            END => {
                let begun = self.begin(Some(last))?;
                (begun, varint::take(&mut self.bytes).filter(|&number| number != END)?)
            }
            number => (last, number),
        };
        let hits = if (number - 1) & 1 == 0 { 1 } else { varint::take(&mut self.bytes)? };
        let gap = i64::try_from((number - 1) >> 1).ok()?;
        let Pane { width_ms, .. } = last.pane;
        let from_ms = if last.pane.hits == 0 { 0 } else { last.pane.end_ms() };
        let start_ms = gap.checked_mul(width_ms)?.checked_add(from_ms)?;
        // A cell may start inside the pane before it: the ring does not begin at a border of wide panes.
        let previous_ms = self
            .run
            .map_or(0, |run| if run.kind == last.kind { run.pane.end_ms() } else { run.pane.start_ms });
        let is_time = start_ms >= previous_ms && start_ms <= Timestamp::MAX.as_millis();
        let piece = Piece { kind: last.kind, pane: Pane { start_ms, width_ms, hits } };
        if piece.kind != Kind::Newest {
            self.total = self.total.checked_add(hits).filter(|&total| total <= MAX_TOTAL)?;
        }
        if !is_time || hits == 0 {
            return None;
        }
        self.run = Some(piece);
        Some(piece)
    }

    /// The kind and width of a run that begins, as a piece without hits.
    fn begin(&mut self, last: Option<Piece>) -> Option<Piece> {
        let first = *self.bytes.split_off_first()?;
        let kind = *Kind::ALL.get(usize::from(first >> RUNG_BITS))?;
        let width_ms = *RUNGS_MS.get(usize::from(first & ((1 << RUNG_BITS) - 1)))?;
        let is_one_ms = matches!(kind, Kind::Moment | Kind::Newest);
        let follows = last.is_none_or(|last| last.kind <= kind && last.kind != Kind::Newest);
        let piece = Piece { kind, pane: Pane { start_ms: 0, width_ms, hits: 0 } };
        (follows && (!is_one_ms || width_ms == 1)).then_some(piece)
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Piece, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let piece = self.piece();
        if piece.is_none() {
            self.bytes = &[];
        }
        Some(piece.ok_or(Malformed::Entry))
    }
}

#[cfg(test)]
mod tests;
