//! What a log contains besides its records.

use std::io;

use crate::error::Malformed;
use crate::fields::FoundAs;

/// What a log contains.
#[derive(Debug, Default)]
pub struct Scanned {
    /// The format. `None` if the log has no lines.
    pub format: Option<&'static str>,
    /// Lines that are neither blank nor comments.
    pub lines: u64,
    /// Lines among these that the conditions or the times left out.
    pub filtered: u64,
    /// Lines among these that do not parse, by reason: how many, and the number of the first in the log, from 1.
    pub malformed: Vec<(Malformed, u64, u64)>,
    /// The fields of the first line without a time, for formats whose lines name their fields.
    pub without_time: Option<Lacking>,
    /// The fields of the first line without a field of the key.
    pub without_field: Option<Lacking>,
    /// The fields of the key that were found under other names.
    pub found_as: Vec<FoundAs>,
    /// The fields of conditions that were in no line.
    pub missing: Vec<String>,
    /// A guess about the type of the file, if no line parses.
    pub looks_like: Option<&'static str>,
    /// The error that ended reading early.
    pub failure: Option<io::Error>,
}

/// A line that names its fields and lacks one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lacking {
    /// The fields that were looked for.
    pub tried: Vec<String>,
    /// The fields it has, with dots for nested ones: at most [`crate::limits::MAX_LISTED_FIELDS`].
    pub there: Vec<String>,
}

impl Scanned {
    /// Lines that do not parse.
    #[must_use]
    pub fn malformed_lines(&self) -> u64 {
        self.malformed.iter().map(|(_, lines, _)| lines).sum()
    }

    /// Lines that parse, including those that were left out.
    #[must_use]
    pub fn parsed(&self) -> u64 {
        self.lines - self.malformed_lines()
    }

    pub(crate) fn add_malformed(&mut self, why: Malformed, number: u64) {
        match self.malformed.iter_mut().find(|(reason, ..)| *reason == why) {
            Some((_, lines, _)) => *lines += 1,
            None => self.malformed.push((why, 1, number)),
        }
    }
}
