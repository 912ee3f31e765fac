//! What this node tells the others: absolute counts of committed hits.

use std::collections::HashMap;
use std::io;

use lately::{Cell, Delta, Deltas, Forgotten, Levels, Origin, Outbox, Store, Tally, Timestamp};
use lately_engines::{Block, Known, Told, Write};

use super::origins::Origins;
use crate::limits::BLOCK_SLACK_MS;

/// The outboxes of a node: one for what it counts now, and others for late hits, whose cells the first has dropped.
pub(super) struct Outgoing {
    outboxes: Vec<Outbox>,
    /// The origins whose hits are in the store.
    origins: Origins,
    node: String,
    /// Hits that wait for an origin.
    waiting: Vec<Waiting>,
    /// Keys that were deleted, and when: what the engine has of them is to be marked.
    pub(super) deleted: Vec<(Box<[u8]>, Timestamp)>,
}

/// The key of hits, their time and their number.
type Waiting = (Box<[u8]>, (Timestamp, u64));

/// Counts to be sent, and their key.
pub(super) type Pending = (Box<[u8]>, Known);

impl Outgoing {
    /// Nothing was counted yet.
    ///
    /// # Errors
    /// The new origin cannot be written to the data folder.
    pub(super) fn new(node: &str, mut origins: Origins, now: Timestamp) -> io::Result<Outgoing> {
        let origin = origins.add(node, now)?;
        Ok(Outgoing {
            outboxes: vec![Outbox::new(origin)],
            origins,
            node: node.to_owned(),
            waiting: Vec::new(),
            deleted: Vec::new(),
        })
    }

    /// Whether the hits of an origin are in the store of this node: it counted them since its start, or has loaded them.
    pub(super) fn is_own(&self, origin: &Origin) -> bool {
        self.origins.contains(origin)
    }

    /// Whether the count of a cell of an own origin is held here, so that its marks are, too.
    fn holds(&self, key: &[u8], origin: &Origin, cell: Cell) -> bool {
        self.outboxes.iter().any(|outbox| outbox.origin() == origin && outbox.holds(key, cell))
    }

    /// Adds committed changes.
    pub(super) fn add(&mut self, deltas: Deltas<'_>, store: &Store) {
        let now = deltas.now();
        for (key, hits) in std::mem::take(&mut self.waiting) {
            self.hit(&key, hits, store.settings_of(&key).levels(), now);
        }
        for delta in deltas.flatten() {
            match delta.1 {
                Delta::Hits { key, at, hits, .. } => {
                    self.hit(key, (at, hits), store.settings_of(key).levels(), now);
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
        // Without the line in the folder, the next start takes these hits for those of another node. So they wait here.
        let Ok(origin) = self.origins.add(&self.node, now) else {
            self.waiting.push((key.into(), hits));
            return;
        };
        let mut outbox = Outbox::new(origin);
        outbox.hit(key, hits, levels, now).expect("a new origin has dropped nothing");
        self.outboxes.push(outbox);
    }

    fn delete(&mut self, key: &[u8], now: Timestamp) {
        self.outboxes.iter_mut().for_each(|outbox| outbox.delete(key));
        self.deleted.push((key.into(), now));
    }

    /// The marks for a key that was deleted at a time, of what an engine has of it.
    pub(super) fn marks(&self, key: &[u8], deleted_at: Timestamp, told: Told) -> Vec<Pending> {
        let is_deleted = |Known { origin, cell, tally, .. }: &Known| {
            // What began later has no hit that was deleted. The marks of what is held here are held, too.
            cell.start_ms <= deleted_at.as_millis() && tally.counted > 0 && !self.holds(key, origin, *cell)
        };
        let mark = |known: Known| {
            // Own hits left the store when the key was deleted.
            let removed = if self.is_own(&known.origin) { known.tally.counted } else { 0 };
            let tally = Tally { counted: 0, deleted: known.tally.counted };
            (key.into(), Known { tally, removed, ..known })
        };
        told.into_iter().filter(is_deleted).map(mark).collect()
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
                    // What was deleted here was removed here.
                    let known = Known { origin: changes.origin.clone(), cell, tally, removed: tally.deleted };
                    pending.push((its.key.clone(), known));
                }
            }
        }
        (pending, numbers)
    }

    /// Memory of what is held, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.outboxes.iter().map(Outbox::held_bytes).sum()
    }

    /// Everything that is held is to be sent again.
    pub(super) fn send_again(&mut self) {
        self.outboxes.iter_mut().for_each(Outbox::unacknowledge);
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
    for (key, known) in pending {
        let cell = known.cell;
        let block = Block::of(key, cell);
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
        write.counts.push(known);
    }
    writes.into_values().collect()
}
