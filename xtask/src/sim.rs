//! `cargo xtask sim`: lives and ends of the journal on disks that fail, one seed after the other, for a while.
//!
//! A seed that fails is told with the command that plays it again: the same seed is the same life to the byte.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;

use crate::run::{self, Failure, Outcome, cargo};
use crate::say;

const TEST: &str = "simulation::every_end_is_survived";
const SECONDS: &str = "LATELY_SIM_SECONDS";
const SEED: &str = "LATELY_SIM_SEED";

/// Built quickly, for many ends in a second, with all checks.
const PROFILE: [(&str, &str); 6] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "2"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"),
    ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"),
];

/// For how long, or which.
#[derive(Args)]
pub(crate) struct Options {
    /// Seconds for seeds that were not played before
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// One seed, played once; each step is told with LATELY_SIM_TRACE=1
    #[arg(long, conflicts_with = "seconds")]
    seed: Option<u64>,
}

pub(crate) fn run(root: &Path, options: &Options) -> Outcome {
    say::step("sim: building");
    run::run(&mut test(root, &["--no-run"]), "sim: building")?;
    let mut command = test(root, &["--", "--exact", "--nocapture", TEST]);
    match options.seed {
        Some(seed) => {
            say::step(&format!("sim: seed {seed}"));
            command.env_remove(SECONDS).env(SEED, seed.to_string());
        }
        None => {
            say::step(&format!("sim: {} s", options.seconds));
            command.env_remove(SEED).env(SECONDS, options.seconds.to_string());
        }
    }
    // What it traces goes where errors go, as it comes; what it found, to us.
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| Failure::new(format!("sim: cargo did not start: {error}")))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let seed = options.seed.or_else(|| last_seed(&said));
    match (output.status.success(), counted(&said), seed) {
        (true, Some(counted), _) => say::passed(&format!("sim: {counted}")),
        (true, None, _) => return Err(Failure::new(format!("sim: the test {TEST} did not run"))),
        (false, _, Some(seed)) => {
            let again = format!("cargo xtask sim --seed {seed}");
            return Err(Failure::new(format!("sim: seed {seed} failed; `{again}` plays it again")));
        }
        (false, _, None) => return Err(Failure::new(format!("sim: {}", output.status))),
    }
    Ok(())
}

fn test(root: &Path, arguments: &[&str]) -> Command {
    let mut command = cargo(root);
    // A folder of its own, as that of the models.
    command.args(["test", "--quiet", "--release", "--target-dir", "target/sim"]);
    command.args(["--package", "lately-journal", "--test", "it"]).args(arguments).envs(PROFILE);
    command
}

/// What the test says of how many seeds and ends there were.
fn counted(said: &str) -> Option<&str> {
    said.lines().find(|line| line.ends_with(" ends"))
}

/// The seed that was begun last.
fn last_seed(said: &str) -> Option<u64> {
    said.lines().rev().find_map(|line| line.strip_prefix("seed ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_test_says_is_understood() {
        let said = "\nrunning 1 test\nseed 7\nseed 18446744073709551615\n";
        assert_eq!(last_seed(said), Some(u64::MAX));
        assert_eq!(counted(said), None);
        assert_eq!(counted("\n2 seeds, 16 ends\n.\n"), Some("2 seeds, 16 ends"));
        assert_eq!(last_seed(""), None);
    }
}
