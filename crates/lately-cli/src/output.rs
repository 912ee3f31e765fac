//! The two streams: data to standard output, messages to standard error.

use std::fmt;
use std::io::{self, BufWriter, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::CliError;
use crate::table::{harmless, harmless_json};

/// Writes data to standard output, through a buffer that is flushed at the end.
pub(crate) fn data(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out).and_then(|()| out.flush()).map_err(|error| CliError::output(&error))
}

/// Writes a message to standard error, as one line without control characters. Texts of servers, files and names in it are
/// escaped.
pub(crate) fn message(message: &impl fmt::Display) {
    // There is no place to report that standard error failed.
    _ = writeln!(io::stderr().lock(), "{}", harmless(&message.to_string()));
}

/// Writes an error to standard error.
pub(crate) fn error(error: &CliError) {
    _ = writeln!(io::stderr().lock(), "{error}");
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
