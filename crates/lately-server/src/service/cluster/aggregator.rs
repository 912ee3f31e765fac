//! The aggregator: one node of a data centre copies what its engine has to the upstream one, origin by origin.
//!
//! Nodes note the blocks that they have written in the local engine. The aggregator takes these notes, and copies the blocks as they are
//! by then. Counts merge by their maximum, so it does no harm if two nodes do that at once, or one of them again. What the notes
//! miss is found by a comparison of all blocks: after a loss of either engine and after another node has taken over as fast as the
//! engines take it, else slowly all the time. It also finds deletions elsewhere, and copies their marks to the local engine.

use std::collections::HashMap;
use std::sync::Arc;

use lately::{Tally, Timestamp};
use lately_engines::{Engine, EngineError, Known, OwnedBlock, Place, Told, Write};

use super::busy_lists;
use super::members::copy_up;
use super::name_claim::claim;
use super::outgoing::keep_until;
use super::reconcile::after;
use super::upstream::upstream_of;
use super::worker::{Signals, parts};
use crate::clock::thread_cpu_time;
use crate::limits::{
    CLAIM_EVERY, CLAIM_LASTS, DRAIN_SENDS_MS, EXCHANGE_REST, MAX_EXCHANGE_REST, RECONCILE_PAUSE_MS,
    RECONCILE_ROUND_MS, UPSTREAM_COPY_BLOCKS, UPSTREAM_COPY_WITHIN_MS, UPSTREAM_MOST_CHANGED,
    UPSTREAM_PASS_BLOCKS, UPSTREAM_RETRY,
};
use crate::service::Service;

/// The name that the aggregator of a data centre claims in the local engine. No node can have it.
const NAME: &str = "upstream/aggregator";

/// Copies counts, if it is its turn.
pub(super) struct Aggregator<E> {
    service: Arc<Service>,
    pub(super) local: E,
    pub(super) upstream: E,
    /// When the names were claimed last, and whether this node is the aggregator.
    claimed: Option<Timestamp>,
    is_ours: bool,
    /// Blocks whose notes were taken, and that are not copied.
    taken: Vec<OwnedBlock>,
    /// The lives of the engines in which all blocks were compared, or are being compared.
    lives: (u64, u64),
    /// For each node, the time of its list of busy keys that was copied last.
    busy_lists: HashMap<String, i64>,
    round: Round,
}

/// A comparison of all blocks.
struct Round {
    place: Option<Place>,
    /// Not before this.
    due: Timestamp,
    is_urgent: bool,
    /// Blocks that were listed in this round and in the last one.
    listed: usize,
    listed_before: usize,
}

impl Round {
    fn urgent() -> Round {
        Round { place: None, due: Timestamp::MIN, is_urgent: true, listed: 0, listed_before: 0 }
    }

    /// How many blocks are listed at once, if these may be copied.
    fn count(&self, most: usize) -> usize {
        if self.is_urgent {
            return most;
        }
        let steps = usize::try_from(RECONCILE_ROUND_MS / RECONCILE_PAUSE_MS).unwrap_or(1);
        self.listed_before.div_ceil(steps).clamp(10, most)
    }

    /// Notes how far the blocks are compared.
    fn advance(&mut self, listed: usize, next: Option<Place>, now: Timestamp) {
        self.listed += listed;
        if next.is_none() {
            (self.listed_before, self.listed) = (self.listed, 0);
            self.is_urgent = false;
        }
        self.place = next;
        if !self.is_urgent {
            self.due = after(now, RECONCILE_PAUSE_MS);
        }
    }
}

impl<E: Engine> Aggregator<E> {
    pub(super) fn new(service: Arc<Service>, local: E, upstream: E) -> Aggregator<E> {
        let (taken, round) = (Vec::new(), Round::urgent());
        let busy_lists = HashMap::new();
        Aggregator {
            service,
            local,
            upstream,
            claimed: None,
            is_ours: false,
            taken,
            lives: (0, 0),
            busy_lists,
            round,
        }
    }

    /// Copies until the exchange with the local engine has ended; then what is left, if the engines answer.
    pub(super) async fn run(mut self, signals: &Signals) {
        let service = Arc::clone(&self.service);
        let flush = parts(&service).0.config.flush;
        let mut pause = flush;
        loop {
            let is_stopping = tokio::select! {
                () = signals.drained.stopped() => true,
                () = crate::pause::pause(pause) => false,
            };
            if is_stopping {
                return self.stop().await;
            }
            let begun = thread_cpu_time();
            let done = self.pass().await;
            let rest = thread_cpu_time().saturating_sub(begun) * EXCHANGE_REST;
            pause = flush.max(match done {
                Err(_) => UPSTREAM_RETRY,
                Ok(()) if self.is_ours => rest.min(MAX_EXCHANGE_REST),
                Ok(()) => CLAIM_EVERY,
            });
            self.note(&done, &*signals.tell);
        }
    }

