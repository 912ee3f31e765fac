//! Counters for one thing that many threads share, without locks.
//!
//! [`AtomicCounter`] has one ring of slots, [`StripedCounter`] one for each core; both are faces of
//! `Rings`, which has the protocol. What keeps it right is told in `docs/design.md`, "Counters
//! shared by threads", and played through by the models in `models.rs`.

mod atomic_counter;
#[cfg(all(test, loom))]
mod models;
mod panes_of_time;
mod rings;
mod running_total;
mod striped_counter;
mod word;

pub use atomic_counter::AtomicCounter;
pub use striped_counter::StripedCounter;
