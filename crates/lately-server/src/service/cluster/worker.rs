//! The worker: sends what this node counted, and reads what others counted of the keys that are read here.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lately::{DeltaBatch, Span, Tally, Timestamp};
use lately_engines::{Block, Engine, EngineError, Known, Redis, Told};

use thiserror::Error;

use crate::limits::{
    CLAIM_EVERY, CLAIM_LASTS, CLUSTER_READ_KEYS, DRAIN_SENDS_MS, OUTGOING_PARTS, TIDY_EVERY,
};
use crate::service::Service;
use crate::stopper::Stopper;

use super::Cluster;
use super::interest::Due;
use super::origins::Origins;
use super::outgoing::{Outgoing, writes};

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
struct Worker<'s, E> {
    service: &'s Service,
    cluster: &'s Cluster,
    outgoing: &'s Outgoing,
    /// Counts exchanges.
    turn: usize,
    engine: E,
    /// The life of the engine to which everything was sent that is confirmed.
    life: u64,
    /// When the name of the node was claimed last.
    claimed: Option<i64>,
    /// Since when another server has it.
    refused_since: Option<i64>,
}

/// Starts to count what is to be sent. Called before the first client is served.
///
/// # Errors
/// The data folder does not work.
pub(crate) fn start(service: &Service) -> Result<(), ClusterError> {
    let Some(cluster) = &service.cluster else { return Ok(()) };
    let folder = service.config.storage.as_ref().map(|storage| storage.path.as_path());
    let outgoing = Origins::load(folder)
        .and_then(|origins| Outgoing::new(&cluster.config.node, origins, service.now()))
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
    let Ok(engine) = Redis::new(&cluster.config.url) else { unreachable!("the config was checked") };
    let outgoing = cluster.outgoing.get().expect("it was started");
    let mut worker = Worker {
        service: &service,
        cluster,
        outgoing,
        turn: 0,
        engine,
        life: 0,
        claimed: None,
        refused_since: None,
    };
    loop {
        let is_stopping = {
            let mut flush = pin!(crate::protocol::pause(cluster.config.flush));
            loop {
                tokio::select! {
                    () = signals.drained.stopped() => break true,
                    () = &mut flush => break false,
                    () = cluster.interest.wanted.notified() => worker.read_wanted().await,
                }
            }
        };
        let done = worker.exchange(is_stopping).await;
        note(cluster, &done, &*signals.tell, service.now());
        if let Ok(Some(taken)) = done {
            signals.stopper.stop();
            return Err(taken);
        }
        if is_stopping {
            // The next server of this name need not wait.
            let name = (&cluster.config.node, &service.run_id);
            let _ = worker.engine.claim(name.0, name.1, Duration::from_millis(1)).await;
            return Ok(());
        }
    }
}

