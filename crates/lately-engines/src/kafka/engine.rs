//! The engine: the counts of all nodes, through Kafka.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use lately::{Clock, Timestamp};
use rdkafka::ClientConfig;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::engine::CLAIM_LEAST;
use crate::limits::{ENGINE_TIMEOUT, KAFKA_STOP};
use crate::{
    Block, Engine, EngineError, KeyText, List, NamedTexts, OwnedBlock, Place, Told, VisitRecords, Write,
};

use super::address::Brokers;
use super::client;
use super::config::{Classes, GroupProtocol, KafkaConfig, KafkaRole};
use super::hit_writer::HitGate;
use super::producer::{Outgoing, Producer};
use super::state::State;
use super::state_record::{KeyTextRecord, StateRecord};
use super::stats::KafkaStats;
use super::topics::Topics;
use super::{follower, ingest};

/// The counts of all nodes, through Kafka.
pub struct Kafka {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    is_started: bool,
}

/// What the engine and its threads share.
pub(super) struct Shared {
    pub(super) brokers: Brokers,
    pub(super) topics: Topics,
    pub(super) group: String,
    pub(super) role: KafkaRole,
    pub(super) protocol: GroupProtocol,
    pub(super) session: Duration,
    pub(super) flush: Duration,
    pub(super) keep: Duration,
    pub(super) state: Mutex<State>,
    producer: Mutex<Option<Arc<Producer>>>,
    pub(super) classes: Arc<dyn Classes>,
    pub(super) gate: Arc<HitGate>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) held_bytes: Arc<AtomicUsize>,
    pub(super) stats: Arc<KafkaStats>,
    /// The partitions of the state topic; 0 before they are known.
    pub(super) state_partitions: AtomicI32,
    /// The partitions of the state topic that are to be read from their beginning again.
    pub(super) rereads: Mutex<BTreeSet<i32>>,
    /// The last number that this node has asked for.
    pub(super) nonce: AtomicU64,
    /// Whether the state topic was read up to the start of this node.
    pub(super) caught_up: AtomicBool,
    pub(super) is_stopping: AtomicBool,
    /// Notified when more of the state topic is read.
    pub(super) progress: Notify,
    pub(super) problems: Mutex<BTreeMap<Part, String>>,
    pub(super) warning: Mutex<Option<String>>,
}

