//! Writing records, and waiting until the brokers have them.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use tokio::time::timeout;

use crate::EngineError;
use crate::limits::{KAFKA_AT_ONCE, KAFKA_DELIVERY, KAFKA_QUEUE_KBYTES, KAFKA_QUEUE_RECORDS};

use super::address::Brokers;
use super::client::{Failure, settings};
use super::hit_writer::Delivery;

/// A record that is written.
pub(super) struct Outgoing {
    pub(super) topic: Arc<str>,
    /// `None`: the brokers' usual choice by the key.
    pub(super) partition: Option<i32>,
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) time_ms: Option<i64>,
    pub(super) headers: Vec<(&'static str, String)>,
}

impl Outgoing {
    /// The bytes of its key and its value.
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// Writes records. Each is in the topic once, and those of a partition are there in order.
pub(super) struct Producer {
    writer: u64,
    producer: ThreadedProducer<Context>,
    failure: Failure,
    is_broken: Arc<AtomicBool>,
    has_refused: Arc<AtomicBool>,
}

struct Context {
    failure: Failure,
    is_broken: Arc<AtomicBool>,
    has_refused: Arc<AtomicBool>,
    places: Mutex<Places>,
}

/// For each partition of a topic, the next place of records that are not certain. A broker that was sent a batch again may say that it had
/// it already, and not where: it may then lack it, if it was killed between noting the number of the batch and writing it. The library takes
/// that for written, and counts the places of the batch from a number below 0 on.
#[derive(Default)]
struct Places(HashMap<i32, Vec<(String, i64)>>);

impl Places {
    /// Whether a record is in the topic for certain. The records of a batch come one after the other.
    fn is_certain(&mut self, topic: &str, partition: i32, place: i64) -> bool {
        let uncertain = self.0.entry(partition).or_default();
        let known = uncertain.iter().position(|(name, _)| name == topic);
        let is_certain = place >= 0 && known.is_none_or(|index| uncertain[index].1 != place);
        known.into_iter().for_each(|index| _ = uncertain.swap_remove(index));
        if !is_certain {
            uncertain.push((topic.to_owned(), place + 1));
        }
        is_certain
    }
}

/// Whether the brokers take nothing more from a producer after this error.
fn is_final(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::Fatal
                | RDKafkaErrorCode::ProducerFenced
                | RDKafkaErrorCode::Fenced
                | RDKafkaErrorCode::InvalidProducerEpoch
                | RDKafkaErrorCode::InvalidProducerIdMapping
                | RDKafkaErrorCode::OutOfOrderSequenceNumber
                | RDKafkaErrorCode::UnknownProducerId
                | RDKafkaErrorCode::GaplessGuarantee
        )
    )
}

/// Whether the brokers will never take a record, after this error.
fn is_of_record(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::InvalidMessage
                | RDKafkaErrorCode::InvalidMessageSize
                | RDKafkaErrorCode::InvalidRecord
                | RDKafkaErrorCode::InvalidTimestamp
                | RDKafkaErrorCode::MessageSizeTooLarge
                | RDKafkaErrorCode::PolicyViolation
        )
    )
}

impl Context {
    fn note(&self, error: &KafkaError) {
        if is_final(error) {
            self.is_broken.store(true, Relaxed);
        }
        if is_of_record(error) {
            self.has_refused.store(true, Relaxed);
        }
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.failure.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.note(&error);
        self.failure.error(error, reason);
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Arc<Delivery>;

    fn delivery(&self, result: &DeliveryResult<'_>, delivery: Arc<Delivery>) {
        let failed = match result {
            Err((error, _)) => {
                self.note(error);
                Some(error.to_string())
            }
            Ok(record) => {
                let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
                let is_certain = places.is_certain(record.topic(), record.partition(), record.offset());
                drop(places);
                (!is_certain).then(|| {
                    // Another producer begins anew.
                    self.is_broken.store(true, Relaxed);
                    "the brokers say that they have a record, and not where".to_owned()
                })
            }
        };
        delivery.note(failed);
    }
}

impl Producer {
    /// A producer of records of the state topic.
    pub(super) fn new(brokers: &Brokers, writer: u64) -> Result<Producer, EngineError> {
        Producer::with(settings(brokers), writer)
    }

    /// A producer of hits. After a failure it writes nothing more: what follows a record that may be in the topic would be sent in another
    /// series, and could be there twice.
    pub(super) fn of_hits(brokers: &Brokers) -> Result<Producer, EngineError> {
        let mut settings = settings(brokers);
        settings.set("enable.gapless.guarantee", "true");
        // As the Java client: ids of a key are compared within a partition.
        settings.set("partitioner", "murmur2_random");
        settings.set("queue.buffering.max.kbytes", KAFKA_QUEUE_KBYTES.to_string());
        Producer::with(settings, 0)
    }

