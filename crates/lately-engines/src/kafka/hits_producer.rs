//! The producer of hits.

use std::sync::{Arc, Mutex, PoisonError};

use super::address::Brokers;
use super::hit::compact_hits;
use super::hit_writer::{Delivery, HitGate, HitRecord, HitRecords, WriteHits};
use super::producer::{Outgoing, Producer};
use super::stats::KafkaStats;
use crate::EngineError;
use crate::limits::KAFKA_QUEUE_RECORDS;

/// Writes hits of clients to the hits topic.
pub struct KafkaHits {
    brokers: Brokers,
    topic: Arc<str>,
    gate: Arc<HitGate>,
    stats: Arc<KafkaStats>,
    producers: Mutex<Producers>,
}

#[derive(Default)]
struct Producers {
    current: Option<Producer>,
    /// Those that write nothing more, until they have reported what became of their records.
    ended: Vec<Producer>,
}

impl KafkaHits {
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// [`EngineError::Url`]: an address is invalid.
    pub fn new(
        urls: &[String],
        topic: &str,
        gate: Arc<HitGate>,
        stats: Arc<KafkaStats>,
    ) -> Result<KafkaHits, EngineError> {
        let brokers = Brokers::of(urls)?;
        Ok(KafkaHits { brokers, topic: topic.into(), gate, stats, producers: Mutex::default() })
    }

    fn record(&self, record: HitRecord<'_>, now_ms: i64) -> Outgoing {
        Outgoing {
            topic: Arc::clone(&self.topic),
            partition: None,
            key: record.key.to_vec(),
            value: Some(compact_hits(&record)),
            time_ms: Some(now_ms),
            headers: Vec::new(),
        }
    }
}

impl WriteHits for KafkaHits {
    fn write(
        &self,
        records: &HitRecords,
        now: lately::Timestamp,
        delivery: &Arc<Delivery>,
    ) -> Result<(), String> {
        if !self.gate.is_open() {
            return Err(format!("the topic '{}' is not found yet", self.topic));
        }
        let outgoing: Vec<Outgoing> =
            records.iter().map(|record| self.record(record, now.as_millis())).collect();
        let mut producers = self.producers.lock().unwrap_or_else(PoisonError::into_inner);
        producers.ended.retain(|producer| producer.waiting() > 0);
        if let Some(broken) = producers.current.take_if(|producer| producer.is_broken()) {
            producers.ended.push(broken);
        }
        let producer = match &mut producers.current {
            Some(producer) => producer,
            none => none.insert(Producer::of_hits(&self.brokers).map_err(|error| error.to_string())?),
        };
        let waiting = producer.waiting();
        if waiting + outgoing.len() > KAFKA_QUEUE_RECORDS {
            return Err(format!("{waiting} others wait for the brokers already"));
        }
        self.stats.note_written(outgoing.len());
        producer.post(&outgoing, delivery);
        Ok(())
    }
}
