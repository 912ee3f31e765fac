//! Checkpoints during hits: everything in them is in the log, too.

use std::thread;

use lately_journal::limits::Bounds;
use lately_journal::{Disk, Durability, JournalError, Recovery};

use crate::life::{Action, Batch, Fate, Life, Members, difference, keys, reference, time};
use crate::sim_disk::SimDisk;

/// More than a thread needs to finish a checkpoint.
const TURNS: usize = 20_000;

fn start(disk: &SimDisk) -> Result<(Life, Recovery), JournalError> {
    Life::start(disk, 7, Durability::Interval, false)
}

fn batch() -> Batch {
    let hit = |key| Action::Hit { key, weight: 1, late_ms: 0 };
    Batch { now: time(0), actions: keys().into_iter().map(hit).collect() }
}

#[track_caller]
fn assert_counted(disk: &SimDisk, batches: &[Batch]) {
    let (life, recovery) = start(&disk.copy()).expect("a start");
    assert_eq!(recovery.losses, []);
    assert_eq!(
        difference(&keys(), &life.store, &reference(batches), &Members::default(), true, time(0)),
        None
    );
}

#[test]
fn a_checkpoint_has_no_refused_hits() {
    let mut refused = 0;
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let (mut life, _) = start(&disk).expect("a start");
        let journal = life.journal.clone();
        let mut checkpoint = journal.checkpoint().expect("begun");
        let all_parts = || {
            while checkpoint.has_parts_left() {
                checkpoint.step().expect("a step");
            }
            disk.fail_writes(true);
        };
        // A full disk has room for some.
        let fate = life.run_group(0, &mut [batch()], all_parts);
        disk.fail_writes(false);
        let (is_refused, one) = (fate == Fate::Refused, [batch()]);
        assert_eq!(checkpoint.step().is_err(), is_refused, "{seed}");
        assert_counted(&disk, if is_refused { &[] } else { &one });
        refused += usize::from(is_refused);
    }
    assert!(refused > 0);
}

/// Symptom: a folder was restored without its checkpoint, had no keys, and nothing reported it. Cause: the
/// first segment of the log needs no checkpoint, and the checkpoint belonged to it. Fix: a checkpoint belongs
/// to a later segment.
#[test]
fn a_missing_checkpoint_after_an_empty_log_is_reported() {
    let disk = SimDisk::new(6);
    let (life, _) = start(&disk).expect("a start");
    life.journal.make_checkpoint(|| ()).expect("made");
    life.journal.close().expect("closed");
    disk.restart();
    let names = disk.files().into_iter().map(|(name, _)| name);
    let checkpoint = names.into_iter().find(|name| name.starts_with("checkpoint")).expect("it was made");
    disk.remove(&checkpoint).expect("it is there");
    assert!(matches!(start(&disk).err(), Some(JournalError::Missing { .. })));
}

/// The disk returns other bytes than were written.
#[test]
fn a_checkpoint_with_a_failed_verification_does_not_cut_the_log() {
    let disk = SimDisk::new(5);
    let (mut life, _) = start(&disk).expect("a start");
    assert_eq!(life.run(0, &batch()), Fate::Acknowledged);
    let mut flips = 0;
    for bit in [70, 400, 3_000, 150_000] {
        let mut checkpoint = life.journal.checkpoint().expect("begun");
        let mut made = checkpoint.step();
        let written =
            disk.files().into_iter().find(|(name, _)| name.ends_with(".part")).expect("it is there");
        if bit / 8 < written.1 {
            disk.flip(&written.0, bit);
            flips += 1;
        }
        while matches!(made, Ok(false)) {
            made = checkpoint.step();
        }
        assert_eq!(made.is_err(), bit / 8 < written.1, "bit {bit}");
        if made.is_err() {
            checkpoint.abandon();
            assert_counted(&disk, &[batch()]);
        }
    }
    assert!(flips > 2);
}

/// The bytes written to a small disk with a few keys, as a multiple of its size.
#[test]
fn a_log_that_filled_the_disk_is_cut() {
    const DISK_BYTES: usize = 512 << 10;
    let bounds = Bounds { reserve_bytes: 32 << 10, ..Bounds::default() };
    let disk = SimDisk::new(3);
    disk.resize(DISK_BYTES);
    let (mut batches, mut refused, mut written) = (Vec::new(), 0, 0);
    for number in 0..3 {
        let started = Life::start_within(&disk, 7, Durability::Interval, false, bounds);
        let (mut life, _) = started.unwrap_or_else(|error| panic!("start {number}: {error}"));
        assert_eq!(life.journal.check().is_err(), number > 0, "on a full disk nothing is taken at first");
        assert!(life.journal.try_recover(), "there is room when the log is cut");
        while written < 10 * DISK_BYTES as u64 {
            let before = life.journal.stats().log_bytes;
            if life.run(batches.len(), &batch()) == Fate::Refused {
                refused += 1;
                assert!(life.journal.try_recover(), "there is room when the log is cut");
            } else {
                written += life.journal.stats().log_bytes.saturating_sub(before);
                batches.push(batch());
            }
        }
        written = 0;
        // The disk is full when the server ends.
        while life.run(batches.len(), &batch()) == Fate::Acknowledged {
            batches.push(batch());
        }
        assert_counted(&disk, &batches);
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn a_checkpoint_waits_for_unwritten_batches() {
    let disk = SimDisk::new(0);
    let (mut life, _) = start(&disk).expect("a start");
    let journal = life.journal.clone();
    let mut checkpoint = journal.checkpoint().expect("begun");
    thread::scope(|scope| {
        let ends = || {
            while checkpoint.has_parts_left() {
                checkpoint.step().expect("a step");
            }
            let ends = scope.spawn(move || checkpoint.step());
            // There is enough time.
            (0..TURNS).take_while(|_| !ends.is_finished()).for_each(|_| thread::yield_now());
            assert!(!ends.is_finished());
            assert_counted(&disk, &[]);
        };
        assert_eq!(life.run_group(0, &mut [batch()], ends), Fate::Acknowledged);
    });
    // The checkpoint ended after the batch.
    assert_eq!(journal.stats().checkpoints, 1);
    assert_counted(&disk, &[batch()]);
}
