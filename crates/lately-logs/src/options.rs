//! Options for reading a log.

use lately::Timestamp;

use crate::error::SetupError;
use crate::filter::Filter;
use crate::format::Format;
use crate::parser::LineParser;
use crate::time::Times;
use lately_keys::Template;

/// How to read a log, and which records to keep.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format. `None`: it is detected from the first lines.
    pub format: Option<Format>,
    /// The template of keys.
    pub key: Template,
    /// The field with the time. `None`: the time of the format, or the first known field that has a time.
    pub time_field: Option<String>,
    /// A template of several fields for the time, such as `{date} {time}`.
    pub time: Option<Template>,
    /// Conditions, all of which must hold.
    pub filters: Vec<Filter>,
    /// Records before this time are left out.
    pub since: Option<Timestamp>,
    /// Records after this time are left out.
    pub until: Option<Timestamp>,
    /// How to parse times.
    pub times: Times,
}

impl Options {
    /// Checks the key, the conditions and the time against the format, if that is given.
    ///
    /// # Errors
    /// Those of [`LineParser::new`].
    pub fn check(&self) -> Result<(), SetupError> {
        self.format.as_ref().map_or(Ok(()), |format| LineParser::new(format, self).map(|_| ()))
    }
}
