//! `cargo xtask package`: each crate that can be published becomes a package.

use std::path::Path;

use crate::run::{self, Outcome, cargo};
use crate::say;

/// The crates that are of this repository alone: `publish = false`.
const PRIVATE: [&str; 3] = ["lately-bench", "test-support", "xtask"];

pub(crate) fn run(root: &Path) -> Outcome {
    say::step("package");
    let mut command = cargo(root);
    // What is in them is built by the tests.
    command.args(["package", "--workspace", "--locked", "--no-verify", "--allow-dirty", "--quiet"]);
    command.args(PRIVATE.iter().flat_map(|name| ["--exclude", name]));
    run::run(&mut command, "package")
}
