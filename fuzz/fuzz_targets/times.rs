//! Any text as a time and as a span. The driver is that of the crate's own tests.

#![no_main]

#[path = "../../crates/lately/tests/it/time_text.rs"]
mod time_text;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| time_text::check(bytes));
