//! `cargo xtask fuzz`: runs the fuzz targets, each for a while.
//!
//! Without a sanitizer, which the stable compiler does not support. There is hardly any unsafe code for one
//! to check, and without it several times as many inputs run. So neither nightly nor RUSTC_BOOTSTRAP is
//! needed.

use std::path::Path;

use clap::Args;

use crate::run::{self, Failure, Outcome, path_with};
use crate::say;

const CARGO_FUZZ: &str = "0.13.2";

/// Long inputs earlier than by default: short ones do not get past the header of a trace.
const LIBFUZZER: [&str; 2] = ["-len_control=4", "-max_len=1024"];

/// The targets, and for how long.
#[derive(Args)]
pub(crate) struct Options {
    /// One target; without it, all
    target: Option<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

pub(crate) fn run(root: &Path, options: &Options) -> Outcome {
    let chosen = choose(&targets(root)?, options.target.as_deref())?;
    let path = install(root)?;
    for target in &chosen {
        say::step(&format!("fuzz: {target} for {} s", options.seconds));
        let mut command = run::cargo(root);
        command.args(["fuzz", "run", "--sanitizer", "none", target, "--"]);
        command.args(LIBFUZZER).arg(format!("-max_total_time={}", options.seconds));
        run::run(command.env("PATH", &path), &format!("fuzz: {target}"))?;
    }
    say::passed(&format!("fuzz: {}", chosen.join(", ")));
    Ok(())
}

/// The names of `fuzz/fuzz_targets/*.rs`, in order.
fn targets(root: &Path) -> Outcome<Vec<String>> {
    let Ok(entries) = std::fs::read_dir(root.join("fuzz/fuzz_targets")) else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| Failure::new(format!("fuzz/fuzz_targets: {error}")))?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
        }
    }
    names.sort();
    Ok(names)
}

fn choose(names: &[String], wanted: Option<&str>) -> Outcome<Vec<String>> {
    if names.is_empty() {
        return Err(Failure::new(
            "fuzz: there are no targets; one would be a file fuzz/fuzz_targets/NAME.rs",
        ));
    }
    match wanted {
        None => Ok(names.to_vec()),
        Some(name) if names.iter().any(|known| known == name) => Ok(vec![name.to_owned()]),
        Some(name) => Err(Failure::new(format!("fuzz: no target `{name}`; there are: {}", names.join(", ")))),
    }
}

/// The PATH on which cargo finds cargo-fuzz, which is installed into `target/tools` when it is missing.
fn install(root: &Path) -> Outcome<std::ffi::OsString> {
    let tools = root.join("target/tools");
    if run::find("cargo-fuzz").is_none() && !tools.join("bin/cargo-fuzz").is_file() {
        say::step("fuzz: installing cargo-fuzz (some minutes)");
        let mut command = run::cargo(root);
        command.args(["install", "cargo-fuzz", "--locked", "--version", CARGO_FUZZ, "--root"]).arg(&tools);
        run::run(&mut command, "fuzz: installing cargo-fuzz")?;
    }
    path_with(&tools.join("bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_rust_files_in_order() {
        let root = tempfile::tempdir().unwrap();
        assert!(targets(root.path()).ok().unwrap().is_empty());
        let folder = root.path().join("fuzz/fuzz_targets");
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["resp.rs", "clock.rs", "notes.md"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(targets(root.path()).ok().unwrap(), ["clock", "resp"]);
    }

    #[test]
    fn an_unknown_target_is_answered_with_the_known_ones() {
        let names = ["clock".to_owned(), "resp".to_owned()];
        assert_eq!(choose(&names, None).ok().unwrap(), names);
        assert_eq!(choose(&names, Some("resp")).ok().unwrap(), ["resp"]);
        let failure = choose(&names, Some("rasp")).err().unwrap().to_string();
        assert_eq!(failure, "fuzz: no target `rasp`; there are: clock, resp");
        assert!(choose(&[], None).err().unwrap().to_string().contains("there are no targets"));
    }
}
