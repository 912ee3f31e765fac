//! Reads the state topic from its beginning on, and goes on reading.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset, TopicPartitionList};

use crate::EngineError;
use crate::limits::{
    KAFKA_ASK_EVERY_MS, KAFKA_PARTS, KAFKA_POLL, KAFKA_RETRY, KAFKA_TIDY_EVERY_MS, KAFKA_TIDY_ROUNDS,
    KAFKA_TIMEOUT,
};

use super::client::{Failure, refused};
use super::engine::{Part, Shared};

/// Reads until the engine is closed. Returns only then.
pub(super) fn run(shared: &Arc<Shared>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return shared.set_problem(Part::State, Some(format!("a thread cannot start: {error}")));
        }
    };
    while !shared.is_stopping() {
        let done = runtime.block_on(open(shared)).and_then(|consumer| follow(shared, &consumer));
        if let Err(error) = done {
            shared.set_problem(Part::State, Some(error.to_string()));
            runtime.block_on(shared.pause(KAFKA_RETRY));
        }
    }
}

async fn open(shared: &Shared) -> Result<BaseConsumer<Failure>, EngineError> {
    let partitions = shared.topics.open(&shared.settings(), shared.keep).await?;
    shared.state_partitions.store(partitions, Relaxed);
    shared.gate.open();
    let failure = Failure::default();
    let mut settings = shared.settings();
    settings.set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
    settings.set("fetch.wait.max.ms", "50").set("fetch.queue.backoff.ms", "10");
    settings.set("queued.max.messages.kbytes", "16384");
    // It joins no group. The library wants a name all the same.
    settings.set("group.id", format!("{}-state", shared.group));
    let consumer: BaseConsumer<Failure> =
        settings.create_with_context(failure.clone()).map_err(|error| refused(&error, &failure))?;
    let mut all = TopicPartitionList::new();
    for partition in 0..partitions {
        all.add_partition_offset(&shared.topics.state, partition, Offset::Beginning)
            .map_err(|error| refused(&error, &failure))?;
    }
    consumer.assign(&all).map_err(|error| refused(&error, &failure))?;
    Ok(consumer)
}

fn follow(shared: &Shared, consumer: &BaseConsumer<Failure>) -> Result<(), EngineError> {
    // It begins at the beginning.
    shared.take_rereads(|_| Ok(()))?;
    let begun = shared.ask();
    // What was read of each partition, to know what is read again.
    let mut read_until: HashMap<i32, i64> = HashMap::new();
    let (mut asked_ms, mut tidied_ms) = (shared.now().as_millis(), shared.now().as_millis());
    while !shared.is_stopping() {
        shared.take_rereads(|partitions| seek(shared, consumer, partitions))?;
        let mut timeout = KAFKA_POLL;
        // Some at once, so that those who wait are woken once.
        for _ in 0..1_000 {
            match consumer.poll(timeout) {
                None => break,
                Some(Ok(message)) => {
                    let until = read_until.entry(message.partition()).or_default();
                    merge(shared, &message, message.offset() < *until);
                    *until = (message.offset() + 1).max(*until);
                    shared.set_problem(Part::State, None);
                }
                Some(Err(error)) => {
                    shared.set_problem(Part::State, Some(format!("Kafka: {error}")));
                    break;
                }
            }
            timeout = Duration::ZERO;
        }
        shared.note_progress();
        let now_ms = shared.now().as_millis();
        if !shared.is_caught_up() {
            if shared.has_read(begun) {
                shared.caught_up.store(true, Relaxed);
                shared.progress.notify_waiters();
            } else if now_ms - asked_ms >= KAFKA_ASK_EVERY_MS {
                shared.ask();
                asked_ms = now_ms;
            }
        }
        if now_ms - tidied_ms >= KAFKA_TIDY_EVERY_MS {
            shared.state().tidy(KAFKA_PARTS.div_ceil(KAFKA_TIDY_ROUNDS), shared.now());
            tidied_ms = now_ms;
        }
    }
    Ok(())
}

/// Reads partitions from their beginning again.
fn seek(
    shared: &Shared,
    consumer: &BaseConsumer<Failure>,
    partitions: &BTreeSet<i32>,
) -> Result<(), EngineError> {
    partitions.iter().try_for_each(|partition| {
        consumer
            .seek(&shared.topics.state, *partition, Offset::Beginning, KAFKA_TIMEOUT)
            .map_err(|error| refused(&error, &Failure::default()))
    })
}

/// Merges a record. Without room, it waits until there is some: nothing may be left out.
fn merge(shared: &Shared, message: &BorrowedMessage<'_>, is_again: bool) {
    let record = (message.key().unwrap_or_default(), message.payload());
    while !shared.is_stopping() {
        let merged = {
            let mut state = shared.state();
            if is_again {
                state.merge_again(message.partition(), record, shared.now())
            } else {
                state.merge(message.partition(), record, shared.now())
            }
        };
        match merged {
            Ok(()) => return,
            Err(no_room) => {
                shared.set_problem(Part::State, Some(EngineError::from(no_room).to_string()));
                std::thread::park_timeout(KAFKA_RETRY);
                shared.state().tidy(KAFKA_PARTS, shared.now());
            }
        }
    }
}
