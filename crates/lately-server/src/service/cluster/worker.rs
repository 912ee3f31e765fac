//! The worker: sends what this node counted, and reads what others counted of the keys that are read here.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lately::limits::SENT_WITHIN_MS;
use lately::{Cell, DeltaBatch, Origin, Settings, Span, Store, Taken, Tally, Timestamp};
use lately_engines::{Block, Engine, EngineError, Known, Redis, Told};

use thiserror::Error;

use crate::clock::thread_cpu_time;
use crate::limits::{
    CLAIM_EVERY, CLAIM_LASTS, CLUSTER_READ_KEYS, CLUSTER_SEND_KEYS, CLUSTER_SEND_MOST_KEYS, DELETIONS_SHARE,
    DRAIN_SENDS_MS, EXCHANGE_REST, MAX_EXCHANGE_REST, READ_AHEAD_MS, RECONCILE_SETTLE_MS, WARNING_EVERY_MS,
};
use crate::service::Service;
use crate::stopper::Stopper;

use super::Cluster;
use super::interest::Due;
use super::nodes;
use super::origins::Origins;
use super::outgoing::{Outgoing, Pending, writes};
use super::reconcile::{Reconcile, after, before};

/// Signals to the worker and from it.
pub(crate) struct Signals {
    /// Stops the server.
    pub(crate) stopper: Stopper,
    /// Stopped when all clients were answered: there will be no more changes.
    pub(crate) drained: Stopper,
    /// Gets log lines.
    pub(crate) tell: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Notes how an exchange went, and logs a change.
fn note(
    cluster: &Cluster,
    done: &Result<Option<ClusterError>, EngineError>,
    tell: &(dyn Fn(&str) + Send + Sync),
    sent_until: Option<Timestamp>,
) {
    let failed_before = cluster.state().failure.is_some();
    match done {
        Ok(_) if failed_before => tell("the cluster is reached again"),
        Err(error) if !failed_before => {
            tell(&format!(
                "the cluster cannot be reached: {error}: this node counts on, and sends its counts later"
            ));
        }
        _ => {}
    }
    cluster.set_state(|state| match done {
        Ok(_) => (state.failure, state.sent_until) = (None, sent_until),
        Err(error) => state.failure = Some(error.to_string()),
    });
}

/// Why a server does not count together with others.
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum ClusterError {
    /// Another server has the name of this node.
    #[error("another server is node '{node}' of the cluster")]
    NodeTaken {
        /// The name.
        node: String,
    },
    /// The list of origins in the data folder cannot be read or written.
    #[error("the origins of this node: {0}")]
    Origins(std::io::Error),
}

/// Whether this server has the name of its node.
enum Claim {
    Ours,
    /// A server that was killed may have it still.
    Wait,
    Taken(ClusterError),
}

/// What the worker has.
pub(super) struct Worker<E> {
    pub(super) service: Arc<Service>,
    pub(super) reconcile: Reconcile,
    /// The part of the keys that is sent next, and since when, if its first keys were sent.
    next_part: usize,
    next_part_begun: Option<Timestamp>,
    /// For each part of the keys: hits from before then are sent.
    sent_until: Vec<Timestamp>,
    /// What was read and left out, and why; and when that was last logged.
    warning: Option<String>,
    warned: Option<Timestamp>,
    /// When counts may last have been lost or late on their way.
    pub(super) unsettled: Option<Timestamp>,
    pub(super) engine: E,
    /// The life of the engine to which everything was sent that is confirmed.
    life: u64,
    /// When the name of the node was claimed last.
    claimed: Option<i64>,
    /// Since when another server has it.
    refused_since: Option<i64>,
    /// Own hits that were deleted by another node and left the store, and of which the engine may not know that.
    removed: HashMap<(Box<[u8]>, Origin, Cell), u64>,
}

/// The cluster of a service that has one, and what it has to send.
pub(super) fn parts(service: &Service) -> (&Cluster, &Outgoing) {
    let cluster = service.cluster.as_ref().expect("it counts together with others");
    (cluster, cluster.outgoing.get().expect("it was started"))
}

/// Starts to note what is to be sent. Called before the first client is served.
///
/// # Errors
/// The data folder does not work.
pub(crate) fn start(service: &Service) -> Result<(), ClusterError> {
    let Some(cluster) = &service.cluster else { return Ok(()) };
    let folder = service.config.storage.as_ref().map(|storage| storage.path.as_path());
    let most_bytes = usize::try_from(service.config.ceiling_bytes / DELETIONS_SHARE).unwrap_or(usize::MAX);
    let outgoing = Origins::load(folder)
        .and_then(|origins| Outgoing::new(&cluster.config.node, origins, most_bytes, service.now()))
        .map_err(ClusterError::Origins)?;
    let _ = cluster.outgoing.set(outgoing);
    service.store.track_unsent(service.now());
    Ok(())
}

/// Exchanges counts until the server has stopped; then sends what is left, if the engine answers.
///
/// # Errors
/// [`ClusterError`]: another server has the name of this node. The server is stopped.
pub(crate) async fn run(service: Arc<Service>, signals: Signals) -> Result<(), ClusterError> {
    let Some(cluster) = &service.cluster else { return Ok(()) };
    let Ok(engine) = Redis::new(&cluster.config.urls) else { unreachable!("the config was checked") };
    let mut worker = Worker::new(Arc::clone(&service), engine);
    let flush = cluster.config.flush;
    let mut pause = flush;
    loop {
        let is_stopping = {
            let mut flush = pin!(crate::protocol::pause(pause));
            loop {
                tokio::select! {
                    () = signals.drained.stopped() => break true,
                    () = &mut flush => break false,
                    () = cluster.interest.wanted.notified() => worker.read_wanted().await,
                }
            }
        };
        let begun = thread_cpu_time();
        let done = worker.exchange(is_stopping).await;
        let rest = thread_cpu_time().saturating_sub(begun) * EXCHANGE_REST;
        pause = flush.max(rest.min(MAX_EXCHANGE_REST));
        note(cluster, &done, &*signals.tell, worker.sent_until());
        worker.warn(&*signals.tell);
        if let Ok(Some(taken)) = done {
            signals.stopper.stop();
            return Err(taken);
        }
        // A node has no status while another may have its name.
        if worker.claimed.is_some() && !is_stopping && !matches!(done, Err(EngineError::Away(_))) {
            nodes::renew(&mut worker.engine, &service, cluster, &*signals.tell).await;
        }
        if is_stopping {
            // The next server of this name need not wait.
            if worker.claimed.is_some() {
                nodes::leave(&mut worker.engine, cluster).await;
            }
            let name = parts(&service).1.origin().to_string();
            let lasts = Duration::from_millis(1);
            let _ = worker.engine.claim(&cluster.config.node, &name, &|_| false, lasts).await;
            return Ok(());
        }
    }
}

impl<E: Engine> Worker<E> {
    /// A worker of a service that was started.
    pub(super) fn new(service: Arc<Service>, engine: E) -> Worker<E> {
        let sent_until = vec![service.now(); service.store.unsent_parts()];
        Worker {
            service,
            reconcile: Reconcile::new(),
            next_part: 0,
            next_part_begun: None,
            sent_until,
            warning: None,
            warned: None,
            unsettled: None,
            engine,
            life: 0,
            claimed: None,
            refused_since: None,
            removed: HashMap::new(),
        }
    }

