//! Any counter behind one lock. Simple, but all threads wait for each other.
//!
//! Cost: taking and releasing the lock, two atomic exchanges, in addition to the counter. With two threads
//! the cache line of the lock moves between cores. A thread that is preempted while it holds the lock stops
//! all others, including readers.

use crate::counter::Counter;
use crate::shared_counter::SharedCounter;
use crate::sync::{Mutex, lock};

/// A counter and its lock.
#[derive(Debug)]
pub struct Locked<C> {
    inner: Mutex<C>,
}

impl<C: Counter> Locked<C> {
    /// Puts `inner` behind a lock.
    #[must_use]
    pub fn new(inner: C) -> Locked<C> {
        Locked { inner: Mutex::new(inner) }
    }
}

impl<C: Counter + Send> SharedCounter for Locked<C> {
    fn hit(&self, second: i64, count: u64) -> bool {
        lock(&self.inner).hit(second, count)
    }

    fn load(&self, window_s: i64, at_s: i64) -> u64 {
        lock(&self.inner).load(window_s, at_s)
    }

    fn newest(&self) -> Option<i64> {
        lock(&self.inner).newest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_shared, check_threads};
    use crate::{CountedQueue, Ring, RunningTotal};

    #[test]
    fn equals_the_exact_queue() {
        check_shared(300, || Locked::new(Ring::new(300)));
        check_shared(7, || Locked::new(RunningTotal::new(7)));
    }

    #[test]
    fn no_hit_is_lost_or_doubled() {
        check_threads(|slots| Locked::new(Ring::new(slots)));
        check_threads(|slots| Locked::new(RunningTotal::new(slots)));
        check_threads(|slots| Locked::new(CountedQueue::new(i64::try_from(slots).expect("small"))));
    }
}
