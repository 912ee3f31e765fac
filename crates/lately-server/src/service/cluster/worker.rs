//! The worker: sends what this node counted, and reads what others counted of the keys that are read here.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lately::{Cell, DeltaBatch, Origin, Span, Tally, Timestamp};
use lately_engines::{Block, Engine, EngineError, Known, Redis, Told};

use thiserror::Error;

use crate::clock::thread_cpu_time;
use crate::limits::{
    CLAIM_EVERY, CLAIM_LASTS, CLUSTER_READ_KEYS, DRAIN_SENDS_MS, EXCHANGE_REST, MAX_EXCHANGE_REST,
    OUTBOX_SHARE, OUTGOING_PARTS, TIDY_PARTS,
};
use crate::service::Service;
use crate::stopper::Stopper;

use super::Cluster;
use super::interest::Due;
use super::nodes;
use super::origins::Origins;
use super::outgoing::{Outgoing, writes};
use super::reconcile::Reconcile;

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
    now: Timestamp,
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
        Ok(_) => (state.failure, state.reached) = (None, Some(now)),
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
    /// The part whose old cells are dropped next.
    next_tidy: usize,
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

/// Starts to count what is to be sent. Called before the first client is served.
///
/// # Errors
/// The data folder does not work.
pub(crate) fn start(service: &Service) -> Result<(), ClusterError> {
    let Some(cluster) = &service.cluster else { return Ok(()) };
    let folder = service.config.storage.as_ref().map(|storage| storage.path.as_path());
    let most_bytes = usize::try_from(service.config.ceiling_bytes / OUTBOX_SHARE).unwrap_or(usize::MAX);
    let outgoing = Origins::load(folder)
        .and_then(|origins| Outgoing::new(&cluster.config.node, origins, most_bytes, service.now()))
        .map_err(ClusterError::Origins)?;
    let _ = cluster.outgoing.set(outgoing);
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
        note(cluster, &done, &*signals.tell, service.now());
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
        Worker {
            service,
            reconcile: Reconcile::new(),
            next_tidy: 0,
            engine,
            life: 0,
            claimed: None,
            refused_since: None,
            removed: HashMap::new(),
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

    /// Sends counts until others have all of them. With `to_the_end`, the wider cells are brought up to date first.
    pub(super) async fn send(&mut self, to_the_end: bool) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let (cluster, outgoing) = parts(&service);
        let begun = service.now();
        loop {
            let now = service.now();
            let mut sent = 0;
            for part in 0..OUTGOING_PARTS {
                let (pending, taken) = outgoing.take(part, &service.store, now, to_the_end);
                if pending.is_empty() {
                    continue;
                }
                sent += pending.len();
                if let Err(error) = self.engine.send(&writes(&pending, &service.store)).await {
                    outgoing.send_again(false);
                    return Err(error);
                }
                outgoing.confirm(&taken);
            }
            if self.life != self.engine.life() {
                // What was confirmed before may be lost by now.
                self.life = self.engine.life();
                outgoing.send_again(true);
                self.reconcile.restart(now);
                cluster.set_state(|state| state.is_reconciled = false);
                continue;
            }
            let took_ms = now.as_millis() - begun.as_millis();
            if sent == 0 || !to_the_end || took_ms > DRAIN_SENDS_MS {
                break;
            }
        }
        for _ in 0..TIDY_PARTS {
            outgoing.tidy(self.next_tidy, service.now());
            self.next_tidy = (self.next_tidy + 1) % OUTGOING_PARTS;
        }
        self.delete().await
    }

    /// Marks everything that the engine has of deleted keys.
    async fn delete(&mut self) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let (outgoing, now) = (parts(&service).1, service.now());
        while let Some((key, deleted_at)) = outgoing.deleted() {
            let told = self.all_told(&key, now).await?;
            let marks = outgoing.marks(&key, (deleted_at, now), told);
            self.engine.send(&writes(&marks, &service.store)).await?;
            service.store.unlearn(&key);
            outgoing.marked(&key);
        }
        Ok(())
    }

    /// What the engine has of keys that windows which end now may need, in the order of the keys.
    async fn told(&mut self, due: &[Due], now: Timestamp) -> Result<Vec<Told>, EngineError> {
        let service = &self.service;
        let (mut blocks, mut ends) = (Vec::new(), Vec::with_capacity(due.len()));
        for Due { key, window, .. } in due {
            let levels = service.store.settings_of(key).levels();
            let (oldest_ms, newest_ms) = reach(*window, service, key, now);
            for (level, from_ms, to_ms) in levels.ranges_ms(now) {
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
        // So that it is not sent as if it were there when the engine has lost it.
        outgoing.note_removed(key, &removed);
        let removed: Vec<_> = removed.into_iter().map(|known| (Box::from(key), known)).collect();
        self.engine.send(&writes(&removed, &service.store)).await?;
        for (_, known) in &removed {
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
            // What the engine has was checked when it was read.
            let known_bytes = store.learn(&due.key, of_others, now).unwrap_or(0);
            *is_over |= cluster.interest.note_read(due, known_bytes, |key| store.unlearn(key));
        }
        Ok(())
    }
}

/// The first and one past the last millisecond that a window of a key may need, read now or a little earlier.
fn reach(window: Span, service: &Service, key: &[u8], now: Timestamp) -> (i64, i64) {
    let settings = service.store.settings_of(key);
    let window_ms = window.min(settings.retain()).as_millis() + settings.exact().as_millis();
    let skew_ms = settings.max_skew().as_millis() + settings.resolution().as_millis();
    (now.as_millis() - window_ms, now.as_millis() + skew_ms)
}
