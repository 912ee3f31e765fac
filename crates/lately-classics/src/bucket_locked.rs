//! A ring with a lock for each slot: threads that hit different seconds do not wait for each other. But most
//! threads hit the same second.
//!
//! Cost: a lock for each slot; a read takes and releases as many locks as the window has seconds. The newest
//! second is a separate atomic. A slot's count and second are under one lock, so that a roll loses nothing.

use crate::counter::{first_kept, sum_kept, window_seconds};
use crate::limits::MAX_RING_SLOTS;
use crate::shared_counter::SharedCounter;
use crate::sync::{AtomicI64, Mutex, Ordering, lock};

/// No hit yet: the one second that cannot be hit.
const NEVER: i64 = i64::MIN;

/// A ring of slots, each behind a lock.
#[derive(Debug)]
pub struct BucketLocked {
    buckets: Box<[Mutex<Bucket>]>,
    bucket_count: i64,
    newest: AtomicI64,
}

/// A bucket without hits is empty, whatever its second.
#[derive(Debug)]
struct Bucket {
    second: i64,
    count: u64,
}

impl BucketLocked {
    /// A ring of `slots` seconds.
    ///
    /// # Panics
    /// If `slots` is not 1 to [`MAX_RING_SLOTS`].
    #[must_use]
    pub fn new(slots: usize) -> BucketLocked {
        assert!((1..=MAX_RING_SLOTS).contains(&slots), "a ring has 1 to {MAX_RING_SLOTS} slots, not {slots}");
        let bucket = || Mutex::new(Bucket { second: NEVER, count: 0 });
        BucketLocked {
            buckets: (0..slots).map(|_| bucket()).collect(),
            bucket_count: i64::try_from(slots).expect("at most MAX_RING_SLOTS"),
            newest: AtomicI64::new(NEVER),
        }
    }

    fn bucket(&self, second: i64) -> &Mutex<Bucket> {
        let index = second.rem_euclid(self.bucket_count);
        &self.buckets[usize::try_from(index).expect("below the number of buckets")]
    }

    fn count_at(&self, second: i64) -> u64 {
        let bucket = lock(self.bucket(second));
        if bucket.second == second { bucket.count } else { 0 }
    }
}

impl SharedCounter for BucketLocked {
    fn hit(&self, second: i64, count: u64) -> bool {
        let is_late = |newest| second < first_kept(newest, self.bucket_count);
        if second == NEVER || self.newest().is_some_and(is_late) {
            return false;
        }
        if count == 0 {
            return true;
        }
        let mut bucket = lock(self.bucket(second));
        if bucket.count > 0 && bucket.second > second {
            return false;
        }
        if bucket.second != second {
            *bucket = Bucket { second, count: 0 };
        }
        bucket.count = bucket.count.saturating_add(count);
        // Before the hit is acknowledged, because a read stops at the newest. AcqRel: partner of the load in
        // `newest`.
        if self.newest.load(Ordering::Relaxed) < second {
            self.newest.fetch_max(second, Ordering::AcqRel);
        }
        true
    }

    fn load(&self, window_s: i64, at_s: i64) -> u64 {
        let (Some(window), Some(newest)) = (window_seconds(window_s, at_s), self.newest()) else { return 0 };
        sum_kept(&window, newest, self.bucket_count, |second| self.count_at(second))
    }

    fn newest(&self) -> Option<i64> {
        // Acquire: partner of the exchange in `hit`.
        Some(self.newest.load(Ordering::Acquire)).filter(|&newest| newest != NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_shared_from, check_threads};

    #[test]
    fn equals_the_exact_queue() {
        let starts = [0, -1_000, 1_700_000_000, i64::MAX - 1_000];
        check_shared_from(&starts, 300, || BucketLocked::new(300));
        check_shared_from(&starts, 1, || BucketLocked::new(1));
    }

    #[test]
    fn no_hit_is_lost_or_doubled() {
        check_threads(BucketLocked::new);
    }

    #[test]
    fn the_one_second_that_cannot_be_hit() {
        let counter = BucketLocked::new(7);
        assert!(!counter.hit(i64::MIN, 1));
        assert_eq!(counter.newest(), None);
        assert!(counter.hit(i64::MIN + 1, 1));
        assert_eq!(counter.load(2, i64::MIN + 1), 1);
    }
}
