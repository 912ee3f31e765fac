//! What xtask tells the person who ran it: on standard error, so that it stays in order with cargo's own words.

use crate::run::Failure;
use crate::skips::Skip;

/// Announces a step.
pub(crate) fn step(what: &str) {
    line(&format!("==> {what}"));
}

/// Says what has passed.
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

/// Says why the verb failed.
pub(crate) fn failure(failure: &Failure) {
    line(&format!("xtask: failed: {failure}"));
}

#[expect(clippy::print_stderr, reason = "the one place where xtask prints")]
fn line(text: &str) {
    eprintln!("{text}");
}
