//! Any rules and any descriptors against the model. The driver is that of the crate's own tests.

#![no_main]

#[path = "../../crates/lately-ratelimit/tests/it/matching.rs"]
mod matching;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| matching::check(bytes));
