//! What came of writing a batch, and what becomes of one that waits.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// What came of writing a batch.
#[derive(Debug)]
pub enum Receipt {
    /// It may be acknowledged.
    Kept,
    /// It may be acknowledged when [`verdict`](super::Journal::verdict) says so.
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
        // Pairs with the load in `mend`: what was taken back before shows in the next checkpoint.
        self.holds.fetch_sub(1, Release);
    }
}

/// What becomes of a batch that waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is not known yet.
    Pending,
    /// It may be acknowledged.
    Kept,
    /// It is to be taken back.
    Lost,
}
