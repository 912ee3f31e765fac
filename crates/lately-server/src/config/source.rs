//! The file that a config was read from.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::{ConfigError, Problem};
use crate::limits::MAX_CONFIG_BYTES;

/// A file and its content.
#[derive(Clone, Debug)]
pub struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// Whether it can be read again. A pipe cannot.
    pub(crate) is_regular: bool,
}

impl Source {
    pub(super) fn read(path: &Path) -> Result<Source, ConfigError> {
        let unreadable = |error| ConfigError::Unreadable { path: path.into(), error };
        let file = File::open(path).map_err(unreadable)?;
        let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let mut bytes = Vec::new();
        // A device or a pipe has no length, so the read itself is bounded.
        file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_CONFIG_BYTES {
            return Err(ConfigError::TooLong { path: path.into() });
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let end = error.utf8_error().valid_up_to();
            let message = "not UTF-8: a config file is text in UTF-8".to_owned();
            Problem { at: end..end, message }
                .in_file(path, &String::from_utf8_lossy(&error.as_bytes()[..end]))
        })?;
        Ok(Source { path: path.into(), text, is_regular })
    }

    /// Reads the file again.
    pub(crate) fn read_again(path: &Path) -> Result<String, ConfigError> {
        // Opening a pipe blocks until it has a writer, which may never come.
        let metadata =
            path.metadata().map_err(|error| ConfigError::Unreadable { path: path.into(), error })?;
        if !metadata.is_file() {
            return Err(ConfigError::NotAFile { path: path.into() });
        }
        Source::read(path).map(|source| source.text)
    }
}
