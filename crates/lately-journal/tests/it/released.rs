//! The journal releases synced bytes of the log from the page cache.

use lately_journal::Durability;
use lately_journal::limits::Bounds;

use crate::life::{Action, Batch, Fate, Life, keys, time};
use crate::sim_disk::SimDisk;

const SYNC_BYTES: u64 = 4 << 10;
const BATCHES: usize = 200;

#[test]
fn synced_bytes_are_released_from_the_page_cache() {
    let disk = SimDisk::new(0);
    let bounds = Bounds { sync_bytes: SYNC_BYTES, ..Bounds::default() };
    let (mut life, _) = Life::start_within(&disk, 7, Durability::Interval, false, bounds).expect("a start");
    let name = disk.files().into_iter().map(|(name, _)| name).find(|name| name.starts_with("log-"));
    let name = name.expect("a log is begun");
    let hit = |key| Action::Hit { key, weight: 1, late_ms: 0 };
    let batch = Batch { now: time(0), actions: keys().into_iter().map(hit).collect() };
    for number in 0..BATCHES {
        assert_eq!(life.run(number, &batch), Fate::Acknowledged);
        let before = disk.unreleased(&name);
        assert!(life.journal.sync());
        // Bytes are released in pieces as large as the syncs under load, not a few at a time.
        let after = disk.unreleased(&name);
        assert_eq!(after, if before < SYNC_BYTES { before } else { 0 });
    }
    assert!(life.journal.stats().log_bytes > 4 * SYNC_BYTES);
}
