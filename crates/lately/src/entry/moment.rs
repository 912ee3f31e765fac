//! Hits of one millisecond, and a run of them as bytes.
//!
//! A moment is the gap to the one before it and a bit that says whether it has more than one hit, in
//! one number, then the hits if it has. Most take two or three bytes.

use crate::varint::{self, Encoded};

/// Hits of one millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Moment {
    pub(crate) at_ms: i64,
    pub(crate) hits: u64,
}

/// A moment as bytes: the number of its gap, and its hits if there are several.
pub(super) struct Item {
    gap: Encoded,
    hits: Option<Encoded>,
}

impl Item {
    /// The moment as what follows one at `before_ms`, which is earlier. Its first byte is not zero.
    #[inline]
    pub(super) fn new(moment: Moment, before_ms: i64) -> Item {
        let gap_ms = (moment.at_ms - before_ms).cast_unsigned();
        let several = moment.hits > 1;
        let hits = several.then(|| varint::encode(moment.hits));
        Item { gap: varint::encode(gap_ms << 1 | u64::from(several)), hits }
    }

    /// The bytes, in one or two pieces.
    pub(super) fn pieces(&self) -> (&[u8], &[u8]) {
        (self.gap.as_bytes(), self.hits.as_ref().map_or(&[], Encoded::as_bytes))
    }
}

/// Reads moments from bytes, oldest first. A first byte of zero ends them, as the end of the bytes does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    /// Where the next moment starts.
    pub(super) offset: usize,
    /// Time of the moment before it.
    pub(super) before_ms: i64,
}

impl Iterator for Reader<'_> {
    type Item = Moment;

    #[inline]
    fn next(&mut self) -> Option<Moment> {
        if self.bytes.get(self.offset).is_none_or(|&first| first == 0) {
            return None;
        }
        let (gap, mut offset) = varint::decode(self.bytes, self.offset);
        let mut hits = 1;
        if gap & 1 == 1 {
            (hits, offset) = varint::decode(self.bytes, offset);
        }
        self.offset = offset;
        self.before_ms += (gap >> 1).cast_signed();
        Some(Moment { at_ms: self.before_ms, hits })
    }
}

/// A time in six bytes: all times to the year 9999 fit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PackedTime([u8; 6]);

impl PackedTime {
    #[inline]
    pub(super) fn pack(at_ms: i64) -> PackedTime {
        let [a, b, c, d, e, f, g, h] = at_ms.to_le_bytes();
        debug_assert!(g == 0 && h == 0, "{at_ms} is no time");
        PackedTime([a, b, c, d, e, f])
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    #[inline]
    pub(super) fn get(self) -> i64 {
        let [a, b, c, d, e, f] = self.0;
        i64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn a_run_of_moments_comes_back() {
        let moments: Vec<Moment> = [(1, 1), (2, 2), (66, 1), (8_300, 300), (1 << 40, 1), (1 << 41, u64::MAX)]
            .into_iter()
            .map(|(at_ms, hits)| Moment { at_ms, hits })
            .collect();
        let mut bytes = Vec::new();
        let mut before_ms = -1;
        for &moment in &moments {
            let item = Item::new(moment, before_ms);
            let (gap, hits) = item.pieces();
            assert_ne!(gap[0], 0);
            bytes.extend_from_slice(gap);
            bytes.extend_from_slice(hits);
            before_ms = moment.at_ms;
        }
        let reader = Reader { bytes: &bytes, offset: 0, before_ms: -1 };
        assert_eq!(reader.collect::<Vec<_>>(), moments);
        bytes.push(0);
        bytes.push(9);
        assert_eq!(Reader { bytes: &bytes, offset: 0, before_ms: -1 }.count(), moments.len());
    }

    #[test]
    fn every_time_packs() {
        for at_ms in [0, 1, 1_700_000_000_123, Timestamp::MAX.as_millis()] {
            assert_eq!(PackedTime::pack(at_ms).get(), at_ms);
        }
    }
}
