//! The lately server: listeners over a synchronous engine.
//!
//! [`Server`] binds the listeners of a [`Config`] and runs until it is told to stop. Inside, the
//! [`Engine`] is plain synchronous code: listeners bring it bytes and take its replies.

mod clients;
mod clock;
mod commit;
pub mod config;
mod engine;
mod fragmentation;
pub mod limits;
mod listener;
mod metrics;
mod offline;
mod process;
mod reload;
mod rules;
mod server;
mod service;
mod session;
mod spool_file;
mod stopper;
mod storage;
mod taps;
mod throughput;
mod transfer;
mod watch;

pub use config::{Config, ConfigError};
pub use engine::Engine;
pub use offline::{Dumped, OfflineError, dump_folder, restore_folder};
pub use reload::Reloader;
pub use server::{Server, ServerError, check_addresses};
pub use stopper::Stopper;
pub use storage::Storage;
pub use transfer::Restored;

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The header of an HTTP request that says which server it is for: the `run_id` of `INFO`.
pub const RUN_ID_HEADER: &str = "lately-run-id";

/// The version of Redis that clients are told: they choose by it what to send.
pub const REDIS_VERSION: &str = "7.2.0";
