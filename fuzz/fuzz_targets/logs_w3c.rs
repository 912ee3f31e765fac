//! Any bytes as a log in the format of the W3C. The driver is that of the crate's own tests.

#![no_main]

#[path = "../../crates/lately-logs/tests/it/log.rs"]
mod log;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| log::check(&["w3c"], bytes));
