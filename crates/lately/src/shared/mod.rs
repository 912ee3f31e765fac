//! Counters for one thing that many threads share, without locks.
//!
//! [`AtomicCounter`] has a ring of slots for all threads, [`StripedCounter`] also one for each core; both
//! are faces of `Rings`, which has the protocol. `docs/internals/design.md` explains it ("Counters
//! shared by threads"), and the models in `models.rs` play it through.

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
