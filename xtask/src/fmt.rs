//! `cargo xtask fmt`: checks that every crate is formatted as rustfmt.toml says.

use std::path::Path;

use crate::run::{self, Outcome, cargo};
use crate::say;

pub(crate) fn run(root: &Path) -> Outcome {
    say::step("fmt");
    run::run(cargo(root).args(["fmt", "--all", "--check"]), "fmt (`cargo fmt --all` repairs it)")
}
