//! Waiting for something that another process does.

use std::time::{Duration, Instant};

/// The longest that a test waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until something is so.
///
/// # Panics
/// It is not so after a minute.
#[expect(clippy::disallowed_methods, reason = "the longest that a test may take is no time of the product")]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not after a minute: {what}");
        // Others need the processor to make it so.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
