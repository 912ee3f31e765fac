//! `cargo xtask deb`: the Debian package, with man pages and completions, which the binary itself writes.

use std::path::Path;
use std::process::Command;

use crate::run::{self, FEATURES, Failure, Outcome, cargo};
use crate::say;

const CARGO_DEB: &str = "3.8.0";

/// The completion scripts, and the names that shells look for.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "lately"), ("fish", "lately.fish"), ("zsh", "_lately")];

pub(crate) fn run(root: &Path) -> Outcome {
    let cargo_deb = root.join("target/tools/bin/cargo-deb");
    if !cargo_deb.is_file() {
        say::step("deb: installing cargo-deb (some minutes)");
        let mut command = cargo(root);
        command.args(["install", "cargo-deb", "--locked", "--version", CARGO_DEB, "--no-default-features"]);
        run::run(command.arg("--root").arg(root.join("target/tools")), "deb: installing cargo-deb")?;
    }
    say::step("deb: build");
    let mut build = cargo(root);
    build.args(["build", "--locked", "--package", "lately-cli", "--features", FEATURES, "--release"]);
    run::run(&mut build, "deb: build")?;
    let release = root.join("target/release");
    document(&release.join("lately"), &release.join("package-files"))?;
    say::step("deb: package");
    let mut package = Command::new(cargo_deb);
    package.current_dir(root).args(["--package", "lately-cli", "--no-build", "--strip", "--locked"]);
    run::run(&mut package, "deb: package")
}

/// Has the binary write its man pages and completions into `folder`.
fn document(binary: &Path, folder: &Path) -> Outcome {
    let man = folder.join("man");
    let failed =
        |path: &Path, error: std::io::Error| Failure::new(format!("deb: {}: {error}", path.display()));
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|error| failed(folder, error))?;
    }
    std::fs::create_dir_all(&man).map_err(|error| failed(&man, error))?;
    run::run(Command::new(binary).arg("man").arg(&man), "deb: man pages")?;
    let mut pages = Vec::new();
    for page in std::fs::read_dir(&man).map_err(|error| failed(&man, error))? {
        pages.push(page.map_err(|error| failed(&man, error))?.path());
    }
    run::run(Command::new("gzip").args(["-9", "--no-name"]).args(pages), "deb: gzip")?;
    for (shell, name) in COMPLETIONS {
        let script = run::output(Command::new(binary).args(["completions", shell]), "deb: completions")?;
        let path = folder.join(name);
        std::fs::write(&path, script).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}
