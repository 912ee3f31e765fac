//! Programs that tests need and that may be missing.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;

/// Reports that the calling test is skipped: to `cargo xtask test`, which counts it, or on standard error.
///
/// # Panics
/// The report cannot be written.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    // libtest has a thread for each test, by the test's name.
    let test = thread.name().unwrap_or("unknown");
    let why = why.replace('\n', " ");
    match std::env::var_os("LATELY_TEST_SKIPS") {
        Some(path) => {
            let mut file = File::options().append(true).open(path).expect("the file that xtask made");
            file.write_all(format!("{test}\t{why}\n").as_bytes()).expect("room for a line");
        }
        None => {
            let line = format!("skipped {test}: {why}\n");
            std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
        }
    }
}

/// Whether a program is there. If not, the calling test is skipped.
///
/// # Panics
/// The program is missing, and `cargo xtask test` would have installed it.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) || lacks(program)
}

/// The value of a variable that `cargo xtask test` sets. If it is not set, the calling test is skipped.
///
/// # Panics
/// The variable is not set, and `cargo xtask test` would have set it.
pub fn installed(variable: &str) -> Option<OsString> {
    let value = std::env::var_os(variable);
    if value.is_none() {
        lacks(&format!("what {variable} names"));
    }
    value
}

/// Skips the test that calls it, or fails; false.
pub(crate) fn lacks(what: &str) -> bool {
    assert!(std::env::var_os("LATELY_TEST_OFFLINE").is_some(), "{what} is not there: run `cargo xtask test`");
    skip(&format!("{what} is not there"));
    false
}
