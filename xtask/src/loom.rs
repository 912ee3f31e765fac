//! `cargo xtask loom`: the models of what threads share, every interleaving of them.

use std::path::Path;

use crate::run::{self, Outcome, cargo};
use crate::say;

/// The crates with models, and the modules the models are in.
const MODELS: [(&str, &str); 2] = [("lately", "models::"), ("lately-classics", "models::")];

pub(crate) fn run(root: &Path) -> Outcome {
    for (package, models) in MODELS {
        say::step(&format!("loom: {package}"));
        // Apart from the other builds, which other flags would make stale. Release: the models are many small runs.
        let mut command = cargo(root);
        command.args([
            "test",
            "--release",
            "--target-dir",
            "target/loom",
            "--package",
            package,
            "--lib",
            models,
        ]);
        command.env("RUSTFLAGS", "--cfg loom");
        run::run(&mut command, &format!("loom: {package}"))?;
    }
    say::passed("loom");
    Ok(())
}
