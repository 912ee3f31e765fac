//! What tests of several crates share: programs that may be missing, and servers of others.

mod programs;
mod redis;
mod rng;

pub use programs::{has, installed, skip};
pub use redis::RedisServer;
pub use rng::Rng;