    /// Notes how a pass went, and logs a refusal. The exchanges report an engine that is away.
    fn note(&self, done: &Result<(), EngineError>, tell: &(dyn Fn(&str) + Send + Sync)) {
        let failure = done.as_ref().err().map(ToString::to_string);
        let is_refused = !matches!(done, Ok(()) | Err(EngineError::Away(_)));
        upstream_of(&self.service).set_state(|state| {
            if is_refused && state.copy_failure != failure {
                let why = failure.as_deref().unwrap_or_default();
                tell(&format!("the counts of this data centre are not copied to the upstream engine: {why}"));
            }
            state.copy_failure = failure;
        });
    }

    /// Copies what has changed, and compares some blocks, if this node is the aggregator.
    pub(super) async fn pass(&mut self) -> Result<(), EngineError> {
        let done = self.pass_once().await;
        if done.is_err() {
            // Notes may have been taken and lost.
            self.round = Round::urgent();
        }
        done
    }

    async fn pass_once(&mut self) -> Result<(), EngineError> {
        if !self.claim().await? {
            return Ok(());
        }
        let lives = (self.local.life(), self.upstream.life());
        if lives != self.lives {
            self.lives = lives;
            self.round = Round::urgent();
            self.busy_lists.clear();
        }
        self.copy_changed(UPSTREAM_PASS_BLOCKS).await?;
        self.compare_some().await?;
        let cluster = parts(&self.service).0;
        busy_lists::copy_up(&mut self.upstream, &self.service, cluster, &mut self.busy_lists).await
    }

    /// Claims the names, from time to time. Returns whether this node is the aggregator.
    async fn claim(&mut self) -> Result<bool, EngineError> {
        let service = Arc::clone(&self.service);
        let (now, upstream) = (service.now(), upstream_of(&service));
        let every_ms = i64::try_from(CLAIM_EVERY.as_millis()).unwrap_or(i64::MAX);
        if self.claimed.is_some_and(|at| now < after(at, every_ms)) {
            return Ok(self.is_ours);
        }
        let holder = claim(&mut self.local, &service, NAME, CLAIM_LASTS).await?;
        let was_ours = std::mem::replace(&mut self.is_ours, holder.is_none());
        let waiting_blocks = self.local.changed().await? + self.taken.len();
        let (cluster, _) = parts(&service);
        let name =
            |holder: String| holder.rsplit_once('.').map_or(holder.clone(), |(node, _)| node.to_owned());
        upstream.set_state(|state| {
            state.aggregator = Some(holder.map_or_else(|| cluster.config.node.clone(), name));
            state.waiting_blocks = waiting_blocks;
        });
        if !self.is_ours {
            self.taken.clear();
            self.claimed = Some(now);
            return Ok(false);
        }
        if !was_ours {
            self.round = Round::urgent();
        }
        if waiting_blocks > UPSTREAM_MOST_CHANGED {
            // They are found by the round that follows when the engine is back.
            self.local.take_changed(waiting_blocks - UPSTREAM_MOST_CHANGED).await?;
            self.round = Round::urgent();
        }
        // A claim that is gone says that the engine was emptied.
        let own_name = format!("upstream/{}", cluster.config.node);
        claim(&mut self.upstream, &service, &own_name, CLAIM_LASTS).await?;
        self.claimed = Some(now);
        Ok(true)
    }

    /// Copies about this many of the blocks that nodes have noted.
    async fn copy_changed(&mut self, most: usize) -> Result<(), EngineError> {
        let mut copied = 0;
        while copied < most {
            if self.taken.is_empty() {
                self.taken = self.local.take_changed(self.most_blocks()).await?;
            }
            if self.taken.is_empty() {
                break;
            }
            let begun = self.service.now();
            let blocks: Vec<_> = self.taken.iter().map(OwnedBlock::as_block).collect();
            let told = self.local.read(&blocks).await?;
            if self.is_old(begun) {
                continue;
            }
            let counts: Vec<Vec<&Known>> = told.iter().map(|told| told.iter().collect()).collect();
            self.upstream.send(&writes_of(&self.service, &self.taken, counts)).await?;
            copy_up((&mut self.local, &mut self.upstream), &self.service, &self.taken, begun).await?;
            copied += self.taken.len();
            self.taken.clear();
        }
        Ok(())
    }

