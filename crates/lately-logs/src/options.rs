//! How to read a log.

use lately::Timestamp;

use crate::error::SetupError;
use crate::filter::Filter;
use crate::format::Format;
use crate::parser::LineParser;
use crate::time::Times;
use lately_keys::Template;

/// How to read a log, and what of it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format; `None` tells it by the first lines.
    pub format: Option<Format>,
    /// What a key is made of.
    pub key: Template,
    /// Where the time is. Without it: in the field of the format, or the first of the known ones that is a time.
    pub time_field: Option<String>,
    /// The time in several fields, such as `{date} {time}`.
    pub time: Option<Template>,
    /// Conditions that all have to hold.
    pub filters: Vec<Filter>,
    /// The earliest time.
    pub since: Option<Timestamp>,
    /// The latest time.
    pub until: Option<Timestamp>,
    /// How times are read.
    pub times: Times,
}

impl Options {
    /// Whether key, conditions and time go with the format, when that is known.
    ///
    /// # Errors
    /// Those of [`LineParser::new`].
    pub fn check(&self) -> Result<(), SetupError> {
        self.format.as_ref().map_or(Ok(()), |format| LineParser::new(format, self).map(|_| ()))
    }
}
