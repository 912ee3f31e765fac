//! The output streams: tables to standard output, progress to standard error.

use std::fmt;
use std::io::{self, Write};

use crate::clock;

/// Reports progress.
pub(crate) fn message(message: impl fmt::Display) {
    // There is no place to report that standard error failed.
    _ = writeln!(io::stderr().lock(), "{message}");
}

/// Runs a section, and reports how long it took.
pub(crate) fn section<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let start = clock::now();
    let done = work();
    message(format_args!("lately-bench: {:6.1} s  {name}", start.elapsed().as_secs_f64()));
    done
}

/// Writes data.
pub(crate) fn data(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
