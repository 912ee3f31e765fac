//! Charges fragmented memory to the ceiling: memory that the process holds but the allocator cannot reuse.
//!
//! While the process has more memory than is accounted for, the allocator returns free memory to the system. If the
//! process still grows, the growth is charged twice: keys are evicted, and new keys reuse their memory. The charge
//! ends when the process has shrunk.
//!
//! Pages of the program are resident, too. When the process is near its bound, the system takes them out, and those that are
//! used come back.

use lately::Timestamp;

use super::process::Resident;
use crate::limits::{
    CLOSE_LOOK_SHARE, FRAGMENTATION_SHARE, FRAGMENTATION_STEPS, NEAR_BOUND_BYTES, PROCESS_BYTES,
    RESIDENT_BOUND_BYTES, RESIDENT_BOUND_SHARE, RESIDENT_SHARE, RETURN_EVERY_MS, WATCH_EVERY,
};

/// What a process can do about its memory.
pub(crate) struct Process<'p> {
    pub(crate) resident: &'p dyn Fn() -> Option<Resident>,
    /// Returns free memory to the system.
    pub(crate) return_memory: &'p dyn Fn(),
    /// Has the system take out the pages of the program.
    pub(crate) return_program: &'p dyn Fn(),
}

/// The charge for fragmented memory.
#[derive(Default, Debug)]
pub(crate) struct Fragmentation {
    charged_bytes: u64,
    /// The most memory that the process had. The part beyond the expected memory is charged.
    peak_bytes: u64,
    returned: Option<Timestamp>,
    returned_program: Option<Timestamp>,
    /// When the charge became less.
    lowered: Option<Timestamp>,
    is_close: bool,
}

impl Fragmentation {
    /// Whether the process had about as much memory at the last look as it should have, or more.
    pub(crate) fn is_close(&self) -> bool {
        self.is_close
    }

    /// The charge for the memory that the process has now.
    pub(crate) fn update(&mut self, ceiling_bytes: u64, now: Timestamp, process: &Process<'_>) -> u64 {
        let should_bytes = ceiling_bytes + ceiling_bytes / RESIDENT_SHARE + PROCESS_BYTES;
        let bound_bytes = ceiling_bytes + ceiling_bytes / RESIDENT_BOUND_SHARE + RESIDENT_BOUND_BYTES;
        let step_bytes = (ceiling_bytes / FRAGMENTATION_STEPS).max(1);
        let Some(resident) = (process.resident)() else { return 0 };
        let mut bytes = resident.own_bytes;
        if resident.all_bytes() > bound_bytes - NEAR_BOUND_BYTES
            && is_due(self.returned_program, now, RETURN_EVERY_MS)
        {
            self.returned_program = Some(now);
            (process.return_program)();
        }
        if bytes > should_bytes && is_due(self.returned, now, RETURN_EVERY_MS) {
            self.returned = Some(now);
            (process.return_memory)();
            bytes = (process.resident)().map_or(bytes, |resident| resident.own_bytes);
        }
        self.is_close = bytes > should_bytes - ceiling_bytes / CLOSE_LOOK_SHARE;
        if bytes <= should_bytes {
            self.peak_bytes = should_bytes;
            if is_due(self.lowered, now, i64::from(WATCH_EVERY.subsec_millis())) {
                self.lowered = Some(now);
                self.charged_bytes = self.charged_bytes.saturating_sub(step_bytes);
            }
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
}

fn is_due(last: Option<Timestamp>, now: Timestamp, every_ms: i64) -> bool {
    last.is_none_or(|last| now.as_millis() - last.as_millis() >= every_ms)
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

    fn resident(own_bytes: u64, file_bytes: u64) -> Option<Resident> {
        Some(Resident { own_bytes, file_bytes })
    }

    /// The charge after a look at a process with `own_bytes`, none of which can be returned.
    fn update(fragmentation: &mut Fragmentation, ms: i64, own_bytes: u64) -> u64 {
        let process =
            Process { resident: &|| resident(own_bytes, 0), return_memory: &|| (), return_program: &|| () };
        fragmentation.update(CEILING_BYTES, at(ms), &process)
    }

    #[test]
    fn expected_memory_is_not_charged() {
        let mut fragmentation = Fragmentation::default();
        for (ms, bytes) in [(0, 0), (1, CEILING_BYTES), (2, SHOULD_BYTES)] {
            assert_eq!(update(&mut fragmentation, ms, bytes), 0);
            assert_eq!(fragmentation.is_close(), bytes == SHOULD_BYTES);
        }
        let nothing = || panic!("there is no reason");
        let process = Process { resident: &|| None, return_memory: &nothing, return_program: &nothing };
        assert_eq!(fragmentation.update(CEILING_BYTES, at(3), &process), 0);
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
        assert!(fragmentation.is_close());
        let looks = (700..=1_400).step_by(50);
        let charged = looks.map(|ms| update(&mut fragmentation, ms, SHOULD_BYTES)).step_by(2);
        assert_eq!(charged.collect::<Vec<_>>(), [5, 4, 3, 2, 1, 0, 0, 0].map(|mib| mib * MIB));
        // More than half of the ceiling is never charged.
        let most = (0..100).map(|ms| update(&mut fragmentation, ms, u64::MAX / 2)).last();
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
            let process = Process {
                resident: &|| resident(resident_bytes.get(), 0),
                return_memory: &return_memory,
                return_program: &|| panic!("it is not near the bound"),
            };
            fragmentation.update(CEILING_BYTES, at(ms), &process)
        };
        assert_eq!(update(0, SHOULD_BYTES), 0);
        resident_bytes.set(SHOULD_BYTES + MIB);
        assert_eq!((update(RETURN_EVERY_MS - 1, SHOULD_BYTES), returns.get()), (2 * MIB, 1));
        assert_eq!((update(RETURN_EVERY_MS, SHOULD_BYTES), returns.get()), (MIB, 2));
    }

    /// Symptom: at a ceiling of 8 MiB a process took 15 MiB more than its bound. Part of the cause: 15 MiB of the program were
    /// resident, of which 7 MiB were used. Part of the fix: near the bound, its pages are given back.
    #[test]
    fn a_process_near_its_bound_gives_its_program_back() {
        let mut fragmentation = Fragmentation::default();
        let near_bytes =
            CEILING_BYTES + CEILING_BYTES / RESIDENT_BOUND_SHARE + RESIDENT_BOUND_BYTES - NEAR_BOUND_BYTES;
        let returns = Cell::new(0);
        let mut update = |ms, all_bytes| {
            let process = Process {
                resident: &|| resident(SHOULD_BYTES, all_bytes - SHOULD_BYTES),
                return_memory: &|| panic!("the process has no more than it should"),
                return_program: &|| returns.set(returns.get() + 1),
            };
            assert_eq!(fragmentation.update(CEILING_BYTES, at(ms), &process), 0);
            returns.get()
        };
        assert_eq!(update(0, near_bytes), 0);
        assert_eq!(update(100, near_bytes + 1), 1);
        assert_eq!(update(99 + RETURN_EVERY_MS, near_bytes + 1), 1);
        assert_eq!(update(100 + RETURN_EVERY_MS, near_bytes + 1), 2);
    }
}
