//! Charges fragmented memory to the ceiling: memory that the process holds but the allocator cannot reuse.
//!
//! While the process has more memory than is accounted for, the allocator returns free memory to the system. If the
//! process still grows, the growth is charged twice: keys are evicted, and new keys reuse their memory. The charge
//! ends when the process has shrunk.
//!
//! Pages of the program are resident, too. When the process is near its bound, the system takes them out, and those that are
//! used come back. A low ceiling has no room for them beside its own memory: then they are charged in the same way.

use lately::Timestamp;

use super::process::Resident;
use crate::limits::{
    CLOSE_LOOK_SHARE, FRAGMENTATION_GROWTH_STEPS, FRAGMENTATION_LOWERING_STEPS, FRAGMENTATION_SHARE,
    LOWER_EVERY_MS, NEAR_BOUND_BYTES, PROCESS_BYTES, PROGRAM_BYTES, PROGRAM_PEAK_MS, RESIDENT_BOUND_BYTES,
    RESIDENT_BOUND_SHARE, RESIDENT_SHARE, RETURN_EVERY_MS, RETURN_NEAR_BOUND_EVERY_MS, SPARE_BYTES,
    SPARE_SHARE,
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
    /// The most memory beyond the expected memory, as far as it was charged.
    over_bytes: u64,
    /// The most pages of the program that were resident in this interval and in the one before.
    program_bytes: [u64; 2],
    program_since: Option<Timestamp>,
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

    /// The charge for the memory that the process has now, after it has given back what it can.
    pub(crate) fn update(&mut self, ceiling_bytes: u64, now: Timestamp, process: &Process<'_>) -> u64 {
        let Some(over_bytes) = self.give_back(ceiling_bytes, now, process) else { return 0 };
        if over_bytes == 0 {
            self.over_bytes = 0;
            if is_due(self.lowered, now, LOWER_EVERY_MS) {
                self.lowered = Some(now);
                self.charged_bytes =
                    self.charged_bytes.saturating_sub(ceiling_bytes / FRAGMENTATION_LOWERING_STEPS);
            }
            return self.charged_bytes;
        }
        // In steps: evictions are committed, clients wait for that, and dumps read them.
        let grown_bytes =
            over_bytes.saturating_sub(self.over_bytes).min(ceiling_bytes / FRAGMENTATION_GROWTH_STEPS);
        self.over_bytes += grown_bytes;
        let most_bytes = ceiling_bytes / FRAGMENTATION_SHARE;
        self.charged_bytes = (self.charged_bytes + 2 * grown_bytes).min(most_bytes);
        self.charged_bytes
    }

    /// Gives back memory and pages of the program, if the process has too much. Returns the memory that it has beyond what it
    /// should have. `None` where the system does not report it.
    pub(crate) fn give_back(
        &mut self,
        ceiling_bytes: u64,
        now: Timestamp,
        process: &Process<'_>,
    ) -> Option<u64> {
        let bound_bytes = ceiling_bytes + ceiling_bytes / RESIDENT_BOUND_SHARE + RESIDENT_BOUND_BYTES;
        let resident = (process.resident)()?;
        let program_bytes = self.note_program(resident.file_bytes.min(PROGRAM_BYTES), now);
        let spare_bytes = SPARE_BYTES.min(ceiling_bytes / SPARE_SHARE);
        let should_bytes = (ceiling_bytes + ceiling_bytes / RESIDENT_SHARE + PROCESS_BYTES)
            .min(bound_bytes - spare_bytes - program_bytes);
        let mut bytes = resident.own_bytes;
        let is_near = resident.all_bytes() > bound_bytes - NEAR_BOUND_BYTES;
        if is_near && is_due(self.returned_program, now, RETURN_NEAR_BOUND_EVERY_MS) {
            self.returned_program = Some(now);
            (process.return_program)();
        }
        let every_ms = if is_near { RETURN_NEAR_BOUND_EVERY_MS } else { RETURN_EVERY_MS };
        if bytes > should_bytes && is_due(self.returned, now, every_ms) {
            self.returned = Some(now);
            (process.return_memory)();
            bytes = (process.resident)().map_or(bytes, |resident| resident.own_bytes);
        }
        self.is_close = bytes > should_bytes.saturating_sub(ceiling_bytes / CLOSE_LOOK_SHARE);
        Some(bytes.saturating_sub(should_bytes))
    }

    /// The most pages of the program that were resident lately, with those of now. They come and go as they are given back, and
    /// the charge should not.
    fn note_program(&mut self, bytes: u64, now: Timestamp) -> u64 {
        if is_due(self.program_since, now, PROGRAM_PEAK_MS) {
            self.program_since = Some(now);
            self.program_bytes = [0, self.program_bytes[0]];
        }
        self.program_bytes[0] = self.program_bytes[0].max(bytes);
        self.program_bytes[0].max(self.program_bytes[1])
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
    const NEAR_BYTES: u64 =
        CEILING_BYTES + CEILING_BYTES / RESIDENT_BOUND_SHARE + RESIDENT_BOUND_BYTES - NEAR_BOUND_BYTES;

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
        assert_eq!(update(&mut fragmentation, 0, SHOULD_BYTES + MIB / 4), MIB / 2);
        // The charge does not grow, because removed keys have freed enough memory.
        assert_eq!(update(&mut fragmentation, 10, SHOULD_BYTES + MIB / 4), MIB / 2);
        assert_eq!(update(&mut fragmentation, 20, SHOULD_BYTES + MIB / 8), MIB / 2);
        assert_eq!(update(&mut fragmentation, 30, SHOULD_BYTES + MIB / 2), MIB);
        // A large growth is charged in steps.
        let looks = (40..).step_by(10).take(12);
        let charged = looks.map(|ms| update(&mut fragmentation, ms, SHOULD_BYTES + 5 * MIB / 2)).step_by(2);
        assert_eq!(charged.collect::<Vec<_>>(), [3, 5, 7, 9, 10, 10].map(|half| half * MIB / 2));
        assert!(fragmentation.is_close());
        let looks = (200..).step_by(100).take(40);
        let charged = looks.map(|ms| update(&mut fragmentation, ms, SHOULD_BYTES)).step_by(5);
        assert_eq!(charged.collect::<Vec<_>>(), [4, 3, 2, 1, 0, 0, 0, 0].map(|mib| mib * MIB));
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
        assert_eq!((update(RETURN_EVERY_MS - 1, SHOULD_BYTES), returns.get()), (MIB / 2, 1));
        assert_eq!((update(RETURN_EVERY_MS, SHOULD_BYTES), returns.get()), (MIB / 2, 2));
        assert_eq!((update(LOWER_EVERY_MS, SHOULD_BYTES), returns.get()), (0, 2));
    }

    /// Symptom: at a ceiling of 8 MiB a process took 15 MiB more than its bound. Part of the cause: 15 MiB of the program were
    /// resident, of which 7 MiB were used. Part of the fix: near the bound, its pages are given back.
    #[test]
    fn a_process_near_its_bound_gives_its_program_back() {
        let mut fragmentation = Fragmentation::default();
        let returns = Cell::new(0);
        let mut update = |ms, all_bytes| {
            let process = Process {
                resident: &|| resident(CEILING_BYTES, all_bytes - CEILING_BYTES),
                return_memory: &|| (),
                return_program: &|| returns.set(returns.get() + 1),
            };
            fragmentation.update(CEILING_BYTES, at(ms), &process);
            returns.get()
        };
        assert_eq!(update(0, NEAR_BYTES), 0);
        assert_eq!(update(100, NEAR_BYTES + 1), 1);
        assert_eq!(update(99 + RETURN_NEAR_BOUND_EVERY_MS, NEAR_BYTES + 1), 1);
        assert_eq!(update(100 + RETURN_NEAR_BOUND_EVERY_MS, NEAR_BYTES + 1), 2);
    }

    /// Symptom: at a ceiling of 64 MiB, under a flood, four dumps brought the process to 19 MiB beyond its bound. Part of the
    /// cause: it was near the bound all the time, because the pages of its program counted for nothing. Part of the fix:
    /// they are charged where there is no room for them.
    #[test]
    fn pages_of_the_program_near_the_bound_are_charged() {
        let mut fragmentation = Fragmentation::default();
        let mut update = |ms, own_bytes, file_bytes| {
            let process = Process {
                resident: &|| resident(own_bytes, file_bytes),
                return_memory: &|| (),
                return_program: &|| (),
            };
            fragmentation.update(CEILING_BYTES, at(ms), &process)
        };
        let own_bytes = NEAR_BYTES + NEAR_BOUND_BYTES - SPARE_BYTES - PROGRAM_BYTES;
        assert_eq!(update(0, own_bytes, PROGRAM_BYTES), 0);
        assert_eq!(update(10, own_bytes + MIB / 4, PROGRAM_BYTES), MIB / 2);
        // Pages that were given back come back: the charge stays for as long as they may.
        assert_eq!(update(PROGRAM_PEAK_MS - 1, own_bytes + MIB / 4, 0), MIB / 2);
        assert_eq!(update(2 * PROGRAM_PEAK_MS - 1, own_bytes + MIB / 4, 0), MIB / 2);
        assert_eq!(update(3 * PROGRAM_PEAK_MS, own_bytes + MIB / 4, 0), 0);
        // Those of a build for tests, which is larger, do not count.
        assert_eq!(update(3 * PROGRAM_PEAK_MS + 1, own_bytes, 2 * PROGRAM_BYTES), 0);
    }

    /// While a server loads its keys, none are evicted.
    #[test]
    fn what_can_be_given_back_is_given_back_without_a_charge() {
        let mut fragmentation = Fragmentation::default();
        let returned = Cell::new((0, 0));
        let process = Process {
            resident: &|| resident(SHOULD_BYTES + MIB, NEAR_BYTES),
            return_memory: &|| returned.set((returned.get().0 + 1, returned.get().1)),
            return_program: &|| returned.set((returned.get().0, returned.get().1 + 1)),
        };
        assert!(
            fragmentation
                .give_back(CEILING_BYTES, at(0), &process)
                .is_some_and(|over_bytes| over_bytes > MIB)
        );
        assert_eq!((returned.get(), fragmentation.charged_bytes), ((1, 1), 0));
    }
}