impl<E: Engine> Worker<'_, E> {
    /// Sends what was counted, then reads what is due.
    async fn exchange(&mut self, is_stopping: bool) -> Result<Option<ClusterError>, EngineError> {
        match self.claim().await? {
            Claim::Ours => {}
            Claim::Wait => return Ok(None),
            Claim::Taken(taken) => return Ok(Some(taken)),
        }
        self.send(is_stopping).await?;
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
        let Cluster { config, .. } = self.cluster;
        let holder = self.engine.claim(&config.node, &self.service.run_id, CLAIM_LASTS).await?;
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
    async fn send(&mut self, to_the_end: bool) -> Result<(), EngineError> {
        let begun = self.service.now();
        loop {
            let now = self.service.now();
            let mut sent = 0;
            for part in 0..OUTGOING_PARTS {
                let (pending, taken) = self.outgoing.take(part, &self.service.store, now, to_the_end);
                if pending.is_empty() {
                    continue;
                }
                sent += pending.len();
                if let Err(error) = self.engine.send(&writes(&pending, &self.service.store)).await {
                    self.outgoing.send_again(false);
                    return Err(error);
                }
                self.outgoing.confirm(&[taken], None, now);
            }
            if self.life != self.engine.life() {
                // What was confirmed before may be lost by now.
                self.life = self.engine.life();
                self.outgoing.send_again(true);
                continue;
            }
            let unsent_keys = self.outgoing.unsent_keys();
            self.cluster.set_state(|state| state.unsent_keys = unsent_keys);
            let took_ms = now.as_millis() - begun.as_millis();
            if sent == 0 || !to_the_end || took_ms > DRAIN_SENDS_MS {
                break;
            }
        }
        self.turn = self.turn.wrapping_add(1);
        let tidies = self.turn.is_multiple_of(TIDY_EVERY).then_some(self.turn / TIDY_EVERY);
        self.outgoing.confirm(&[], tidies, self.service.now());
        self.delete().await
    }

    /// Marks everything that the engine has of deleted keys.
    async fn delete(&mut self) -> Result<(), EngineError> {
        let now = self.service.now();
        while let Some((key, deleted_at)) = self.outgoing.deleted() {
            let retain = self.service.store.settings_of(&key).retain();
            let told = self.told(&[Due::of(&key, retain)], now).await?.pop().unwrap_or_default();
            let marks = self.outgoing.marks(&key, deleted_at, told);
            self.engine.send(&writes(&marks, &self.service.store)).await?;
            self.service.store.unlearn(&key);
            self.outgoing.marked(&key);
        }
        Ok(())
    }

    /// What the engine has of keys that windows which end now may need, in the order of the keys.
    async fn told(&mut self, due: &[Due], now: Timestamp) -> Result<Vec<Told>, EngineError> {
        let (mut blocks, mut ends) = (Vec::new(), Vec::with_capacity(due.len()));
        for Due { key, window, .. } in due {
            let levels = self.service.store.settings_of(key).levels();
            let (oldest_ms, newest_ms) = reach(*window, self.service, key, now);
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

    /// Removes own hits that another node has deleted, and notes in the engine that they are.
    async fn remove(&mut self, key: &[u8], own: Vec<Known>, now: Timestamp) -> Result<(), EngineError> {
        let is_new = |known: &Known| known.tally.deleted.min(known.tally.counted) > known.removed;
        let marks: Vec<Known> = own.into_iter().filter(is_new).collect();
        if marks.is_empty() {
            return Ok(());
        }
        let service = self.service;
        // A hit is in a cell of each level, and is removed once.
        let levels = service.store.settings_of(key).levels();
        let read = marks.iter().filter(|known| levels.is_read(known.cell, now));
        let hits =
            read.map(|known| (known.cell, known.tally.deleted.min(known.tally.counted) - known.removed));
        let mut deltas = DeltaBatch::default();
        {
            let _entered = service.enter();
            service.store.take_back(key, hits, now, &mut deltas);
        }
        if let Err(refused) = service.commit_through(&deltas) {
            service.store.roll_back(&mut deltas);
            return Err(EngineError::Away(refused.to_string()));
        }
        let removed = marks.into_iter().map(|known| {
            let removed = known.tally.deleted.min(known.tally.counted);
            (key.into(), Known { tally: Tally::default(), removed, ..known })
        });
        let removed: Vec<_> = removed.collect();
        self.engine.send(&writes(&removed, &service.store)).await
    }

    /// Reads what other nodes counted of keys that somebody asked for, unless the engine is away.
    async fn read_wanted(&mut self) {
        if self.cluster.state().failure.is_none() {
            // The next exchange reports a failure.
            let _ = self.read(false).await;
        }
    }

    /// Reads what other nodes counted of keys that are due: those that are not known first, and only these unless there are none,
    /// or `all` is set.
    async fn read(&mut self, all: bool) -> Result<(), EngineError> {
        let (now, interest, store) = (self.service.now(), &self.cluster.interest, &self.service.store);
        let due = interest.due(CLUSTER_READ_KEYS, all, now);
        let mut is_over = false;
        let done = self.read_keys(&due, now, &mut is_over).await;
        if done.is_err() {
            is_over |= interest.note_failure(&due);
        } else if !due.is_empty() {
            // There may be more. They are read after a flush that is due.
            interest.wanted.notify_one();
        }
        interest.tidy(now, |key| store.unlearn(key));
        if is_over {
            self.service.wake();
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
        let told = self.told(due, now).await?;
        for (due, told) in due.iter().zip(told) {
            let (own, of_others): (Vec<_>, Vec<_>) =
                told.into_iter().partition(|known| self.outgoing.is_own(&known.origin));
            self.remove(&due.key, own, now).await?;
            let of_others = of_others.into_iter().map(|known| (known.origin, known.cell, known.tally));
            let store = &self.service.store;
            // What the engine has was checked when it was read.
            let known_bytes = store.learn(&due.key, of_others, now).unwrap_or(0);
            *is_over |= self.cluster.interest.note_read(due, known_bytes, |key| store.unlearn(key));
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
