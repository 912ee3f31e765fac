//! What could not be put back.

use std::fmt;
use std::path::PathBuf;

use lately::Timestamp;

/// What could not be put back.
#[derive(Debug, PartialEq, Eq)]
pub struct Loss {
    /// The file.
    pub path: PathBuf,
    /// Where.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
    /// What happened to it.
    pub kind: LossKind,
}

/// What happened to what could not be put back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// It was the end of the log, which the end of a process or a loss of power may tear.
    Torn,
    /// It does not hold what was written to it.
    Damaged,
    /// One key there could not be read, or one of its changes could not be made.
    Key(Box<[u8]>),
    /// The file is gone.
    Missing,
    /// It was written by a clock that was ahead, at this time: it counts as of now.
    Ahead(Timestamp),
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