    /// Logs what was left out, now and then.
    fn warn(&mut self, tell: &(dyn Fn(&str) + Send + Sync)) {
        let Some(warning) = self.engine.warning().or_else(|| self.warning.take()) else { return };
        let now = self.service.now();
        if self.warned.is_none_or(|last| now >= after(last, WARNING_EVERY_MS)) {
            tell(&warning);
            self.warned = Some(now);
        }
    }

    /// Sends what was counted, then reads what is due.
    pub(super) async fn exchange(&mut self, is_stopping: bool) -> Result<Option<ClusterError>, EngineError> {
        match self.claim().await? {
            Claim::Ours => {}
            Claim::Wait => {
                // What others counted is read meanwhile.
                self.read(true).await?;
                return Ok(None);
            }
            Claim::Taken(taken) => return Ok(Some(taken)),
        }
        self.send(is_stopping).await?;
        if is_stopping {
            return self.reconcile_all().await.map(|()| None);
        }
        self.reconcile().await?;
        self.read(true).await?;
        Ok(None)
    }

    /// Claims the name of this node, from time to time. A server that was killed has it for a while longer.
    async fn claim(&mut self) -> Result<Claim, EngineError> {
        let now_ms = self.service.now().as_millis();
        let passed = |since_ms: i64| Duration::from_millis(u64::try_from(now_ms - since_ms).unwrap_or(0));
        if self.claimed.is_some_and(|at_ms| passed(at_ms) < CLAIM_EVERY) {
            return Ok(Claim::Ours);
        }
        let service = Arc::clone(&self.service);
        let (Cluster { config, .. }, outgoing) = parts(&service);
        let name = outgoing.origin().to_string();
        // An earlier start of this server in this data folder.
        let is_former = |holder: &str| holder != name && holder.parse().is_ok_and(|of| outgoing.is_own(&of));
        let holder = self.engine.claim(&config.node, &name, &is_former, CLAIM_LASTS).await?;
        if holder.is_none() {
            self.claimed = Some(now_ms);
            return Ok(Claim::Ours);
        }
        let since_ms = *self.refused_since.get_or_insert(now_ms);
        // Each server counts under its own origin, so two with one name are no danger to the counts. This one had it first.
        if self.claimed.is_some() {
            return Ok(Claim::Ours);
        }
        if passed(since_ms) < 2 * CLAIM_LASTS {
            return Ok(Claim::Wait);
        }
        Ok(Claim::Taken(ClusterError::NodeTaken { node: config.node.clone() }))
    }

