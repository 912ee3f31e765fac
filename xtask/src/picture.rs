//! `cargo xtask picture`: draws `docs/guide/limits.svg` and writes the figures of `docs/guide/limits.md`, from a replay.
//!
//! Nothing of the product is built for xtask; what draws is an example of the core, and its tests hold both files to it.

use std::path::Path;

use clap::Args;

use crate::run::{self, Outcome, cargo};
use crate::say;

const DOCUMENTS: &str = "docs/guide";

/// Whether to write.
#[derive(Args)]
pub(crate) struct Options {
    /// Write nothing; fail where the files are not what would be written
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, options: &Options) -> Outcome {
    say::step("picture");
    let mut command = cargo(root);
    command.args(["run", "--locked", "--quiet", "--package", "lately", "--example", "picture", "--"]);
    if options.check {
        command.arg("--check");
    }
    run::run(command.arg(DOCUMENTS), "picture")?;
    say::passed("picture");
    Ok(())
}
