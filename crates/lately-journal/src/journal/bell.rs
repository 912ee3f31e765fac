//! Where the threads of a journal wait.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::lock;

/// Where a thread of the journal waits.
#[derive(Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        *lock(&self.rung) = true;
        self.changed.notify_all();
    }

    pub(super) fn wait(&self, most: Duration) {
        let rung = lock(&self.rung);
        let waited = self.changed.wait_timeout_while(rung, most, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}
