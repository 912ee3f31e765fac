//! Where the thread-safe classics get their locks and atomics from: the standard library, or loom's when
//! a model is run (`cargo xtask loom`, which builds with `--cfg loom`).

use std::sync::PoisonError;

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    sync::{Mutex, MutexGuard, RwLock},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    sync::{Mutex, MutexGuard, RwLock},
    thread::yield_now,
};

/// Takes a lock. No counter here stops half way, so what a thread left that panicked is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
