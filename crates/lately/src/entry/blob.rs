//! The hits of a key as bytes, for checkpoints and dumps. They mean the same in every process.
//!
//! Moments are encoded as in a list. Successive panes of one kind and width are a run: a byte with the kind
//! and the width, and for each pane a number, and a second one if it has several hits. The table is in the
//! design document.

use super::Entry;
use super::coarse::Coarse;
use super::fit::{Piece, Pieces, Source};
use super::inline::Inline;
use super::list::{Gap, Items, list_of, list_of_any, read_items};
use super::moment::Moment;
use crate::error::Malformed;
use crate::ladder::RUNGS_MS;
use crate::leb128;
use crate::limits::MAX_TOTAL;
use crate::panes::Pane;
use crate::settings::Settings;
use crate::time::Timestamp;

/// The content of a run, in the highest bits of its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Old hits.
    Pane = 0,
    /// Panes of a ring.
    Cell = 1,
    /// Moments with plain numbers as gaps, written by versions before 2.
    MomentsBefore = 2,
    /// No hits: the time of the newest hit, if the pieces are too wide to show it.
    Newest = 3,
    /// Exact moments.
    Moments = 4,
    /// Coarse panes.
    Coarse = 5,
    /// No hits: the time of the newest hit in coarse panes.
    CoarseNewest = 6,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Pane,
        Kind::Cell,
        Kind::MomentsBefore,
        Kind::Newest,
        Kind::Moments,
        Kind::Coarse,
        Kind::CoarseNewest,
    ];

    fn of(first: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(first >> RUNG_BITS)).copied()
    }

    /// The first byte of a kind without a width.
    const fn byte(self) -> u8 {
        (self as u8) << RUNG_BITS
    }
}

/// The bits of the first byte for the width, as a rung of the ladder.
const RUNG_BITS: u32 = 5;
/// The end of a run.
const END: u64 = 0;

impl Entry {
    /// Encodes the hits.
    pub(crate) fn write(&self, settings: &Settings, out: &mut Vec<u8>) {
        match self {
            Entry::Inline(inline) => write_inline(inline, out),
            Entry::List { head, bytes } => write_list(super::List { head, bytes }, out),
            Entry::Large { newest, large } => {
                let mut writer = Writer { out, run: None };
                let coarse = large.coarse();
                let of_coarse = coarse.into_iter().flat_map(|coarse| coarse.panes().iter());
                of_coarse.for_each(|pane| writer.pane(Kind::Coarse, pane));
                large.panes().for_each(|pane| writer.pane(Kind::Pane, pane));
                large.cells(settings).for_each(|pane| writer.pane(Kind::Cell, pane));
                writer.end();
                if let Some(list) = large.list() {
                    write_list(list, out);
                }
                if let Some(coarse) = coarse {
                    write_time(Kind::CoarseNewest, coarse.latest_ms(), out);
                }
                write_time(Kind::Newest, newest.get(), out);
            }
        }
    }

    /// Encodes hits of which only the pane is known, such as denied ones.
    pub(crate) fn write_panes(&self, settings: &Settings, out: &mut Vec<u8>) {
        let width_ms = settings.resolution().as_millis();
        let pieces = self.pieces(settings);
        let mut writer = Writer { out, run: None };
        for piece in pieces.list {
            match piece {
                Piece::Moment(Moment { at_ms, hits }) => {
                    let start_ms = at_ms.div_euclid(width_ms) * width_ms;
                    writer.pane(Kind::Pane, Pane { start_ms, width_ms, hits });
                }
                Piece::Pane { pane, source: Source::Coarse } => writer.pane(Kind::Coarse, pane),
                Piece::Pane { pane, .. } => writer.pane(Kind::Pane, pane),
            }
        }
        writer.end();
        if let Some(coarse_ms) = pieces.coarse_ms {
            write_time(Kind::CoarseNewest, coarse_ms, out);
        }
        write_time(Kind::Newest, self.newest_ms(), out);
    }

    /// Decodes hits that [`Entry::write_panes`] wrote. Panes of the resolution become moments again.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not an entry.
    pub(crate) fn read_panes(bytes: &[u8], settings: &Settings, now: Timestamp) -> Result<Entry, Malformed> {
        let mut pieces = Reader::new(bytes).read().ok_or(Malformed::Entry)?.pieces;
        pieces.is_by_pane = true;
        let start_ms = |ms| settings.pane_of(ms) * settings.resolution().as_millis();
        for piece in &mut pieces.list {
            match *piece {
                Piece::Pane { pane, .. } if pane.width_ms <= settings.resolution().as_millis() => {
                    *piece = Piece::Moment(Moment { at_ms: start_ms(pane.start_ms), hits: pane.hits });
                }
                Piece::Moment(Moment { at_ms, hits }) => {
                    *piece = Piece::Moment(Moment { at_ms: start_ms(at_ms), hits });
                }
                Piece::Pane { .. } => {}
            }
        }
        Ok(Entry::of_pieces(pieces, settings, now))
    }

