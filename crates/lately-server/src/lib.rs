//! The lately server: listeners over a synchronous service.
//!
//! [`Server`] binds the listeners of a [`Config`] and runs until it is told to stop. Inside, the
//! [`Service`] is plain synchronous code: listeners bring it bytes and take its replies.

mod clock;
pub mod config;
pub mod limits;
mod protocol;
mod reload;
mod server;
mod service;
mod stopper;
mod storage;
mod watch;

pub use config::{Config, ConfigError, Storage};
pub use reload::Reloader;
pub use server::{Server, ServerError, check_addresses};
pub use service::Service;
pub use stopper::Stopper;
pub use storage::{Dumped, OfflineError, Restored, dump_folder, restore_folder};

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The header of an HTTP request that says which server it is for: the `run_id` of `INFO`.
pub const RUN_ID_HEADER: &str = "lately-run-id";

/// The version of Redis that clients are told: they choose by it what to send.
pub const REDIS_VERSION: &str = "7.2.0";
