//! `cargo xtask doc`: the documentation builds, and its links lead somewhere.

use std::path::Path;

use crate::run::{self, Outcome, cargo};
use crate::say;

pub(crate) fn run(root: &Path) -> Outcome {
    say::step("doc");
    // RUSTDOCFLAGS, unlike RUSTFLAGS, rebuilds nothing that the other steps share.
    run::run(cargo(root).args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"), "doc")
}
