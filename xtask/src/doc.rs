//! `cargo xtask doc`: the documentation builds, and its links lead somewhere.

use std::path::Path;

use crate::messages;
use crate::run::{self, Outcome, cargo};

pub(crate) fn run(root: &Path) -> Outcome {
    messages::step("doc");
    // RUSTDOCFLAGS, unlike RUSTFLAGS, rebuilds nothing that the other steps share.
    run::run(cargo(root).args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"), "doc")
}
