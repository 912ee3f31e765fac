//! The seeds that a simulation plays, and what it prints about them. `cargo xtask sim` sets the variables and reads the output.

use std::io::Write;

use lately::{Clock, SystemClock, Timestamp, seconds};

/// The seeds to play: that of `LATELY_SIM_SEED`, new ones for `LATELY_SIM_SECONDS`, or as many as `LATELY_SIM_SEEDS` or else
/// `usual` says, always the same ones.
///
/// # Panics
/// A variable is not a number.
pub fn seeds(usual: u64) -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let clock = SystemClock::new();
    let (first, count, until) = match (number("LATELY_SIM_SEED"), number("LATELY_SIM_SECONDS")) {
        (Some(seed), _) => (seed, 1, Timestamp::MAX),
        (None, Some(time)) => {
            let now = clock.now();
            (now.as_millis().cast_unsigned(), u64::MAX, now.saturating_add(seconds(time)))
        }
        (None, None) => (0, number("LATELY_SIM_SEEDS").unwrap_or(usual), Timestamp::MAX),
    };
    (0..count).take_while(move |_| clock.now() < until).map(move |played| first + played)
}

/// Prints the seed when it is dropped by a panic.
#[derive(Debug)]
pub struct ReportOnPanic(pub u64);

impl Drop for ReportOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_uncaptured(&format!("seed {}", self.0));
        }
    }
}

/// Writes a line to standard output, even if the output of tests is captured.
pub fn print_uncaptured(line: &str) {
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}

/// Writes a line to standard error if `LATELY_SIM_TRACE` is set.
pub fn trace(line: impl FnOnce() -> String) {
    if std::env::var_os("LATELY_SIM_TRACE").is_some() {
        let _ = std::io::stderr().write_all((line() + "\n").as_bytes());
    }
}
