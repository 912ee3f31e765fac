//! `cargo xtask clippy`: the workspace's lint table, warnings as errors.

use std::path::Path;

use crate::messages;
use crate::run::{self, Outcome, cargo};

pub(crate) fn run(root: &Path) -> Outcome {
    messages::step("clippy");
    run::run(cargo(root).args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]), "clippy")
}
