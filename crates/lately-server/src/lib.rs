//! The lately server: listeners over a synchronous service.
//!
//! [`Server`] binds the listeners of a [`Config`] and serves until it is stopped. Its core, [`Service`], is synchronous
//! and knows no protocol.

mod alerting;
pub mod alerts;
mod client;
mod clock;
pub mod config;
#[cfg(fuzzing)]
pub mod fuzzing;
mod history;
mod json;
pub mod limits;
mod log;
mod offline;
mod otlp;
mod pause;
mod protocol;
mod reload;
mod rule_reload;
mod server;
mod service;
mod stopper;
mod tls;
mod watch;

pub use config::{ClusterConfig, Config, ConfigError, PeerConfig, Storage};
pub use lately_engines::PeerTls;
#[cfg(feature = "kafka")]
pub use lately_engines::{KafkaTopic, broker_settings, compact_hit, without_password};
pub use offline::{Dumped, OfflineError, dump_folder, restore_folder};
pub use reload::Reloader;
pub use server::{Server, ServerError, check_addresses, check_exact, check_files};
pub use service::Service;
pub use service::cluster::ClusterError;
pub use service::dumps::Restored;
pub use stopper::Stopper;

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The HTTP header that names the server a request is for, by the `run_id` of `INFO`.
pub const RUN_ID_HEADER: &str = "lately-run-id";

/// The Redis version that `HELLO` and `INFO` report. Clients choose their commands by it.
pub const REDIS_VERSION: &str = "7.2.0";
