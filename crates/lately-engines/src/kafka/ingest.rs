//! Counts the records of the hits topic, as a member of a consumer group.
//!
//! Two consumers share the work. One is a member of the group and reads nothing: it says which partitions this node has. The other
//! one reads these, from the place where `partition.rs` says that counting goes on.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::statistics::Statistics;
use rdkafka::{Offset, TopicPartitionList};
use tokio::runtime::Runtime;

use crate::EngineError;
use crate::limits::{
    KAFKA_ASK_EVERY_MS, KAFKA_BATCH, KAFKA_DELIVERY, KAFKA_FIRST_ASK, KAFKA_LOST_EVERY_MS, KAFKA_RETRY,
    KAFKA_TIMEOUT,
};

use super::client::{Failure, refused};
use super::config::GroupProtocol;
use super::dead_letter::{dead_letter, shorten};
use super::engine::{Part, Shared};
use super::hit::{Hit, Record};
use super::partition::{Complete, Taken};
use super::producer::{Outgoing, Producer};
use super::record_members::MemberOf;
use super::state::State;
use super::state_record::{KeyTextRecord, StateRecord};

/// What the group says.
#[derive(Default)]
struct Membership {
    failure: Failure,
    changes: Mutex<Vec<Change>>,
}

enum Change {
    Got(i32),
    Lost(i32),
}

impl ClientContext for Membership {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.failure.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.failure.error(error, reason);
    }
}

impl ConsumerContext for Membership {
    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        match rebalance {
            Rebalance::Assign(partitions) => {
                // The other consumer reads them.
                let _ = consumer.pause(partitions);
                changes.extend(partitions.elements().iter().map(|element| Change::Got(element.partition())));
            }
            Rebalance::Revoke(partitions) => {
                changes.extend(partitions.elements().iter().map(|element| Change::Lost(element.partition())));
            }
            Rebalance::Error(error) => self.failure.note(&error.to_string()),
        }
    }
}

/// How far the partitions go that are read.
struct Reading {
    failure: Failure,
    shared: Arc<Shared>,
}

impl ClientContext for Reading {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.failure.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.failure.error(error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        let topic = statistics.topics.get(&*self.shared.topics.hits);
        let partitions = topic.into_iter().flat_map(|topic| &topic.partitions);
        let ends = partitions.filter(|(number, partition)| **number >= 0 && partition.hi_offset >= 0);
        self.shared.stats.note_ends(ends.map(|(number, partition)| (*number, partition.hi_offset)));
    }
}

impl ConsumerContext for Reading {}

/// How far this node is with a partition that it has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It reads the state topic up to its own record with this number, which was written last at a time.
    Asking { nonce: u64, asked_ms: i64 },
    /// It reads and counts records.
    Counting,
    /// The next record is not in the topic. It was asked at a time where the topic begins and ends.
    Lost { asked_ms: i64 },
    /// More records are counted than are in the topic. It is not read until somebody has looked at it.
    Beyond,
}

struct Ingest<'s> {
    shared: &'s Arc<Shared>,
    runtime: &'s Runtime,
    group: BaseConsumer<Membership>,
    reader: BaseConsumer<Reading>,
    partitions: BTreeMap<i32, Phase>,
    /// Dead letters of the batch.
    dead: Vec<Outgoing>,
    /// Whether the last batch is not written yet.
    is_unfinished: bool,
    /// Since when brokers do not answer, as far as is known, or since it was asked last whether they do.
    away_ms: Option<i64>,
}

/// Counts until the engine is closed. Returns only then.
pub(super) fn run(shared: &Arc<Shared>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return shared.set_problem(Part::Hits, Some(format!("a thread cannot start: {error}"))),
    };
    runtime.block_on(shared.caught_up());
    while !shared.is_stopping() {
        match Ingest::new(shared, &runtime) {
            Ok(mut ingest) => {
                while !shared.is_stopping() {
                    ingest.round();
                }
                ingest.leave();
            }
            Err(error) => {
                shared.set_problem(Part::Hits, Some(error.to_string()));
                runtime.block_on(shared.pause(KAFKA_RETRY));
            }
        }
    }
}

