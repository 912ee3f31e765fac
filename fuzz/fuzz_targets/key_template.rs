//! Any text as the template of a key. The driver is that of the crate's own tests.

#![no_main]

#[path = "../../crates/lately-keys/tests/it/template.rs"]
mod template;

libfuzzer_sys::fuzz_target!(|text: &str| template::check(text));
