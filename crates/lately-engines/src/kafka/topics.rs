//! The topics: that of the hits has to be there, those of counts and dead letters are made if they are missing.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::metadata::Metadata;
use rdkafka::types::RDKafkaRespErr;

use crate::EngineError;
use crate::limits::{
    KAFKA_COMPACTION_LAG_MS, KAFKA_FIRST_ASK, KAFKA_LEAST_COMPACTION_LAG_MS, KAFKA_POLL, KAFKA_TIMEOUT,
};

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
        check_state(settings, &self.state, keep, &failure).await?;
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

/// What the brokers say about a topic.
fn metadata(asking: &BaseConsumer<Failure>, topic: &str, failure: &Failure) -> Result<Metadata, EngineError> {
    let first = asking.fetch_metadata(Some(topic), KAFKA_FIRST_ASK);
    first.or_else(|error| {
        // The consumer reports why it cannot connect when it is polled. Without a reason, the brokers are slow.
        while failure.get().is_none() && asking.poll(KAFKA_POLL).is_some() {}
        match failure.get() {
            Some(_) => Err(refused(&error, failure)),
            None => {
                asking.fetch_metadata(Some(topic), KAFKA_TIMEOUT).map_err(|error| refused(&error, failure))
            }
        }
    })
}

/// The number of partitions of a topic. `None` if there is no such topic.
pub(super) fn partitions(
    asking: &BaseConsumer<Failure>,
    topic: &str,
    failure: &Failure,
) -> Result<Option<i32>, EngineError> {
    let metadata = metadata(asking, topic, failure)?;
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

/// Checks the settings of the state topic, as far as the brokers say them.
async fn check_state(
    settings: &ClientConfig,
    topic: &str,
    keep: Duration,
    failure: &Failure,
) -> Result<(), EngineError> {
    let admin: AdminClient<Failure> =
        settings.create_with_context(failure.clone()).map_err(|error| refused(&error, failure))?;
    let options = AdminOptions::new().request_timeout(Some(KAFKA_TIMEOUT));
    let described = admin.describe_configs([&ResourceSpecifier::Topic(topic)], &options).await;
    // Not every broker says it, nor to everybody.
    let Some(Ok(config)) = described.ok().and_then(|described| described.into_iter().next()) else {
        return Ok(());
    };
    let value = |name: &str| config.get(name)?.value.clone();
    check_settings(value, keep).map_err(|(setting, found, right)| {
        EngineError::Away(format!(
            "the topic '{topic}' has {setting}={found}, and counts could get lost: set it with kafka-configs --alter --topic {topic} --add-config {setting}={right}"
        ))
    })
}

/// A setting that is wrong, its value, and one that is right.
type Wrong = (&'static str, String, String);

fn check_settings(value: impl Fn(&str) -> Option<String>, keep: Duration) -> Result<(), Wrong> {
    let policy = value("cleanup.policy");
    let has = |policy: &Option<String>, word: &str| {
        policy.as_deref().is_some_and(|policy| policy.split(',').any(|part| part.trim() == word))
    };
    if policy.is_some() && !has(&policy, "compact") {
        return Err(("cleanup.policy", policy.unwrap_or_default(), "[compact,delete]".to_owned()));
    }
    let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
    // Without `delete`, nothing is dropped by its age. A negative time is forever.
    let least = [
        ("retention.ms", keep_ms, has(&policy, "delete")),
        ("min.compaction.lag.ms", KAFKA_LEAST_COMPACTION_LAG_MS, has(&policy, "compact")),
    ];
    for (name, least_ms, matters) in least {
        let found = value(name).filter(|_| matters);
        let is_short = |found: &String| found.parse().is_ok_and(|ms: i64| (0..least_ms).contains(&ms));
        if let Some(found) = found.filter(is_short) {
            let right_ms = if name == "retention.ms" { least_ms } else { KAFKA_COMPACTION_LAG_MS };
            return Err((name, found, right_ms.to_string()));
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_would_lose_counts_are_named() {
        let check = |settings: &[(&str, &str)], expected: Option<&str>| {
            let value = |name: &str| {
                let found = settings.iter().find(|(setting, _)| *setting == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let wrong = check_settings(value, Duration::from_secs(1_000)).err();
            assert_eq!(wrong.map(|(setting, ..)| setting), expected, "{settings:?}");
        };
        let (policy, retention, lag) = ("cleanup.policy", "retention.ms", "min.compaction.lag.ms");
        check(&[], None);
        check(&[(policy, "delete")], Some(policy));
        check(&[(policy, "compact"), (retention, "1"), (lag, "3600000")], None);
        check(&[(policy, "compact,delete"), (retention, "1000000"), (lag, "1200000")], None);
        check(&[(policy, "delete, compact"), (retention, "999999"), (lag, "1200000")], Some(retention));
        check(&[(policy, "delete,compact"), (retention, "-1"), (lag, "1199999")], Some(lag));
        check(&[(policy, "compact"), (lag, "0")], Some(lag));
    }
}
