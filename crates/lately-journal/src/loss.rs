//! Data that could not be recovered.

use std::fmt;
use std::path::PathBuf;

use lately::Timestamp;

/// Data that could not be recovered.
#[derive(Debug, PartialEq, Eq)]
pub struct Loss {
    /// The file.
    pub path: PathBuf,
    /// The offset in the file.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The cause.
    pub kind: LossKind,
}

/// Why data could not be recovered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// The torn end of the log, after a crash or a loss of power.
    Torn,
    /// The bytes are not those that were written.
    Damaged,
    /// A key could not be decoded, or a change of it could not be applied.
    Key(Box<[u8]>),
    /// The file is missing.
    Missing,
    /// It was written at this time by a clock that was ahead. It counts as of now.
    Ahead(Timestamp),
}

impl Loss {
    /// Whether hits may be lost that were counted long before the stop.
    #[must_use]
    pub fn has_hits(&self) -> bool {
        matches!(self.kind, LossKind::Damaged | LossKind::Key(_) | LossKind::Missing)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { path, offset, bytes, kind } = self;
        let path = path.display();
        match kind {
            LossKind::Torn => write!(
                f,
                "{path} ended in the middle of a record: {bytes} bytes were cut off at byte {offset}"
            ),
            LossKind::Damaged => write!(f, "{path} is damaged at byte {offset}: {bytes} bytes were left out"),
            LossKind::Key(key) => write!(
                f,
                "{path} is damaged at byte {offset}: of key {} not all was put back",
                key.escape_ascii()
            ),
            LossKind::Ahead(written) => write!(
                f,
                "{path} was written at {written} by a clock that was ahead: what came then counts as of now"
            ),
            LossKind::Missing => write!(f, "{path} is missing: what was in it is lost"),
        }
    }
}
