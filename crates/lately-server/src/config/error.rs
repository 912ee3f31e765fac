//! Errors of config files, with their position.

use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::limits::MAX_CONFIG_BYTES;

/// A config file that was refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is too long.
    #[error("{}: too long for a config file, which has at most {MAX_CONFIG_BYTES} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The path is not a regular file, so it cannot be reloaded.
    #[error("{}: not a regular file: it cannot be read again", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// The content is invalid.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong, and how to correct it.
        message: String,
    },
}

/// An error at a position of the text.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(super) at: Range<usize>,
    pub(super) message: String,
}

/// A message that echoes a very long name is cut.
fn cut(mut message: String) -> String {
    if message.len() > MOST_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MOST_MESSAGE_BYTES));
        message.push('…');
    }
    message
}

const MOST_MESSAGE_BYTES: usize = 1_000;

/// The message of the parser about a duplicate key, without the key.
const DUPLICATE: &str = "duplicate key";

impl Problem {
    pub(crate) fn in_file(self, path: &Path, text: &str) -> ConfigError {
        let before = text.get(..self.at.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ConfigError::Invalid {
            path: path.into(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: cut(self.message),
        }
    }

    /// Adds the name of the key to the message about a duplicate key.
    pub(super) fn with_key(self, text: &str) -> Problem {
        match text.get(self.at.clone()) {
            Some(key) if self.message == DUPLICATE => {
                Problem { message: format!("{DUPLICATE} `{key}`: remove one"), ..self }
            }
            _ => self,
        }
    }
}

impl From<toml::de::Error> for Problem {
    fn from(error: toml::de::Error) -> Problem {
        Problem { at: error.span().unwrap_or(0..0), message: error.message().trim_end().replace('\n', ", ") }
    }
}
