//! Errors of the setup, of a line, and of reading.

use std::error::Error;
use std::fmt;

use lately::limits::MAX_KEY_BYTES;
use lately_keys::KeyError;

use crate::format::FORMATS;
use crate::limits::{MAX_FILTERS, MAX_JOINED_BYTES, MAX_LIMITS, MAX_LINE_BYTES, MAX_STEPS};

/// An invalid option: a format, key, time field, condition or limit.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SetupError {
    /// No format has this name.
    Format {
        /// What was given.
        text: String,
    },
    /// The regular expression is invalid.
    Pattern {
        /// The problem.
        cause: String,
    },
    /// The key template is invalid, or the network.
    Key(KeyError),
    /// The format has no such field.
    Field {
        /// The requested field.
        field: String,
        /// Name of the format.
        format: &'static str,
        /// The fields it has.
        known: Vec<String>,
    },
    /// A time field was given for a format whose time has a fixed place.
    FixedTime {
        /// Name of the format.
        format: &'static str,
    },
    /// There is no such time zone.
    Zone {
        /// What was given.
        text: String,
    },
    /// The layout of times is invalid.
    TimeFormat {
        /// What was given.
        text: String,
        /// The problem.
        cause: String,
    },
    /// The condition is invalid.
    Filter {
        /// What was given.
        text: String,
        /// The problem.
        cause: String,
    },
    /// There are more than [`MAX_FILTERS`] conditions.
    Filters {
        /// The number of conditions.
        filters: usize,
    },
    /// The layout of a server's log is invalid.
    Layout {
        /// What was given.
        text: String,
        /// The problem.
        cause: String,
    },
    /// The limit is invalid.
    Limit {
        /// What was given.
        text: String,
        /// Which half of it is wrong, and what is expected.
        wrong: String,
    },
    /// There are more than [`MAX_LIMITS`] limits.
    Limits {
        /// The number of limits.
        limits: usize,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::Format { text } => {
                write!(f, "unknown format '{text}': give {FORMATS}")
            }
            SetupError::Pattern { cause } => write!(f, "invalid regular expression: {cause}"),
            SetupError::Key(error) => error.fmt(f),
            SetupError::Field { field, format, known } if known.is_empty() => {
                write!(f, "no field '{field}' in the {format} format: it has no named groups")
            }
            SetupError::Field { field, format, known } => {
                write!(f, "no field '{field}' in the {format} format: it has {}", known.join(", "))
            }
            SetupError::FixedTime { format } => write!(
                f,
                "the {format} format has its time in a fixed place: a time field is for json, logfmt and regex"
            ),
            SetupError::Limit { text, wrong } => write!(f, "invalid limit '{text}': {wrong}"),
            SetupError::Zone { text } => write!(
                f,
                "unknown time zone '{text}': give a name such as Europe/Berlin, UTC, or an offset such as +02:00"
            ),
            SetupError::TimeFormat { text, cause } => write!(
                f,
                "invalid time format '{text}': {cause}; give directives of strptime, such as '%Y%m%d%H%M%S'"
            ),
            SetupError::Filter { text, cause } => write!(
                f,
                "invalid condition '{text}': {cause}; give FIELD=V, FIELD!=V, FIELD~RE, FIELD!~RE, FIELD>=N or FIELD<N"
            ),
            SetupError::Filters { filters } => {
                write!(f, "{filters} conditions are too many: give at most {MAX_FILTERS}")
            }
            SetupError::Layout { text, cause } => write!(f, "invalid log format '{text}': {cause}"),
            SetupError::Limits { limits } => {
                write!(f, "{limits} limits are too many: give at most {MAX_LIMITS}")
            }
        }
    }
}

impl Error for SetupError {}

impl From<KeyError> for SetupError {
    fn from(error: KeyError) -> SetupError {
        SetupError::Key(error)
    }
}

/// Why a line does not parse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Malformed {
    /// The line does not have the format.
    Shape,
    /// The time is missing or invalid.
    Time,
    /// The time has no zone, and no zone was given.
    Zone,
    /// The time is a number before 1990 or more than a day ahead.
    Number,
    /// A field of the key is missing.
    Field,
    /// The key is empty or longer than [`MAX_KEY_BYTES`].
    KeyLength,
    /// The line is longer than [`MAX_LINE_BYTES`].
    LineLength,
    /// The line was cut into parts, and is longer than [`MAX_JOINED_BYTES`].
    JoinedLength,
}

impl Malformed {
    /// All reasons, in the order of reports.
    pub const ALL: [Malformed; 8] = [
        Malformed::Shape,
        Malformed::Time,
        Malformed::Zone,
        Malformed::Number,
        Malformed::Field,
        Malformed::KeyLength,
        Malformed::LineLength,
        Malformed::JoinedLength,
    ];
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Shape => write!(f, "not of the format"),
            Malformed::Time => write!(f, "no time"),
            Malformed::Zone => write!(f, "a time without a zone"),
            Malformed::Number => write!(f, "a number that is no time from 1990 to tomorrow"),
            Malformed::Field => write!(f, "no such field for the key"),
            Malformed::KeyLength => write!(f, "a key has 1 to {MAX_KEY_BYTES} bytes"),
            Malformed::LineLength => write!(f, "longer than {MAX_LINE_BYTES} bytes"),
            Malformed::JoinedLength => write!(f, "cut into parts, longer than {MAX_JOINED_BYTES} bytes"),
        }
    }
}

/// Why a log could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ScanError {
    /// The detected format has no such key or time field.
    Setup(SetupError),
    /// No format fits at least half of the first lines.
    Unknown {
        /// The number of lines that were read.
        lines: usize,
        /// The best format, and the number of lines that it fits.
        best: Option<(&'static str, usize)>,
        /// A guess about the type of the file.
        looks_like: Option<&'static str>,
    },
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScanError::Setup(error) => error.fmt(f),
            ScanError::Unknown { looks_like: Some(what), .. } => write!(f, "this is {what}, not a log"),
            ScanError::Unknown { lines, best, looks_like: None } => {
                let s = if *lines == 1 { "" } else { "s" };
                write!(f, "no known format in the first {lines} line{s}")?;
                best.map_or(Ok(()), |(name, of)| write!(f, ": {of} could be {name}"))
            }
        }
    }
}

impl Error for ScanError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ScanError::Setup(error) => Some(error),
            ScanError::Unknown { .. } => None,
        }
    }
}

impl From<KeyError> for ScanError {
    fn from(error: KeyError) -> ScanError {
        SetupError::Key(error).into()
    }
}

impl From<SetupError> for ScanError {
    fn from(error: SetupError) -> ScanError {
        ScanError::Setup(error)
    }
}

/// A series has more than [`MAX_STEPS`] steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeriesError {
    /// The number of steps.
    pub steps: usize,
}

impl fmt::Display for SeriesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps are too many: {MAX_STEPS} are the most", self.steps)
    }
}

impl Error for SeriesError {}