impl<'s> Ingest<'s> {
    fn new(shared: &'s Arc<Shared>, runtime: &'s Runtime) -> Result<Ingest<'s>, EngineError> {
        let failed = |error: &KafkaError| refused(error, &Failure::default());
        let mut settings = shared.settings();
        settings.set("group.id", &shared.group).set("enable.auto.commit", "false");
        settings.set("auto.offset.reset", "latest");
        match shared.protocol {
            GroupProtocol::Classic => {
                settings.set("session.timeout.ms", shared.session.as_millis().to_string());
                settings.set("heartbeat.interval.ms", (shared.session.as_millis() / 4).to_string());
                settings.set("partition.assignment.strategy", "cooperative-sticky");
            }
            GroupProtocol::Consumer => _ = settings.set("group.protocol", "consumer"),
        }
        let group: BaseConsumer<Membership> =
            settings.create_with_context(Membership::default()).map_err(|error| failed(&error))?;
        group.subscribe(&[&shared.topics.hits]).map_err(|error| failed(&error))?;
        let mut settings = shared.settings();
        settings.set("group.id", &shared.group).set("enable.auto.commit", "false");
        settings.set("auto.offset.reset", "error").set("statistics.interval.ms", "1000");
        settings.set("fetch.wait.max.ms", "50").set("fetch.queue.backoff.ms", "10");
        settings.set("queued.max.messages.kbytes", "65536");
        let reading = Reading { failure: Failure::default(), shared: Arc::clone(shared) };
        let reader = settings.create_with_context(reading).map_err(|error| failed(&error))?;
        let (partitions, dead) = (BTreeMap::new(), Vec::new());
        Ok(Ingest { shared, runtime, group, reader, partitions, dead, is_unfinished: false, away_ms: None })
    }

    fn round(&mut self) {
        self.follow_group(Duration::ZERO);
        self.begin_counting();
        if self.is_unfinished && !self.finish() {
            self.follow_group(KAFKA_RETRY);
            return;
        }
        self.ask_whether_away();
        self.find_lost();
        self.gather();
        self.is_unfinished = true;
        self.finish();
    }

    /// Takes what the group says.
    fn follow_group(&mut self, wait: Duration) {
        match self.group.poll(wait) {
            Some(Err(error)) => {
                let why = refused(&error, &self.group.context().failure);
                let problem = format!("the group '{}': {why}", self.shared.group);
                self.shared.set_problem(Part::Group, Some(problem));
                self.note_away(&error);
            }
            _ if !self.partitions.is_empty() => self.shared.set_problem(Part::Group, None),
            _ => {}
        }
        let changes = {
            let context = self.group.context();
            let mut changes = context.changes.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *changes)
        };
        for change in changes {
            match change {
                Change::Got(number) => {
                    let asked_ms = self.shared.now().as_millis();
                    self.shared.keep(number);
                    let nonce = self.shared.ask();
                    self.partitions.insert(number, Phase::Asking { nonce, asked_ms });
                }
                Change::Lost(number) => self.end_counting(number),
            }
        }
    }

    fn end_counting(&mut self, number: i32) {
        if self.partitions.remove(&number) == Some(Phase::Counting) {
            let _ = self.reader.incremental_unassign(&self.list(number, Offset::Invalid));
        }
        let mut state = self.shared.state();
        if let Ok((partition, _)) = state.partition(number) {
            partition.end();
        }
        state.drop_partition(number);
        drop(state);
        self.shared.stats.drop_partition(number);
    }

    fn list(&self, number: i32, offset: Offset) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.shared.topics.hits, number, offset).expect("an offset of a topic");
        list
    }

    /// Begins to count partitions for which the state topic was read far enough.
    fn begin_counting(&mut self) {
        let now_ms = self.shared.now().as_millis();
        let mut ready = Vec::new();
        for (&number, phase) in &mut self.partitions {
            let Phase::Asking { nonce, asked_ms } = phase else { continue };
            if self.shared.has_read(*nonce) {
                ready.push(number);
            } else if now_ms - *asked_ms >= KAFKA_ASK_EVERY_MS {
                self.shared.ask();
                *asked_ms = now_ms;
            }
        }
        for number in ready {
            let next = match self.shared.state().partition(number) {
                Ok((partition, _)) => partition.begin(),
                Err(no_room) => {
                    self.shared.set_problem(Part::Hits, Some(EngineError::from(no_room).to_string()));
                    return;
                }
            };
            if self.read_from(number, next) {
                self.partitions.insert(number, Phase::Counting);
            }
        }
    }

    /// Reads a partition from an offset on, from its beginning if that is 0.
    fn read_from(&mut self, number: i32, next: i64) -> bool {
        let offset = if next == 0 { Offset::Beginning } else { Offset::Offset(next) };
        let done = self.reader.incremental_assign(&self.list(number, offset));
        if let Err(error) = &done {
            self.shared.set_problem(Part::Hits, Some(format!("partition {number} cannot be read: {error}")));
        }
        done.is_ok()
    }

    /// Takes records for a while.
    fn gather(&mut self) {
        let end_ms =
            self.shared.now().as_millis() + i64::try_from(self.shared.flush.as_millis()).unwrap_or(50);
        for _ in 0..KAFKA_BATCH {
            let left_ms = u64::try_from(end_ms - self.shared.now().as_millis()).unwrap_or(0);
            match self.reader.poll(Duration::from_millis(left_ms)) {
                None if left_ms == 0 => return,
                None => {}
                Some(Ok(message)) => {
                    if let Some(dead) = take(self.shared, &self.partitions, &message) {
                        self.dead.push(dead);
                    }
                }
                Some(Err(error)) => {
                    let why = refused(&error, &self.reader.context().failure);
                    self.shared.set_problem(Part::Hits, Some(why.to_string()));
                    self.note_away(&error);
                    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AutoOffsetReset) {
                        self.lose();
                    }
                    return;
                }
            }
        }
    }

    /// Takes an error of a connection. The library goes on by itself, and does not say when all is well again.
    fn note_away(&mut self, error: &KafkaError) {
        use RDKafkaErrorCode::{AllBrokersDown, Authentication, BrokerTransportFailure, Resolve, SSL};
        let is_away = matches!(
            error.rdkafka_error_code(),
            Some(AllBrokersDown | Authentication | BrokerTransportFailure | Resolve | SSL)
        );
        if is_away {
            self.away_ms.get_or_insert(self.shared.now().as_millis());
        }
    }

    /// Asks whether the brokers answer again.
    fn ask_whether_away(&mut self) {
        let now_ms = self.shared.now().as_millis();
        if self.away_ms.is_none_or(|away_ms| now_ms - away_ms < KAFKA_LOST_EVERY_MS) {
            return;
        }
        let answer = self.reader.fetch_metadata(Some(&self.shared.topics.hits), KAFKA_FIRST_ASK);
        self.away_ms = answer.is_err().then_some(now_ms);
        if answer.is_ok() {
            self.shared.set_problem(Part::Hits, None);
            self.shared.set_problem(Part::Group, None);
        }
    }

    /// Records that are to be read are not in the topic. The error does not name the partition.
    fn lose(&mut self) {
        for (number, phase) in self.partitions.clone() {
            if phase == Phase::Counting {
                let _ = self.reader.incremental_unassign(&self.list(number, Offset::Invalid));
                self.partitions.insert(number, Phase::Lost { asked_ms: 0 });
            }
        }
    }

    /// Finds the place where a partition goes on after [`Ingest::lose`]: behind the records that are gone from the topic.
    fn find_lost(&mut self) {
        let now_ms = self.shared.now().as_millis();
        let is_due = |phase: &Phase| matches!(phase, Phase::Lost { asked_ms } if now_ms - asked_ms >= KAFKA_LOST_EVERY_MS);
        let due = self.partitions.iter().filter(|(_, phase)| is_due(phase)).map(|(number, _)| *number);
        for number in due.collect::<Vec<_>>() {
            self.partitions.insert(number, Phase::Lost { asked_ms: now_ms });
            let topic = &self.shared.topics.hits;
            let Ok((first, end)) = self.reader.client().fetch_watermarks(topic, number, KAFKA_TIMEOUT) else {
                continue;
            };
            let (next, unread) = match self.shared.state().partition(number) {
                Ok((partition, _)) => (partition.gathered_until(), partition.unread_from()),
                Err(_) => continue,
            };
            if next > end {
                self.partitions.insert(number, Phase::Beyond);
                self.shared.set_problem(
                    Part::Topic,
                    Some(format!(
                        "partition {number} of '{topic}' ends at {end}, and {next} records of it are counted: if the topic was made anew, stop all nodes and delete '{}'",
                        self.shared.topics.state
                    )),
                );
                continue;
            }
            if next < first {
                if let Ok((partition, _)) = self.shared.state().partition(number) {
                    partition.take(first - 1, None, self.shared.now());
                }
                let lost = first - next;
                self.shared.stats.lost.fetch_add(lost.unsigned_abs(), Relaxed);
                self.shared.warn(format!(
                    "partition {number} of '{topic}': {lost} records were deleted before they were counted"
                ));
            }
            if self.read_from(number, unread.max(first)) {
                self.partitions.insert(number, Phase::Counting);
            }
        }
    }

    /// Counts and writes what was taken. False if it has to be tried again.
    fn finish(&mut self) -> bool {
        let shared = self.shared;
        let done = self.runtime.block_on(finish(shared, &self.partitions, &mut self.dead));
        match done {
            Ok(committed) => {
                self.is_unfinished = false;
                if !committed.is_empty() {
                    shared.set_problem(Part::Hits, None);
                    let mut list = TopicPartitionList::new();
                    for (number, until) in committed {
                        let _ = list.add_partition_offset(&shared.topics.hits, number, Offset::Offset(until));
                    }
                    // For those who look at the group. Nobody starts from it.
                    let _ = self.group.commit(&list, CommitMode::Async);
                }
                true
            }
            Err(error) => {
                shared.set_problem(Part::Hits, Some(error.to_string()));
                false
            }
        }
    }

    fn leave(&mut self) {
        let _ = self.finish();
        let numbers: Vec<i32> = self.partitions.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.end_counting(number));
    }
}