    /// Sends counts of keys with new hits, of as many keys as an exchange may send. With `to_the_end`, of all of them, and those of
    /// the wider cells, too.
    pub(super) async fn send(&mut self, to_the_end: bool) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        if service.is_loading() {
            return Ok(());
        }
        let (cluster, outgoing) = parts(&service);
        outgoing.loaded(|| latest_loaded(&service));
        let begun = service.now();
        let (mut parts_left, mut keys) = (service.store.unsent_parts(), 0);
        while parts_left > 0 && (to_the_end || keys < CLUSTER_SEND_MOST_KEYS) {
            self.delete().await?;
            let visit = self.visit(&mut parts_left, to_the_end, &service.store);
            keys += visit.keys.len();
            self.send_visited(visit, outgoing, cluster).await?;
            if service.now().as_millis() - begun.as_millis() > DRAIN_SENDS_MS {
                break;
            }
        }
        if self.life != self.engine.life() {
            // What was sent before may be lost by now. What was sent last is sent again at once, the rest is compared.
            self.life = self.engine.life();
            let now = service.now();
            self.unsettled = Some(now);
            service.store.mark_unsent_since(before(now, SENT_WITHIN_MS / 2));
            self.reconcile.restart(now);
            cluster.set_state(|state| state.is_reconciled = false);
        }
        outgoing.tidy(service.now());
        Ok(())
    }

