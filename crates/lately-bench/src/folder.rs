//! A folder of its own on a disk: what is temporary may be kept in memory.

use std::io::Result;
use std::path::PathBuf;

use tempfile::TempDir;

/// Makes one beside this program, where a build has its files.
pub(crate) fn on_disk() -> Result<TempDir> {
    let program = std::env::current_exe()?;
    let beside = program.parent().map_or_else(|| PathBuf::from("."), PathBuf::from);
    tempfile::Builder::new().prefix("bench-").tempdir_in(beside)
}
