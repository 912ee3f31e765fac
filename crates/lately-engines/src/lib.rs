//! Engines carry counts between nodes.
//!
//! A node sends absolute counts, and reads the counts of others. So an engine needs no transactions: a write that is
//! repeated, late, or applied although it was reported as failed changes nothing. Nodes do not rely on an engine to
//! keep counts: they send their own counts again after a loss.

mod calls;
mod engine;
mod error;
mod kafka;
mod layout;
mod limits;
mod member_text;
mod memory;
mod node_listener;
mod noted;
mod numbers;
mod pause;
mod peers;
mod postgres;
mod redis;
mod remote;
mod url;

pub use calls::{NodeMethods, NodeResponse, answer_node, call_node, connect_node, reason, serve_nodes};
pub use engine::{
    Away, Block, Engine, KeyText, Known, List, NamedTexts, OwnedBlock, Place, Server, Told, VisitRecords,
    Write,
};
pub use error::EngineError;
pub use kafka::{
    Classes, Delivered, Delivery, GroupProtocol, HitGate, HitRecord, HitRecords, KafkaConfig, KafkaRole,
    KafkaStats, KafkaTopic, WriteHits, check_brokers, is_kafka,
};
#[cfg(feature = "kafka")]
pub use kafka::{Kafka, KafkaHits, broker_settings, compact_hit};
pub use member_text::MemberText;
pub use memory::Memory;
pub use node_listener::{NodeBody, NodeRoom};
pub use peers::{
    KeepChildren, OnChange, PeerAnswer, PeerLink, PeerNeighbour, PeerNetwork, PeerReport, PeerRole,
    PeerStats, PeerTls, PeerTlsError, PeerTraffic, Peers, PeersConfig, Resolve, Resolving,
};
pub use postgres::Postgres;
pub use redis::Redis;
pub use remote::Remote;
pub use url::without_password;
