//! What this node tells the others: absolute counts of committed hits.

use std::collections::HashMap;

use lately::{Cell, Delta, Deltas, Forgotten, Levels, Origin, Outbox, Store, Tally, Timestamp};
use lately_engines::{Block, Write};

use crate::limits::BLOCK_SLACK_MS;

/// The outboxes of a node: one for what it counts now, and others for late hits, whose cells the first has dropped.
pub(super) struct Outgoing {
    outboxes: Vec<Outbox>,
    node: String,
    /// Keys that were deleted, and when: what the engine has of them is to be marked.
    pub(super) deleted: Vec<(Box<[u8]>, Timestamp)>,
}

/// Counts to be sent: the key, whose, which cell, how many.
pub(super) type Pending = (Box<[u8]>, Origin, Cell, Tally);

impl Outgoing {
    /// Nothing was counted yet.
    pub(super) fn new(origin: Origin) -> Outgoing {
        let node = origin.node().to_owned();
        Outgoing { outboxes: vec![Outbox::new(origin)], node, deleted: Vec::new() }
    }

    /// Whether this node counted under an origin since its start.
    pub(super) fn is_own(&self, origin: &Origin) -> bool {
        self.outboxes.iter().any(|outbox| outbox.origin() == origin)
    }

    /// Whether the count of a cell of an own origin is held here, so that its marks are, too.
    pub(super) fn holds(&self, key: &[u8], origin: &Origin, cell: Cell) -> bool {
        self.outboxes.iter().any(|outbox| outbox.origin() == origin && outbox.holds(key, cell))
    }

    /// Adds committed changes.
    pub(super) fn add(&mut self, now: Timestamp, deltas: &[u8], store: &Store) {
        for delta in Deltas::new(now, deltas).flatten() {
            match delta.1 {
                Delta::Hits { key, at, hits, .. } => {
                    self.hit(key, (at, hits), store.settings_of(key).levels(), now)
                }
                Delta::Forget { key, why: Forgotten::Deleted, .. } => self.delete(key, now),
                _ => {}
            }
        }
    }

    fn hit(&mut self, key: &[u8], hits: (Timestamp, u64), levels: &Levels, now: Timestamp) {
        let counts = |outbox: &mut Outbox| outbox.hit(key, hits, levels, now).is_ok();
        if self.outboxes.iter_mut().any(counts) {
            return;
        }
        let last = self.outboxes.last().map_or(0, |outbox| outbox.origin().incarnation());
        let incarnation = u64::try_from(now.as_millis()).unwrap_or(0).max(last + 1);
        let origin = Origin::new(&self.node, incarnation).expect("the name of a node");
        let mut outbox = Outbox::new(origin);
        outbox.hit(key, hits, levels, now).expect("a new origin has dropped nothing");
        self.outboxes.push(outbox);
    }

    fn delete(&mut self, key: &[u8], now: Timestamp) {
        self.outboxes.iter_mut().for_each(|outbox| outbox.delete(key));
        self.deleted.push((key.into(), now));
    }

    /// The counts that are not known to have arrived, and for each outbox the number to confirm when they have.
    pub(super) fn pending(&mut self) -> (Vec<Pending>, Vec<u64>) {
        let (mut pending, mut numbers) = (Vec::new(), Vec::new());
        for outbox in &mut self.outboxes {
            let _ = outbox.take();
            let changes = outbox.unconfirmed();
            numbers.push(changes.until);
            for its in changes.keys {
                for (_, cell, tally) in its.cells {
                    pending.push((its.key.clone(), changes.origin.clone(), cell, tally));
                }
            }
        }
        (pending, numbers)
    }

    /// The counts with these numbers have arrived. Cells that ended long ago are dropped.
    pub(super) fn confirm(&mut self, numbers: &[u64], now: Timestamp) {
        for (outbox, until) in self.outboxes.iter_mut().zip(numbers) {
            outbox.acknowledge(*until);
            outbox.tidy(now);
        }
        let first = self.outboxes[0].origin().clone();
        self.outboxes.retain(|outbox| !outbox.is_empty() || *outbox.origin() == first);
    }
}

/// The writes that send counts: one for each block.
pub(super) fn writes<'p>(pending: &'p [Pending], store: &Store) -> Vec<Write<'p>> {
    let mut writes: HashMap<Block<'p>, Write<'p>> = HashMap::new();
    for (key, origin, cell, tally) in pending {
        let block = Block::of(key, *cell);
        let write = writes.entry(block).or_insert_with(|| {
            let level = store
                .settings_of(key)
                .levels()
                .as_slice()
                .iter()
                .find(|level| level.width_ms == cell.width_ms);
            let read_for_ms = level.map_or(0, |level| level.until_age_ms) + BLOCK_SLACK_MS;
            let keep_until = Timestamp::from_millis(block.end_ms().saturating_add(read_for_ms));
            Write { block, keep_until: keep_until.unwrap_or(Timestamp::MAX), counts: Vec::new() }
        });
        write.counts.push((origin, *cell, *tally));
    }
    writes.into_values().collect()
}
