//! Installs the programs that tests need: those of Redis, and clients in Python and Node.
//!
//! Everything but Debian packages lands in `target/clients`, so nothing of the user's is touched and `cargo clean`
//! removes it. Each part has a stamp with all that it was made from; while that is unchanged, it is left alone.

mod apt;
mod node;
mod python;
mod redis;
mod stamp;

use std::path::{Path, PathBuf};

use crate::run::{Failure, Outcome, find};

/// Where the installed clients are.
pub(crate) struct Clients {
    /// To be put in front of PATH: holds `redis-server` where the system has none under that name.
    pub(crate) programs: PathBuf,
    /// A Python that can import redis-py.
    pub(crate) python: PathBuf,
    /// A Node that the clients run on.
    pub(crate) node: PathBuf,
    /// The folder that holds ioredis and node-redis.
    pub(crate) node_modules: PathBuf,
}

impl Clients {
    pub(crate) fn install(root: &Path) -> Outcome<Self> {
        let manifests = root.join("xtask/clients");
        let folder = root.join("target/clients");
        let programs = install_programs(root)?;
        let python = python::install(&manifests, &folder)?;
        let node = node::install(&manifests, &folder, &python)?;
        Ok(Self { programs, python, node: node.program, node_modules: node.modules })
    }
}

/// Installs Debian packages that are missing; gives the folder to be put in front of PATH.
pub(crate) fn install_programs(root: &Path) -> Outcome<PathBuf> {
    let programs = root.join("target/clients/bin");
    create(&programs)?;
    apt::install_missing()?;
    redis::link_server(&programs)?;
    Ok(programs)
}

/// Installs what is called `protoc` on the PATH, with which programs that speak gRPC are built.
pub(crate) fn install_protoc() -> Outcome {
    let missing = find("protoc").is_none();
    apt::install_packages(if missing { &["protobuf-compiler"] } else { &[] })
}

/// Installs the rival of `lately count` that is a Debian package.
pub(crate) fn install_goaccess() -> Outcome {
    let missing = find("goaccess").is_none();
    apt::install_packages(if missing { &["goaccess"] } else { &[] })
}

fn create(folder: &Path) -> Outcome {
    std::fs::create_dir_all(folder).map_err(|error| at(folder, &error))
}

/// Empties `folder`, its stamp included: what fails halfway is not taken for complete.
fn remade(folder: &Path) -> Outcome {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|error| at(folder, &error))?;
    }
    create(folder)
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| at(path, &error))
}

fn at(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("test: {}: {error}", path.display()))
}
