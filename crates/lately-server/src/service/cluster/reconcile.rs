//! Compares what this node has counted with what the engine has of it, key by key, and sends what is missing there.
//!
//! The outbox sends the hits of now at once, and forgets them soon. What else is missing is found here: late hits, hits that
//! there was no room for, those that came to a wide cell after the outbox had dropped it, the last hits of a server that was
//! killed, which its successor read from the journal, and all hits after an engine has lost what it had. All keys are
//! looked at again and again; after a start and after a loss as fast as the engine takes it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lately::{Cell, Cursor, OwnSpan, Timestamp};
use lately_engines::{Block, Engine, EngineError};

use crate::limits::{
    DRAIN_SENDS_MS, RECONCILE_FULL_EVERY, RECONCILE_KEYS, RECONCILE_LATE_KEYS, RECONCILE_PAUSE_MS,
    RECONCILE_ROUND_MS, RECONCILE_SETTLE_MS,
};

use super::worker::{Worker, parts};

/// How far the keys have been looked at.
pub(super) struct Reconcile {
    cursor: Cursor,
    /// Not before this.
    due: Timestamp,
    /// Whether something is known to be missing.
    is_urgent: bool,
    /// Rounds that were begun.
    rounds: u64,
    /// When this round began, and the one before. Cells that ended before that have been compared, unless this round is full.
    begun: Timestamp,
    begun_before: Timestamp,
}

impl Reconcile {
    pub(super) fn new() -> Reconcile {
        Reconcile {
            cursor: Cursor::START,
            due: Timestamp::MIN,
            is_urgent: false,
            rounds: 0,
            begun: Timestamp::MIN,
            begun_before: Timestamp::MIN,
        }
    }

    /// Looks at all keys. What a connection that was lost has sent may still arrive, so it waits a little.
    pub(super) fn restart(&mut self, now: Timestamp) {
        let due = after(now, RECONCILE_SETTLE_MS);
        *self = Reconcile { due, is_urgent: true, ..Reconcile::new() };
    }

    /// Begins a round, if the last one is over.
    fn begin(&mut self, now: Timestamp) {
        if self.cursor == Cursor::START {
            self.rounds += 1;
            (self.begun_before, self.begun) = (self.begun, now);
        }
    }

    /// Cells that ended before this have been compared.
    fn compared_ms(&self) -> i64 {
        if self.is_urgent || self.rounds.is_multiple_of(RECONCILE_FULL_EVERY) {
            return i64::MIN;
        }
        self.begun_before.as_millis() - 2 * RECONCILE_SETTLE_MS
    }
}

fn after(now: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_millis(now.as_millis() + ms).unwrap_or(Timestamp::MAX)
}

/// The blocks that have a cell of a span.
fn blocks_of<'k>(key: &'k [u8], span: &OwnSpan) -> impl Iterator<Item = Block<'k>> + use<'k> {
    let OwnSpan { width_ms, start_ms, .. } = *span;
    let first = Block::of(key, Cell { start_ms, width_ms }).number;
    let last = Block::of(key, span.last_cell()).number;
    (first..=last).map(move |number| Block { key, width_ms, number })
}

impl<E: Engine> Worker<E> {
    /// Looks at some keys, if it is time.
    pub(super) async fn reconcile(&mut self) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let (cluster, outgoing) = parts(&service);
        let now = service.now();
        // What was counted last may be on its way.
        let until_ms = now.as_millis() - RECONCILE_SETTLE_MS;
        let late = outgoing.take_late(RECONCILE_LATE_KEYS);
        if let Err(error) = self.compare(&late, (i64::MIN, until_ms), now).await {
            // They are found in a round.
            self.reconcile.restart(now);
            return Err(error);
        }
        if !self.reconcile.is_urgent && outgoing.take_left_out() {
            self.reconcile.restart(now);
            cluster.set_state(|state| state.is_reconciled = false);
        }
        if now < self.reconcile.due {
            return Ok(());
        }
        self.reconcile.begin(now);
        let count = if self.reconcile.is_urgent {
            RECONCILE_KEYS
        } else {
            let steps = usize::try_from(RECONCILE_ROUND_MS / RECONCILE_PAUSE_MS).unwrap_or(1);
            service.store.len().div_ceil(steps).max(1)
        };
        let page = service.store.scan(self.reconcile.cursor, None, count, now);
        self.compare(&page.keys, (self.reconcile.compared_ms(), until_ms), now).await?;
        let (is_urgent, is_at_end) = (self.reconcile.is_urgent, page.next == Cursor::START);
        cluster.set_state(|state| state.is_reconciled |= is_urgent && is_at_end);
        let reconcile = &mut self.reconcile;
        reconcile.cursor = page.next;
        reconcile.is_urgent &= !is_at_end;
        if !reconcile.is_urgent {
            reconcile.due = after(now, RECONCILE_PAUSE_MS);
        }
        Ok(())
    }

    /// Looks at all keys before the stop, when nothing is counted any more.
    pub(super) async fn reconcile_all(&mut self) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let (begun, mut cursor) = (service.now(), Cursor::START);
        loop {
            let now = service.now();
            let page = service.store.scan(cursor, None, RECONCILE_KEYS, now);
            self.compare(&page.keys, (i64::MIN, i64::MAX), now).await?;
            cursor = page.next;
            if cursor == Cursor::START || now.as_millis() - begun.as_millis() > DRAIN_SENDS_MS {
                return self.send(true).await;
            }
        }
    }

    /// Compares the cells of keys that ended between two times, and puts what is missing into the outbox.
    async fn compare(
        &mut self,
        keys: &[Box<[u8]>],
        (from_ms, until_ms): (i64, i64),
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let (cluster, outgoing) = parts(&service);
        let spans = |key: &[u8], until_ms: i64| {
            let mut spans = service.store.own_spans(key, until_ms, now);
            spans.retain(|span| span.end_ms >= from_ms);
            spans
        };
        let (mut blocks, mut counts) = (Vec::new(), Vec::with_capacity(keys.len()));
        for key in keys {
            let of_key: HashSet<_> =
                spans(key, until_ms).iter().flat_map(|span| blocks_of(key, span)).collect();
            counts.push(of_key.len());
            blocks.extend(of_key);
        }
        let told = self.engine.read(&blocks).await?;
        let mut read = blocks.iter().zip(told);
        let mut sent_hits = 0;
        for (key, count) in keys.iter().zip(counts).filter(|(_, count)| *count > 0) {
            let told: HashMap<_, _> = read.by_ref().take(count).collect();
            self.remove(key, told.values().flatten(), now).await?;
            sent_hits += service.alone(|| {
                // Late hits may have come since. Those that wait for the disk are in the store, and not in the outbox.
                let mut spans = spans(key, until_ms.min(cluster.oldest_waiting_ms()));
                spans.retain(|span| blocks_of(key, span).all(|block| told.contains_key(&block)));
                let known = told.values().flatten();
                outgoing.top_up(key, &spans, known, service.store.settings_of(key).levels())
            });
        }
        cluster.set_state(|state| state.resent_hits += sent_hits);
        Ok(())
    }
}
