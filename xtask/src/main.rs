//! One verb per job: `cargo xtask VERB`. CI only uses verbs, so every job of CI can be run locally.

mod bench;
mod ci;
mod clients;
mod clippy;
mod compare;
mod deb;
mod deny;
mod doc;
mod figures;
mod fmt;
mod fuzz;
mod limits;
mod loom;
mod package;
mod proto;
mod run;
mod say;
mod sim;
mod skips;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::run::{Outcome, workspace_root};

/// The jobs of this repository.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install what the tests need, then run them all
    Test(test::Options),
    /// Run all checks: fmt, clippy, tidy, doc, package, loom, test
    Ci(ci::Options),
    /// Check the formatting
    Fmt,
    /// Run the lints, warnings as errors
    Clippy,
    /// Check the conventions of this repository
    Tidy,
    /// Build the documentation, warnings as errors
    Doc,
    /// Check licences, sources and duplicate versions of the dependencies
    Deny,
    /// Make a package of each crate, as for a registry
    Package,
    /// Make the Debian package
    Deb,
    /// Measure Lately and its rivals
    Bench(bench::Options),
    /// Compile the protocol files of lately-server
    Proto(proto::Options),
    /// Fill the tables of README.md and docs/ from docs/benchmarks.json
    Figures,
    /// Play through the models of what threads share
    Loom,
    /// Run the fuzz targets
    Fuzz(fuzz::Options),
    /// Simulate failing disks, and servers whose classes change
    Sim(sim::Options),
}

fn main() -> ExitCode {
    let verb = Arguments::parse().verb;
    match dispatch(&verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say::failure(&failure);
            ExitCode::FAILURE
        }
    }
}

fn dispatch(verb: &Verb) -> Outcome {
    let root = workspace_root()?;
    match verb {
        Verb::Test(options) => test::run(&root, options),
        Verb::Ci(options) => ci::run(&root, options),
        Verb::Fmt => fmt::run(&root),
        Verb::Clippy => clippy::run(&root),
        Verb::Tidy => tidy::run(&root),
        Verb::Doc => doc::run(&root),
        Verb::Deny => deny::run(&root),
        Verb::Package => package::run(&root),
        Verb::Deb => deb::run(&root),
        Verb::Bench(options) => bench::run(&root, options),
        Verb::Proto(options) => proto::run(&root, options),
        Verb::Figures => figures::run(&root),
        Verb::Loom => loom::run(&root),
        Verb::Fuzz(options) => fuzz::run(&root, options),
        Verb::Sim(options) => sim::run(&root, options),
    }
}