    /// Decodes hits that [`Entry::write`] wrote, and fits them to `settings`, which may have changed since.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not an entry.
    pub(crate) fn read(bytes: &[u8], settings: &Settings, now: Timestamp) -> Result<Entry, Malformed> {
        // Most keys have moments only.
        if let Some((moments, [])) = Moments::read(bytes) {
            return Ok(moments.entry());
        }
        let pieces = Reader::new(bytes).read().ok_or(Malformed::Entry)?.pieces;
        Ok(Entry::of_pieces(pieces, settings, now))
    }

    /// The number of hits in the bytes, if [`Entry::read`] can decode them.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not an entry.
    pub(crate) fn read_total(bytes: &[u8]) -> Result<u64, Malformed> {
        Ok(Reader::new(bytes).read().ok_or(Malformed::Entry)?.total)
    }

    /// Moves hits later than `now` to `now`, or with `is_by_pane` to the start of its pane.
    pub(crate) fn end_by(&mut self, now: Timestamp, is_by_pane: bool, settings: &Settings) {
        let pane_ms = settings.pane_of(now.as_millis()) * settings.resolution().as_millis();
        let last_ms = if is_by_pane { pane_ms } else { now.as_millis() };
        let mut pieces = self.pieces(settings);
        // Panes that were read with other settings may be later than the newest time.
        let mut is_changed = self.newest_ms() > now.as_millis();
        for piece in &mut pieces.list {
            let start_ms = match piece {
                Piece::Moment(moment) => moment.at_ms,
                Piece::Pane { pane, .. } => pane.start_ms,
            };
            if start_ms > last_ms {
                *piece = Piece::Moment(Moment { at_ms: last_ms, hits: piece.hits() });
                is_changed = true;
            }
        }
        if !is_changed {
            return;
        }
        pieces.is_by_pane = is_by_pane;
        pieces.newest_ms = pieces.newest_ms.map(|newest_ms| newest_ms.min(last_ms));
        pieces.coarse_ms = pieces.coarse_ms.map(|coarse_ms| coarse_ms.min(last_ms));
        *self = Entry::of_pieces(pieces, settings, now);
    }

    /// Adds the hits of another entry of the key.
    pub(crate) fn absorb(&mut self, other: Entry, settings: &Settings, now: Timestamp) {
        if self.is_empty() {
            *self = other;
            return;
        }
        let (mut pieces, others) = (self.pieces(settings), other.pieces(settings));
        pieces.list.extend(others.list);
        pieces.newest_ms = pieces.newest_ms.max(others.newest_ms);
        pieces.coarse_ms = pieces.coarse_ms.max(others.coarse_ms);
        for piece in &mut pieces.list {
            if let Piece::Pane { source: source @ Source::Old, .. } = piece {
                *source = Source::Elsewhere;
            }
        }
        *self = Entry::of_pieces(pieces, settings, now);
    }

    /// The hits as pieces: coarse ones first, then from old to new.
    pub(super) fn pieces(&self, settings: &Settings) -> Pieces {
        let newest_ms = Some(self.newest_ms());
        match self {
            Entry::Inline(inline) => {
                let list = inline.oldest_first().map(Piece::Moment).collect();
                Pieces { list, newest_ms, ..Pieces::default() }
            }
            Entry::List { head, bytes } => {
                let list = super::List { head, bytes }.moments().map(Piece::Moment).collect();
                Pieces { list, newest_ms, ..Pieces::default() }
            }
            Entry::Large { large, .. } => {
                let of = |source| move |pane| Piece::Pane { pane, source };
                let coarse = large.coarse().into_iter().flat_map(|coarse| coarse.panes().iter());
                let coarse = coarse.map(of(Source::Coarse));
                let panes = large.panes().map(of(Source::Old));
                let cells = large.cells(settings).map(of(Source::Ring));
                let moments = large.list().into_iter().flat_map(super::List::moments).map(Piece::Moment);
                let list = coarse.chain(panes).chain(cells).chain(moments).collect();
                let coarse_ms = large.coarse().map(Coarse::latest_ms);
                Pieces { list, newest_ms, coarse_ms, ..Pieces::default() }
            }
        }
    }
}

/// Moments as bytes: the byte of their kind, their length, the origin of their times, and each moment as in a
/// list.
struct Moments<'a> {
    origin_ms: i64,
    /// Their bytes, if they are encoded as in a list.
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

/// Appends a time.
fn write_time(kind: Kind, ms: i64, out: &mut Vec<u8>) {
    out.push(kind.byte());
    leb128::push(out, ms.cast_unsigned());
}

fn begin_moments(origin_ms: i64, len: usize, out: &mut Vec<u8>) {
    out.push(Kind::Moments.byte());
    leb128::push(out, len as u64);
    // The origin may be a millisecond before the epoch.
    leb128::push(out, (origin_ms + 1).cast_unsigned());
}

