//! What all connections to the brokers have in common.

use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;

use crate::EngineError;

use super::address::Brokers;

/// The last failure of a connection, for messages.
#[derive(Clone, Default)]
pub(super) struct Failure(Arc<Mutex<Option<String>>>);

impl Failure {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, reason: &str) {
        *self.lock() = Some(reason.to_owned());
    }

    pub(super) fn clear(&self) {
        *self.lock() = None;
    }

    pub(super) fn get(&self) -> Option<String> {
        self.lock().clone()
    }
}

impl ClientContext for Failure {
    /// The library logs each attempt to connect. What lasts is reported as a failure of what was asked.
    fn log(&self, _level: RDKafkaLogLevel, _facility: &str, _message: &str) {}

    fn error(&self, _error: KafkaError, reason: &str) {
        self.note(reason);
    }
}

impl ConsumerContext for Failure {}

/// The settings of every connection.
pub(super) fn settings(brokers: &Brokers) -> ClientConfig {
    let mut settings = ClientConfig::new();
    settings.extend(brokers.settings().map(|(name, value)| (name.to_owned(), value.to_owned())));
    settings.set("client.id", "lately");
    // The first attempts after a failure come soon.
    settings.set("reconnect.backoff.ms", "50").set("reconnect.backoff.max.ms", "2000");
    settings.set("socket.nagle.disable", "true").set("topic.metadata.refresh.interval.ms", "30000");
    settings
}

/// An error of the library.
pub(super) fn refused(error: &KafkaError, failure: &Failure) -> EngineError {
    let last = failure.get().map_or_else(String::new, |last| format!(" ({last})"));
    EngineError::Away(format!("Kafka: {error}{last}"))
}
