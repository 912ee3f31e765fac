//! `cargo xtask ci`: everything that must pass, quickest first, tests last so that their totals close the output.

use std::path::Path;

use crate::run::Outcome;
use crate::{clippy, doc, fmt, loom, say, test, tidy};

pub(crate) fn run(root: &Path) -> Outcome {
    fmt::run(root)?;
    clippy::run(root)?;
    tidy::run(root)?;
    doc::run(root)?;
    loom::run(root)?;
    test::run(root, &test::Options::default())?;
    say::passed("fmt, clippy, tidy, doc, loom, test");
    Ok(())
}
