//! The worker: sends what this node counted, and reads what others counted of the keys that are read here.

use std::sync::Arc;
use std::time::Duration;

use lately::{Origin, Span, Tally, Timestamp};
use lately_engines::{Block, Engine, EngineError, Redis};

use crate::limits::{CLUSTER_READ_KEYS, FEED_TAKE_BYTES};
use crate::service::Service;
use crate::service::change_feed::Subscriber;
use crate::stopper::Stopper;

use super::Cluster;
use super::outgoing::{Outgoing, writes};

/// What the worker has.
struct Worker<'s, E> {
    service: &'s Service,
    cluster: &'s Cluster,
    engine: E,
    feed: Subscriber<'s>,
    outgoing: Outgoing,
}

/// Exchanges counts until the server has stopped; then sends what is left, if the engine answers. `opened` is called once no
/// change is missed any more.
pub(crate) async fn run(service: Arc<Service>, stopper: Stopper, opened: impl FnOnce()) {
    let Some(cluster) = &service.cluster else { return };
    let Ok(engine) = Redis::new(&cluster.config.url) else { unreachable!("the config was checked") };
    let incarnation = u64::try_from(service.now().as_millis()).unwrap_or(0);
    let origin = Origin::new(&cluster.config.node, incarnation).expect("the config was checked");
    let mut worker = Worker {
        service: &service,
        cluster,
        engine,
        feed: cluster.committed.open(),
        outgoing: Outgoing::new(origin),
    };
    opened();
    let flush = cluster.config.flush;
    loop {
        let is_stopping = tokio::select! {
            () = stopper.stopped() => true,
            () = cluster.wanted.notified() => false,
            () = crate::protocol::pause(flush) => false,
        };
        let done = worker.exchange(flush).await;
        let now = service.now();
        cluster.set_state(|state| match done {
            Ok(()) => (state.failure, state.reached) = (None, Some(now)),
            Err(error) => state.failure = Some(error.to_string()),
        });
        if is_stopping {
            return;
        }
    }
}

impl<E: Engine> Worker<'_, E> {
    /// Sends what was counted, then reads what is due.
    async fn exchange(&mut self, flush: Duration) -> Result<(), EngineError> {
        self.take_changes();
        self.send().await?;
        self.read(flush).await
    }

    fn take_changes(&mut self) {
        let until = self.feed.end();
        loop {
            let records = match self.feed.take(until, FEED_TAKE_BYTES) {
                Ok(records) if records.is_empty() => return,
                Ok(records) => records,
                Err(_) => {
                    self.feed = self.cluster.committed.open();
                    return;
                }
            };
            for record in records {
                self.outgoing.add(record.now, &record.deltas, &self.service.store);
            }
        }
    }

    async fn send(&mut self) -> Result<(), EngineError> {
        let (pending, numbers) = self.outgoing.pending();
        self.cluster.set_state(|state| state.unsent_cells = pending.len());
        self.engine.send(&writes(&pending, &self.service.store)).await?;
        self.outgoing.confirm(&numbers, self.service.now());
        self.cluster.set_state(|state| state.unsent_cells = 0);
        self.delete().await
    }

    /// Marks everything that the engine has of deleted keys.
    async fn delete(&mut self) -> Result<(), EngineError> {
        let now = self.service.now();
        while let Some((key, deleted_at)) = self.outgoing.deleted.last().cloned() {
            let retain = self.service.store.settings_of(&key).retain();
            let told = self.told(&key, retain, now).await?;
            let marks: Vec<_> = told
                .into_iter()
                .filter(|(origin, cell, tally)| {
                    // What began later has no hit that was deleted.
                    let is_older = cell.start_ms <= deleted_at.as_millis();
                    is_older && tally.counted > 0 && !self.outgoing.holds(&key, origin, *cell)
                })
                .map(|(origin, cell, Tally { counted, .. })| {
                    (key.clone(), origin, cell, Tally { counted: 0, deleted: counted })
                })
                .collect();
            self.engine.send(&writes(&marks, &self.service.store)).await?;
            self.service.store.unlearn(&key);
            self.outgoing.deleted.pop();
        }
        Ok(())
    }

    /// What the engine has of a key that a window which ends now may need.
    async fn told(
        &mut self,
        key: &[u8],
        window: Span,
        now: Timestamp,
    ) -> Result<lately_engines::Told, EngineError> {
        let levels = self.service.store.settings_of(key).levels();
        let (oldest_ms, newest_ms) = reach(window, self.service, key, now);
        let mut blocks = Vec::new();
        for (level, from_ms, to_ms) in levels.ranges_ms(now) {
            let (from_ms, to_ms) = (from_ms.max(oldest_ms - level.width_ms), to_ms.min(newest_ms));
            if from_ms < to_ms {
                blocks.extend(Block::between(key, level, from_ms, to_ms));
            }
        }
        Ok(self.engine.read(&blocks).await?.into_iter().flatten().collect())
    }

    async fn read(&mut self, flush: Duration) -> Result<(), EngineError> {
        let now = self.service.now();
        for key in self.cluster.interest.take_forgotten(now) {
            self.service.store.unlearn(&key);
        }
        let due = self.cluster.interest.due(flush, CLUSTER_READ_KEYS, now);
        for (key, window) in &due {
            let told = self.told(key, *window, now).await?;
            let of_others = told.into_iter().filter(|(origin, ..)| !self.outgoing.is_own(origin));
            // What the engine has was checked when it was read.
            let _ = self.service.store.learn(key, of_others, now);
        }
        self.cluster.interest.note_read(&due, now);
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
