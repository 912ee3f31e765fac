//! The two streams: the tables to standard output, what is going on to standard error.

use std::fmt;
use std::io::{self, Write};

/// A message to whoever waits.
pub(crate) fn message(message: impl fmt::Display) {
    // When nobody can be told, there is nobody to tell that either.
    _ = writeln!(io::stderr().lock(), "{message}");
}

/// Data.
pub(crate) fn data(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