/// A part of the work that can fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Part {
    State,
    Group,
    Hits,
    /// The topic of hits is not the one that was counted.
    Topic,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn settings(&self) -> ClientConfig {
        client::settings(&self.brokers)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    pub(super) fn is_caught_up(&self) -> bool {
        self.caught_up.load(Relaxed)
    }

    /// Waits for a while, or until the engine is closed.
    pub(super) async fn pause(&self, span: Duration) {
        let _ = timeout(span, async {
            while !self.is_stopping() {
                self.progress.notified().await;
            }
        })
        .await;
    }

    pub(super) fn set_problem(&self, part: Part, problem: Option<String>) {
        let mut problems = lock(&self.problems);
        match problem {
            Some(problem) => {
                problems.insert(part, problem);
                self.progress.notify_waiters();
            }
            None => _ = problems.remove(&part),
        }
    }

    pub(super) fn warn(&self, warning: String) {
        lock(&self.warning).get_or_insert(warning);
    }

    /// What writes records. One that the brokers do not take any more is replaced. The new one has a number of its own: so
    /// what the old one has sent and the brokers take later cannot replace what this one writes.
    pub(super) fn producer(&self) -> Result<Arc<Producer>, EngineError> {
        let mut held = lock(&self.producer);
        if let Some(producer) = held.as_ref().filter(|producer| !producer.is_broken()) {
            return Ok(Arc::clone(producer));
        }
        let writer = RandomState::new().hash_one(self.now().as_millis());
        let producer = Arc::new(Producer::new(&self.brokers, writer)?);
        self.state().add_writer(writer);
        *held = Some(Arc::clone(&producer));
        Ok(producer)
    }

    /// Notes that more of the state topic is read.
    pub(super) fn note_progress(&self) {
        let held_bytes = {
            let mut state = self.state();
            if std::mem::take(&mut state.foreign) > 0 {
                self.warn(format!(
                    "'{}' has records that no node of this version wrote: they are left out",
                    self.topics.state
                ));
            }
            let refused = std::mem::take(&mut state.refused_texts);
            if refused > 0 {
                self.warn(format!("there is no room for the members that other nodes have of {refused} keys: UNIQ leaves them out until they are sent again"));
            }
            let refused = std::mem::take(&mut state.refused_members);
            if refused > 0 {
                self.warn(format!(
                    "there is no room for {refused} members of records: UNIQ of their keys is too small"
                ));
            }
            let forgotten = std::mem::take(&mut state.forgotten_ids);
            if forgotten > 0 {
                self.stats.note_forgotten_ids(forgotten);
                self.warn(format!(
                    "ids of hits in records take their part of the memory: {forgotten} were forgotten before their dedupe was over, the oldest first, so a hit that is sent again may count twice"
                ));
            }
            state.counts.held_bytes()
        };
        self.held_bytes.store(held_bytes, Relaxed);
        self.progress.notify_waiters();
    }

    /// Keeps the counts of a partition of the hits topic from now on, if only some are kept.
    pub(super) fn keep(&self, partition: i32) {
        let mut state = self.state();
        if state.keeps_some_only() {
            state.keep(partition);
            lock(&self.rereads).insert(self.state_partition(partition));
        }
    }

    /// Takes the partitions of the state topic that are to be read again, once reading begins anew there.
    pub(super) fn take_rereads(
        &self,
        begin: impl FnOnce(&BTreeSet<i32>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        // `has_read` locks in this order, too.
        let mut state = self.state();
        let mut rereads = lock(&self.rereads);
        if rereads.is_empty() {
            return Ok(());
        }
        begin(&rereads)?;
        std::mem::take(&mut *rereads).into_iter().for_each(|partition| state.reread(partition));
        Ok(())
    }

    /// Where the state topic has the counts of a partition of the hits topic.
    fn state_partition(&self, partition: i32) -> i32 {
        partition.rem_euclid(self.state_partitions.load(Relaxed).max(1))
    }

    /// A record of the state topic, from a partition of the hits topic.
    pub(super) fn state_record(&self, partition: i32, record: &StateRecord) -> Outgoing {
        Outgoing {
            topic: Arc::clone(&self.topics.state),
            partition: Some(self.state_partition(partition)),
            key: record.key(),
            value: record.value(),
            time_ms: None,
            headers: Vec::new(),
        }
    }

    /// A record of the state topic that is about a key.
    pub(super) fn keyed_record(&self, record: &StateRecord) -> Outgoing {
        let key = match record {
            StateRecord::Counts { block, .. } => &block.key[..],
            StateRecord::KeyText(text) => &text.key[..],
            _ => &[],
        };
        // FNV-1a: the same on all nodes.
        let hash = key
            .iter()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        self.state_record((hash >> 1).cast_signed(), record)
    }

    /// Writes a record with a new number into each partition of the state topic. Once it is read from all of them, all is read that was
    /// there before. No end of the topic that the brokers report is trusted.
    pub(super) fn ask(&self) -> u64 {
        let now_ms = self.now().as_millis().unsigned_abs();
        let next = |last: u64| Some(now_ms.max(last + 1));
        let last = self.nonce.fetch_update(Relaxed, Relaxed, next).unwrap_or_default();
        let nonce = now_ms.max(last + 1);
        let partitions = 0..self.state_partitions.load(Relaxed);
        match self.producer() {
            Ok(producer) => {
                let record = StateRecord::Nonce { writer: producer.writer(), nonce };
                let records = partitions.map(|partition| self.state_record(partition, &record));
                // Nobody waits for it.
                producer.post(&records.collect::<Vec<_>>(), &Arc::default());
            }
            Err(error) => self.set_problem(Part::State, Some(error.to_string())),
        }
        nonce
    }

    /// Whether the state topic is read up to the time of a number, or a later one.
    pub(super) fn has_read(&self, nonce: u64) -> bool {
        let (state, partitions) = (self.state(), self.state_partitions.load(Relaxed));
        // What is to be read again was read without what is needed of it now.
        let is_whole = lock(&self.rereads).is_empty();
        is_whole && partitions > 0 && (0..partitions).all(|partition| state.nonce(partition) >= nonce)
    }

    /// Waits until the state topic was read up to the start of this node.
    pub(super) async fn caught_up(&self) {
        self.progress_until(|| self.is_caught_up()).await;
    }

    /// The same, or until it cannot be read.
    async fn caught_up_or_failed(&self) {
        self.progress_until(|| self.is_caught_up() || !lock(&self.problems).is_empty()).await;
    }

    /// Waits for something that comes with progress, or until the engine is closed.
    async fn progress_until(&self, mut is_so: impl FnMut() -> bool) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            // Registered before the check, so that no notification is missed.
            progress.as_mut().enable();
            if is_so() || self.is_stopping() {
                return;
            }
            progress.await;
        }
    }

    /// Why counts are not known yet.
    pub(super) fn ready(&self) -> Result<(), EngineError> {
        if self.is_caught_up() {
            return Ok(());
        }
        let why = lock(&self.problems).values().next().cloned();
        Err(EngineError::Away(why.unwrap_or_else(|| format!("'{}' is being read", self.topics.state))))
    }
}

