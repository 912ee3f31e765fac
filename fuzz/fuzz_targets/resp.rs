//! Any bytes as requests, whole and in pieces, and as commands. The driver is that of the crate's own tests.

#![no_main]

// The driver finds the crate's names at the root, as it does inside the crate.
use lately_resp::{Args, Command, Encoder, Limits, Parsed, Protocol, command, parse_request, write_request};

#[path = "../../crates/lately-resp/src/frame/tests/stream.rs"]
mod stream;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stream::check(bytes));
