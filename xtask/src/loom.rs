//! `cargo xtask loom`: runs the concurrency models under loom.

use std::path::Path;

use crate::run::{self, Outcome, cargo};
use crate::say;

/// The crates with models.
const PACKAGES: [&str; 2] = ["lately", "lately-classics"];

/// Models are small and run often. Building them takes longest, so the build is a fast one.
const PROFILE: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "none"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "2"),
];

pub(crate) fn run(root: &Path) -> Outcome {
    say::step("loom");
    let mut command = cargo(root);
    // A separate folder: the flags differ, so each build would invalidate the other.
    command.args(["test", "--release", "--target-dir", "target/loom", "--lib"]);
    command.args(PACKAGES.map(|package| ["--package", package]).as_flattened());
    // The models are in modules of this name; the other tests cannot run with loom's atomics.
    command.arg("models::").env("RUSTFLAGS", "--cfg loom").envs(PROFILE);
    run::run(&mut command, "loom")?;
    say::passed("loom");
    Ok(())
}