impl Kafka {
    /// A node that knows no counts yet. Nothing is connected yet.
    ///
    /// # Errors
    /// [`EngineError::Url`]: an address is invalid.
    pub fn new(config: KafkaConfig) -> Result<Kafka, EngineError> {
        let KafkaConfig { urls, topic, flush, keep, most_bytes, held_bytes, stats, classes, gate, clock } =
            config;
        let mut state = State::new(&topic.origin(), most_bytes);
        if topic.role == KafkaRole::Ingest {
            state.keep_some_only();
        }
        if !topic.role.counts() {
            state.keep_no_ids();
        }
        let shared = Shared {
            brokers: Brokers::of(&urls)?,
            topics: Topics::of(&topic.topic),
            state: Mutex::new(state),
            group: topic.group,
            role: topic.role,
            protocol: topic.protocol,
            session: topic.session,
            flush,
            keep,
            producer: Mutex::default(),
            classes,
            gate,
            clock,
            held_bytes,
            stats,
            state_partitions: AtomicI32::new(0),
            rereads: Mutex::default(),
            nonce: AtomicU64::new(0),
            caught_up: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            progress: Notify::new(),
            problems: Mutex::default(),
            warning: Mutex::default(),
        };
        Ok(Kafka { shared: Arc::new(shared), threads: Vec::new(), is_started: false })
    }

    /// Starts to read the topics. Later calls change nothing.
    fn start(&mut self) {
        if std::mem::replace(&mut self.is_started, true) {
            return;
        }
        let mut start = |name: &str, run: fn(&Arc<Shared>)| {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
            match thread {
                Ok(thread) => self.threads.push(thread),
                Err(error) => {
                    self.shared.set_problem(Part::State, Some(format!("a thread cannot start: {error}")));
                }
            }
        };
        start("lately-state", follower::run);
        if self.shared.role.counts() {
            start("lately-ingest", ingest::run);
        }
    }

    /// Waits a moment for the state topic after the start.
    async fn ready(&mut self) -> Result<(), EngineError> {
        self.start();
        let _ = timeout(ENGINE_TIMEOUT, self.shared.caught_up_or_failed()).await;
        self.shared.ready()
    }

