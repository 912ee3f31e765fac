//! Any text as a format, a key, a condition and a time. The driver is that of the crate's own tests.

#![no_main]

#[path = "../../crates/lately-logs/tests/it/setup.rs"]
mod setup;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| setup::check(bytes));
