//! Any bytes as lines of hits, in pieces of any length.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lately_server::fuzzing::ndjson(bytes));
