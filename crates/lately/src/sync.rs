//! The atomics of the shared counters, and the locks of the store: from the standard library, or from loom.
//!
//! With `--cfg loom`, loom explores the interleavings of threads and the stale values that loads may see.
//! `cargo xtask loom` runs it.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicU64, Ordering},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicU64, Ordering},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
