//! Any text as files of rules of envoyproxy/ratelimit. The driver is that of the crate's own tests.

#![no_main]

#[path = "../../crates/lately-ratelimit/tests/it/any_text.rs"]
mod any_text;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| any_text::check(bytes));
