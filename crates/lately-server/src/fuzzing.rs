//! What the fuzz targets call. It is there in their builds only.

use std::path::Path;

use crate::config::{Config, ConfigError};
use crate::protocol::http::ndjson;

/// Parses a config of any text.
///
/// # Panics
/// An error names a place that is not in the text, or says nothing.
pub fn config(text: &str) {
    if let Err(problem) = Config::parse(text) {
        let error = problem.in_file(Path::new("lately.toml"), text);
        let ConfigError::Invalid { line, column, message, .. } = &error else { panic!("{error}") };
        let named = text.split('\n').nth(line - 1).unwrap_or_else(|| panic!("{error}"));
        assert!(*column <= named.chars().count() + 1 && !message.is_empty(), "{error}");
    }
}

/// Reads lines of hits from a body of any bytes. The first byte is the length of its pieces.
///
/// # Panics
/// A line is not read as the JSON that it is.
pub fn ndjson(bytes: &[u8]) {
    let Some((&piece_bytes, body)) = bytes.split_first() else { return };
    ndjson::check::check(body, usize::from(piece_bytes));
}
