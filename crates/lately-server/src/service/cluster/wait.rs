//! What a connection waits for: that keys are read, or that a login is decided.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// What a question waits for. It is over when all of its keys are read, or when it is known that they will not be. It lives until the
/// question is answered.
#[derive(Debug)]
pub(crate) struct Wait {
    /// Keys that are not read, and one more until all of them are noted.
    left: AtomicUsize,
    /// The memory of its keys and of what is known of them, and the most that it may be.
    held_bytes: AtomicUsize,
    most_bytes: usize,
    is_refused: AtomicBool,
}

impl Wait {
    pub(crate) fn new() -> Arc<Wait> {
        Wait::with_room(usize::MAX)
    }

    /// A question whose keys may take this memory, with what is known of them.
    pub(super) fn with_room(most_bytes: usize) -> Arc<Wait> {
        Arc::new(Wait {
            left: AtomicUsize::new(1),
            held_bytes: AtomicUsize::new(0),
            most_bytes,
            is_refused: AtomicBool::new(false),
        })
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

    /// Adds memory of a key, or of what is known of it. True if there is no room for that, so the question is refused.
    pub(super) fn hold(&self, bytes: usize) -> bool {
        let held_bytes = self.held_bytes.fetch_add(bytes, Relaxed) + bytes;
        held_bytes > self.most_bytes && self.refuse()
    }

    /// There is no room for its keys. True if that was not known.
    pub(super) fn refuse(&self) -> bool {
        !self.is_refused.swap(true, Release)
    }

    /// Whether there is no room for its keys.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Acquire)
    }

    /// Whether the question can be answered, or refused.
    pub(crate) fn is_over(&self) -> bool {
        self.left.load(Acquire) == 0 || self.is_refused()
    }
}
