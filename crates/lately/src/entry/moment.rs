//! Hits of one millisecond, and how a cold key keeps one such moment in a word.

/// Hits of one millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Moment {
    pub(crate) at_ms: i64,
    pub(crate) hits: u64,
}

/// A moment in eight bytes: 44 bits of milliseconds, to the year 2527, and 20 bits of hits, to a
/// million; no hits is no moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct PackedMoment(u64);

const HITS_BITS: u32 = 20;
const MAX_HITS: u64 = (1 << HITS_BITS) - 1;
const MAX_AT_MS: u64 = (1 << (u64::BITS - HITS_BITS)) - 1;

impl PackedMoment {
    /// The moment packed, when it fits.
    pub(super) fn pack(moment: Moment) -> Option<PackedMoment> {
        let at_ms = u64::try_from(moment.at_ms).ok()?;
        (at_ms <= MAX_AT_MS && moment.hits <= MAX_HITS)
            .then_some(PackedMoment(at_ms << HITS_BITS | moment.hits))
    }

    pub(super) fn get(self) -> Option<Moment> {
        let hits = self.0 & MAX_HITS;
        (hits > 0).then_some(Moment { at_ms: (self.0 >> HITS_BITS).cast_signed(), hits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_that_fit_come_back() {
        let check = |at_ms: i64, hits: u64, fits: bool| {
            let moment = Moment { at_ms, hits };
            let packed = PackedMoment::pack(moment);
            assert_eq!(packed.and_then(PackedMoment::get), fits.then_some(moment), "{moment:?}");
        };
        check(0, 1, true);
        check(1_700_000_000_123, MAX_HITS, true);
        check(1_700_000_000_123, MAX_HITS + 1, false);
        check((1 << 44) - 1, 1, true);
        check(1 << 44, 1, false);
        assert_eq!(PackedMoment::default().get(), None);
    }
}
