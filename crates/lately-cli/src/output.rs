//! The two streams: data to standard output, messages to standard error.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::CliError;
use crate::limits::LOG_PATIENCE;
use crate::logger::Logger;
use crate::table::{harmless, harmless_json};

/// Writes data to standard output, through a buffer that is flushed at the end.
pub(crate) fn data(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out).and_then(|()| out.flush()).map_err(|error| CliError::output(&error))
}

/// Writes a message to standard error, as one line without control characters. Texts of servers, files and names in it are
/// escaped.
pub(crate) fn message(message: &impl fmt::Display) {
    write_line(harmless(&message.to_string()));
}

/// The log, if messages are written on a thread.
static LOGGER: OnceLock<Logger> = OnceLock::new();

/// From here on a thread writes messages, and nothing waits for a reader of standard error.
pub(crate) fn log_on_a_thread() -> io::Result<()> {
    let logger = Logger::start(io::stderr())?;
    // Only the first call counts.
    _ = LOGGER.set(logger);
    Ok(())
}

/// Waits a moment until the last messages are written.
pub(crate) fn flush() {
    if let Some(logger) = LOGGER.get() {
        logger.flush(LOG_PATIENCE);
    }
}

fn write_line(line: String) {
    match LOGGER.get() {
        Some(logger) => logger.log(line),
        // There is no place to report that standard error failed.
        None => _ = writeln!(io::stderr().lock(), "{line}"),
    }
}

/// Writes an error to standard error.
pub(crate) fn error(error: &CliError) {
    write_line(error.to_string());
}

/// `1 key`, `2 keys`.
pub(crate) fn keys(count: usize) -> String {
    format!("{count} {}", if count == 1 { "key" } else { "keys" })
}

/// The first member of a key's object: `"key":"…"`, or `"key_b64":"…"` when the key is no UTF-8.
pub(crate) fn key_member(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(key) => format!("\"key\":{}", harmless_json(&serde_json::Value::from(key).to_string())),
        Err(_) => format!("\"key_b64\":\"{}\"", STANDARD.encode(key)),
    }
}