impl<'a> Moments<'a> {
    /// Decodes moments from the front of the bytes. Returns them and the remaining bytes. `None` if the bytes
    /// do not start with moments.
    fn read(bytes: &'a [u8]) -> Option<(Moments<'a>, &'a [u8])> {
        let (&first, mut bytes) = bytes.split_first()?;
        let len = usize::try_from(leb128::take(&mut bytes)?).ok()?;
        let origin = i64::try_from(leb128::take(&mut bytes)?).ok()?;
        let items = bytes.split_off(..len)?;
        let origin_ms = origin.checked_sub(1).filter(|&ms| ms <= Timestamp::MAX.as_millis())?;
        let (held, items) = if first == Kind::Moments.byte() {
            (read_items(items, origin_ms, Gap::take)?, Some(items))
        } else if first == Kind::MomentsBefore.byte() {
            (read_items(items, origin_ms, Gap::take_number)?, None)
        } else {
            return None;
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

/// Encodes panes in runs of the same kind and width.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// The last pane and its kind.
    run: Option<(Kind, Pane)>,
}

impl Writer<'_> {
    fn pane(&mut self, kind: Kind, pane: Pane) {
        let Pane { start_ms, width_ms, hits } = pane;
        let same_run = |last: &(Kind, Pane)| {
            (last.0, last.1.width_ms) == (kind, width_ms) && last.1.end_ms() <= start_ms
        };
        let from_ms = match self.run {
            Some(last) if same_run(&last) => last.1.end_ms(),
            _ => {
                self.end();
                let rung = RUNGS_MS.iter().position(|&rung_ms| rung_ms == width_ms);
                let rung = u8::try_from(rung.expect("widths are rungs of the ladder")).expect("there are 21");
                self.out.push(kind.byte() | rung);
                0
            }
        };
        let gap = (start_ms - from_ms).cast_unsigned() / width_ms.cast_unsigned();
        leb128::push(self.out, (gap << 1 | u64::from(hits > 1)) + 1);
        if hits > 1 {
            leb128::push(self.out, hits);
        }
        self.run = Some((kind, pane));
    }

    /// Ends the current run.
    fn end(&mut self) {
        if self.run.take().is_some() {
            leb128::push(self.out, END);
        }
    }
}

/// Decodes and validates pieces, in any order.
struct Reader<'a> {
    bytes: &'a [u8],
    total: u64,
    pieces: Pieces,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, total: 0, pieces: Pieces::default() }
    }

    fn read(mut self) -> Option<Reader<'a>> {
        while let Some(&first) = self.bytes.first() {
            match Kind::of(first)? {
                Kind::Moments | Kind::MomentsBefore => {
                    let (moments, rest) = Moments::read(self.bytes)?;
                    self.bytes = rest;
                    moments.held.into_iter().try_for_each(|moment| self.push(Piece::Moment(moment)))?;
                }
                Kind::CoarseNewest => self.pieces.coarse_ms = Some(self.time()?),
                Kind::Newest => {
                    self.pieces.newest_ms = Some(self.time()?);
                    // It must be the last item.
                    self.bytes.is_empty().then_some(())?;
                }
                Kind::Pane => self.run(Source::Old)?,
                Kind::Cell => self.run(Source::Ring)?,
                Kind::Coarse => self.run(Source::Coarse)?,
            }
        }
        Some(self)
    }

    /// Reads a time.
    fn time(&mut self) -> Option<i64> {
        self.bytes.split_off_first()?;
        let ms = i64::try_from(leb128::take(&mut self.bytes)?).ok()?;
        (ms <= Timestamp::MAX.as_millis()).then_some(ms)
    }

    /// Reads a run of panes.
    fn run(&mut self, source: Source) -> Option<()> {
        let first = *self.bytes.split_off_first()?;
        let width_ms = *RUNGS_MS.get(usize::from(first & ((1 << RUNG_BITS) - 1)))?;
        let mut from_ms = 0;
        loop {
            let number = leb128::take(&mut self.bytes)?;
            if number == END {
                return Some(());
            }
            let hits = if (number - 1) & 1 == 0 { 1 } else { leb128::take(&mut self.bytes)? };
            let gap = i64::try_from((number - 1) >> 1).ok()?;
            let start_ms = gap.checked_mul(width_ms)?.checked_add(from_ms)?;
            if start_ms > Timestamp::MAX.as_millis() {
                return None;
            }
            let pane = Pane { start_ms, width_ms, hits };
            self.push(Piece::Pane { pane, source })?;
            from_ms = pane.end_ms();
        }
    }

    /// Adds a piece, if it has hits and the total stays within its bound.
    fn push(&mut self, piece: Piece) -> Option<()> {
        self.total = self.total.checked_add(piece.hits()).filter(|&total| total <= MAX_TOTAL)?;
        self.pieces.list.push(piece);
        (piece.hits() > 0).then_some(())
    }
}

#[cfg(test)]
mod tests;
