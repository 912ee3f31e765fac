//! Any text as a config file.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| lately_server::fuzzing::config(text));
