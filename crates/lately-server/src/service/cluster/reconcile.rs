//! Compares what this node has counted with what the engine has of it, key by key, and sends what is missing there.
//!
//! The counts of new hits are sent at once, from the hits themselves. What else is missing is found here: hits that are late by
//! more than a few seconds, the last hits of a server that was killed, which its successor read from the journal, hits in
//! cells that both have counted in, and all hits after an engine has lost what it had. All keys are looked at again and
//! again; after a start and after a loss as fast as the engine takes it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lately::{Cell, Cursor, OwnSpan, Timestamp};
use lately_engines::{Block, Engine, EngineError};

use crate::limits::{
    DRAIN_SENDS_MS, RECONCILE_FULL_EVERY, RECONCILE_KEYS, RECONCILE_MOST_OLDER_KEYS, RECONCILE_OLDER_KEYS,
    RECONCILE_PAUSE_MS, RECONCILE_ROUND_MS, RECONCILE_SETTLE_MS,
};

use super::outgoing::Pending;
use super::worker::{Worker, parts};

/// How far the keys have been looked at.
pub(super) struct Reconcile {
    /// Keys of which some hits are known only here to be missing.
    older: HashSet<Box<[u8]>>,
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
            older: HashSet::new(),
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
        let older = std::mem::take(&mut self.older);
        *self = Reconcile { older, due, is_urgent: true, ..Reconcile::new() };
    }

    /// Notes a key with hits that are missing, other than new ones. It is looked at soon.
    pub(super) fn note_older(&mut self, key: &[u8]) {
        if self.older.len() < RECONCILE_MOST_OLDER_KEYS {
            self.older.insert(key.into());
        } else {
            // It is found in a round.
            self.is_urgent = true;
        }
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

pub(super) fn after(now: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_millis(now.as_millis() + ms).unwrap_or(Timestamp::MAX)
}

pub(super) fn before(now: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_millis(now.as_millis() - ms).unwrap_or(Timestamp::MIN)
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
        let cluster = parts(&service).0;
        let now = service.now();
        if service.is_loading() || !self.is_settled() {
            return Ok(());
        }
        let older: Vec<_> = self.reconcile.older.iter().take(RECONCILE_OLDER_KEYS).cloned().collect();
        self.compare(&older, (i64::MIN, i64::MAX), now).await?;
        older.iter().for_each(|key| _ = self.reconcile.older.remove(key));
        if now < self.reconcile.due {
            return Ok(());
        }
        self.reconcile.begin(now);
        let (count, until_ms) = if self.reconcile.is_urgent {
            (RECONCILE_KEYS, i64::MAX)
        } else {
            let steps = usize::try_from(RECONCILE_ROUND_MS / RECONCILE_PAUSE_MS).unwrap_or(1);
            // What was counted last may be on its way.
            (service.store.len().div_ceil(steps).max(1), now.as_millis() - RECONCILE_SETTLE_MS)
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
                return Ok(());
            }
        }
    }

    /// Compares the cells of keys that ended between two times, and sends what is missing.
    async fn compare(
        &mut self,
        keys: &[Box<[u8]>],
        (from_ms, until_ms): (i64, i64),
        now: Timestamp,
    ) -> Result<(), EngineError> {
        if keys.is_empty() {
            return Ok(());
        }
        let service = Arc::clone(&self.service);
        let (cluster, outgoing) = parts(&service);
        let store = &service.store;
        let spans = |key: &[u8]| {
            let mut spans = store.own_spans(key, until_ms, now);
            spans.retain(|span| span.end_ms >= from_ms);
            spans
        };
        let (mut blocks, mut counts) = (Vec::new(), Vec::with_capacity(keys.len()));
        for key in keys {
            let of_key: HashSet<_> = spans(key).iter().flat_map(|span| blocks_of(key, span)).collect();
            counts.push(of_key.len());
            blocks.extend(of_key);
        }
        let told = self.engine.read(&blocks).await?;
        let mut read = blocks.iter().zip(told);
        let (mut pending, mut sent_hits) = (Vec::new(), 0);
        let decreases = store.decreases();
        for (key, count) in keys.iter().zip(counts).filter(|(_, count)| *count > 0) {
            let told: HashMap<_, _> = read.by_ref().take(count).collect();
            self.remove(key, told.values().flatten(), now).await?;
            // Late hits may have come since.
            let mut spans = spans(key);
            spans.retain(|span| blocks_of(key, span).all(|block| told.contains_key(&block)));
            let (counts, hits) = outgoing.missing(&spans, told.values().flatten());
            if !counts.is_empty() {
                pending.push(Pending { key, levels: store.settings_of(key).levels(), counts });
                sent_hits += hits;
            }
        }
        cluster.committed(&service).await;
        if store.decreases() != decreases {
            // They are looked at again in a round.
            self.reconcile.restart(now);
            return Ok(());
        }
        // The marks of a deletion come first.
        pending.retain(|pending| !outgoing.is_deleted(pending.key));
        self.write(&pending).await?;
        cluster.set_state(|state| state.resent_hits += sent_hits);
        Ok(())
    }
}