    fn stop(&self) {
        self.shared.is_stopping.store(true, Relaxed);
        self.shared.progress.notify_waiters();
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Engine for Kafka {
    async fn send(&mut self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        self.ready().await?;
        let shared = &self.shared;
        let producer = shared.producer()?;
        let records = shared.state().write(writes, producer.writer(), shared.now())?;
        let outgoing: Vec<Outgoing> = records.iter().map(|record| shared.keyed_record(record)).collect();
        producer.write(&outgoing, ENGINE_TIMEOUT).await
    }

    async fn claim(
        &mut self,
        node: &str,
        holder: &str,
        is_former: &(dyn Fn(&str) -> bool + Sync),
        lasts: Duration,
    ) -> Result<Option<String>, EngineError> {
        self.ready().await?;
        let shared = &self.shared;
        // The first one that claims it has it.
        let other = |has_claimed: bool| {
            let holders = shared.state().holders(node, shared.now());
            let before = holders.iter().take_while(|held| !has_claimed || *held != holder);
            before.into_iter().find(|held| *held != holder && !is_former(held)).cloned()
        };
        let has_claimed = shared.state().holders(node, shared.now()).iter().any(|held| held == holder);
        if let Some(other) = other(has_claimed) {
            return Ok(Some(other));
        }
        let lasts_ms = u64::try_from(lasts.as_millis()).ok().filter(|_| lasts >= CLAIM_LEAST);
        let claim = StateRecord::Claim { node: node.to_owned(), holder: holder.to_owned(), lasts_ms };
        shared.producer()?.write(&[shared.keyed_record(&claim)], ENGINE_TIMEOUT).await?;
        if lasts_ms.is_none() {
            return Ok(None);
        }
        let has_claimed = || shared.state().holders(node, shared.now()).iter().any(|held| held == holder);
        let is_read = shared.progress_until(has_claimed);
        let late = || EngineError::Away(format!("'{}' is not read in time", shared.topics.state));
        timeout(ENGINE_TIMEOUT, is_read).await.map_err(|_| late())?;
        Ok(other(true))
    }

    async fn set_text(
        &mut self,
        list: List,
        name: &str,
        text: Option<&str>,
        lasts: Duration,
    ) -> Result<(), EngineError> {
        self.ready().await?;
        let shared = &self.shared;
        let lasts_ms = i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
        let until_ms = shared.now().as_millis().saturating_add(lasts_ms);
        let text = text.map(|text| (until_ms, text.to_owned()));
        let record = StateRecord::Text { list: list.number(), name: name.to_owned(), text };
        shared.producer()?.write(&[shared.keyed_record(&record)], ENGINE_TIMEOUT).await?;
        shared.state().merge_own_text(record);
        Ok(())
    }

    async fn texts(&mut self, list: List) -> Result<Vec<(String, String)>, EngineError> {
        self.ready().await?;
        Ok(self.shared.state().texts(list.number(), self.shared.now()))
    }

    fn carries_key_texts(&self) -> bool {
        true
    }

    async fn set_key_texts(&mut self, texts: &[KeyText<'_>]) -> Result<(), EngineError> {
        if texts.is_empty() {
            return Ok(());
        }
        self.ready().await?;
        let (shared, now) = (&self.shared, self.shared.now());
        let producer = shared.producer()?;
        let (mut records, mut has_room) = (Vec::with_capacity(texts.len()), true);
        for &KeyText { key, name, text, keep_until } in texts {
            let mut state = shared.state();
            let version = state.key_texts.next_version(key, name, now);
            let (name, text) = (name.to_owned(), text.map(str::to_owned));
            let (writer, until_ms) = (producer.writer(), keep_until.as_millis());
            let record = KeyTextRecord { writer, key: key.into(), name, version, until_ms, text };
            if state.set_key_text(record.clone(), now).is_err() {
                has_room = false;
                break;
            }
            records.push(shared.keyed_record(&StateRecord::KeyText(record)));
        }
        producer.write(&records, ENGINE_TIMEOUT).await?;
        if has_room { Ok(()) } else { Err(EngineError::NoRoom) }
    }

    async fn key_texts(&mut self, keys: &[&[u8]]) -> Result<Vec<NamedTexts>, EngineError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.ready().await?;
        let (state, now) = (self.shared.state(), self.shared.now());
        Ok(keys.iter().map(|key| state.key_texts.of_key(key, now)).collect())
    }

    /// Always the same: what the brokers have acknowledged stays, and is in memory here.
    fn life(&self) -> u64 {
        1
    }

    fn warning(&mut self) -> Option<String> {
        lock(&self.shared.warning).take()
    }

    fn is_complete(&self) -> bool {
        self.shared.is_caught_up()
    }

    fn problem(&self) -> Option<String> {
        lock(&self.shared.problems).values().next().cloned()
    }

    fn visit_records(&self, page: usize, visit: &mut VisitRecords<'_>) -> bool {
        self.shared.state().visit_records(page, visit)
    }

    async fn close(&mut self) {
        self.stop();
        let threads = std::mem::take(&mut self.threads);
        let ended =
            tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| _ = thread.join()));
        // What is not written by then is counted by the next owner of the partitions.
        let _ = timeout(KAFKA_STOP, ended).await;
    }

    async fn read(&mut self, blocks: &[Block<'_>]) -> Result<Vec<Told>, EngineError> {
        if blocks.is_empty() {
            return Ok(Vec::new());
        }
        self.ready().await?;
        let state = self.shared.state();
        Ok(blocks.iter().map(|block| state.counts.read(block)).collect())
    }

    async fn note_changed(&mut self, blocks: &[Block<'_>]) -> Result<(), EngineError> {
        self.shared.state().counts.note_changed(blocks);
        Ok(())
    }

    async fn take_changed(&mut self, most: usize) -> Result<Vec<OwnedBlock>, EngineError> {
        Ok(self.shared.state().counts.take_changed(most))
    }

    async fn changed(&mut self) -> Result<usize, EngineError> {
        Ok(self.shared.state().counts.changed())
    }

    async fn scan(
        &mut self,
        from: Option<&Place>,
        count: usize,
    ) -> Result<(Vec<OwnedBlock>, Option<Place>), EngineError> {
        self.ready().await?;
        let from = match from {
            Some(Place::Cursor { cursor, .. }) => usize::try_from(*cursor).unwrap_or(usize::MAX),
            _ => 0,
        };
        let (page, next) = self.shared.state().counts.scan(from, count.max(1));
        let place = |next: usize| Place::Cursor { server: String::new(), cursor: next as u64 };
        Ok((page, next.map(place)))
    }
}
