//! Charges fragmented memory to the ceiling: memory that the process holds but the allocator cannot reuse.
//!
//! While the process has more memory than is accounted for, the allocator returns free memory to the system. If the
//! process still grows, the growth is charged twice: keys are evicted, and new keys reuse their memory. The charge
//! ends when the process has shrunk.

use lately::Timestamp;

use crate::limits::{
    FRAGMENTATION_SHARE, FRAGMENTATION_STEPS, PROCESS_BYTES, RESIDENT_SHARE, RETURN_EVERY_MS,
};

/// The charge for fragmented memory.
#[derive(Default, Debug)]
pub(crate) struct Fragmentation {
    charged_bytes: u64,
    /// The most memory that the process had. The part beyond the expected memory is charged.
    peak_bytes: u64,
    returned: Option<Timestamp>,
}

impl Fragmentation {
    /// The charge for a process with `resident` bytes. `return_memory` returns free memory to the system.
    pub(crate) fn update(
        &mut self,
        ceiling_bytes: u64,
        now: Timestamp,
        resident: impl Fn() -> Option<u64>,
        return_memory: impl FnOnce(),
    ) -> u64 {
        let should_bytes = ceiling_bytes + ceiling_bytes / RESIDENT_SHARE + PROCESS_BYTES;
        let step_bytes = (ceiling_bytes / FRAGMENTATION_STEPS).max(1);
        let Some(mut bytes) = resident() else { return 0 };
        if bytes > should_bytes && self.is_due(now) {
            self.returned = Some(now);
            return_memory();
            bytes = resident().unwrap_or(bytes);
        }
        if bytes <= should_bytes {
            self.peak_bytes = should_bytes;
            self.charged_bytes = self.charged_bytes.saturating_sub(step_bytes);
            return self.charged_bytes;
        }
        // In steps: evictions are committed, and clients wait for that.
        let peak_bytes = self.peak_bytes.max(should_bytes);
        let grown_bytes = bytes.saturating_sub(peak_bytes).min(step_bytes);
        self.peak_bytes = peak_bytes + grown_bytes;
        let most_bytes = ceiling_bytes / FRAGMENTATION_SHARE;
        self.charged_bytes = (self.charged_bytes + 2 * grown_bytes).min(most_bytes);
        self.charged_bytes
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.returned.is_none_or(|returned| now.as_millis() - returned.as_millis() >= RETURN_EVERY_MS)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MIB: u64 = 1 << 20;
    const CEILING_BYTES: u64 = 64 * MIB;
    const SHOULD_BYTES: u64 = CEILING_BYTES + CEILING_BYTES / RESIDENT_SHARE + PROCESS_BYTES;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    /// The charge after a look at a process with `resident_bytes`, none of which can be returned.
    fn update(fragmentation: &mut Fragmentation, ms: i64, resident_bytes: u64) -> u64 {
        fragmentation.update(CEILING_BYTES, at(ms), || Some(resident_bytes), || ())
    }

    #[test]
    fn expected_memory_is_not_charged() {
        let mut fragmentation = Fragmentation::default();
        for (ms, bytes) in [(0, 0), (1, CEILING_BYTES), (2, SHOULD_BYTES)] {
            assert_eq!(update(&mut fragmentation, ms, bytes), 0);
        }
        let unknown = fragmentation.update(CEILING_BYTES, at(3), || None, || panic!("there is no reason"));
        assert_eq!(unknown, 0);
    }

    #[test]
    fn growing_memory_is_charged_until_it_shrinks() {
        let mut fragmentation = Fragmentation::default();
        assert_eq!(update(&mut fragmentation, 0, SHOULD_BYTES + MIB / 2), MIB);
        // The charge does not grow, because removed keys have freed enough memory.
        assert_eq!(update(&mut fragmentation, 100, SHOULD_BYTES + MIB / 2), MIB);
        assert_eq!(update(&mut fragmentation, 200, SHOULD_BYTES + MIB / 4), MIB);
        assert_eq!(update(&mut fragmentation, 300, SHOULD_BYTES + MIB), 2 * MIB);
        // A large growth is charged in steps.
        assert_eq!(update(&mut fragmentation, 400, SHOULD_BYTES + 3 * MIB), 4 * MIB);
        assert_eq!(update(&mut fragmentation, 500, SHOULD_BYTES + 3 * MIB), 6 * MIB);
        assert_eq!(update(&mut fragmentation, 600, SHOULD_BYTES + 3 * MIB), 6 * MIB);
        let charged = (700..707).map(|ms| update(&mut fragmentation, ms, SHOULD_BYTES));
        assert_eq!(charged.collect::<Vec<_>>(), [5, 4, 3, 2, 1, 0, 0].map(|mib| mib * MIB));
        // More than half of the ceiling is never charged.
        let most = (0..100).map(|ms| update(&mut fragmentation, ms, u64::MAX)).last();
        assert_eq!(most, Some(CEILING_BYTES / FRAGMENTATION_SHARE));
    }

    #[test]
    fn unused_memory_is_returned_at_intervals() {
        let mut fragmentation = Fragmentation::default();
        let (resident_bytes, returns) = (Cell::new(SHOULD_BYTES + MIB), Cell::new(0));
        let mut update = |ms, after| {
            let return_memory = || {
                returns.set(returns.get() + 1);
                resident_bytes.set(after);
            };
            fragmentation.update(CEILING_BYTES, at(ms), || Some(resident_bytes.get()), return_memory)
        };
        assert_eq!(update(0, SHOULD_BYTES), 0);
        resident_bytes.set(SHOULD_BYTES + MIB);
        assert_eq!((update(RETURN_EVERY_MS - 1, SHOULD_BYTES), returns.get()), (2 * MIB, 1));
        assert_eq!((update(RETURN_EVERY_MS, SHOULD_BYTES), returns.get()), (MIB, 2));
    }
}
