//! Checkpoints that are made while others count: what they have is in the log, too.

use std::thread;

use lately_journal::{Durability, JournalError, Recovery};

use crate::life::{Action, Batch, Fate, Life, difference, keys, reference, time};
use crate::sim_disk::SimDisk;

/// More than a thread needs to come to the end of a checkpoint.
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
    assert_eq!(difference(&keys(), &life.store, &reference(batches), time(0)), None);
}

#[test]
fn what_was_refused_meanwhile_is_in_no_checkpoint() {
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
        let fate = life.run_group(0, &[batch()], all_parts);
        disk.fail_writes(false);
        let (is_refused, one) = (fate == Fate::Refused, [batch()]);
        assert_eq!(checkpoint.step().is_err(), is_refused, "{seed}");
        assert_counted(&disk, if is_refused { &[] } else { &one });
        refused += usize::from(is_refused);
    }
    assert!(refused > 0);
}

#[test]
fn a_checkpoint_waits_for_those_who_have_not_written_yet() {
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
            // It has all the time it could want.
            (0..TURNS).take_while(|_| !ends.is_finished()).for_each(|_| thread::yield_now());
            assert!(!ends.is_finished());
            assert_counted(&disk, &[]);
        };
        assert_eq!(life.run_group(0, &[batch()], ends), Fate::Acknowledged);
    });
    // It came to its end behind the batch.
    assert_eq!(journal.stats().checkpoints, 1);
    assert_counted(&disk, &[batch()]);
}
