//! `cargo xtask proto`: compiles the protocol files of lately-server to Rust and to descriptors.
//!
//! The results are in the repository, so that a build needs no compiler. That is a package outside of the workspace,
//! because of its dependencies.

use std::path::Path;

use clap::Args;

use crate::run::{self, Failure, Outcome, cargo};
use crate::say;

const FILES: &str = "crates/lately-server/proto";
const RESULTS: &str = "crates/lately-server/src/protocol/grpc/generated";

#[derive(Args)]
pub(crate) struct Options {
    /// Fail when the results in the repository differ, and change nothing
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, options: &Options) -> Outcome {
    say::step("proto");
    if !options.check {
        return compile(root, &root.join(RESULTS));
    }
    let made = root.join("target/proto/check");
    std::fs::create_dir_all(&made).map_err(|error| failure(&made, &error))?;
    compile(root, &made)?;
    for entry in std::fs::read_dir(&made).map_err(|error| failure(&made, &error))? {
        let path = entry.map_err(|error| failure(&made, &error))?.path();
        let kept = root.join(RESULTS).join(path.file_name().unwrap_or_default());
        let read = |path: &Path| std::fs::read(path).map_err(|error| failure(path, &error));
        if read(&path)? != read(&kept)? {
            return Err(Failure::new(format!(
                "proto: {} differs from what {FILES} says: run cargo xtask proto",
                kept.display()
            )));
        }
    }
    Ok(())
}

fn compile(root: &Path, results: &Path) -> Outcome {
    let mut command = cargo(root);
    command.args(["run", "--quiet", "--locked", "--manifest-path", "xtask/proto/Cargo.toml", "--target-dir"]);
    command.args(["target/proto", "--", FILES]).arg(results);
    run::run(&mut command, "proto")
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("proto: {}: {error}", path.display()))
}
