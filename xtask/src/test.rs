//! `cargo xtask test`: the one test command. It installs the clients that tests connect with, then runs every test.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;

use crate::clients::Clients;
use crate::run::{self, Outcome, cargo, path_with};
use crate::say;

/// Which tests.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Arguments for `cargo test`; without any, the whole workspace is tested
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo_arguments: Vec<OsString>,
}

pub(crate) fn run(root: &Path, options: &Options) -> Outcome {
    say::step("test: clients");
    let clients = Clients::install(root)?;
    say::step("test: cargo test");
    let mut command = cargo(root);
    command.arg("test");
    if options.cargo_arguments.is_empty() {
        // One failing crate does not hide what another would have said.
        command.args(["--workspace", "--no-fail-fast"]);
    } else {
        command.args(&options.cargo_arguments);
    }
    command
        .env("PATH", path_with(&clients.programs)?)
        .env("LATELY_TEST_PYTHON", &clients.python)
        .env("LATELY_TEST_NODE", &clients.node)
        .env("LATELY_TEST_NODE_MODULES", &clients.node_modules);
    run::run(&mut command, "test")?;
    say::passed("test");
    Ok(())
}
