//! Messages of xtask: on standard error, in order with those of cargo.

use crate::run::Failure;
use crate::skips::Skip;

/// Announces a step.
pub(crate) fn step(what: &str) {
    line(&format!("==> {what}"));
}

/// Reports success.
pub(crate) fn passed(what: &str) {
    line(&format!("xtask: passed: {what}"));
}

/// Lists the tests that were skipped, if any.
pub(crate) fn skipped(skips: &[Skip]) {
    if skips.is_empty() {
        return;
    }
    let tests = if skips.len() == 1 { "test was" } else { "tests were" };
    line(&format!("xtask: {} {tests} skipped:", skips.len()));
    skips.iter().for_each(|Skip { test, why }| line(&format!("xtask:   {test}: {why}")));
}

/// Reports why the verb failed.
pub(crate) fn failure(failure: &Failure) {
    line(&format!("xtask: failed: {failure}"));
}

#[expect(clippy::print_stderr, reason = "the one place where xtask prints")]
fn line(text: &str) {
    eprintln!("{text}");
}
