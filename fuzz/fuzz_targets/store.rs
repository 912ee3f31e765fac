//! Any bytes as settings and a trace, on a store or a counter and on the exact model. The driver is that of
//! the crate's own tests.

#![no_main]

#[path = "../../crates/lately/tests/it/subject.rs"]
mod subject;
#[path = "../../crates/lately/tests/it/trace.rs"]
mod trace;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(difference) = trace::check(bytes) {
        panic!("{difference}");
    }
});
