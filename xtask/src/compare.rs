//! `cargo xtask bench --compare REV`: builds that revision, too, and measures both in interleaved rounds.
//!
//! Each revision has a folder with two programs: its `lately`, and our `lately-probe`, built with the library
//! of that revision.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::{self, Options};
use crate::clients;
use crate::run::{self, Failure, Outcome, cargo};
use crate::say;

const PROBE: &str = "crates/lately-bench/src/bin/lately-probe.rs";

/// The exit code of lately-bench if a figure is worse.
const WORSE: i32 = 1;

pub(crate) fn run(root: &Path, revision: &str, options: &Options) -> Outcome {
    let programs = clients::install_programs(root)?;
    let commit = commit(root, revision)?;
    let folder = root.join("target/compare");
    say::step(&format!("bench: building {commit}"));
    let tree = check_out(root, &folder, &commit)?;
    let before = build(root, &tree, &folder.join(&commit))?;
    say::step("bench: building what is here");
    let now = build(root, root, &folder.join("here"))?;
    run::run(
        cargo(root).args(["build", "--release", "--locked", "--package", "lately-bench"]),
        "bench: building",
    )?;
    say::step("bench: measuring both in interleaved rounds");
    let mut command = bench::program(root, &programs)?;
    command.args(options.words()).arg("--compare").args([before, now]);
    let status = run::status(&mut command, "bench")?;
    match status.code() {
        Some(0) => {
            say::passed("bench");
            Ok(())
        }
        Some(WORSE) => Err(Failure::new("bench: figures marked WORSE are more than 10 % worse")),
        _ => Err(Failure::new("bench: no figures; the reason is above")),
    }
}

/// The full name of a revision.
fn commit(root: &Path, revision: &str) -> Outcome<String> {
    let mut git = git(root);
    git.args(["rev-parse", "--verify", "--quiet", "--end-of-options"]).arg(format!("{revision}^{{commit}}"));
    let commit = run::output(&mut git, "bench")
        .map_err(|_| Failure::new(format!("bench: {revision} is no revision of this repository")))?;
    Ok(commit.trim().to_owned())
}

/// Checks a commit out into its own folder.
fn check_out(root: &Path, folder: &Path, commit: &str) -> Outcome<PathBuf> {
    let tree = folder.join(commit).join("tree");
    if !tree.join("Cargo.toml").is_file() {
        create(&tree)?;
        let archive = folder.join(commit).join("tree.tar");
        run::run(git(root).args(["archive", "--output"]).arg(&archive).arg(commit), "bench")?;
        run::run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&tree), "bench")?;
    }
    Ok(tree)
}

/// Builds both programs of the sources in `tree`, and returns the folder they are in.
fn build(root: &Path, tree: &Path, folder: &Path) -> Outcome<PathBuf> {
    let programs = folder.join("bin");
    create(&programs)?;
    let build = |manifest: &Path, target: &Path, what: &[&str]| {
        let mut command = cargo(root);
        command.args(["build", "--release", "--manifest-path"]).arg(manifest).args(what);
        run::run(command.arg("--target-dir").arg(target), "bench: building")
    };
    let target = if tree == root { root.join("target") } else { folder.join("target") };
    build(&tree.join("Cargo.toml"), &target, &["--locked", "--package", "lately-cli"])?;
    copy(&target.join("release/lately"), &programs.join("lately"))?;
    let probe = folder.join("probe");
    create(&probe.join("src"))?;
    copy(&root.join(PROBE), &probe.join("src/main.rs"))?;
    let manifest = probe.join("Cargo.toml");
    fs::write(&manifest, manifest_of(tree)).map_err(|error| at(&manifest, &error))?;
    // With the dependency versions of the revision.
    copy(&tree.join("Cargo.lock"), &probe.join("Cargo.lock"))?;
    build(&manifest, &folder.join("target-probe"), &[])?;
    copy(&folder.join("target-probe/release/lately-probe"), &programs.join("lately-probe"))?;
    Ok(programs)
}

/// The manifest of a separate package with the workspace's build settings.
fn manifest_of(tree: &Path) -> String {
    format!(
        "[workspace]\n\n[package]\nname = \"lately-probe\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nlately = {{ path = {:?} }}\n\n[profile.release]\nlto = \"thin\"\ncodegen-units = 4\n",
        tree.join("crates/lately")
    )
}

fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(root);
    command
}

fn create(folder: &Path) -> Outcome {
    fs::create_dir_all(folder).map_err(|error| at(folder, &error))
}

fn copy(from: &Path, to: &Path) -> Outcome {
    fs::copy(from, to).map(|_| ()).map_err(|error| at(from, &error))
}

fn at(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("bench: {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_is_a_package_of_its_own() {
        let manifest = manifest_of(Path::new("/a b"));
        assert!(manifest.contains("lately = { path = \"/a b/crates/lately\" }"), "{manifest}");
    }
}
