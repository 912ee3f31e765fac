//! What xtask tells the person who ran it: on standard error, so that it stays in order with cargo's own words.

use crate::run::Failure;

/// Announces a step.
pub(crate) fn step(what: &str) {
    line(&format!("==> {what}"));
}

/// Says what has passed.
pub(crate) fn passed(what: &str) {
    line(&format!("xtask: passed: {what}"));
}

/// Says why the verb failed.
pub(crate) fn failure(failure: &Failure) {
    line(&format!("xtask: failed: {failure}"));
}

#[expect(clippy::print_stderr, reason = "the one place where xtask prints")]
fn line(text: &str) {
    eprintln!("{text}");
}
