//! How a thread of the journal sleeps, and how others wake it.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::lock::lock;

/// One thread sleeps on it. A wakeup that comes before the thread sleeps is kept.
#[derive(Default)]
pub(super) struct Wakeup {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    /// Ends the wait, or the next one.
    pub(super) fn wake(&self) {
        *lock(&self.is_set) = true;
        self.changed.notify_all();
    }

    /// Sleeps until a wakeup, or for `most`.
    pub(super) fn wait(&self, most: Duration) {
        let is_set = lock(&self.is_set);
        let waited = self.changed.wait_timeout_while(is_set, most, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}
