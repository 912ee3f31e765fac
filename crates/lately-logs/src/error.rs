//! What can go wrong: before reading, in one line, and while reading.

use std::error::Error;
use std::fmt;
use std::io;

use lately::limits::MAX_KEY_BYTES;

use crate::limits::{MAX_KEY_FIELDS, MAX_LIMITS, MAX_LINE_BYTES};

/// A format, key, time field or limit that cannot work whatever the lines are.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SetupError {
    /// No format has this name.
    Format {
        /// What was given.
        text: String,
    },
    /// The regular expression does not compile.
    Pattern {
        /// What is wrong with it.
        cause: String,
    },
    /// The key template cannot be read.
    Template {
        /// What was given.
        text: String,
        /// What is wrong with it.
        cause: &'static str,
    },
    /// The key template has more than [`MAX_KEY_FIELDS`] fields.
    KeyFields {
        /// How many it has.
        fields: usize,
    },
    /// The format has no such field.
    Field {
        /// The field asked for.
        field: String,
        /// Name of the format.
        format: &'static str,
        /// The fields it has.
        known: Vec<String>,
    },
    /// A time field was named for a format whose time has a fixed place.
    FixedTime {
        /// Name of the format.
        format: &'static str,
    },
    /// The limit cannot be read.
    Limit {
        /// What was given.
        text: String,
        /// Which half of it is wrong, and what would be right.
        wrong: String,
    },
    /// There are more than [`MAX_LIMITS`] limits.
    Limits {
        /// How many there are.
        limits: usize,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::Format { text } => {
                write!(f, "unknown format '{text}': give combined, common, json or regex:RE")
            }
            SetupError::Pattern { cause } => write!(f, "invalid regular expression: {cause}"),
            SetupError::Template { text, cause } => write!(
                f,
                "invalid key '{text}': {cause}; give a field, such as ip, or a template, such as '{{ip}} {{path}}'"
            ),
            SetupError::KeyFields { fields } => {
                write!(f, "a key of {fields} fields is too long: give at most {MAX_KEY_FIELDS}")
            }
            SetupError::Field { field, format, known } if known.is_empty() => {
                write!(f, "no field '{field}' in the {format} format: it has no named groups")
            }
            SetupError::Field { field, format, known } => {
                write!(f, "no field '{field}' in the {format} format: it has {}", known.join(", "))
            }
            SetupError::FixedTime { format } => write!(
                f,
                "the {format} format has its time in a fixed place: a time field is for json and regex"
            ),
            SetupError::Limit { text, wrong } => write!(f, "invalid limit '{text}': {wrong}"),
            SetupError::Limits { limits } => {
                write!(f, "{limits} limits are too many: give at most {MAX_LIMITS}")
            }
        }
    }
}

impl Error for SetupError {}

/// Why a line does not parse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Malformed {
    /// The line is not of the format.
    Shape,
    /// The time is missing or is none.
    Time,
    /// A field of the key is missing.
    Field,
    /// The key is empty or longer than [`MAX_KEY_BYTES`].
    KeyLength,
    /// The line is longer than [`MAX_LINE_BYTES`].
    LineLength,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Shape => write!(f, "not of the format"),
            Malformed::Time => write!(f, "no time"),
            Malformed::Field => write!(f, "no such field for the key"),
            Malformed::KeyLength => write!(f, "a key has 1 to {MAX_KEY_BYTES} bytes"),
            Malformed::LineLength => write!(f, "longer than {MAX_LINE_BYTES} bytes"),
        }
    }
}

/// Why a log could not be read to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum ScanError {
    /// The reader failed.
    Read(io::Error),
    /// The key or time field does not go with the format that was found in the first line.
    Setup(SetupError),
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScanError::Read(error) => error.fmt(f),
            ScanError::Setup(error) => error.fmt(f),
        }
    }
}

impl Error for ScanError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ScanError::Read(error) => Some(error),
            ScanError::Setup(error) => Some(error),
        }
    }
}

impl From<io::Error> for ScanError {
    fn from(error: io::Error) -> ScanError {
        ScanError::Read(error)
    }
}

impl From<SetupError> for ScanError {
    fn from(error: SetupError) -> ScanError {
        ScanError::Setup(error)
    }
}
