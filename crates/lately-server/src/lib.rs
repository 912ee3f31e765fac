//! The lately server: listeners over a synchronous service.
//!
//! [`Server`] binds the listeners of a [`Config`] and serves until it is stopped. Its core, [`Service`], is synchronous
//! and knows no protocol.

mod clock;
mod cluster;
pub mod config;
pub mod limits;
mod protocol;
mod reload;
mod server;
mod service;
mod stopper;
mod storage;
mod watch;

pub use cluster::ClusterConfig;
pub use config::{Config, ConfigError, Storage};
pub use reload::Reloader;
pub use server::{Server, ServerError, check_addresses};
pub use service::Service;
pub use stopper::Stopper;
pub use storage::{Dumped, OfflineError, Restored, dump_folder, restore_folder};

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The HTTP header that names the server a request is for, by the `run_id` of `INFO`.
pub const RUN_ID_HEADER: &str = "lately-run-id";

/// The Redis version that `HELLO` and `INFO` report. Clients choose their commands by it.
pub const REDIS_VERSION: &str = "7.2.0";
