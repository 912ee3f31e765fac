//! `cargo xtask sim`: seven simulations on virtual time, one seed after the other, by time or by number.
//!
//! - `journal`: starts and ends of the journal on disks that fail.
//! - `classes`: servers whose classes change from one start to the next, and dumps between them.
//! - `cluster`: nodes that count together over an engine that fails over, is emptied, and loses writes.
//! - `data-centres`: the same with an engine in each of two data centres, and one that both share.
//! - `mesh`: what nodes know of each other's counts, where all reach all, but for cuts.
//! - `tree`: the same in trees of three levels.
//! - `kafka`: nodes that count the records of a partition, which goes from one to the other.
//!
//! A failing seed is reported with the command that repeats it. A run depends on its seed only.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};

use crate::run::{self, Failure, Outcome, cargo};
use crate::say;

const SECONDS: &str = "LATELY_SIM_SECONDS";
const SEEDS: &str = "LATELY_SIM_SEEDS";
const SEED: &str = "LATELY_SIM_SEED";

/// A fast build with all checks, for many runs per second.
const PROFILE: [(&str, &str); 6] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "2"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"),
    ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"),
];

/// What is simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Simulation {
    Journal,
    Classes,
    Cluster,
    DataCentres,
    Mesh,
    Tree,
    Kafka,
}

/// The simulations, and for how long.
#[derive(Args)]
pub(crate) struct Options {
    /// One simulation; without it, all
    simulation: Option<Simulation>,
    /// Seconds for each, on seeds that were not played before [default: 60]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// The number of seeds of each, always the same ones
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// One seed, played once; LATELY_SIM_TRACE=1 prints each step, but not of mesh and kafka
    #[arg(long, conflicts_with_all = ["seconds", "seeds"], requires = "simulation")]
    seed: Option<u64>,
}

impl Simulation {
    fn test(self) -> &'static str {
        match self {
            Simulation::Journal => "simulation::every_kill_and_loss_of_power_is_survived",
            Simulation::Classes => "classes::seeds::answers_are_true_while_classes_change",
            Simulation::Cluster => "service::cluster::simulation::nodes_agree_whatever_goes_wrong",
            Simulation::DataCentres => "service::cluster::simulation::data_centres_agree_whatever_goes_wrong",
            Simulation::Mesh => "peers::simulation::nodes_of_a_mesh_agree_whatever_goes_wrong",
            Simulation::Tree => "peers::tree_simulation::nodes_of_a_tree_agree_whatever_goes_wrong",
            Simulation::Kafka => "kafka::simulation::each_record_counts_once_whatever_happens_to_the_nodes",
        }
    }

    /// The tests that it is one of, for cargo.
    fn target(self) -> &'static [&'static str] {
        match self {
            Simulation::Journal | Simulation::Classes => &["--package", "lately-journal", "--test", "it"],
            Simulation::Cluster | Simulation::DataCentres => &["--package", "lately-server", "--lib"],
            Simulation::Mesh | Simulation::Tree => &["--package", "lately-engines", "--lib"],
            Simulation::Kafka => &["--package", "lately-engines", "--lib", "--features", "kafka"],
        }
    }
}

/// The name on the command line.
impl fmt::Display for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Simulation::Journal => "journal",
            Simulation::Classes => "classes",
            Simulation::Cluster => "cluster",
            Simulation::DataCentres => "data-centres",
            Simulation::Mesh => "mesh",
            Simulation::Tree => "tree",
            Simulation::Kafka => "kafka",
        })
    }
}

pub(crate) fn run(root: &Path, options: &Options) -> Outcome {
    let chosen = options.simulation.as_ref().map_or(Simulation::value_variants(), std::slice::from_ref);
    say::step("sim: building");
    for simulation in chosen {
        run::run(&mut test(root, *simulation, &["--no-run"]), "sim: building")?;
    }
    chosen.iter().try_for_each(|&simulation| play(root, simulation, options))
}

fn play(root: &Path, simulation: Simulation, options: &Options) -> Outcome {
    let mut command = test(root, simulation, &["--", "--exact", "--nocapture", simulation.test()]);
    let (name, value, told) = match (options.seed, options.seeds) {
        (Some(seed), _) => (SEED, seed.to_string(), format!("seed {seed}")),
        (None, Some(seeds)) => (SEEDS, seeds.to_string(), format!("{seeds} seeds")),
        (None, None) => {
            let seconds = options.seconds.unwrap_or(60);
            (SECONDS, seconds.to_string(), format!("{seconds} s"))
        }
    };
    say::step(&format!("sim: {simulation}, {told}"));
    for name in [SEED, SEEDS, SECONDS] {
        command.env_remove(name);
    }
    if name != SEED {
        // A panic is reported with its place. Backtraces of many panics would be slow.
        command.env("RUST_BACKTRACE", "0");
    }
    // Traces go to standard error as they are printed. The result is captured.
    let output = command.env(name, value).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| Failure::new(format!("sim: cargo did not start: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let seed = options.seed.or_else(|| last_seed(&text));
    match (output.status.success(), counted(&text), seed) {
        (true, Some(counted), _) => say::passed(&format!("sim: {simulation}, {counted}")),
        (true, None, _) => {
            return Err(Failure::new(format!("sim: the test {} did not run", simulation.test())));
        }
        (false, _, Some(seed)) => {
            let again = format!("cargo xtask sim {simulation} --seed {seed}");
            return Err(Failure::new(format!("sim: seed {seed} failed; `{again}` plays it again")));
        }
        (false, _, None) => return Err(Failure::new(format!("sim: {simulation}, {}", output.status))),
    }
    Ok(())
}

fn test(root: &Path, simulation: Simulation, arguments: &[&str]) -> Command {
    let mut command = cargo(root);
    // A separate folder, like for the models.
    command.args(["test", "--quiet", "--release", "--target-dir", "target/sim"]);
    command.args(simulation.target()).args(arguments).envs(PROFILE);
    command
}

/// The line in which the test reports its seeds.
fn counted(output: &str) -> Option<&str> {
    let is_count =
        |line: &&str| [" ends", " steps", " cells", " records"].iter().any(|of| line.ends_with(of));
    output.lines().find(is_count)
}

/// The seed that failed: the last that was printed.
fn last_seed(output: &str) -> Option<u64> {
    output.lines().rev().find_map(|line| line.strip_prefix("seed ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_test_is_parsed() {
        let output = "\nrunning 1 test\nseed 7\nseed 18446744073709551615\n";
        assert_eq!(last_seed(output), Some(u64::MAX));
        assert_eq!(counted(output), None);
        assert_eq!(counted("\n2 seeds, 16 ends\n.\n"), Some("2 seeds, 16 ends"));
        assert_eq!(counted("\n3 seeds, 70 steps\n.\n"), Some("3 seeds, 70 steps"));
        assert_eq!(counted("\n3 seeds, 9 cells\n.\n"), Some("3 seeds, 9 cells"));
        assert_eq!(counted("\n3 seeds, 9 records\n.\n"), Some("3 seeds, 9 records"));
        assert_eq!(last_seed(""), None);
    }

    #[test]
    fn simulations_have_the_names_they_are_called_by() {
        for simulation in Simulation::value_variants() {
            let named = Simulation::from_str(&simulation.to_string(), false);
            assert_eq!(named, Ok(*simulation));
        }
    }
}
