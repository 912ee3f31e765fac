//! Counters for one thing that many threads share, without locks.
//!
//! [`AtomicCounter`] has one ring of slots for all threads. [`StripedCounter`] has another one for each core.
//! Both use `Rings`, which has the protocol. `docs/internals/design.md` explains it ("Counters shared by
//! threads"), and `models.rs` checks it.

mod atomic_counter;
mod common_ring;
#[cfg(all(test, loom))]
mod models;
mod panes_of_time;
mod rings;
mod running_total;
mod striped_counter;
mod thread_rings;
mod word;

pub use atomic_counter::AtomicCounter;
pub use striped_counter::StripedCounter;