/// Takes a record. Returns it as a dead letter if it is no hit.
fn take(
    shared: &Shared,
    partitions: &BTreeMap<i32, Phase>,
    message: &BorrowedMessage<'_>,
) -> Option<Outgoing> {
    let (number, offset) = (message.partition(), message.offset());
    if partitions.get(&number) != Some(&Phase::Counting) {
        return None;
    }
    let record = Record {
        key: message.key(),
        value: message.payload(),
        time_ms: message.timestamp().to_millis().filter(|ms| *ms >= 0),
    };
    let hit = Hit::read(&record).and_then(|hit| {
        let mut checked = Ok(None);
        shared.classes.with(hit.key, &mut |class| checked = hit.check(&record, class));
        let id = checked?;
        if let Some(error) = shared.classes.refusal(hit.key) {
            return Err(error.to_string());
        }
        Ok((Taken { key: hit.key, at: hit.at, hits: hit.hits, id, totals: &[] }, hit.member))
    });
    let mut state = shared.state();
    let Ok((partition, _)) = state.partition(number) else { return None };
    if offset < partition.gathered_until() {
        partition.take(offset, None, shared.now());
        if let Ok((Taken { key, at, id, .. }, Some(member))) = &hit
            && partition.has_taken(offset, id.as_ref())
        {
            add_member(shared, &mut state, MemberOf { key, member, at: *at, is_again: true });
        }
        return None;
    }
    shared.stats.records.fetch_add(1, Relaxed);
    match hit {
        Ok((hit, member)) => {
            let totals = shared.classes.totals(hit.key, hit.hits);
            let hit = Taken { totals: &totals, ..hit };
            let counts = partition.take(offset, Some(hit), shared.now());
            let stats = &shared.stats;
            (if counts { &stats.hits } else { &stats.repeated }).fetch_add(hit.hits, Relaxed);
            if let Some(member) = member.filter(|_| counts) {
                let Taken { key, at, .. } = hit;
                add_member(shared, &mut state, MemberOf { key, member: &member, at, is_again: false });
            }
            None
        }
        Err(reason) => {
            partition.take(offset, None, shared.now());
            drop(state);
            shared.stats.dead.fetch_add(1, Relaxed);
            shared.warn(format!(
                "a record of '{}' is no hit (partition {number}, offset {offset}), and is in '{}': {reason}",
                shared.topics.hits, shared.topics.dead
            ));
            let place = [&*shared.topics.hits, &number.to_string(), &offset.to_string()];
            Some(dead_letter(Arc::clone(&shared.topics.dead), &record, reason, place))
        }
    }
}

