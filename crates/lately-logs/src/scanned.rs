//! What was in a log, beside its records.

use std::io;

use crate::error::Malformed;
use crate::fields::FoundAs;

/// What was in a log.
#[derive(Debug, Default)]
pub struct Scanned {
    /// The format it was read in; `None` when it has no lines.
    pub format: Option<&'static str>,
    /// Lines with something in them that are no comments.
    pub lines: u64,
    /// Lines of these that the conditions or the times left out.
    pub filtered: u64,
    /// Lines of these that do not parse: for each reason how many, and the number in the log, from 1, of the first.
    pub malformed: Vec<(Malformed, u64, u64)>,
    /// The fields of the first line without a time, for formats whose lines name theirs.
    pub without_time: Option<Lacking>,
    /// Those of the first line without a field of the key.
    pub without_field: Option<Lacking>,
    /// The fields of the key that lines have under other names.
    pub found_as: Vec<FoundAs>,
    /// The fields of conditions that no line had.
    pub missing: Vec<String>,
    /// What the bytes look like when no line parses.
    pub looks_like: Option<&'static str>,
    /// Why it could not be read to its end.
    pub failure: Option<io::Error>,
}

/// A line that names its fields and lacks one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lacking {
    /// The fields looked for.
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

    /// Lines that parse, those that were left out as well.
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
