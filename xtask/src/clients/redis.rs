//! A `redis-server` without the package of that name.
//!
//! The `redis-server` package of Debian and Ubuntu has a link named `redis-server` to `redis-check-rdb`, and
//! a service that starts on installation and takes Redis's port. The program itself is in `redis-tools`, and
//! is the server if it is called by that name. So a link of our own is enough, and no service starts.

use std::path::Path;
use std::process::Command;

use super::folder::at;
use crate::run::{self, Failure, Outcome, find};

/// Creates `redis-server` in `programs`, unless it is on the PATH.
pub(super) fn link_server(programs: &Path) -> Outcome {
    if find("redis-server").is_some() {
        return Ok(());
    }
    let program = find("redis-check-rdb").ok_or_else(|| {
        Failure::new("test: there is neither redis-server nor redis-check-rdb on the PATH; install Redis")
    })?;
    let link = programs.join("redis-server");
    if link.is_symlink() {
        std::fs::remove_file(&link).map_err(|error| at(&link, &error))?;
    }
    std::os::unix::fs::symlink(&program, &link).map_err(|error| at(&link, &error))?;
    let version = run::output(Command::new(&link).arg("--version"), "test: redis-server")?;
    if version.starts_with("Redis server v=") {
        Ok(())
    } else {
        let program = program.display();
        Err(Failure::new(format!("test: {program} is no server under another name; install redis-server")))
    }
}
