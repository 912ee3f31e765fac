//! The programs of one revision.

use std::io::Error;
use std::path::{Path, PathBuf};

pub(super) struct Side {
    pub(super) lately: PathBuf,
    pub(super) probe: PathBuf,
}

impl Side {
    /// The programs in a folder.
    pub(super) fn new(folder: &Path) -> Result<Side, Error> {
        let of = |name: &str| {
            let path = folder.join(name);
            if path.is_file() {
                Ok(path)
            } else {
                Err(Error::other(format!("{} is not there", path.display())))
            }
        };
        Ok(Side { lately: of("lately")?, probe: of("lately-probe")? })
    }
}
