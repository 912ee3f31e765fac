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
mod verb;

use std::process::ExitCode;

use clap::Parser;

use crate::verb::Verb;

/// The jobs of this repository.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

fn main() -> ExitCode {
    let verb = Arguments::parse().verb;
    match verb.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say::failure(&failure);
            ExitCode::FAILURE
        }
    }
}
