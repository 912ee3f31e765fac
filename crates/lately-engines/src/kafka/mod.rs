//! Kafka: nodes count the records of a topic together, and tell each other their counts through another one.
//!
//! Each node has all counts in memory (`state.rs`, `counts.rs`), as far as it has read the state topic (`follower.rs`). What it counts itself
//! it writes there (`producer.rs`). The members of a consumer group share the partitions of the hits topic (`ingest.rs`). `partition.rs` says
//! where the next owner of a partition goes on, and why no record counts twice, `ids.rs` which hits were sent again. `hit.rs` reads a record of the hits topic,
//! `state_record.rs` those of the state topic, `key_texts.rs` has the texts about keys. `hits_producer.rs` writes hits of clients to the hits
//! topic (`hit_writer.rs`).
//!
//! The library for Kafka is written in C, so all but the config is behind a feature.

mod address;
#[cfg(feature = "kafka")]
mod client;
mod config;
#[cfg(feature = "kafka")]
mod counts;
#[cfg(feature = "kafka")]
mod dead_letter;
#[cfg(feature = "kafka")]
mod engine;
#[cfg(feature = "kafka")]
mod follower;
#[cfg(feature = "kafka")]
mod gathered;
#[cfg(feature = "kafka")]
mod hit;
mod hit_writer;
#[cfg(feature = "kafka")]
mod hits_producer;
#[cfg(feature = "kafka")]
mod ids;
#[cfg(feature = "kafka")]
mod ingest;
#[cfg(feature = "kafka")]
mod key_texts;
#[cfg(feature = "kafka")]
mod numbers;
#[cfg(feature = "kafka")]
mod partition;
#[cfg(feature = "kafka")]
mod producer;
#[cfg(feature = "kafka")]
mod record_members;
#[cfg(all(test, feature = "kafka"))]
mod simulation;
#[cfg(feature = "kafka")]
mod state;
#[cfg(feature = "kafka")]
mod state_record;
mod stats;
#[cfg(feature = "kafka")]
mod topics;

use crate::EngineError;
use crate::url::{Parts, without_password};

pub use config::{Classes, GroupProtocol, KafkaConfig, KafkaRole, KafkaTopic};
#[cfg(feature = "kafka")]
pub use engine::Kafka;
#[cfg(feature = "kafka")]
pub use hit::compact_hit;
pub use hit_writer::{Delivered, Delivery, HitGate, HitRecord, HitRecords, WriteHits};
#[cfg(feature = "kafka")]
pub use hits_producer::KafkaHits;
pub use stats::KafkaStats;

/// Whether an address is one of a broker of Kafka, by its scheme.
#[must_use]
pub fn is_kafka(url: &str) -> bool {
    address::is_kafka(Parts::of(url).scheme)
}

/// The settings of a client of these brokers, such as `kafka://127.0.0.1:9092`: their addresses, the login and TLS, by the names that
/// librdkafka has for them.
///
/// # Errors
/// [`EngineError::Url`]: an address is invalid.
#[cfg(feature = "kafka")]
pub fn broker_settings<U: AsRef<str>>(urls: &[U]) -> Result<Vec<(String, String)>, EngineError> {
    let brokers = address::Brokers::of(urls)?;
    Ok(brokers.settings().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// Checks addresses of brokers, such as `kafka://127.0.0.1:9092`.
///
/// # Errors
/// [`EngineError::Url`]: one is invalid, or this build has no Kafka.
pub fn check_brokers<U: AsRef<str>>(urls: &[U]) -> Result<(), EngineError> {
    address::Brokers::of(urls)?;
    if cfg!(feature = "kafka") {
        return Ok(());
    }
    let url = urls.first().map_or_else(String::new, |url| without_password(url.as_ref()));
    let why = "this build is without Kafka: use a package, or build with --features kafka".to_owned();
    Err(EngineError::Url { url, why })
}
