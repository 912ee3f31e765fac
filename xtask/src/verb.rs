//! The verbs: one for each job.

use clap::Subcommand;

use crate::run::{Outcome, workspace_root};
use crate::{bench, ci, clippy, deb, deny, doc, figures, fmt, fuzz, loom, package, proto, sim, test, tidy};

#[derive(Subcommand)]
pub(crate) enum Verb {
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

impl Verb {
    /// Does the job.
    pub(crate) fn run(&self) -> Outcome {
        let root = workspace_root()?;
        match self {
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
}