    /// Blocks that are copied at once.
    fn most_blocks(&self) -> usize {
        UPSTREAM_COPY_BLOCKS.min(parts(&self.service).0.read_blocks)
    }

    /// Whether what was read at a time is not to be copied any more: the local engine may have lost it, and its node may have sent it
    /// again in another cell. A process that was stopped in between goes on here.
    fn is_old(&self, read: Timestamp) -> bool {
        self.service.now() > after(read, UPSTREAM_COPY_WITHIN_MS)
    }

    /// Compares some blocks, if it is time: counts that the upstream engine lacks are copied there, and marks of deletions that the
    /// local one lacks are copied here.
    async fn compare_some(&mut self) -> Result<(), EngineError> {
        let begun = self.service.now();
        if begun < self.round.due {
            return Ok(());
        }
        let count = self.round.count(self.most_blocks());
        let (blocks, next) = self.local.scan(self.round.place.as_ref(), count).await?;
        let names: Vec<_> = blocks.iter().map(OwnedBlock::as_block).collect();
        let above = self.upstream.read(&names).await?;
        let read = self.service.now();
        let here = self.local.read(&names).await?;
        if self.is_old(read) {
            return Ok(());
        }
        let lacking = here.iter().zip(&above).map(|(here, above)| lacking(here, above));
        let lacking: Vec<_> = lacking.collect();
        let marks: Vec<Told> = here.iter().zip(&above).map(|(here, above)| marks(here, above)).collect();
        self.upstream.send(&writes_of(&self.service, &blocks, lacking)).await?;
        let marks = marks.iter().map(|marks| marks.iter().collect()).collect();
        self.local.send(&writes_of(&self.service, &blocks, marks)).await?;
        copy_up((&mut self.local, &mut self.upstream), &self.service, &blocks, begun).await?;
        self.round.advance(count, next, begun);
        Ok(())
    }

    /// Copies what is left, and lets another node be the aggregator at once.
    async fn stop(&mut self) {
        let service = Arc::clone(&self.service);
        let begun = service.now();
        while self.is_ours
            && service.now() < after(begun, DRAIN_SENDS_MS)
            && self.copy_changed(UPSTREAM_PASS_BLOCKS).await.is_ok()
            && self.local.changed().await.is_ok_and(|left| left > 0)
        {}
        let left: Vec<_> = self.taken.iter().map(OwnedBlock::as_block).collect();
        let _ = self.local.note_changed(&left).await;
        if self.is_ours {
            let lasts = std::time::Duration::from_millis(1);
            let _ = claim(&mut self.local, &service, NAME, lasts).await;
        }
    }
}

/// The counts here that an engine lacks.
fn lacking<'t>(here: &'t Told, above: &Told) -> Vec<&'t Known> {
    let has = |known: &&Known| {
        let held = above.iter().find(|held| held.cell == known.cell && held.origin == known.origin);
        held.is_some_and(|held| {
            let mut merged = held.clone();
            merged.merge(known);
            merged == *held
        })
    };
    here.iter().filter(|known| !has(known)).collect()
}

/// The marks above that the engine here lacks, of counts that it has.
fn marks(here: &Told, above: &Told) -> Told {
    let lacks = |mark: &&Known| {
        let held = here.iter().find(|held| held.cell == mark.cell && held.origin == mark.origin);
        held.is_some_and(|held| held.tally.deleted < mark.tally.deleted)
    };
    let mark = |known: &Known| {
        let tally = Tally { counted: 0, deleted: known.tally.deleted };
        Known { tally, removed: 0, ..known.clone() }
    };
    above.iter().filter(lacks).map(mark).collect()
}

/// The writes of counts of blocks. Blocks without any are left out.
fn writes_of<'w>(service: &Service, blocks: &'w [OwnedBlock], counts: Vec<Vec<&'w Known>>) -> Vec<Write<'w>> {
    let writes = blocks.iter().zip(counts).filter(|(_, counts)| !counts.is_empty());
    let writes = writes.map(|(block, counts)| {
        let sets = service.store.level_sets(&block.key);
        let block = block.as_block();
        Write { block, keep_until: keep_until(&block, &sets), counts }
    });
    writes.collect()
}
