//! Folders and files of what is installed.

use std::path::Path;

use crate::run::{Failure, Outcome};

pub(super) fn create(folder: &Path) -> Outcome {
    std::fs::create_dir_all(folder).map_err(|error| at(folder, &error))
}

/// Empties `folder`, including its stamp, so that an incomplete folder is not taken for complete.
pub(super) fn remade(folder: &Path) -> Outcome {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|error| at(folder, &error))?;
    }
    create(folder)
}

pub(super) fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| at(path, &error))
}

pub(super) fn at(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("test: {}: {error}", path.display()))
}
