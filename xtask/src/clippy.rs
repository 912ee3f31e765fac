//! `cargo xtask clippy`: the workspace's lint table, warnings as errors.

use std::path::Path;

use crate::run::{self, FEATURES, Outcome, cargo};
use crate::say;

pub(crate) fn run(root: &Path) -> Outcome {
    say::step("clippy");
    let all = ["clippy", "--workspace", "--features", FEATURES, "--all-targets", "--", "-D", "warnings"];
    run::run(cargo(root).args(all), "clippy")?;
    // As `cargo install` builds it.
    run::run(cargo(root).args(["clippy", "--package", "lately-cli", "--", "-D", "warnings"]), "clippy")
}
