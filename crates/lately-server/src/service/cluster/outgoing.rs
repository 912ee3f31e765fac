//! What this node tells the others: absolute counts of committed hits.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lately::{Cell, Delta, Deltas, Forgotten, Levels, Origin, Outbox, OwnSpan, Store, Tally, Timestamp};
use lately_engines::{Block, Known, Told, Write};

use super::origins::Origins;
use crate::limits::{BLOCK_SLACK_MS, CLUSTER_SEND_KEYS, OUTGOING_PARTS, PROMPT_DELETION_MS};

/// Counts of this node, in parts with a lock each.
pub(super) struct Outgoing {
    node: String,
    /// The origin of hits of now.
    origin: Origin,
    /// The origins whose hits are in the store.
    origins: Mutex<Origins>,
    parts: Box<[Mutex<Part>]>,
}

/// The counts of some of the keys.
struct Part {
    /// One outbox for hits of now, the first; others for late hits, whose cells that has dropped.
    outboxes: Vec<Outbox>,
    /// Hits that wait for an origin.
    waiting: Vec<Waiting>,
    /// Keys that were deleted, and when: what the engine has of them is to be marked.
    deleted: Vec<(Box<[u8]>, Timestamp)>,
}

/// The key of hits, their time and their number.
type Waiting = (Box<[u8]>, (Timestamp, u64));

/// Counts to be sent, and their key.
pub(super) type Pending = (Box<[u8]>, Known);

/// What was taken out of a part to be sent: the number of each message.
pub(super) struct Taken {
    part: usize,
    messages: Vec<(Origin, u64)>,
}

impl Outgoing {
    /// Nothing was counted yet.
    ///
    /// # Errors
    /// The new origin cannot be written to the data folder.
    pub(super) fn new(node: &str, mut origins: Origins, now: Timestamp) -> io::Result<Outgoing> {
        let origin = origins.add(node, now)?;
        let part =
            || Part { outboxes: vec![Outbox::new(origin.clone())], waiting: Vec::new(), deleted: Vec::new() };
        let parts = (0..OUTGOING_PARTS).map(|_| Mutex::new(part())).collect();
        Ok(Outgoing { node: node.to_owned(), origin, origins: Mutex::new(origins), parts })
    }

