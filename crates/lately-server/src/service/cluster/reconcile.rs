//! Compares what this node has counted with what the engine has of it, key by key, and sends what is missing there.
//!
//! That is more than the outbox holds: the last hits of a server that was killed, which its successor read from the journal, and
//! all hits after an engine has lost what it had. After a start and after a loss all keys are looked at as fast as the
//! engine takes it, and from then on a few at a time, again and again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lately::{Cursor, OwnSpan, Timestamp};
use lately_engines::{Block, Engine, EngineError};

use crate::limits::{RECONCILE_KEYS, RECONCILE_PAUSE_MS, RECONCILE_SETTLE_MS, RECONCILE_SLOWLY_KEYS};

use super::worker::{Worker, parts};

/// How far the keys have been looked at.
pub(super) struct Reconcile {
    cursor: Cursor,
    /// Not before this.
    due: Timestamp,
    /// Whether something is known to be missing.
    is_urgent: bool,
}

impl Reconcile {
    pub(super) fn new() -> Reconcile {
        Reconcile { cursor: Cursor::START, due: Timestamp::MAX, is_urgent: false }
    }

    /// Looks at all keys. What a connection that was lost has sent may still arrive, so it waits a little.
    pub(super) fn restart(&mut self, now: Timestamp) {
        *self = Reconcile { cursor: Cursor::START, due: after(now, RECONCILE_SETTLE_MS), is_urgent: true };
    }
}

fn after(now: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_millis(now.as_millis() + ms).unwrap_or(Timestamp::MAX)
}

/// The blocks that have a cell of a span.
fn blocks_of<'k>(key: &'k [u8], span: &OwnSpan) -> impl Iterator<Item = Block<'k>> + use<'k> {
    let OwnSpan { width_ms, start_ms, .. } = *span;
    let first = Block::of(key, lately::Cell { start_ms, width_ms }).number;
    let last = Block::of(key, span.last_cell()).number;
    (first..=last).map(move |number| Block { key, width_ms, number })
}

impl<E: Engine> Worker<E> {
    /// Looks at some keys, if it is time.
    pub(super) async fn reconcile(&mut self) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let (cluster, outgoing) = parts(&service);
        let (now, store) = (service.now(), &service.store);
        if now < self.reconcile.due {
            return Ok(());
        }
        let is_urgent = self.reconcile.is_urgent;
        let count = if is_urgent { RECONCILE_KEYS } else { RECONCILE_SLOWLY_KEYS };
        let page = store.scan(self.reconcile.cursor, None, count, now);
        // What was counted last may be on its way.
        let until_ms = now.as_millis() - RECONCILE_SETTLE_MS;
        let (mut blocks, mut counts) = (Vec::new(), Vec::with_capacity(page.keys.len()));
        for key in &page.keys {
            let spans = store.own_spans(key, until_ms, now);
            let of_key: HashSet<_> = spans.iter().flat_map(|span| blocks_of(key, span)).collect();
            counts.push(of_key.len());
            blocks.extend(of_key);
        }
        let told = self.engine.read(&blocks).await?;
        let mut read = blocks.iter().zip(told);
        let mut sent_hits = 0;
        for (key, count) in page.keys.iter().zip(counts) {
            let told: HashMap<_, _> = read.by_ref().take(count).collect();
            self.remove(key, told.values().flatten(), now).await?;
            sent_hits += service.alone(|| {
                // Late hits may have come since. Those that wait for the disk are in the store, and not in the outbox.
                let until_ms = until_ms.min(cluster.oldest_waiting_ms());
                let mut spans = store.own_spans(key, until_ms, now);
                spans.retain(|span| blocks_of(key, span).all(|block| told.contains_key(&block)));
                let known = told.values().flatten();
                outgoing.top_up(key, &spans, known, store.settings_of(key).levels())
            });
        }
        let is_at_end = page.next == Cursor::START;
        cluster.set_state(|state| {
            state.resent_hits += sent_hits;
            state.is_reconciled |= is_urgent && is_at_end;
        });
        let reconcile = &mut self.reconcile;
        reconcile.cursor = page.next;
        reconcile.is_urgent &= !is_at_end;
        if !reconcile.is_urgent {
            reconcile.due = after(now, RECONCILE_PAUSE_MS);
        }
        Ok(())
    }
}
