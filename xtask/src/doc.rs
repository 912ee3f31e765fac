//! `cargo xtask doc`: the documentation builds, and its links lead somewhere.

use std::path::Path;

use crate::run::{self, FEATURES, Outcome, cargo};
use crate::say;

pub(crate) fn run(root: &Path) -> Outcome {
    say::step("doc");
    // RUSTDOCFLAGS, unlike RUSTFLAGS, rebuilds nothing that the other steps share.
    run::run(
        cargo(root)
            .args(["doc", "--workspace", "--features", FEATURES, "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
        "doc",
    )
}
