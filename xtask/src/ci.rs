//! `cargo xtask ci`: all checks, fastest first; tests last, so that their totals end the output.

use std::path::Path;

use clap::Args;

use crate::run::Outcome;
use crate::{clippy, doc, fmt, loom, package, say, test, tidy};

/// Whether there is a network.
#[derive(Args)]
pub(crate) struct Options {
    /// Install nothing and use no network; skip tests whose programs are missing
    #[arg(long)]
    offline: bool,
}

pub(crate) fn run(root: &Path, options: &Options) -> Outcome {
    fmt::run(root)?;
    clippy::run(root)?;
    tidy::run(root)?;
    doc::run(root)?;
    if !options.offline {
        package::run(root)?;
    }
    loom::run(root)?;
    test::run_all(root, options.offline)?;
    say::passed("ci");
    Ok(())
}
