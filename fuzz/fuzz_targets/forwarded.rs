//! Any bytes as values of `X-Forwarded-For`. The driver is that of the crate's own tests.

#![no_main]

#[path = "../../crates/lately-keys/tests/it/forwarded.rs"]
mod forwarded;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forwarded::check(bytes));
