//! `cargo xtask fmt`: checks that every crate is formatted as rustfmt.toml says.

use std::path::Path;

use crate::messages;
use crate::run::{self, Outcome, cargo};

pub(crate) fn run(root: &Path) -> Outcome {
    messages::step("fmt");
    run::run(cargo(root).args(["fmt", "--all", "--check"]), "fmt (`cargo fmt --all` repairs it)")
}
