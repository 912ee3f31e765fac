//! What tests of several crates share: programs that may be missing, servers of others, and random numbers.

mod certificates;
mod objects;
mod postgres;
mod programs;
mod ratelimit;
mod redis;
mod rng;
mod seeds;
mod tansu;
mod wait;

pub use certificates::Certificates;
pub use postgres::{PostgresPooler, PostgresPrograms, PostgresServer};
pub use programs::{has, installed, skip};
pub use ratelimit::{Choices, ModelDescriptor, ModelEntries, ModelFound, ModelRule, model_file, model_find};
pub use redis::{RedisCluster, RedisProgram, RedisSentinel, RedisServer};
pub use rng::Rng;
pub use seeds::{ReportOnPanic, print_uncaptured, seeds, trace};
pub use tansu::Tansu;
pub use wait::until;
