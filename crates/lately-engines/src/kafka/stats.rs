//! Numbers about the records that this node counts.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What this node has done with the records of the hits topic since its start.
#[derive(Default, Debug)]
pub struct KafkaStats {
    /// Records that were read.
    pub(super) records: AtomicU64,
    /// Hits of these that count.
    pub(super) hits: AtomicU64,
    /// Hits of these that had been counted before, by their id.
    pub(super) repeated: AtomicU64,
    /// Ids that were forgotten early.
    forgotten_ids: AtomicU64,
    /// Records that were no hits.
    pub(super) dead: AtomicU64,
    /// Records that were deleted from the topic before they were counted.
    pub(super) lost: AtomicU64,
    /// Records that were written for hits of clients.
    written: AtomicU64,
    /// Of each partition that this node has, the end as the brokers report it, and the first offset that is not counted.
    partitions: Mutex<BTreeMap<i32, (i64, i64)>>,
}

impl KafkaStats {
    fn partitions(&self) -> MutexGuard<'_, BTreeMap<i32, (i64, i64)>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "kafka")]
    pub(super) fn note_ends(&self, ends: impl Iterator<Item = (i32, i64)>) {
        let mut partitions = self.partitions();
        for (number, end) in ends {
            if let Some((held, _)) = partitions.get_mut(&number) {
                *held = end;
            }
        }
    }

    #[cfg(feature = "kafka")]
    pub(super) fn note_next(&self, number: i32, next: i64) {
        let mut partitions = self.partitions();
        partitions.entry(number).or_insert((next, next)).1 = next;
    }

    #[cfg(feature = "kafka")]
    pub(super) fn drop_partition(&self, number: i32) {
        self.partitions().remove(&number);
    }

    #[cfg(feature = "kafka")]
    pub(super) fn note_written(&self, records: usize) {
        self.written.fetch_add(records as u64, Relaxed);
    }

    /// Records that were written for hits of clients, whether the brokers have taken them or not.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Records that were read.
    pub fn records(&self) -> u64 {
        self.records.load(Relaxed)
    }

    /// Hits of these that count.
    pub fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    /// Hits of these that had been counted before, by their id.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Relaxed)
    }

    #[cfg(feature = "kafka")]
    pub(super) fn note_forgotten_ids(&self, ids: u64) {
        self.forgotten_ids.fetch_add(ids, Relaxed);
    }

    /// Ids that were forgotten before their dedupe was over, because they took too much memory.
    pub fn forgotten_ids(&self) -> u64 {
        self.forgotten_ids.load(Relaxed)
    }

    /// Records that were no hits, and are in the topic for dead letters.
    pub fn dead_letters(&self) -> u64 {
        self.dead.load(Relaxed)
    }

    /// Records that were deleted from the topic before they were counted.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// The partitions that this node counts, and how many of the records that the brokers report are not counted yet.
    pub fn lags(&self) -> Vec<(i32, u64)> {
        let partitions = self.partitions();
        let lag = |(number, (end, next)): (&i32, &(i64, i64))| {
            (*number, end.saturating_sub(*next).max(0).unsigned_abs())
        };
        partitions.iter().map(lag).collect()
    }
}
