//! Writing records, and waiting until the brokers have them.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, ProducerContext, ThreadedProducer};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::EngineError;
use crate::limits::{KAFKA_AT_ONCE, KAFKA_DELIVERY};

use super::client::{Failure, settings};

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

/// Writes records. Each is in the topic once, and those of a partition are there in order.
pub(super) struct Producer {
    writer: u64,
    producer: ThreadedProducer<Context>,
    failure: Failure,
    is_broken: Arc<AtomicBool>,
}

struct Context {
    failure: Failure,
    is_broken: Arc<AtomicBool>,
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
        )
    )
}

impl Context {
    fn note(&self, error: &KafkaError) {
        if is_final(error) {
            self.is_broken.store(true, Relaxed);
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
    type DeliveryOpaque = Arc<Batch>;

    fn delivery(&self, result: &DeliveryResult<'_>, batch: Arc<Batch>) {
        let error = result.as_ref().err().map(|(error, _)| error);
        error.into_iter().for_each(|error| self.note(error));
        batch.note(error.map(ToString::to_string));
    }
}

/// Records that were given to the library together.
#[derive(Default)]
struct Batch {
    progress: Mutex<Progress>,
    done: Notify,
}

#[derive(Default)]
struct Progress {
    waiting: usize,
    failure: Option<String>,
}

impl Batch {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, failure: Option<String>) {
        let mut progress = self.lock();
        progress.waiting -= 1;
        progress.failure = progress.failure.take().or(failure);
        if progress.waiting == 0 {
            self.done.notify_waiters();
        }
    }

    async fn wait(&self) -> Result<(), String> {
        loop {
            let mut done = std::pin::pin!(self.done.notified());
            // Registered before the check, so that no notification is missed.
            done.as_mut().enable();
            {
                let progress = self.lock();
                if progress.waiting == 0 {
                    return progress.failure.clone().map_or(Ok(()), Err);
                }
            }
            done.await;
        }
    }
}

impl Producer {
    pub(super) fn new(brokers: &str, writer: u64) -> Result<Producer, EngineError> {
        let (failure, is_broken) = (Failure::default(), Arc::<AtomicBool>::default());
        let mut settings = settings(brokers);
        // A record that is sent again by the library must not arrive behind one that replaces it.
        settings.set("enable.idempotence", "true").set("acks", "all");
        settings.set("message.timeout.ms", KAFKA_DELIVERY.as_millis().to_string());
        settings.set("linger.ms", "2").set("compression.type", "lz4");
        settings.set("queue.buffering.max.messages", (4 * KAFKA_AT_ONCE).to_string());
        let producer = settings
            .create_with_context(Context { failure: failure.clone(), is_broken: Arc::clone(&is_broken) })
            .map_err(|error| EngineError::Away(format!("Kafka: {error}")))?;
        Ok(Producer { writer, producer, failure, is_broken })
    }

    /// The number under which it writes.
    pub(super) fn writer(&self) -> u64 {
        self.writer
    }

    /// Whether the brokers take nothing more from it.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    /// Writes records, and does not wait.
    pub(super) fn post(&self, records: &[Outgoing]) {
        let batch = Arc::new(Batch::default());
        // Nobody waits for it.
        batch.lock().waiting = 1;
        self.give(records, &batch);
    }

    /// Writes records, and waits until all brokers that keep them have them, for `wait` at most.
    ///
    /// # Errors
    /// Some may not be written. They may be later, in order.
    pub(super) async fn write(&self, records: &[Outgoing], wait: Duration) -> Result<(), EngineError> {
        for records in records.chunks(KAFKA_AT_ONCE) {
            self.write_chunk(records, wait).await?;
        }
        self.failure.clear();
        Ok(())
    }

    async fn write_chunk(&self, records: &[Outgoing], wait: Duration) -> Result<(), EngineError> {
        let batch = Arc::new(Batch::default());
        let failed = |why: String| {
            let last = self.failure.get().map_or_else(String::new, |last| format!(" ({last})"));
            EngineError::Away(format!("Kafka: {why}{last}"))
        };
        // Until all are given, it cannot be done.
        batch.lock().waiting = 1;
        let refused = self.give(records, &batch);
        batch.note(refused);
        match timeout(wait, batch.wait()).await {
            Ok(done) => done.map_err(failed),
            Err(_) => Err(failed(format!("the brokers did not take counts within {} s", wait.as_secs()))),
        }
    }

    /// Gives records to the library. Returns why it did not take one; then those behind it are not given.
    fn give(&self, records: &[Outgoing], batch: &Arc<Batch>) -> Option<String> {
        for record in records {
            let mut outgoing = BaseRecord::with_opaque_to(&record.topic, Arc::clone(batch)).key(&record.key);
            outgoing.partition = record.partition;
            outgoing.payload = record.value.as_ref();
            outgoing.timestamp = record.time_ms;
            if !record.headers.is_empty() {
                let headers = record.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                    headers.insert(Header { key, value: Some(value) })
                });
                outgoing = outgoing.headers(headers);
            }
            batch.lock().waiting += 1;
            if let Err((error, _)) = self.producer.send(outgoing) {
                if is_final(&error) {
                    self.is_broken.store(true, Relaxed);
                }
                batch.lock().waiting -= 1;
                return Some(error.to_string());
            }
        }
        None
    }
}
