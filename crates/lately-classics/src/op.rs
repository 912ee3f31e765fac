//! The operations of a trace. Property tests, fuzz targets and simulations all use them.
//!
//! Times are relative to the caller's clock, so that any part of a trace is a trace.

use crate::limits::{IDS, KEYS, MAX_DECODED_OPS, MEMBERS};

/// One operation. The driver clamps times to `0..=MAX_TIME_MS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// `count` hits of `key`, `offset_ms` from now: negative is late, positive in the future.
    Hit {
        /// The key.
        key: u8,
        /// The time of the hits, relative to now.
        offset_ms: i64,
        /// The number of hits.
        count: u64,
    },
    /// Hits like [`Op::Hit`], with an id: the same id counts once within the span of the settings.
    HitOnce {
        /// The key.
        key: u8,
        /// The time of the hits, relative to now.
        offset_ms: i64,
        /// The number of hits.
        count: u64,
        /// The id.
        id: u8,
    },
    /// Hits like [`Op::Hit`], with a member.
    HitMember {
        /// The key.
        key: u8,
        /// The time of the hits, relative to now.
        offset_ms: i64,
        /// The number of hits.
        count: u64,
        /// The member.
        member: u8,
    },
    /// Reads the distinct members of `key` over `window_ms`, ending now.
    Unique {
        /// The key.
        key: u8,
        /// The length of the window.
        window_ms: i64,
    },
    /// Reads `key` over `window_ms`, ending `back_ms` before now; negative is in the future.
    Read {
        /// The key.
        key: u8,
        /// The age of the window's end.
        back_ms: i64,
        /// The length of the window.
        window_ms: i64,
    },
    /// The clock advances.
    Advance {
        /// The time by which it advances; negative counts as 0.
        ms: i64,
    },
    /// The caller's clock is set, forward or back. Later operations pass the new time.
    Jump {
        /// The change.
        ms: i64,
    },
    /// Forgets all hits of `key`.
    Forget {
        /// The key.
        key: u8,
    },
    /// Merges old panes of `key` now, which changes no answer.
    Merge {
        /// The key.
        key: u8,
    },
}

/// Any bytes as a trace of at most [`MAX_DECODED_OPS`] operations.
///
/// An operation begins with a byte: its low 4 bits say which, its high 4 bits modulo [`KEYS`] the
/// key. 0 and 1 hit now, 2 hits with a member at an offset, 3 reads members, 4 and 5 hit once at an offset, 6 and 7 hit at an
/// offset, 8..=10 read, 11 and 12 advance, 13 jump, 14 forget, 15 merge. Then come its durations, for a hit its count, and a
/// byte: its id modulo [`IDS`], or its member modulo [`MEMBERS`]. Where bytes run out, zeros follow.
/// - A duration is a byte and a number: the byte's low 3 bits choose the unit (1 ms, 10 ms, 1 s,
///   1 min, 1 h, 1 d, 100 d, times a `u16`) or, with 7, the whole `i64`; its bit 7 makes it negative.
/// - A count is a byte up to 239 itself; 240..=247: a `u16`; 248..=251: `i64::MAX` less a `u16`;
///   252 and more: a `u64`.
///
/// Numbers are little-endian.
#[must_use]
pub fn ops_from_bytes(bytes: &[u8]) -> Vec<Op> {
    let mut bytes = Bytes(bytes);
    let mut ops = Vec::new();
    while !bytes.0.is_empty() && ops.len() < MAX_DECODED_OPS {
        ops.push(bytes.op());
    }
    ops
}

