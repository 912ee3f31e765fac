//! The engine for Kafka: what it needs of this server.

use std::sync::Arc;
use std::time::Duration;

use lately::{HitError, Settings};
use lately_engines::{Classes, EngineError, Kafka, KafkaConfig, KafkaHits, KafkaTopic, Remote, WriteHits};

use super::Cluster;
use crate::limits::{KAFKA_KEPT_LONGER, MESH_SHARE};
use crate::service::Service;
use crate::service::alerts::{RESERVED, is_total};

/// The classes of a service, and the totals of its alerts.
struct OfService(Arc<Service>);

impl Classes for OfService {
    fn with(&self, key: &[u8], call: &mut dyn FnMut(&Settings)) {
        call(self.0.store.settings_of(key));
    }

    fn refusal(&self, key: &[u8]) -> Option<HitError> {
        is_total(key).then_some(RESERVED)
    }

    fn totals(&self, key: &[u8], hits: u64) -> Vec<(Box<[u8]>, u64)> {
        self.0.alerts.totals_of(key, hits)
    }
}

/// How long the state topic has to keep counts: those of the widest cells are read until these have left the retention as a whole.
fn keep(service: &Service) -> Duration {
    let table = service.store.level_table();
    let of_classes = table.classes().map(|(_, levels)| levels).chain([table.default_levels()]);
    let kept_ms = of_classes.map(|levels| {
        let widest_ms = levels.as_slice().iter().map(|level| level.width_ms).max().unwrap_or(0);
        levels.retain_ms().saturating_add(3 * widest_ms)
    });
    let kept_ms = u64::try_from(kept_ms.max().unwrap_or(0)).unwrap_or(0);
    Duration::from_millis(kept_ms) + KAFKA_KEPT_LONGER
}

/// What writes the hits of clients to the hits topic.
pub(super) fn hit_writer(cluster: &Cluster, kafka: &KafkaTopic) -> Box<dyn WriteHits> {
    let (gate, stats) = (Arc::clone(&cluster.hit_gate), Arc::clone(&cluster.kafka_stats));
    let writer = KafkaHits::new(&cluster.config.urls, &kafka.topic, gate, stats);
    Box::new(writer.expect("the addresses were checked"))
}

/// The engine, which is not connected yet.
///
/// # Errors
/// An address is invalid.
pub(super) fn engine(
    service: &Arc<Service>,
    cluster: &Cluster,
    topic: KafkaTopic,
) -> Result<Remote, EngineError> {
    let kafka = Kafka::new(KafkaConfig {
        urls: cluster.config.urls.clone(),
        topic,
        flush: cluster.config.flush,
        keep: keep(service),
        most_bytes: usize::try_from(service.config.ceiling_bytes / MESH_SHARE).unwrap_or(usize::MAX),
        held_bytes: Arc::clone(&cluster.mesh_bytes),
        stats: Arc::clone(&cluster.kafka_stats),
        gate: Arc::clone(&cluster.hit_gate),
        classes: Arc::new(OfService(Arc::clone(service))),
        clock: Arc::clone(&service.clock),
    })?;
    Ok(Remote::Kafka(Box::new(kafka)))
}
