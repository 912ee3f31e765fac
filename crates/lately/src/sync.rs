//! Where the counters shared by threads get their atomics from, and the store its locks: the standard library, or
//! loom's when a model is run.
//!
//! Built with `--cfg loom` an atomic or a lock here is one whose interleavings and stale values loom plays through;
//! `cargo xtask loom` does that.

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