/// The bytes that are not decoded yet.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn op(&mut self) -> Op {
        let [first] = self.take();
        let key = (first >> 4) % KEYS;
        match first & 0x0f {
            0 | 1 => Op::Hit { key, offset_ms: 0, count: self.count() },
            2 => {
                let (offset_ms, count, [member]) = (self.duration_ms(), self.count(), self.take());
                Op::HitMember { key, offset_ms, count, member: member % MEMBERS }
            }
            3 => Op::Unique { key, window_ms: self.duration_ms() },
            4 | 5 => {
                let (offset_ms, count, [id]) = (self.duration_ms(), self.count(), self.take());
                Op::HitOnce { key, offset_ms, count, id: id % IDS }
            }
            6 | 7 => Op::Hit { key, offset_ms: self.duration_ms(), count: self.count() },
            8..=10 => Op::Read { key, back_ms: self.duration_ms(), window_ms: self.duration_ms() },
            11 | 12 => Op::Advance { ms: self.duration_ms() },
            13 => Op::Jump { ms: self.duration_ms() },
            14 => Op::Forget { key },
            _ => Op::Merge { key },
        }
    }

    fn duration_ms(&mut self) -> i64 {
        const UNITS_MS: [i64; 7] = [1, 10, 1_000, 60_000, 3_600_000, 86_400_000, 8_640_000_000];
        let [how] = self.take();
        let Some(unit_ms) = UNITS_MS.get(usize::from(how & 0x07)) else {
            return i64::from_le_bytes(self.take());
        };
        let sign = if how & 0x80 == 0 { 1 } else { -1 };
        sign * unit_ms * i64::from(u16::from_le_bytes(self.take()))
    }

    fn count(&mut self) -> u64 {
        let [first] = self.take();
        match first {
            0..=239 => u64::from(first),
            240..=247 => u64::from(u16::from_le_bytes(self.take())),
            248..=251 => i64::MAX.unsigned_abs() - u64::from(u16::from_le_bytes(self.take())),
            252.. => u64::from_le_bytes(self.take()),
        }
    }

    /// The next `N` bytes, padded with zeros.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut bytes = [0; N];
        bytes[..taken.len()].copy_from_slice(taken);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(bytes: &[u8], expected: &[Op]) {
        assert_eq!(ops_from_bytes(bytes), expected, "{bytes:?}");
    }

    #[test]
    fn bytes_decode() {
        check(&[], &[]);
        check(&[0x10, 3], &[Op::Hit { key: 1, offset_ms: 0, count: 3 }]);
        check(&[0x56, 0x82, 2, 1, 240, 0, 1], &[Op::Hit { key: 1, offset_ms: -258_000, count: 256 }]);
        check(&[0x14, 0x81, 2, 0, 3, 7], &[Op::HitOnce { key: 1, offset_ms: -20, count: 3, id: 1 }]);
        check(&[0x12, 0x81, 2, 0, 3, 91], &[Op::HitMember { key: 1, offset_ms: -20, count: 3, member: 1 }]);
        check(&[0x23, 0, 5, 0], &[Op::Unique { key: 2, window_ms: 5 }]);
        check(&[0x28, 0, 5, 0, 5, 7, 0], &[Op::Read { key: 2, back_ms: 5, window_ms: 604_800_000 }]);
        check(&[0x0b, 4, 1, 0], &[Op::Advance { ms: 3_600_000 }]);
        check(&[0x0d, 0x86, 1, 0], &[Op::Jump { ms: -8_640_000_000 }]);
        check(&[0x3e, 0xff], &[Op::Forget { key: 3 }, Op::Merge { key: 3 }]);
    }

    #[test]
    fn extremes_decode() {
        let most = i64::MAX.unsigned_abs();
        check(&[0x00, 248, 1, 0], &[Op::Hit { key: 0, offset_ms: 0, count: most - 1 }]);
        check(&[&[0x00, 255][..], &[255; 8]].concat(), &[Op::Hit { key: 0, offset_ms: 0, count: u64::MAX }]);
        check(&[0x0b, 7, 0, 0, 0, 0, 0, 0, 0, 0x80], &[Op::Advance { ms: i64::MIN }]);
    }

    #[test]
    fn missing_bytes_are_zeros() {
        check(&[0x10], &[Op::Hit { key: 1, offset_ms: 0, count: 0 }]);
        check(&[0x0b, 0, 9], &[Op::Advance { ms: 9 }]);
    }

    #[test]
    fn a_trace_ends_at_its_bound() {
        assert_eq!(ops_from_bytes(&[0x0e; MAX_DECODED_OPS]).len(), MAX_DECODED_OPS);
        assert_eq!(ops_from_bytes(&[0x0e; MAX_DECODED_OPS + 1]).len(), MAX_DECODED_OPS);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_keys_in_range(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for op in ops_from_bytes(&bytes) {
                if let Op::Hit { key, .. } | Op::HitOnce { key, .. } | Op::HitMember { key, .. } | Op::Unique { key, .. } | Op::Read { key, .. } | Op::Forget { key } | Op::Merge { key } = op {
                    prop_assert!(key < KEYS);
                }
            }
        }
    }
}
