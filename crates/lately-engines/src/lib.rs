//! Engines: what carries counts from node to node.
//!
//! A node sends absolute counts, and reads what others sent. So an engine needs no transactions: a write that is repeated,
//! late, or applied although it was reported as failed changes nothing. No engine is trusted to keep anything: nodes send
//! again what they own.

mod engine;
mod error;
mod layout;
mod limits;
mod memory;
mod redis;

pub use engine::{Block, Engine, Known, Told, Write};
pub use error::EngineError;
pub use memory::Memory;
pub use redis::{Redis, without_password};
