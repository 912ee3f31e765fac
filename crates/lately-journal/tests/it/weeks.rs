//! Six weeks of hits on virtual time: the disk usage stays bounded.

use lately::{Store, days, hours};
use lately_journal::limits::{Bounds, LOG_TO_CHECKPOINT, START_BYTES};
use lately_journal::{Durability, JournalError, Recovery};

use crate::life::{Action, Batch, Fate, Life, Members, difference, keys, reference, time};
use crate::sim_disk::SimDisk;
use test_support::{Rng, trace};

const WEEKS: usize = 6;
const DAY_MS: i64 = 86_400_000;
/// The time between batches.
const STEP_MS: i64 = 60_000;
/// The hits of a batch.
const HITS: usize = 5;
const LOG_BYTES: u64 = 128 << 10;
const RESERVE_BYTES: u64 = 4 << 10;
/// More than the bytes of a batch and of the start of a file.
const SLACK_BYTES: u64 = 6_000;

fn start(disk: &SimDisk) -> Result<(Life, Recovery), JournalError> {
    let bounds = Bounds { log_bytes: LOG_BYTES, reserve_bytes: RESERVE_BYTES, ..Bounds::default() };
    Life::start_within(disk, 4, Durability::Interval, false, bounds)
}

fn batch(rng: &mut Rng, keys: &[Vec<u8>], now_ms: i64) -> Batch {
    let mut hit = || {
        // Few keys are hit often, many are hit seldom.
        let key = keys[rng.index(keys.len()).min(rng.index(keys.len()))].clone();
        let late_ms = if rng.once_in(20) { i64::try_from(rng.index(300_000)).expect("small") } else { 0 };
        Action::Hit { key, weight: 1, late_ms }
    };
    Batch { now: time(now_ms), actions: (0..HITS).map(|_| hit()).collect() }
}

/// The disk usage of the week.
#[derive(Debug, Default)]
struct Week {
    most_bytes: u64,
    checkpoints: u64,
    checkpoint_bytes: u64,
}

#[test]
fn the_disk_usage_stays_bounded_for_weeks() {
    let (disk, keys, mut rng) = (SimDisk::new(3), keys(), Rng::new(5));
    let (mut batches, mut weeks) = (Vec::new(), Vec::new());
    for week in 1..=i64::try_from(WEEKS).expect("few") {
        let mut usage = Week::default();
        // A kill once a week.
        let (mut life, _) = start(&disk).expect("a start");
        let ends_ms = week * 7 * DAY_MS;
        for now_ms in (ends_ms - 7 * DAY_MS..ends_ms).step_by(usize::try_from(STEP_MS).expect("small")) {
            let batch = batch(&mut rng, &keys, now_ms);
            // A sync is due before the batch.
            assert!(life.journal.sync());
            assert_eq!(life.run(batches.len(), &batch), Fate::Acknowledged);
            batches.push(batch);
            if life.journal.needs_checkpoint() {
                life.journal.make_checkpoint(|| ()).expect("made");
                usage.checkpoints += 1;
            }
            usage.checkpoint_bytes = usage.checkpoint_bytes.max(life.journal.stats().checkpoint_bytes);
        }
        usage.most_bytes = disk.take_most_bytes() as u64;
        weeks.push(usage);
    }
    for Week { most_bytes, checkpoints, checkpoint_bytes } in &weeks {
        assert!(*checkpoints > 2, "{weeks:?}");
        // The log, a checkpoint, and the next checkpoint or the room for it.
        let room_bytes = checkpoint_bytes + checkpoint_bytes / 8 + RESERVE_BYTES + START_BYTES;
        let bound =
            LOG_BYTES.max(LOG_TO_CHECKPOINT * checkpoint_bytes) + checkpoint_bytes + room_bytes + SLACK_BYTES;
        assert!(*most_bytes <= bound, "{most_bytes}, not {bound}: {weeks:?}");
    }
    let (second, last) = (weeks[1].most_bytes, weeks[WEEKS - 1].most_bytes);
    assert!(last <= second + second / 50, "{weeks:?}");
    trace(|| format!("{weeks:?}"));
    check_recovered(&disk, &batches);
}

/// Old hits are in wide panes by now, which are loaded unchanged.
fn check_recovered(disk: &SimDisk, batches: &[Batch]) {
    let now = batches.last().expect("there are some").now;
    let (again, recovery) = start(disk).expect("a start");
    assert_eq!(recovery.losses, []);
    assert!(recovery.checkpoint_bytes > 0 && recovery.records > 0, "{recovery:?}");
    let (keys, wanted) = (keys(), reference(batches));
    for (index, key) in keys.iter().enumerate() {
        for hours_ago in (1..7 * 24).step_by(5) {
            let at = now.saturating_sub(hours(hours_ago));
            let count = |store: &Store| store.count(key, Some(days(1)), Some(at), now);
            assert_eq!(count(&again.store), count(&wanted), "key {index}, {hours_ago} hours ago");
        }
    }
    assert_eq!(difference(&keys, &again.store, &wanted, &Members::default(), true, now), None);
    let all: u64 = keys.iter().map(|key| wanted.count(key, Some(days(7)), None, now).estimate).sum();
    assert!(all > 40_000, "{all}");
}
