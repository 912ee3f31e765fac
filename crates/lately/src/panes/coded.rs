//! Panes as bytes. Most take one byte.
//!
//! A pane has one of three forms, by its first number:
//! - even: it starts at the end of the pane before, with the same width; the number is twice its hits.
//! - odd, above 1: the same width, after a gap of half the number (rounded down) in panes; its hits follow.
//! - 1: another width; its rung on the ladder, the gap in milliseconds and the hits follow.

use super::Pane;
use crate::ladder::RUNGS_MS;
use crate::leb128;

/// The context of the next pane: the end of the pane before it, and the rung of the ladder that is its width.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Context {
    pub(super) end_ms: i64,
    pub(super) rung: u16,
}

impl Context {
    /// The context in which `pane` has the even form.
    pub(super) fn before(pane: Pane) -> Context {
        Context { end_ms: pane.start_ms, rung: rung_of(pane.width_ms) }
    }

    fn width_ms(self) -> i64 {
        RUNGS_MS[usize::from(self.rung)]
    }
}

fn rung_of(width_ms: i64) -> u16 {
    let rung = RUNGS_MS.iter().position(|&rung_ms| rung_ms == width_ms);
    u16::try_from(rung.expect("widths are rungs of the ladder")).expect("there are 21")
}

/// Appends a pane that starts at the end of `context` or later. Returns the context of the next pane.
#[inline]
pub(super) fn write(out: &mut Vec<u8>, pane: Pane, context: Context) -> Context {
    assert!(pane.start_ms >= context.end_ms, "a pane at {} before {}", pane.start_ms, context.end_ms);
    let gap_ms = (pane.start_ms - context.end_ms).cast_unsigned();
    let mut put = |value: u64| out.extend_from_slice(leb128::encode(value).as_bytes());
    let mut rung = context.rung;
    if pane.width_ms != context.width_ms() {
        rung = rung_of(pane.width_ms);
        put(1);
        put(u64::from(rung));
        put(gap_ms);
        put(pane.hits);
    } else if gap_ms == 0 {
        put(pane.hits << 1);
    } else {
        put((gap_ms / pane.width_ms.cast_unsigned()) << 1 | 1);
        put(pane.hits);
    }
    Context { end_ms: pane.end_ms(), rung }
}

/// An iterator over panes, oldest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) offset: usize,
    pub(super) context: Context,
}

impl Iterator for Reader<'_> {
    type Item = Pane;

    #[inline]
    fn next(&mut self) -> Option<Pane> {
        if self.offset >= self.bytes.len() {
            return None;
        }
        let (kind, mut offset) = leb128::decode(self.bytes, self.offset);
        let mut number = || {
            let (value, next) = leb128::decode(self.bytes, offset);
            offset = next;
            value
        };
        let Context { end_ms, mut rung } = self.context;
        let width_ms = self.context.width_ms();
        let pane = if kind & 1 == 0 {
            Pane { start_ms: end_ms, width_ms, hits: kind >> 1 }
        } else if kind > 1 {
            let start_ms = end_ms + (kind >> 1).cast_signed() * width_ms;
            Pane { start_ms, width_ms, hits: number() }
        } else {
            rung = u16::try_from(number()).unwrap_or(u16::MAX);
            let start_ms = end_ms + number().cast_signed();
            Pane { start_ms, width_ms: RUNGS_MS[usize::from(rung)], hits: number() }
        };
        self.offset = offset;
        self.context = Context { end_ms: pane.end_ms(), rung };
        Some(pane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panes_round_trip_in_the_bytes_they_need() {
        let pane = |start_s: i64, width_s: i64, hits: u64| {
            (Pane { start_ms: start_s * 1_000, width_ms: width_s * 1_000, hits }, hits)
        };
        let list = [
            (pane(7_200, 3_600, 3_000), 2),
            (pane(10_800, 3_600, 63), 1),
            (pane(21_600, 3_600, 1), 2),
            (pane(25_200, 60, 9), 4),
            (pane(25_260, 60, u64::MAX >> 1), 10),
            (pane(25_400, 1, 1), 6),
        ];
        let panes: Vec<Pane> = list.iter().map(|((pane, _), _)| *pane).collect();
        let mut context = Context::before(panes[0]);
        let first = context;
        let mut bytes = Vec::new();
        for ((pane, _), len) in list {
            let before = bytes.len();
            context = write(&mut bytes, pane, context);
            assert_eq!(bytes.len() - before, len, "{pane:?}");
        }
        let reader = Reader { bytes: &bytes, offset: 0, context: first };
        assert_eq!(reader.collect::<Vec<_>>(), panes);
    }
}
