//! What a node needs to know to count through Kafka.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use lately::{Clock, HitError, Settings};

use crate::limits::MAX_KAFKA_TOPIC_BYTES;

use super::hit_writer::HitGate;
use super::stats::KafkaStats;

/// What a node does with the topics.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum KafkaRole {
    /// It counts records of the hits topic, and answers.
    #[default]
    Both,
    /// It answers only.
    Serve,
    /// It counts records of the hits topic only. It knows the counts of the partitions that it has, and no others.
    Ingest,
    /// It writes the hits of its clients to the hits topic, and answers.
    Produce,
}

impl KafkaRole {
    /// Whether it counts records of the hits topic.
    #[must_use]
    pub fn counts(self) -> bool {
        matches!(self, KafkaRole::Both | KafkaRole::Ingest)
    }

    /// Whether clients may ask it for limits.
    #[must_use]
    pub fn decides_limits(self) -> bool {
        matches!(self, KafkaRole::Both | KafkaRole::Serve)
    }

    /// Its name in a config.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KafkaRole::Both => "both",
            KafkaRole::Serve => "serve",
            KafkaRole::Ingest => "ingest",
            KafkaRole::Produce => "produce",
        }
    }
}

/// How members of the consumer group find out who has which partition.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum GroupProtocol {
    /// The members agree among themselves.
    #[default]
    Classic,
    /// The brokers decide (KIP-848, Kafka 4).
    Consumer,
}

/// The classes of keys.
pub trait Classes: Send + Sync {
    /// Calls back with the class of a key.
    fn with(&self, key: &[u8], call: &mut dyn FnMut(&Settings));

    /// Why records may not have a key.
    fn refusal(&self, _key: &[u8]) -> Option<HitError> {
        None
    }

    /// The keys that count hits of a key, too, each with the hits that it counts. All nodes that count have the same.
    fn totals(&self, _key: &[u8], _hits: u64) -> Vec<(Box<[u8]>, u64)> {
        Vec::new()
    }
}

/// The part of a config that is about topics and the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KafkaTopic {
    /// The topic with the hits.
    pub topic: String,
    /// The consumer group.
    pub group: String,
    /// What this node does.
    pub role: KafkaRole,
    /// How the group works.
    pub protocol: GroupProtocol,
    /// A member of the group that is silent for this long loses its partitions.
    pub session: Duration,
}

/// What a node needs to count through Kafka.
pub struct KafkaConfig {
    /// Addresses of brokers, such as `kafka://127.0.0.1:9092`.
    pub urls: Vec<String>,
    /// The topic and the group.
    pub topic: KafkaTopic,
    /// How long records are gathered before their counts are written.
    pub flush: Duration,
    /// How long counts are kept at least.
    pub keep: Duration,
    /// The memory that the counts of all nodes may take.
    pub most_bytes: usize,
    /// Gets what they take.
    pub held_bytes: Arc<AtomicUsize>,
    /// Gets numbers about the records.
    pub stats: Arc<KafkaStats>,
    /// The classes of keys.
    pub classes: Arc<dyn Classes>,
    /// Opened once the topic of hits is found.
    pub gate: Arc<HitGate>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl KafkaTopic {
    /// Checks the names.
    ///
    /// # Errors
    /// Why one is invalid.
    pub fn check(&self) -> Result<(), String> {
        KafkaTopic::check_name("topic", &self.topic)?;
        KafkaTopic::check_name("group", &self.group)
    }

    /// Checks the name of a topic or a group.
    ///
    /// # Errors
    /// Why it is invalid.
    pub fn check_name(what: &str, name: &str) -> Result<(), String> {
        let is_name = (1..=MAX_KAFKA_TOPIC_BYTES).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if is_name {
            return Ok(());
        }
        Err(format!(
            "invalid {what} '{}': give 1 to {MAX_KAFKA_TOPIC_BYTES} letters, digits, dots, - or _, such as lately-hits",
            name.escape_debug()
        ))
    }

    /// The name under which its hits are counted.
    pub(super) fn origin(&self) -> String {
        self.topic.replace('.', "_")
    }

    /// Whether a node may have this name: the hits of the topic are counted under its own.
    #[must_use]
    pub fn may_be(&self, node: &str) -> bool {
        node != self.origin()
    }
}
