//! `cargo xtask clippy`: the workspace's lint table, warnings as errors.

use std::path::Path;

use crate::run::{self, Outcome, cargo};
use crate::say;

pub(crate) fn run(root: &Path) -> Outcome {
    say::step("clippy");
    run::run(cargo(root).args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]), "clippy")
}