fn add_member(shared: &Shared, state: &mut State, member: MemberOf<'_>) {
    shared.classes.with(member.key, &mut |class| state.add_member(member, class, shared.now()));
}

/// Writes dead letters. Those that the brokers do not take are written without what they have: the records behind them are to be counted.
async fn write_dead(
    shared: &Shared,
    producer: &Producer,
    dead: &mut Vec<Outgoing>,
) -> Result<(), EngineError> {
    if dead.is_empty() {
        return Ok(());
    }
    producer.take_refused();
    match producer.write(dead, KAFKA_DELIVERY).await {
        Ok(()) => dead.clear(),
        Err(_) if producer.take_refused() => {}
        Err(error) => return Err(error),
    }
    while let Some(letter) = dead.last_mut() {
        if let Err(error) = producer.write(std::slice::from_ref(letter), KAFKA_DELIVERY).await {
            if !producer.take_refused() {
                return Err(error);
            }
            if shorten(letter) {
                continue;
            }
            shared.warn(format!("the brokers do not even take the headers of a dead letter: {error}"));
        }
        dead.pop();
    }
    Ok(())
}

/// Counts what was taken of all partitions, and writes it. Returns the partitions that are complete up to another offset than before.
async fn finish(
    shared: &Shared,
    partitions: &BTreeMap<i32, Phase>,
    dead: &mut Vec<Outgoing>,
) -> Result<Vec<(i32, i64)>, EngineError> {
    let (mut records, mut counted) = (Vec::new(), Vec::new());
    let mut failed = None;
    let producer = shared.producer()?;
    let writer = producer.writer();
    {
        let mut state = shared.state();
        let now = shared.now();
        let levels = |key: &[u8], with: &mut dyn FnMut(&lately::Levels)| {
            shared.classes.with(key, &mut |class| with(class.levels()));
        };
        let counting = partitions.iter().filter(|(_, phase)| **phase == Phase::Counting);
        for &number in counting.map(|(number, _)| number) {
            let (partition, counts) = state.partition(number)?;
            if let Err(no_room) = partition.count(counts, &levels, now) {
                // Those that have room go on.
                failed = Some(EngineError::from(no_room));
                continue;
            }
            records.extend(partition.records(counts, writer).into_iter().map(|record| (number, record)));
            counted.push(number);
            shared.stats.note_next(number, partition.next());
        }
        state.bound_ids();
        shared.held_bytes.store(state.counts.held_bytes(), Relaxed);
    }
    write_dead(shared, &producer, dead).await?;
    let outgoing: Vec<Outgoing> =
        records.iter().map(|(number, record)| shared.state_record(*number, record)).collect();
    producer.write(&outgoing, KAFKA_DELIVERY).await?;
    {
        let mut state = shared.state();
        for number in &counted {
            state.partition(*number)?.0.written();
        }
    }
    // Hits that are counted are complete also if members cannot be written.
    if let Err(error) = write_members(shared, &producer).await {
        failed = Some(error);
    }
    let complete = {
        let mut state = shared.state();
        let are_members_written = state.members.are_written();
        let mut complete = Vec::new();
        for number in counted {
            let (partition, _) = state.partition(number)?;
            if partition.is_unwritten(are_members_written) {
                complete.push(partition.complete(writer, are_members_written));
            }
        }
        complete
    };
    if !complete.is_empty() {
        let outgoing: Vec<Outgoing> =
            complete.iter().map(|done| shared.state_record(done.number, &done.record())).collect();
        producer.write(&outgoing, KAFKA_DELIVERY).await?;
        let mut over = Vec::new();
        let mut state = shared.state();
        for &Complete { number, until, members_until, .. } in &complete {
            let (partition, _) = state.partition(number)?;
            partition.note_complete(until, members_until);
            over.extend(partition.take_expired().iter().map(|record| shared.state_record(number, record)));
        }
        drop(state);
        // Nobody waits for it: one that is not removed does no harm.
        producer.post(&over, &Arc::default());
    }
    failed.map_or_else(|| Ok(complete.iter().map(|done| (done.number, done.until)).collect()), Err)
}

/// Writes the next members of records that are due.
async fn write_members(shared: &Shared, producer: &Producer) -> Result<(), EngineError> {
    let texts = {
        let mut state = shared.state();
        if !state.members.are_due(shared.now()) {
            return Ok(());
        }
        state.member_texts(producer.writer(), &*shared.classes, shared.now())
    };
    let record = |text: &KeyTextRecord| shared.keyed_record(&StateRecord::KeyText(text.clone()));
    let outgoing: Vec<Outgoing> = texts.iter().map(record).collect();
    producer.write(&outgoing, KAFKA_DELIVERY).await?;
    let bytes = outgoing.iter().map(Outgoing::bytes).sum();
    shared.state().members.written(texts.iter().map(|text| &*text.key), bytes, shared.now());
    Ok(())
}
