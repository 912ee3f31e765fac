//! A folder on a disk: the default temporary folder may be in memory.

use std::io::Result;
use std::path::PathBuf;

use tempfile::TempDir;

/// Creates one beside this program, where the build has its files.
pub(crate) fn on_disk() -> Result<TempDir> {
    let program = std::env::current_exe()?;
    let folder = program.parent().map_or_else(|| PathBuf::from("."), PathBuf::from);
    tempfile::Builder::new().prefix("bench-").tempdir_in(folder)
}
