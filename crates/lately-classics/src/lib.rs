//!
//! This crate knows nothing of `lately`; its definitions are written a second time, naively, so that
//! a mistake has to be made twice to go unseen.
//!
//! - The classics, in whole seconds, behind one trait, [`Counter`]: [`ExactQueue`] (the oracle),
//!   [`CountedQueue`], [`Ring`], [`RunningTotal`], [`Cached`], [`MultiLevel`], [`Sparse`]. Each file
//!   says what the usual version of it gets wrong, and its tests show it.
//!   difference.

mod cached;
mod counted_queue;
mod counter;
mod exact_queue;
pub mod limits;
mod multi_level;
mod ring;
mod running_total;
mod sparse;
#[cfg(test)]
mod testing;

pub use cached::Cached;
pub use counted_queue::CountedQueue;
pub use counter::Counter;
pub use exact_queue::ExactQueue;
pub use multi_level::MultiLevel;
pub use ring::Ring;
pub use running_total::RunningTotal;
pub use sparse::Sparse;
