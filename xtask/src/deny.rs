//! `cargo xtask deny`: licences, sources and duplicate versions of the dependencies, as deny.toml says.

use std::path::Path;
use std::process::Command;

use crate::run::{self, Outcome, cargo};
use crate::say;

const CARGO_DENY: &str = "0.20.2";

pub(crate) fn run(root: &Path) -> Outcome {
    let tools = root.join("target/tools");
    let program = tools.join("bin/cargo-deny");
    // Always the pinned one: what deny.toml may contain differs between versions.
    if !program.is_file() {
        say::step("deny: installing cargo-deny (some minutes)");
        let mut command = cargo(root);
        command.args(["install", "cargo-deny", "--locked", "--version", CARGO_DENY, "--root"]).arg(&tools);
        run::run(&mut command, "deny: installing cargo-deny")?;
    }
    say::step("deny");
    let mut command = Command::new(&program);
    command.current_dir(root).args(["--locked", "check", "licenses", "bans", "sources"]);
    run::run(&mut command, "deny")
}
