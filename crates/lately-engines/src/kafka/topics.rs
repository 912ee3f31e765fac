//! The topics: that of the hits has to be there, those of counts and dead letters are made if they are missing.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::types::RDKafkaRespErr;

use crate::EngineError;
use crate::limits::{KAFKA_COMPACTION_LAG_MS, KAFKA_TIMEOUT};

use super::client::{Failure, refused};

/// The names of the topics.
#[derive(Clone, Debug)]
pub(super) struct Topics {
    pub(super) hits: Arc<str>,
    pub(super) state: Arc<str>,
    pub(super) dead: Arc<str>,
}

impl Topics {
    /// The topics that go with one of hits.
    pub(super) fn of(hits: &str) -> Topics {
        Topics {
            hits: hits.into(),
            state: format!("{hits}-state").into(),
            dead: format!("{hits}-dead").into(),
        }
    }

    /// Makes the topics that are missing. `keep` is how long counts are kept at least. Returns the number of partitions of the state topic.
    pub(super) async fn open(&self, settings: &ClientConfig, keep: Duration) -> Result<i32, EngineError> {
        let failure = Failure::default();
        // A consumer: asking for a topic as a producer would make it.
        let asking: BaseConsumer<Failure> =
            settings.create_with_context(failure.clone()).map_err(|error| refused(&error, &failure))?;
        let Some(hits) = partitions(&asking, &self.hits, &failure)? else {
            return Err(EngineError::Away(format!(
                "the topic '{topic}' does not exist: create it, such as with kafka-topics --create --topic {topic} --partitions 12",
                topic = self.hits
            )));
        };
        if partitions(&asking, &self.state, &failure)?.is_none() {
            let keep_ms = keep.as_millis().to_string();
            let lag_ms = KAFKA_COMPACTION_LAG_MS.to_string();
            let topic = NewTopic::new(&self.state, hits, TopicReplication::Fixed(-1))
                .set("cleanup.policy", "compact,delete")
                .set("retention.ms", &keep_ms)
                .set("min.compaction.lag.ms", &lag_ms)
                .set("message.timestamp.type", "LogAppendTime");
            make(settings, &topic, &failure).await?;
        }
        if partitions(&asking, &self.dead, &failure)?.is_none() {
            make(settings, &NewTopic::new(&self.dead, 1, TopicReplication::Fixed(-1)), &failure).await?;
        }
        match partitions(&asking, &self.state, &failure)? {
            Some(state) => Ok(state),
            None => {
                Err(EngineError::Away(format!("the topic '{}' was made and is not there yet", self.state)))
            }
        }
    }
}

/// The number of partitions of a topic. `None` if there is no such topic.
pub(super) fn partitions(
    asking: &BaseConsumer<Failure>,
    topic: &str,
    failure: &Failure,
) -> Result<Option<i32>, EngineError> {
    let metadata =
        asking.fetch_metadata(Some(topic), KAFKA_TIMEOUT).map_err(|error| refused(&error, failure))?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    match found.map(|found| (found.error(), found.partitions().len())) {
        None
        | Some((
            Some(
                RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
                | RDKafkaRespErr::RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,
            ),
            _,
        )) => Ok(None),
        Some((Some(error), _)) => {
            let code = RDKafkaErrorCode::from(error);
            Err(EngineError::Away(format!("Kafka: the topic '{topic}': {code}")))
        }
        Some((None, 0)) => Ok(None),
        Some((None, partitions)) => Ok(i32::try_from(partitions).ok()),
    }
}

async fn make(settings: &ClientConfig, topic: &NewTopic<'_>, failure: &Failure) -> Result<(), EngineError> {
    let admin: AdminClient<Failure> =
        settings.create_with_context(failure.clone()).map_err(|error| refused(&error, failure))?;
    let options =
        AdminOptions::new().operation_timeout(Some(KAFKA_TIMEOUT)).request_timeout(Some(KAFKA_TIMEOUT));
    let made = admin.create_topics([topic], &options).await.map_err(|error| refused(&error, failure))?;
    match made.into_iter().next() {
        Some(Err((name, code))) if code != RDKafkaErrorCode::TopicAlreadyExists => {
            Err(EngineError::Away(format!("Kafka: the topic '{name}' cannot be created: {code}")))
        }
        _ => Ok(()),
    }
}
