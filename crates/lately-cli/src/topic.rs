//! A topic of Kafka that hits are written to.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lately::Timestamp;
use lately_server::{KafkaTopic, broker_settings, compact_hit, without_password};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::types::RDKafkaRespErr;

use crate::error::CliError;
use crate::limits::{PRODUCE_DELIVERY, PRODUCE_POLL, PRODUCE_TIMEOUT};

/// Writes records, each once.
pub(crate) struct Topic {
    name: String,
    brokers: String,
    producer: BaseProducer<Context>,
    progress: Arc<Progress>,
    since_poll: u32,
}

/// What became of the records.
#[derive(Default)]
struct Progress(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    delivered: u64,
    failure: Option<String>,
    /// The last failed attempt to reach a broker.
    last: Option<String>,
}

impl Progress {
    fn change<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The last failed attempt, for the end of a message.
    fn last(&self) -> String {
        self.change(|counts| counts.last.as_ref().map_or_else(String::new, |last| format!(" ({last})")))
    }
}

struct Context(Arc<Progress>);

impl ClientContext for Context {
    fn log(&self, _level: RDKafkaLogLevel, _facility: &str, _message: &str) {}

    fn error(&self, _error: KafkaError, reason: &str) {
        self.0.change(|counts| counts.last = Some(reason.to_owned()));
    }
}

impl ConsumerContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        self.0.change(|counts| match result {
            Ok(_) => counts.delivered += 1,
            Err((error, _)) => {
                counts.failure.get_or_insert(error.to_string());
            }
        });
    }
}

const HINT: &str = "see --brokers and --topic in lately produce --help";

impl Topic {
    /// A topic that exists.
    pub(crate) fn open(brokers: &str, name: &str) -> Result<Topic, CliError> {
        let failed = |cause: String| CliError::new("produce", cause, HINT);
        KafkaTopic::check_name("topic", name).map_err(failed)?;
        let url = if brokers.contains("://") { brokers.to_owned() } else { format!("kafka://{brokers}") };
        let mut settings = ClientConfig::new();
        settings.extend(broker_settings(&[&url]).map_err(|error| failed(error.to_string()))?);
        settings.set("client.id", "lately");
        let brokers = without_password(brokers);
        // Asking as a producer would make the topic.
        let asking = Arc::new(Progress::default());
        let consumer: BaseConsumer<Context> = settings
            .create_with_context(Context(Arc::clone(&asking)))
            .map_err(|error| failed(error.to_string()))?;
        let unreachable = |error: KafkaError| {
            // It reports why it cannot connect when it is polled.
            while asking.last().is_empty() && consumer.poll(PRODUCE_POLL).is_some() {}
            failed(format!("{brokers}: {error}{}", asking.last()))
        };
        let metadata = consumer.fetch_metadata(Some(name), PRODUCE_TIMEOUT).map_err(unreachable)?;
        let found = metadata.topics().iter().find(|topic| topic.name() == name);
        match found.map(rdkafka::metadata::MetadataTopic::error) {
            Some(None) => {}
            None | Some(Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)) => {
                return Err(failed(format!("{brokers} has no topic '{name}'")));
            }
            Some(Some(error)) => {
                return Err(failed(format!("the topic '{name}': {}", RDKafkaErrorCode::from(error))));
            }
        }
        let progress = Arc::new(Progress::default());
        // A record that the library sends again is in the topic once.
        settings.set("enable.idempotence", "true").set("compression.type", "lz4");
        settings.set("linger.ms", "20").set("partitioner", "murmur2_random");
        settings.set("message.timeout.ms", PRODUCE_DELIVERY.as_millis().to_string());
        let producer = settings
            .create_with_context(Context(Arc::clone(&progress)))
            .map_err(|error| failed(error.to_string()))?;
        Ok(Topic { name: name.to_owned(), brokers, producer, progress, since_poll: 0 })
    }

    /// Writes a hit. After a failure, nothing is written any more.
    pub(crate) fn write(&mut self, key: &[u8], at: Timestamp) {
        let value = compact_hit(at);
        while self.progress.change(|counts| counts.failure.is_none()) {
            let record = BaseRecord::to(&self.name).key(key).payload(&value).timestamp(at.as_millis());
            match self.producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    self.producer.poll(PRODUCE_POLL);
                }
                Err((error, _)) => self.progress.change(|counts| counts.failure = Some(error.to_string())),
            }
        }
        self.since_poll += 1;
        if self.since_poll >= 1_000 {
            self.since_poll = 0;
            self.producer.poll(Duration::ZERO);
        }
    }

    /// Waits until all records are written. Returns their number.
    pub(crate) fn finish(self) -> Result<u64, CliError> {
        let flushed = self.producer.flush(PRODUCE_DELIVERY);
        let ended = self.progress.change(|counts| {
            let failure = counts.failure.clone().or(flushed.err().map(|error| error.to_string()));
            failure.map_or(Ok(counts.delivered), |failure| Err((failure, counts.delivered)))
        });
        ended.map_err(|(failure, delivered)| {
            let cause = format!(
                "{}: {failure}{}: {delivered} records were written to '{}' before, and a new run writes them again",
                self.brokers,
                self.progress.last(),
                self.name
            );
            CliError::new("produce", cause, HINT)
        })
    }
}
