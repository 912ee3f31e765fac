//! The locks and atomics of the thread-safe classics: from the standard library, or from loom when a model is
//! run (`cargo xtask loom`, which builds with `--cfg loom`).

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

/// Takes a lock. After a panic of another thread the counter is still consistent, because no counter here
/// panics half way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
