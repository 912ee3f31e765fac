//! Lines of any layout, by a regular expression with named groups.

use regex::bytes::{CaptureLocations, Regex};

use crate::error::SetupError;

/// A compiled expression and the places its matches are written to, kept from line to line.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    locations: CaptureLocations,
    fields: Vec<usize>,
    time: usize,
}

/// The groups of one match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups<'p, 'a> {
    pattern: &'p Pattern,
    line: &'a [u8],
}

impl Pattern {
    pub(crate) fn new(regex: &Regex, fields: &[String], time_field: &str) -> Result<Pattern, SetupError> {
        let group = |name: &str| {
            let index = regex.capture_names().position(|known| known == Some(name));
            index.ok_or_else(|| SetupError::Field {
                field: name.into(),
                format: "regex",
                known: regex.capture_names().flatten().map(String::from).collect(),
            })
        };
        Ok(Pattern {
            time: group(time_field)?,
            fields: fields.iter().map(|name| group(name)).collect::<Result<_, _>>()?,
            locations: regex.capture_locations(),
            regex: regex.clone(),
        })
    }

    /// The groups of the first match in `line`.
    pub(crate) fn read<'a>(&mut self, line: &'a [u8]) -> Option<Groups<'_, 'a>> {
        self.regex.captures_read(&mut self.locations, line)?;
        Some(Groups { pattern: self, line })
    }
}

impl<'a> Groups<'_, 'a> {
    /// The field of the key with this index; `None` when its group has no part in the match.
    pub(crate) fn field(&self, index: usize) -> Option<&'a [u8]> {
        self.group(self.pattern.fields[index])
    }

    pub(crate) fn time(&self) -> Option<&'a [u8]> {
        self.group(self.pattern.time)
    }

    fn group(&self, group: usize) -> Option<&'a [u8]> {
        let (from, to) = self.pattern.locations.get(group)?;
        Some(&self.line[from..to])
    }
}
