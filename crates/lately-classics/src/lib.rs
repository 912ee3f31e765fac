//! What `lately` is compared with: the textbook sliding-window counters, and an exact model.
//!
//! This crate does not depend on `lately`. It has its own naive definitions, so that a mistake is only missed
//! if it is made twice.
//!
//! - The classics, in whole seconds, behind one trait, [`Counter`]: [`ExactQueue`] (the oracle),
//!   [`CountedQueue`], [`Ring`], [`RunningTotal`], [`Cached`], [`MultiLevel`], [`Sparse`]. Each file
//!   says what the textbook version of it gets wrong, and its tests show it.
//! - The thread-safe classics, behind [`SharedCounter`]: [`Locked`], [`ReadWriteLocked`],
//!   [`SequenceLocked`], [`BucketLocked`], [`AtomicRing`]. Each file says what it costs.
//! - The model, in milliseconds: [`Op`], the one language of traces; [`ExactLog`], the answers by
//!   definition; [`drive`](crate::drive()), which runs a trace on a [`Subject`] and names the first
//!   difference.
//! - The truth of hits whose class changes, [`Truth`]: how far off an answer may be.
//! - With the feature `proptest`, `strategies`: traces and settings for property tests.

mod atomic_ring;
mod bucket_locked;
mod cached;
mod counted_queue;
mod counter;
mod drive;
mod exact_queue;
pub mod limits;
mod locked;
mod model;
mod model_settings;
mod multi_level;
mod op;
mod read_write_locked;
mod ring;
mod running_total;
mod sequence_locked;
mod shared_counter;
mod sparse;
#[cfg(any(test, feature = "proptest"))]
pub mod strategies;
mod sync;
#[cfg(test)]
mod testing;
mod truth;

pub use atomic_ring::AtomicRing;
pub use bucket_locked::BucketLocked;
pub use cached::Cached;
pub use counted_queue::CountedQueue;
pub use counter::Counter;
pub use drive::{START_MS, Subject, drive, drive_from};
pub use exact_queue::ExactQueue;
pub use locked::Locked;
pub use model::{ExactLog, HitOutcome, ModelCount};
pub use model_settings::{ModelSettings, RUNGS_MS};
pub use multi_level::MultiLevel;
pub use op::{Op, ops_from_bytes};
pub use read_write_locked::ReadWriteLocked;
pub use ring::Ring;
pub use running_total::RunningTotal;
pub use sequence_locked::SequenceLocked;
pub use shared_counter::SharedCounter;
pub use sparse::Sparse;
pub use truth::{TrueHits, Truth};
