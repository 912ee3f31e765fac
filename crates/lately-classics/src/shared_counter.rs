//! The interface of the thread-safe classics: that of [`Counter`](crate::Counter), for many threads.

use crate::counter::DEFAULT_WINDOW_S;

/// A [`Counter`](crate::Counter) for many threads, with the same definitions.
///
/// A read sees every hit that was acknowledged before it began, and none that was sent after it ended.
pub trait SharedCounter: Sync {
    /// Counts `count` hits at `second`. `false`: nothing changed.
    fn hit(&self, second: i64, count: u64) -> bool;

    /// Hits in the `window_s` seconds that end with second `at_s`. A window below 1 holds none.
    fn load(&self, window_s: i64, at_s: i64) -> u64;

    /// The second of the newest hit; `None` before any.
    fn newest(&self) -> Option<i64>;

    /// Hits in the five minutes that end with second `at_s`.
    fn hits(&self, at_s: i64) -> u64 {
        self.load(DEFAULT_WINDOW_S, at_s)
    }
}