    fn with(mut settings: ClientConfig, writer: u64) -> Result<Producer, EngineError> {
        let (failure, is_broken, has_refused) = <(Failure, Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        // A record that is sent again by the library must not arrive behind one that replaces it.
        settings.set("enable.idempotence", "true").set("acks", "all");
        settings.set("message.timeout.ms", KAFKA_DELIVERY.as_millis().to_string());
        settings.set("linger.ms", "2").set("compression.type", "lz4");
        settings.set("queue.buffering.max.messages", KAFKA_QUEUE_RECORDS.to_string());
        let context = Context {
            failure: failure.clone(),
            is_broken: Arc::clone(&is_broken),
            has_refused: Arc::clone(&has_refused),
            places: Mutex::default(),
        };
        let producer = settings
            .create_with_context(context)
            .map_err(|error| EngineError::Away(format!("Kafka: {error}")))?;
        Ok(Producer { writer, producer, failure, is_broken, has_refused })
    }

    /// The number under which it writes.
    pub(super) fn writer(&self) -> u64 {
        self.writer
    }

    /// Whether the brokers take nothing more from it.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    /// Whether the brokers have refused a record for what is in it, since this was asked last.
    pub(super) fn take_refused(&self) -> bool {
        self.has_refused.swap(false, Relaxed)
    }

    /// The number of records for which the brokers have not answered.
    pub(super) fn waiting(&self) -> usize {
        usize::try_from(self.producer.in_flight_count()).unwrap_or(0)
    }

    /// Writes records, and does not wait. `delivery` gets the result.
    pub(super) fn post(&self, records: &[Outgoing], delivery: &Arc<Delivery>) {
        let refused = self.give(records, delivery);
        delivery.note(refused);
    }

    /// Writes records, and waits until all brokers that keep them have them, for `wait` at most.
    ///
    /// # Errors
    /// Some may not be written. They may be later, in order.
    pub(super) async fn write(&self, records: &[Outgoing], wait: Duration) -> Result<(), EngineError> {
        if records.is_empty() {
            return Ok(());
        }
        for records in records.chunks(KAFKA_AT_ONCE) {
            self.write_chunk(records, wait).await?;
        }
        self.failure.clear();
        Ok(())
    }

    async fn write_chunk(&self, records: &[Outgoing], wait: Duration) -> Result<(), EngineError> {
        let delivery = Arc::new(Delivery::default());
        let failed = |why: String| {
            let last = self.failure.get().map_or_else(String::new, |last| format!(" ({last})"));
            EngineError::Away(format!("Kafka: {why}{last}"))
        };
        self.post(records, &delivery);
        match timeout(wait, delivery.wait()).await {
            Ok(done) => done.map_err(failed),
            Err(_) => Err(failed(format!("the brokers did not take counts within {} s", wait.as_secs()))),
        }
    }

    /// Gives records to the library. Returns why it did not take one; then those behind it are not given.
    fn give(&self, records: &[Outgoing], delivery: &Arc<Delivery>) -> Option<String> {
        for record in records {
            let mut outgoing =
                BaseRecord::with_opaque_to(&record.topic, Arc::clone(delivery)).key(&record.key);
            outgoing.partition = record.partition;
            outgoing.payload = record.value.as_ref();
            outgoing.timestamp = record.time_ms;
            if !record.headers.is_empty() {
                let headers = record.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                    headers.insert(Header { key, value: Some(value) })
                });
                outgoing = outgoing.headers(headers);
            }
            delivery.add();
            if let Err((error, _)) = self.producer.send(outgoing) {
                self.producer.context().note(&error);
                delivery.remove();
                return Some(error.to_string());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: counts were lost when a broker was killed as it wrote them. Cause: it noted the number of a batch first, and answered a
    /// second attempt that it had the batch. Fix: a record whose place is not known is written again.
    #[test]
    fn a_record_is_certain_if_its_place_is_known() {
        let mut places = Places::default();
        for (topic, partition, place, is_certain) in [
            ("state", 1, 7, true),
            ("state", 1, -1, false),
            ("state", 2, 0, true),
            ("dead", 1, 0, true),
            ("state", 1, 0, false),
            ("state", 1, 1, false),
            ("state", 1, 8, true),
            ("state", 1, 2, true),
            ("state", 1, -1_001, false),
            ("state", 1, -1_000, false),
            ("state", 1, 9, true),
        ] {
            assert_eq!(places.is_certain(topic, partition, place), is_certain, "{topic} {partition} {place}");
        }
    }
}