    fn lock(&self, part: usize) -> MutexGuard<'_, Part> {
        self.parts[part].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn part_of(&self, key: &[u8]) -> MutexGuard<'_, Part> {
        let last = key.last_chunk::<2>().map_or(0, |last| u16::from_le_bytes(*last));
        self.lock((usize::from(last) ^ key.len()) % OUTGOING_PARTS)
    }

    fn origins(&self) -> MutexGuard<'_, Origins> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The origin of hits of now.
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether the hits of an origin are in the store of this node: it counted them since its start, or has loaded them.
    pub(super) fn is_own(&self, origin: &Origin) -> bool {
        *origin == self.origin || self.origins().contains(origin)
    }

    /// Adds committed changes.
    pub(super) fn add(&self, deltas: Deltas<'_>, store: &Store) {
        let now = deltas.now();
        for delta in deltas.flatten() {
            match delta.1 {
                Delta::Hits { key, at, hits, .. } => {
                    let levels = store.settings_of(key).levels();
                    self.part_of(key)
                        .hit(key, (at, hits), levels, now, || self.origins().add(&self.node, now));
                }
                Delta::Forget { key, why: Forgotten::Deleted, .. } => {
                    let levels = store.settings_of(key).levels();
                    let mut part = self.part_of(key);
                    part.outboxes.iter_mut().for_each(|outbox| outbox.delete(key, levels));
                    part.deleted.push((key.into(), now));
                }
                _ => {}
            }
        }
    }

    /// Takes counts that others do not have, of a part of the keys. With `to_the_end`, the wider cells are up to date.
    pub(super) fn take(
        &self,
        part: usize,
        store: &Store,
        now: Timestamp,
        to_the_end: bool,
    ) -> (Vec<Pending>, Taken) {
        let levels = |key: &[u8]| store.settings_of(key).levels();
        let (mut pending, mut taken) = (Vec::new(), Taken { part, messages: Vec::new() });
        let mut part = self.lock(part);
        for (key, hits) in std::mem::take(&mut part.waiting) {
            part.hit(&key, hits, levels(&key), now, || self.origins().add(&self.node, now));
        }
        for outbox in &mut part.outboxes {
            let due = if to_the_end { Timestamp::MAX } else { now };
            outbox.roll_up(due, CLUSTER_SEND_KEYS, levels);
            let Some(changes) = outbox.take(CLUSTER_SEND_KEYS) else { continue };
            taken.messages.push((changes.origin.clone(), changes.until));
            for its in changes.keys {
                for (_, cell, tally) in its.cells {
                    // What was deleted here was removed here.
                    let origin = changes.origin.clone();
                    let known = Known { origin, cell, tally, removed: tally.deleted };
                    pending.push((its.key.clone(), known));
                }
            }
        }
        (pending, taken)
    }

    /// What was taken has arrived. Cells that ended long ago are dropped if `tidies`.
    pub(super) fn confirm(&self, taken: &[Taken], tidies: Option<usize>, now: Timestamp) {
        for Taken { part, messages } in taken {
            let mut part = self.lock(*part);
            for (origin, until) in messages {
                let outbox = part.outboxes.iter_mut().find(|outbox| outbox.origin() == origin);
                outbox.into_iter().for_each(|outbox| outbox.acknowledge(*until));
            }
        }
        if let Some(part) = tidies {
            let mut part = self.lock(part % OUTGOING_PARTS);
            part.outboxes.iter_mut().for_each(|outbox| outbox.tidy(now));
            let first = &self.origin;
            part.outboxes.retain(|outbox| !outbox.is_empty() || outbox.origin() == first);
        }
    }

    /// What was taken may not have arrived: it is taken again. With `all`, everything that is held is.
    pub(super) fn send_again(&self, all: bool) {
        for part in 0..OUTGOING_PARTS {
            let again = if all { Outbox::send_all_again } else { Outbox::send_again };
            self.lock(part).outboxes.iter_mut().for_each(again);
        }
    }

    /// Notes own hits that another node has deleted, and that left the store.
    pub(super) fn note_removed(&self, key: &[u8], removed: &[Known]) {
        let mut part = self.part_of(key);
        for known in removed {
            let outbox = part.outboxes.iter_mut().find(|outbox| *outbox.origin() == known.origin);
            outbox.into_iter().for_each(|outbox| outbox.note_deleted(key, known.cell, known.removed));
        }
    }

    /// Adds to what is to be sent what the engine lacks of the hits in these spans. `known` is what it has in their cells. Returns how
    /// many hits it lacks.
    pub(super) fn top_up<'k>(
        &self,
        key: &[u8],
        spans: &[OwnSpan],
        known: impl Iterator<Item = &'k Known>,
        levels: &Levels,
    ) -> u64 {
        let mut part = self.part_of(key);
        if !part.waiting.is_empty() {
            // They are in the store, and in no outbox.
            return 0;
        }
        // What is in the engine, and what will be once all that is held is sent.
        let mut sent: HashMap<(Origin, Cell), Tally> = HashMap::new();
        for known in known.filter(|known| self.is_own(&known.origin)) {
            let tally = Tally { counted: known.tally.counted, deleted: known.removed };
            sent.entry((known.origin.clone(), known.cell)).or_default().merge(tally);
        }
        for outbox in &mut part.outboxes {
            for (cell, tally) in outbox.held(key, levels) {
                sent.entry((outbox.origin().clone(), cell)).or_default().merge(tally);
            }
        }
        let mut missing = 0;
        for span in spans {
            let in_span = sent.iter().filter(|((_, cell), _)| span.has(*cell));
            let sent_hits: u64 = in_span.map(|(_, tally)| tally.hits()).sum();
            let hits = span.hits.saturating_sub(sent_hits);
            if hits > 0 {
                let cell = span.last_cell();
                let tally = sent.get(&(self.origin.clone(), cell)).copied().unwrap_or_default();
                part.outboxes[0].top_up(key, cell, tally, hits);
                missing += hits;
            }
        }
        missing
    }

    /// The keys with counts that others do not have.
    pub(super) fn unsent_keys(&self) -> usize {
        let keys = |part: MutexGuard<'_, Part>| -> usize {
            part.outboxes.iter().map(Outbox::changed_keys).sum::<usize>() + part.waiting.len()
        };
        (0..OUTGOING_PARTS).map(|part| keys(self.lock(part))).sum()
    }

    /// Memory of what is held, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let bytes =
            |part: MutexGuard<'_, Part>| -> usize { part.outboxes.iter().map(Outbox::held_bytes).sum() };
        (0..OUTGOING_PARTS).map(|part| bytes(self.lock(part))).sum()
    }

    /// The first key that was deleted and whose marks are not sent.
    pub(super) fn deleted(&self) -> Option<(Box<[u8]>, Timestamp)> {
        (0..OUTGOING_PARTS).find_map(|part| self.lock(part).deleted.first().cloned())
    }

    /// The marks of the first deletion of a key are sent.
    pub(super) fn marked(&self, key: &[u8]) {
        let mut part = self.part_of(key);
        if part.deleted.first().is_some_and(|(deleted, _)| **deleted == *key) {
            part.deleted.remove(0);
        }
    }

    /// The marks for a key that was deleted at a time, of what an engine has of it now.
    pub(super) fn marks(
        &self,
        key: &[u8],
        (deleted_at, now): (Timestamp, Timestamp),
        told: Told,
    ) -> Vec<Pending> {
        let part = self.part_of(key);
        // Clocks of nodes differ: at once, all that is there is older. Later only what is older by its time.
        let is_prompt = now.as_millis() - deleted_at.as_millis() <= PROMPT_DELETION_MS;
        let newest_ms = if is_prompt { i64::MAX } else { deleted_at.as_millis() };
        let is_deleted = |Known { origin, cell, tally, .. }: &Known| {
            // What began later has no hit that was deleted. The marks of what is held here are held, too.
            let is_held =
                part.outboxes.iter().any(|outbox| outbox.origin() == origin && outbox.holds(key, *cell));
            cell.start_ms <= newest_ms && tally.counted > 0 && !is_held
        };
        let mark = |known: Known| {
            // Own hits left the store when the key was deleted.
            let removed = if self.is_own(&known.origin) { known.tally.counted } else { 0 };
            let tally = Tally { counted: 0, deleted: known.tally.counted };
            (key.into(), Known { tally, removed, ..known })
        };
        told.into_iter().filter(is_deleted).map(mark).collect()
    }
}

