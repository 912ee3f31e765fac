//! Any bytes as the life of a server whose classes change, against the truth of all hits. The driver is that of
//! the crate's own tests.

#![no_main]

// The driver finds these at the root, as it does inside the crate.
#[path = "../../crates/lately-journal/tests/it/classes/mod.rs"]
mod classes;
#[path = "../../crates/lately-journal/tests/it/sim_disk.rs"]
mod sim_disk;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| classes::check(bytes));
