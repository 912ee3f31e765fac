//! nginx, which Debian installs where only root looks for programs.

use std::path::{Path, PathBuf};

use super::folder::at;
use crate::run::{self, Failure, Outcome};

/// The program, on the PATH or where Debian has it.
pub(super) fn find() -> Option<PathBuf> {
    run::find("nginx").or_else(|| Some(PathBuf::from("/usr/sbin/nginx")).filter(|program| program.is_file()))
}

/// Creates `nginx` in `programs`, unless it is on the PATH.
pub(super) fn link(programs: &Path) -> Outcome {
    if run::find("nginx").is_some() {
        return Ok(());
    }
    let program = find().ok_or_else(|| Failure::new("test: there is no nginx; install it"))?;
    let link = programs.join("nginx");
    if link.is_symlink() {
        std::fs::remove_file(&link).map_err(|error| at(&link, &error))?;
    }
    std::os::unix::fs::symlink(&program, &link).map_err(|error| at(&link, &error))
}