impl Part {
    fn hit(
        &mut self,
        key: &[u8],
        hits: (Timestamp, u64),
        levels: &Levels,
        now: Timestamp,
        new_origin: impl FnOnce() -> io::Result<Origin>,
    ) {
        let counts = |outbox: &mut Outbox| outbox.hit(key, hits, levels, now).is_ok();
        if self.outboxes.iter_mut().any(counts) {
            return;
        }
        // Without the line in the folder, the next start takes these hits for those of another node. So they wait here.
        let Ok(origin) = new_origin() else {
            self.waiting.push((key.into(), hits));
            return;
        };
        let mut outbox = Outbox::new(origin);
        outbox.hit(key, hits, levels, now).expect("a new origin has dropped nothing");
        self.outboxes.push(outbox);
    }
}

/// The writes that send counts: one for each block.
pub(super) fn writes<'p>(pending: &'p [Pending], store: &Store) -> Vec<Write<'p>> {
    let mut writes: HashMap<Block<'p>, Write<'p>> = HashMap::with_capacity(pending.len());
    for (key, known) in pending {
        let Cell { width_ms, .. } = known.cell;
        let block = Block::of(key, known.cell);
        let write = writes.entry(block).or_insert_with(|| {
            let levels = store.settings_of(key).levels().as_slice();
            let level = levels.iter().find(|level| level.width_ms == width_ms);
            let read_for_ms = level.map_or(0, |level| level.until_age_ms) + BLOCK_SLACK_MS;
            let keep_until = Timestamp::from_millis(block.end_ms().saturating_add(read_for_ms));
            Write { block, keep_until: keep_until.unwrap_or(Timestamp::MAX), counts: Vec::new() }
        });
        write.counts.push(known);
    }
    writes.into_values().collect()
}
