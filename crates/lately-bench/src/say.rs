//! The two streams: the tables to standard output, what is going on to standard error.

use std::fmt;
use std::io::{self, Write};

use crate::clock;

/// A message on the progress.
pub(crate) fn message(message: impl fmt::Display) {
    // There is no place to report that standard error failed.
    _ = writeln!(io::stderr().lock(), "{message}");
}

/// Does the work of a section, and tells how long it took.
pub(crate) fn section<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let start = clock::now();
    let done = work();
    message(format_args!("lately-bench: {:6.1} s  {name}", start.elapsed().as_secs_f64()));
    done
}

/// Data.
pub(crate) fn data(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
