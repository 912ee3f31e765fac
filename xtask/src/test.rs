//! `cargo xtask test`: runs every test, after installing the clients that they need.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;

use clap::Args;

use crate::clients::Clients;
use crate::run::{FEATURES, Failure, Outcome, cargo, path_with};
use crate::say;
use crate::skips::{self, Skip, Skips};

/// The tests to run.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Install nothing and use no network; skip tests whose programs are missing
    #[arg(long)]
    offline: bool,

    /// Arguments for `cargo test`; without any, the whole workspace is tested
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo_arguments: Vec<OsString>,
}

/// Runs the verb. Skips are shown, but are not an error.
pub(crate) fn run(root: &Path, options: &Options) -> Outcome {
    let skipped = run_tests(root, options)?;
    say::passed(if skipped.is_empty() { "test" } else { "test, but for the tests that were skipped" });
    Ok(())
}

/// Runs all tests, for `ci`. A skip is an error, unless it is offline.
pub(crate) fn run_all(root: &Path, offline: bool) -> Outcome {
    check_skips(&run_tests(root, &Options { offline, ..Options::default() })?, offline)
}

fn check_skips(skipped: &[Skip], offline: bool) -> Outcome {
    if skipped.is_empty() || offline {
        return Ok(());
    }
    Err(Failure::new("test: tests were skipped, which ci allows with --offline only"))
}

fn run_tests(root: &Path, options: &Options) -> Outcome<Vec<Skip>> {
    let mut skips = Skips::new(root)?;
    let mut command = cargo(root);
    command.arg("test");
    if options.offline {
        say::step("test: offline: clients are not installed");
        command.env("CARGO_NET_OFFLINE", "true").env("LATELY_TEST_OFFLINE", "1");
    } else {
        say::step("test: clients");
        let clients = Clients::install(root)?;
        command
            .env("PATH", path_with(&clients.programs)?)
            .env("LATELY_TEST_PYTHON", &clients.python)
            .env("LATELY_TEST_SCHEMATHESIS", &clients.schemathesis)
            .env("LATELY_TEST_HELM", &clients.helm)
            .env("LATELY_TEST_VALKEY", &clients.valkey)
            .env("LATELY_TEST_TANSU", &clients.tansu)
            .env("LATELY_TEST_ENVOY", &clients.envoy)
            .env("LATELY_TEST_NODE", &clients.node)
            .env("LATELY_TEST_NODE_MODULES", &clients.node_modules);
    }
    if options.cargo_arguments.is_empty() {
        // Continue after a failing crate.
        command.args(["--workspace", "--features", FEATURES, "--no-fail-fast"]);
    } else {
        command.args(&options.cargo_arguments);
    }
    say::step("test: cargo test");
    let failed = |error: std::io::Error| Failure::new(format!("test: cargo test: {error}"));
    command.env(skips::VARIABLE, skips.file()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let printed = child.stdout.take().expect("it is piped");
    skips.copy(printed, &mut std::io::stdout().lock()).map_err(failed)?;
    let status = child.wait().map_err(failed)?;
    let skipped = skips.into_found();
    say::skipped(&skipped);
    if status.success() {
        Ok(skipped)
    } else {
        Err(Failure::new(format!("test: cargo test ended with {status}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_fails_ci_unless_it_is_offline() {
        let skip = [Skip { test: "a".to_owned(), why: "no strace here".to_owned() }];
        for (skipped, offline, expected) in
            [(&[][..], false, true), (&[], true, true), (&skip, true, true), (&skip, false, false)]
        {
            assert_eq!(check_skips(skipped, offline).is_ok(), expected, "{skipped:?} {offline}");
        }
    }
}
