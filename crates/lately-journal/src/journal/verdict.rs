//! The results of writing a batch, at once and after waiting.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// The result of writing a batch.
#[derive(Debug)]
pub enum Receipt {
    /// The batch may be acknowledged.
    Kept,
    /// The batch may be acknowledged once [`verdict`](super::Journal::verdict) returns [`Verdict::Kept`].
    Wait(Hold),
}

/// A batch that waits for a verdict.
#[derive(Debug)]
pub struct Hold {
    pub(super) number: u64,
    pub(super) holds: Arc<AtomicU64>,
}

impl Clone for Hold {
    fn clone(&self) -> Hold {
        self.holds.fetch_add(1, Relaxed);
        Hold { number: self.number, holds: Arc::clone(&self.holds) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Pairs with the load in `try_recover`: a rollback before this is included in the next checkpoint.
        self.holds.fetch_sub(1, Release);
    }
}

/// The state of a batch that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Not known yet.
    Pending,
    /// The batch may be acknowledged.
    Kept,
    /// The batch must be rolled back.
    Lost,
}