    /// Takes the counts of some keys with new hits out of the store.
    fn visit<'s>(&mut self, parts_left: &mut usize, with_wider: bool, store: &'s Store) -> Visit<'s> {
        let mut visit = Visit { decreases: store.decreases(), keys: Vec::new(), parts: Vec::new() };
        while *parts_left > 0 && visit.keys.len() < CLUSTER_SEND_KEYS {
            let first = visit.keys.len();
            let mut keys = Vec::new();
            let most = CLUSTER_SEND_KEYS - first;
            let now = self.service.now();
            let begun = *self.next_part_begun.get_or_insert(now);
            let taken = store.take_unsent(self.next_part, most, with_wider, now, |unsent| {
                keys.push((Box::from(unsent.key), unsent.settings, unsent.cells, unsent.has_older));
            });
            let visited = keys.into_iter();
            visit.keys.extend(visited.map(|(key, settings, cells, has_older)| Visited {
                key,
                settings,
                cells,
                has_older,
                taken,
            }));
            if taken.is_done {
                visit.parts.push((self.next_part, begun));
                self.next_part_begun = None;
                self.next_part = (self.next_part + 1) % store.unsent_parts();
                *parts_left -= 1;
            }
        }
        visit
    }

    /// Sends the counts of a visit, once all of them are committed.
    async fn send_visited(
        &mut self,
        visit: Visit<'_>,
        outgoing: &Outgoing,
        cluster: &Cluster,
    ) -> Result<(), EngineError> {
        if visit.keys.is_empty() {
            self.note_sent(&visit);
            return Ok(());
        }
        let service = Arc::clone(&self.service);
        let store = &service.store;
        let put_back =
            |visited: &Visited<'_>| store.put_back_unsent(&visited.key, visited.has_older, &visited.taken);
        let counts = visit.keys.iter().map(|visited| outgoing.counts(&visited.key, &visited.cells));
        let counts: Vec<_> = counts.collect();
        cluster.committed(&service).await;
        if store.decreases() != visit.decreases {
            visit.keys.iter().for_each(put_back);
            return Ok(());
        }
        let mut pending = Vec::with_capacity(visit.keys.len());
        for (visited, (counts, has_shared)) in visit.keys.iter().zip(counts) {
            // The marks of the deletion come first.
            if outgoing.is_deleted(&visited.key) {
                put_back(visited);
                continue;
            }
            if has_shared || visited.has_older {
                self.reconcile.note_older(&visited.key);
            }
            if !counts.is_empty() {
                pending.push(Pending { key: &visited.key, levels: visited.settings.levels(), counts });
            }
        }
        let sent = self.engine.send(&writes(&pending)).await;
        if sent.is_err() {
            self.unsettled = Some(service.now());
            visit.keys.iter().for_each(put_back);
        } else {
            self.note_sent(&visit);
        }
        sent
    }

    fn note_sent(&mut self, visit: &Visit<'_>) {
        visit.parts.iter().for_each(|&(part, begun)| self.sent_until[part] = begun);
    }

    /// All hits from before then are sent.
    fn sent_until(&self) -> Option<Timestamp> {
        self.sent_until.iter().copied().min()
    }

    /// Whether writes that were said to have failed have arrived by now, if they arrive at all.
    pub(super) fn is_settled(&self) -> bool {
        let now = self.service.now();
        self.unsettled.is_none_or(|since| now >= after(since, RECONCILE_SETTLE_MS))
    }

    /// Marks everything that the engine has of deleted keys.
    async fn delete(&mut self) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let outgoing = parts(&service).1;
        while self.is_settled()
            && let Some((key, deleted_at)) = outgoing.deleted()
        {
            let now = service.now();
            let told = self.all_told(&key, now).await?;
            let counts = outgoing.marks((deleted_at, now), told);
            outgoing.note_deleted(&key, &counts);
            let levels = service.store.settings_of(&key).levels();
            self.write(&[Pending { key: &key, levels, counts }]).await?;
            service.store.unlearn(&key);
            outgoing.marked(&key, deleted_at);
        }
        Ok(())
    }

    /// Sends counts that are not made from keys with new hits.
    pub(super) async fn write(&mut self, pending: &[Pending<'_>]) -> Result<(), EngineError> {
        let sent = self.engine.send(&writes(pending)).await;
        if sent.is_err() {
            self.unsettled = Some(self.service.now());
        }
        sent
    }

    /// What the engine has of keys that windows which end now may need, in the order of the keys.
    async fn told(&mut self, due: &[Due], now: Timestamp) -> Result<Vec<Told>, EngineError> {
        let service = &self.service;
        let (mut blocks, mut ends) = (Vec::new(), Vec::with_capacity(due.len()));
        for Due { key, window, .. } in due {
            let levels = service.store.settings_of(key).levels();
            let (oldest_ms, newest_ms) = reach(*window, service, key, now);
            // Wider cells are read a little before answers are made of them, for an answer is made of what was read last.
            let soon = levels.ranges_ms(after(now, READ_AHEAD_MS));
            for ((level, from_ms, _), (_, _, to_ms)) in levels.ranges_ms(now).zip(soon) {
                let (from_ms, to_ms) = (from_ms.max(oldest_ms - level.width_ms), to_ms.min(newest_ms));
                if from_ms < to_ms {
                    blocks.extend(Block::between(key, level, from_ms, to_ms));
                }
            }
            ends.push(blocks.len());
        }
        let mut told = self.engine.read(&blocks).await?.into_iter();
        let mut start = 0;
        let of_key = |end| {
            let of_key = told.by_ref().take(end - start).flatten().collect();
            start = end;
            of_key
        };
        Ok(ends.into_iter().map(of_key).collect())
    }

    /// What the engine has of a key, in cells of all levels: also in those that are read later.
    async fn all_told(&mut self, key: &[u8], now: Timestamp) -> Result<Told, EngineError> {
        let settings = self.service.store.settings_of(key);
        let (oldest_ms, newest_ms) = reach(settings.retain(), &self.service, key, now);
        let blocks = settings.levels().ranges_ms(now).flat_map(|(level, from_ms, _)| {
            Block::between(key, level, from_ms.max(oldest_ms - level.width_ms), newest_ms)
        });
        let blocks: Vec<_> = blocks.collect();
        Ok(self.engine.read(&blocks).await?.into_iter().flatten().collect())
    }

    /// Removes own hits that another node has deleted, and notes in the engine that they are. `told` is of some cells of the key.
    pub(super) async fn remove(
        &mut self,
        key: &[u8],
        told: impl Iterator<Item = &Known>,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let outgoing = parts(&service).1;
        let is_marked = |known: &Known| {
            outgoing.is_own(&known.origin) && known.tally.deleted.min(known.tally.counted) > known.removed
        };
        if !told.into_iter().any(is_marked) {
            return Ok(());
        }
        // A hit is in a cell of each level. What is removed in one is removed in all.
        let own = self.all_told(key, now).await?.into_iter().filter(is_marked);
        let name = |known: &Known| (Box::<[u8]>::from(key), known.origin.clone(), known.cell);
        // With how many of its hits have left the store, and how many are to leave it.
        let mut marks = Vec::new();
        for known in own {
            let deleted = known.tally.deleted.min(known.tally.counted);
            let removed = known.removed.max(self.removed.get(&name(&known)).copied().unwrap_or(0));
            marks.push((Known { removed: removed.max(deleted), ..known }, deleted.saturating_sub(removed)));
        }
        if marks.is_empty() {
            return Ok(());
        }
        let levels = service.store.settings_of(key).levels();
        let read = marks.iter().filter(|(known, _)| levels.is_read(known.cell, now));
        let hits = read.map(|(known, hits)| (known.cell, *hits));
        let mut deltas = DeltaBatch::default();
        {
            let _entered = service.enter();
            service.store.take_back(key, hits, now, &mut deltas);
        }
        if let Err(refused) = service.commit_through(&deltas) {
            service.store.roll_back(&mut deltas);
            return Err(EngineError::Away(refused.to_string()));
        }
        let removed: Vec<Known> =
            marks.into_iter().map(|(known, _)| Known { tally: Tally::default(), ..known }).collect();
        self.removed.extend(removed.iter().map(|known| (name(known), known.removed)));
        outgoing.note_deleted(key, &removed);
        let pending = [Pending { key, levels, counts: removed }];
        self.write(&pending).await?;
        for known in &pending[0].counts {
            self.removed.remove(&name(known));
        }
        Ok(())
    }

    /// Reads what other nodes counted of keys that somebody asked for, unless the engine is away.
    async fn read_wanted(&mut self) {
        let service = Arc::clone(&self.service);
        if parts(&service).0.state().failure.is_none() {
            // The next exchange reports a failure.
            let _ = self.read(false).await;
        }
    }

    /// Reads what other nodes counted of keys that are due: those that are not known first, and only these unless there are none,
    /// or `all` is set.
    async fn read(&mut self, all: bool) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let interest = &parts(&service).0.interest;
        let now = service.now();
        let due = interest.due(CLUSTER_READ_KEYS, all, now);
        let mut is_over = false;
        let done = self.read_keys(&due, now, &mut is_over).await;
        if done.is_err() {
            is_over |= interest.note_failure(&due);
        } else if !due.is_empty() {
            // There may be more. They are read after a flush that is due.
            interest.wanted.notify_one();
        }
        interest.tidy(now, |key| service.store.unlearn(key));
        if is_over {
            service.wake();
        }
        done
    }

    /// Reads these keys. `is_over` becomes true if a question can be answered now.
    async fn read_keys(
        &mut self,
        due: &[Due],
        now: Timestamp,
        is_over: &mut bool,
    ) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let (cluster, outgoing) = parts(&service);
        let told = self.told(due, now).await?;
        for (due, told) in due.iter().zip(told) {
            self.remove(&due.key, told.iter(), now).await?;
            let of_others = told.into_iter().filter(|known| !outgoing.is_own(&known.origin));
            let of_others = of_others.map(|known| (known.origin, known.cell, known.tally));
            let store = &service.store;
            let learned = store.learn(&due.key, of_others, now);
            if let Err(error) = &learned {
                let key = String::from_utf8_lossy(&due.key).escape_debug().to_string();
                self.warning = Some(format!("the hits of other nodes on '{key}' are left out: {error}"));
            }
            let known_bytes = learned.unwrap_or(0);
            *is_over |= cluster.interest.note_read(due, known_bytes, |key| store.unlearn(key));
        }
        Ok(())
    }
}

/// Keys with new hits.
struct Visit<'s> {
    /// See [`Store::decreases`].
    decreases: u64,
    keys: Vec<Visited<'s>>,
    /// The parts of which this visit has the last keys, and when their first keys were visited.
    parts: Vec<(usize, Timestamp)>,
}

struct Visited<'s> {
    key: Box<[u8]>,
    settings: &'s Settings,
    cells: Vec<(Cell, u64)>,
    has_older: bool,
    taken: Taken,
}

/// The latest time that a hit may have which was loaded from the data folder.
fn latest_loaded(service: &Service) -> Timestamp {
    let now = service.now().max(service.store.now());
    after(now, service.config.largest_max_skew().as_millis())
}

/// The first and one past the last millisecond that a window of a key may need, read now or a little earlier.
fn reach(window: Span, service: &Service, key: &[u8], now: Timestamp) -> (i64, i64) {
    let settings = service.store.settings_of(key);
    let window_ms = window.min(settings.retain()).as_millis() + settings.exact().as_millis();
    let skew_ms = settings.max_skew().as_millis() + settings.resolution().as_millis();
    (now.as_millis() - window_ms, now.as_millis() + skew_ms)
}
