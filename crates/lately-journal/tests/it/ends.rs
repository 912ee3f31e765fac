//! Regression tests of ends that a start could not handle.

use lately_journal::{Durability, JournalError, LossKind, Recovery};

use crate::life::{Action, Batch, Fate, Life, Members, difference, keys, reference, time};
use crate::sim_disk::SimDisk;

fn start(disk: &SimDisk, durability: Durability) -> Result<(Life, Recovery), JournalError> {
    Life::start(disk, 2, durability, false)
}

/// A batch of several sectors.
fn batch() -> Batch {
    let hit = |key| Action::Hit { key, weight: 1, late_ms: 0 };
    Batch { now: time(0), actions: keys().into_iter().map(hit).collect() }
}

/// Symptom: after a start that was killed before its first record, the next start made a second segment, and
/// the one after that missed the first. Cause: an unborn segment was removed, but its number was not reused.
/// Fix: the log continues behind the last segment that is kept.
#[test]
fn a_first_start_may_end_at_any_byte() {
    for fuel in 0_u64.. {
        let disk = SimDisk::new(fuel);
        disk.end_after(Some(fuel));
        let first = start(&disk, Durability::Interval);
        if first.is_ok() {
            assert!(fuel > 10);
            return;
        }
        for _ in 0..3 {
            disk.restart();
            start(&disk, Durability::Interval).unwrap_or_else(|error| panic!("{error}, after {fuel}"));
        }
    }
}

/// Symptom: after several failed syncs and a kill, a start reported a segment with a wrong first frame.
/// Cause: each attempt to recover started a segment, and the one before was cut to nothing, so it did not
/// have the end of its predecessor any more. Fix: an empty segment is created again.
#[test]
fn repeated_failed_syncs_leave_a_readable_log() {
    for durability in [Durability::Interval, Durability::Always] {
        for seed in 0..60 {
            let disk = SimDisk::new(seed);
            let (mut life, _) = start(&disk, durability).expect("a start");
            let batch = batch();
            let fate = life.run(0, &batch);
            drop(life.journal.checkpoint().expect("begun"));
            disk.fail_file_syncs();
            life.run(1, &batch);
            assert!(!life.journal.sync());
            life.verdicts();
            for _ in 0..9 {
                assert!(!life.journal.try_recover());
                let logs = disk.files().into_iter().filter(|(name, _)| name.starts_with("log-")).count();
                assert!(logs <= 4, "{logs}");
            }
            disk.restart();
            if seed.is_multiple_of(2) {
                disk.lose_power();
            }
            let started = start(&disk, durability);
            let (life, recovery) = started.unwrap_or_else(|error| panic!("{error}, {durability:?}, {seed}"));
            assert!(recovery.losses.iter().all(|loss| loss.kind == LossKind::Torn), "{recovery:?}");
            let is_acknowledged = fate == Fate::Acknowledged && !seed.is_multiple_of(2);
            let least = 1 + usize::from(is_acknowledged);
            let fits = |batches: usize| {
                let wanted = reference(std::iter::repeat_n(&batch, batches));
                difference(&keys(), &life.store, &wanted, &Members::default(), true, time(0)).is_none()
            };
            assert!((least..=2).any(fits), "{durability:?}, {seed}");
        }
    }
}

/// Symptom: after a failed sync and a loss of power, a start reported a segment with a wrong first frame.
/// Cause: nothing of the segment had been synced, only a part of it existed, and the next one existed, too.
/// Fix: such a segment is reported as torn.
#[test]
fn power_may_fail_while_the_log_recovers() {
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        let (mut life, _) = start(&disk, Durability::Interval).expect("a start");
        drop(life.journal.checkpoint().expect("begun"));
        assert_eq!(life.run(0, &batch()), Fate::Acknowledged);
        disk.fail_syncs(true);
        assert!(!life.journal.sync());
        disk.fail_syncs(false);
        // The end is between the start of the next segment and its sync.
        disk.end_after(Some(1_000));
        assert!(!life.journal.try_recover());
        disk.restart();
        disk.lose_power();
        let (_, recovery) =
            start(&disk, Durability::Interval).unwrap_or_else(|error| panic!("{error}, {seed}"));
        assert!(recovery.losses.iter().all(|loss| loss.kind == LossKind::Torn), "{recovery:?}, {seed}");
    }
}
