//! Writes a file atomically: to a temporary file in the same folder, which is then renamed.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::CliError;
use crate::table::printable_path;

/// A file that is being written.
pub(crate) struct NewFile {
    /// The path that the user gave.
    path: PathBuf,
    target: PathBuf,
    place: Place,
}

enum Place {
    /// A temporary file, which is removed unless it is finished.
    Unfinished(NamedTempFile),
    /// A device or a pipe, which cannot be replaced.
    Itself(File),
}

impl NewFile {
    /// A file that replaces `path` once it is finished. It has this mode, restricted by the umask.
    ///
    /// # Errors
    /// If the folder is missing or not writable, or `path` is no file.
    pub(crate) fn create(path: &Path, mode: u32) -> Result<NewFile, CliError> {
        let refused = |cause, hint| CliError::new(printable_path(path), cause, hint);
        let failed = |error: io::Error| failure(path, &error);
        let target = resolved(path);
        let there = fs::metadata(&target).ok();
        if there.is_none() && fs::symlink_metadata(path).is_ok() {
            return Err(refused("it is a link to nothing", "name another file"));
        }
        if there.as_ref().is_some_and(Metadata::is_dir) {
            return Err(refused("it is a folder", "name a file in it"));
        }
        let place = if there.is_some_and(|there| !there.is_file()) {
            Place::Itself(File::options().write(true).open(&target).map_err(failed)?)
        } else {
            let mut builder = tempfile::Builder::new();
            builder.prefix(".lately-").permissions(Permissions::from_mode(mode));
            Place::Unfinished(builder.tempfile_in(folder(&target)).map_err(failed)?)
        };
        Ok(NewFile { path: path.to_owned(), target, place })
    }

    /// The file to write to.
    pub(crate) fn file(&mut self) -> &mut File {
        match &mut self.place {
            Place::Unfinished(unfinished) => unfinished.as_file_mut(),
            Place::Itself(file) => file,
        }
    }

    /// Completes the file and renames it to `path`.
    ///
    /// # Errors
    /// If it cannot be written to the disk or renamed.
    pub(crate) fn finish(self) -> Result<(), CliError> {
        let NewFile { path, target, place } = self;
        if let Place::Unfinished(unfinished) = place {
            unfinished.as_file().sync_all().map_err(|error| failure(&path, &error))?;
            unfinished.persist(&target).map_err(|error| failure(&path, &error.error))?;
        }
        Ok(())
    }
}

/// The path to replace: that of a file, or of the target of a link.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The folder of a file.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The error of a file that cannot be written.
pub(crate) fn failure(path: &Path, error: &io::Error) -> CliError {
    // Removes the path of the temporary file, which tempfile appends.
    let text = error.to_string();
    let cause = text.split(" at path ").next().unwrap_or_default();
    let hint = "is there such a folder, with room for it, and may it be written?";
    CliError::new(printable_path(path), cause, hint)
}
