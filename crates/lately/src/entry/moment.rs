//! Hits of one millisecond, and a packed time.

/// Hits of one millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Moment {
    pub(crate) at_ms: i64,
    pub(crate) hits: u64,
}

/// A time in six bytes, enough for the year 9999.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PackedTime([u8; 6]);

impl PackedTime {
    #[inline]
    pub(super) fn pack(at_ms: i64) -> PackedTime {
        debug_assert!(at_ms.cast_unsigned() < 1 << 48, "{at_ms} is no time");
        // `copy_from_slice` compiles to two words, not to six bytes.
        let mut bytes = [0; 6];
        bytes.copy_from_slice(&at_ms.to_le_bytes()[..6]);
        PackedTime(bytes)
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
    fn every_time_packs() {
        for at_ms in [0, 1, 1_700_000_000_123, Timestamp::MAX.as_millis()] {
            assert_eq!(PackedTime::pack(at_ms).get(), at_ms);
        }
    }
}
