//! What a connection waits for: that keys are read, or that a login is decided.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

/// What a question waits for. It is over when all of its keys are read, or when it is known that they will not be.
#[derive(Debug)]
pub(crate) struct Wait {
    /// Keys that are not read, and one more until all of them are noted.
    left: AtomicUsize,
}

impl Wait {
    pub(crate) fn new() -> Arc<Wait> {
        Arc::new(Wait { left: AtomicUsize::new(1) })
    }

    /// Adds a key.
    pub(super) fn add(&self) {
        self.left.fetch_add(1, Release);
    }

    /// Takes a key away, or ends the adding. True if that was the last.
    pub(crate) fn done(&self) -> bool {
        // Pairs with the load: a thread that sees the end sees what was learned before it.
        self.left.fetch_sub(1, Release) == 1
    }

    /// Whether the question can be answered.
    pub(crate) fn is_over(&self) -> bool {
        self.left.load(Acquire) == 0
    }
}
