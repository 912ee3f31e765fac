//! The two streams: data to standard output, messages to standard error.

use std::fmt;
use std::io::{self, BufWriter, Write};

use crate::error::CliError;

/// Writes data to standard output, through a buffer that is flushed at the end.
pub(crate) fn data(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out).and_then(|()| out.flush()).map_err(|error| CliError::output(&error))
}

/// Writes a message, a line or more, to standard error.
pub(crate) fn message(message: &impl fmt::Display) {
    // When nobody can be told, there is nobody to tell that either.
    _ = writeln!(io::stderr().lock(), "{message}");
}
