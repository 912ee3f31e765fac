//! A ring behind a reader-writer lock: reads run at the same time.
//!
//! Cost: a hit still excludes all other threads. A read also writes to the lock, at its start and its end, so
//! readers on different cores still move the cache line between them; only the scans run at the same time. It
//! pays if scans are long and hits are rare.

use std::sync::PoisonError;

use crate::counter::{Counter, window_seconds};
use crate::ring::Ring;
use crate::shared_counter::SharedCounter;
use crate::sync::RwLock;

/// A ring and its lock.
#[derive(Debug)]
pub struct ReadWriteLocked {
    ring: RwLock<Ring>,
}

impl ReadWriteLocked {
    /// A ring of `slots` seconds.
    ///
    /// # Panics
    /// If `slots` is not 1 to [`MAX_RING_SLOTS`](crate::limits::MAX_RING_SLOTS).
    #[must_use]
    pub fn new(slots: usize) -> ReadWriteLocked {
        ReadWriteLocked { ring: RwLock::new(Ring::new(slots)) }
    }
}

impl SharedCounter for ReadWriteLocked {
    fn hit(&self, second: i64, count: u64) -> bool {
        self.ring.write().unwrap_or_else(PoisonError::into_inner).hit(second, count)
    }

    fn load(&self, window_s: i64, at_s: i64) -> u64 {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        window_seconds(window_s, at_s).map_or(0, |window| ring.sum(&window))
    }

    fn newest(&self) -> Option<i64> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).newest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_shared, check_threads};

    #[test]
    fn equals_the_exact_queue() {
        check_shared(300, || ReadWriteLocked::new(300));
        check_shared(1, || ReadWriteLocked::new(1));
    }

    #[test]
    fn no_hit_is_lost_or_doubled() {
        check_threads(ReadWriteLocked::new);
    }
}
