//! Errors in the files of rules, with their position.

use std::error::Error;
use std::fmt;

/// A mistake in a file of rules, or something in it that is not supported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RulesError {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RulesError { file, line, column, message } = self;
        write!(f, "{file}:{line}:{column}: {message}")
    }
}

impl Error for RulesError {}

/// A place in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// An error at a place of a file.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) at: Place,
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn new(at: Place, message: impl Into<String>) -> Problem {
        Problem { at, message: message.into() }
    }

    /// Control characters of the message, which may quote the file, are escaped.
    pub(crate) fn in_file(self, file: &str) -> RulesError {
        let Problem { at: Place { line, column }, message } = self;
        let message = match message.contains(char::is_control) {
            true => message.chars().map(escaped).collect(),
            false => message,
        };
        RulesError { file: file.to_owned(), line, column, message }
    }
}

fn escaped(character: char) -> String {
    if character.is_control() { character.escape_default().to_string() } else { character.to_string() }
}

/// The start of a text of a file, for a message.
pub(crate) fn shown(text: &str) -> &str {
    let end = text.char_indices().nth(MAX_SHOWN_CHARS).map_or(text.len(), |(end, _)| end);
    &text[..end]
}

/// Characters of a text that a message shows.
const MAX_SHOWN_CHARS: usize = 80;
