//! `cargo xtask bench`: measures Lately and its rivals, and fails when a figure misses its bound.

use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::clients;
use crate::compare;
use crate::run::{self, Failure, Outcome, cargo, path_with};
use crate::say;

/// The exit code of lately-bench when a figure misses its bound.
const MISSED: i32 = 1;

/// The rival that is a program without a Debian package. Its version is that of the library in lately-bench.
const RIVAL: &str = "throttlecrab-server";
const RIVAL_VERSION: &str = "0.4.40";

/// Where the full run writes all its rows; `cargo xtask figures` fills the tables of other documents from it.
pub(crate) const DOCUMENT: &str = "docs/benchmarks.json";

const HELP: &str = "\
Installs Redis's own programs where they are missing, as test does; a run that is not quick installs throttlecrab-server
into target/rivals, too, and goes on without it where it cannot be had.
A full run takes half an hour and writes docs/benchmarks.json; `cargo xtask figures` then fills the tables of
other documents. Let nothing else run meanwhile.
Exit code 0: every figure is what it must be. 1: one is not, or there was an error. It prints which.";

/// How much to measure.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Run three short rounds of the figures with a bound, in under four minutes; write no document
    #[arg(long)]
    quick: bool,
    /// Run only the sections whose name contains this, such as library, memory, server/growth; write no document
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Compare with this revision instead, with the same loads in turns, in a quarter of an hour; fail when a figure is
    /// more than 10 % worse
    #[arg(long, value_name = "REV")]
    compare: Option<String>,
}

pub(crate) fn run(root: &Path, options: &Options) -> Outcome {
    if let Some(revision) = &options.compare {
        return compare::run(root, revision, options);
    }
    let programs = clients::install_programs(root)?;
    if !options.quick
        && let Err(failure) = install_rival(root)
    {
        say::step(&format!("{failure}; goes on without it"));
    }
    if !options.quick
        && let Err(failure) = clients::install_goaccess()
    {
        say::step(&format!("{failure}; goes on without it"));
    }
    say::step("bench: building");
    // Built separately: together, the server would get the features that rivals enable in shared dependencies.
    for package in ["lately-cli", "lately-bench"] {
        run::run(
            cargo(root).args(["build", "--release", "--locked", "--package", package]),
            "bench: building",
        )?;
    }
    say::step("bench: measuring");
    let mut command = program(root, &programs)?;
    command.args(words(options));
    let status = run::status(&mut command, "bench")?;
    if !status.success() {
        return Err(Failure::new(match status.code() {
            Some(MISSED) => "bench: not every figure is what it must be; those that are not are listed above",
            _ => "bench: no figures; the reason is above",
        }));
    }
    say::passed("bench");
    Ok(())
}

/// The benchmark, built, with the rivals' programs on its PATH.
pub(crate) fn program(root: &Path, programs: &Path) -> Outcome<Command> {
    let mut command = cargo(root);
    command
        .args(["run", "--release", "--locked", "--quiet", "--package", "lately-bench", "--"])
        .env("PATH", path_with(programs)?);
    Ok(command)
}

/// Installs the rival's program, unless it is installed. Most of the run does not need it.
fn install_rival(root: &Path) -> Outcome {
    let rivals = root.join("target/rivals");
    if run::find(RIVAL).is_some() || rivals.join("bin").join(RIVAL).is_file() {
        return Ok(());
    }
    say::step(&format!("bench: installing {RIVAL} (a minute or two)"));
    clients::install_protoc()?;
    let mut command = cargo(root);
    command.args(["install", RIVAL, "--locked", "--version", RIVAL_VERSION, "--root"]).arg(&rivals);
    run::run(&mut command, &format!("bench: installing {RIVAL}"))
}

impl Options {
    /// The options of lately-bench for how much to measure.
    pub(crate) fn words(&self) -> Vec<&str> {
        let only = self.only.iter().flat_map(|only| ["--only", only]);
        self.quick.then_some("--quick").into_iter().chain(only).collect()
    }
}

/// The options of lately-bench. A full run of everything writes the document.
fn words(options: &Options) -> Vec<&str> {
    let mut words = options.words();
    if words.is_empty() {
        words.extend(["--write", DOCUMENT]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_run_of_everything_is_written_down() {
        let check = |quick: bool, only: Option<&str>, expected: &str| {
            let options = Options { quick, only: only.map(str::to_owned), compare: None };
            assert_eq!(words(&options).join(" "), expected);
        };
        check(false, None, "--write docs/benchmarks.json");
        check(true, None, "--quick");
        check(false, Some("memory"), "--only memory");
        check(true, Some("memory"), "--quick --only memory");
    }
}
