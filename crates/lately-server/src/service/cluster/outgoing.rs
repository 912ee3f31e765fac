//! What this node tells the others: absolute counts of committed hits.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lately::limits::MAX_KEY_BYTES;
use lately::{
    Cell, Delta, Deltas, Forgotten, Levels, NotTaken, Origin, Outbox, OwnSpan, Store, Tally, Timestamp,
};
use lately_engines::{Block, Known, Told, Write};

use super::origins::Origins;
use crate::limits::{BLOCK_SLACK_MS, CLUSTER_SEND_KEYS, OUTGOING_PARTS, PROMPT_DELETION_MS};

/// Counts of this node, in parts with a lock each.
pub(super) struct Outgoing {
    /// The origin of hits of now.
    origin: Origin,
    /// The origins whose hits are in the store.
    origins: Origins,
    /// What a part may hold.
    most_bytes: usize,
    parts: Box<[Mutex<Part>]>,
}

/// The counts of some of the keys.
struct Part {
    outbox: Outbox,
    /// Keys with hits that the outbox has not taken, because they are late: what the engine has of these is compared soon.
    late: HashSet<Box<[u8]>>,
    /// Whether there were more hits of other keys than the outbox and the list above may hold: all keys are to be compared.
    has_left_out: bool,
    /// Keys that were deleted, and when: what the engine has of them is to be marked.
    deleted: Vec<(Box<[u8]>, Timestamp)>,
}

/// Counts to be sent, and their key.
pub(super) type Pending = (Box<[u8]>, Known);

/// What was taken out of a part to be sent: the part, and the number of the message.
pub(super) struct Taken(usize, u64);

impl Outgoing {
    /// Nothing was counted yet. What is held takes at most about `most_bytes`.
    ///
    /// # Errors
    /// The new origin cannot be written to the data folder.
    pub(super) fn new(
        node: &str,
        mut origins: Origins,
        most_bytes: usize,
        now: Timestamp,
    ) -> io::Result<Outgoing> {
        let origin = origins.add(node, now)?;
        let part = || Part {
            outbox: Outbox::new(origin.clone()),
            late: HashSet::new(),
            has_left_out: false,
            deleted: Vec::new(),
        };
        let parts = (0..OUTGOING_PARTS).map(|_| Mutex::new(part())).collect();
        Ok(Outgoing { origin, origins, most_bytes: most_bytes / OUTGOING_PARTS, parts })
    }

    fn lock(&self, part: usize) -> MutexGuard<'_, Part> {
        self.parts[part].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn part_of(&self, key: &[u8]) -> MutexGuard<'_, Part> {
        // FNV-1a.
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let folded = hash ^ (hash >> 32) ^ (hash >> 15);
        self.lock(usize::try_from(folded % OUTGOING_PARTS as u64).expect("a part"))
    }

    /// The origin of hits of now.
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether the hits of an origin are in the store of this node: it counted them since its start, or has loaded them.
    pub(super) fn is_own(&self, origin: &Origin) -> bool {
        *origin == self.origin || self.origins.contains(origin)
    }

    /// Adds committed changes.
    pub(super) fn add(&self, deltas: Deltas<'_>, store: &Store) {
        let now = deltas.now();
        for delta in deltas.flatten() {
            match delta.1 {
                Delta::Hits { key, at, hits, .. } => {
                    let levels = store.settings_of(key).levels();
                    self.part_of(key).hit(key, (at, hits), levels, self.most_bytes, now);
                }
                Delta::Forget { key, why: Forgotten::Deleted, .. } => {
                    let levels = store.settings_of(key).levels();
                    let mut part = self.part_of(key);
                    part.outbox.delete(key, levels);
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
        let mut pending = Vec::new();
        let number = part;
        let outbox = &mut self.lock(part).outbox;
        outbox.roll_up(if to_the_end { Timestamp::MAX } else { now }, CLUSTER_SEND_KEYS, levels);
        let Some(changes) = outbox.take(CLUSTER_SEND_KEYS) else { return (pending, Taken(number, 0)) };
        for its in changes.keys {
            for (_, cell, tally) in its.cells {
                // What was deleted here was removed here.
                let known = Known { origin: changes.origin.clone(), cell, tally, removed: tally.deleted };
                pending.push((its.key.clone(), known));
            }
        }
        (pending, Taken(number, changes.until))
    }

    /// What was taken has arrived.
    pub(super) fn confirm(&self, Taken(part, until): &Taken) {
        self.lock(*part).outbox.acknowledge(*until);
    }

    /// Drops what has arrived and is not needed any more, of a part.
    pub(super) fn tidy(&self, part: usize, now: Timestamp) {
        let outbox = &mut self.lock(part).outbox;
        outbox.tidy(now);
        outbox.release_idle();
    }

    /// Takes keys with late hits, at most `most` of each part.
    pub(super) fn take_late(&self, most: usize) -> Vec<Box<[u8]>> {
        let take = |part: usize| {
            let late = &mut self.lock(part).late;
            let keys: Vec<_> = late.iter().take(most).cloned().collect();
            keys.into_iter().filter_map(|key| late.take(&key)).collect::<Vec<_>>()
        };
        (0..OUTGOING_PARTS).flat_map(take).collect()
    }

    /// Whether hits were left out since this was last asked.
    pub(super) fn take_left_out(&self) -> bool {
        let take = |part: usize| std::mem::take(&mut self.lock(part).has_left_out);
        (0..OUTGOING_PARTS).fold(false, |any, part| take(part) | any)
    }

    /// What was taken may not have arrived: it is taken again. With `all`, everything that is held is.
    pub(super) fn send_again(&self, all: bool) {
        for part in 0..OUTGOING_PARTS {
            let again = if all { Outbox::send_all_again } else { Outbox::send_again };
            again(&mut self.lock(part).outbox);
        }
    }

    /// Notes own hits that another node has deleted, and that left the store.
    pub(super) fn note_removed(&self, key: &[u8], removed: &[Known]) {
        let outbox = &mut self.part_of(key).outbox;
        for known in removed.iter().filter(|known| known.origin == self.origin) {
            outbox.note_deleted(key, known.cell, known.removed);
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
        let outbox = &mut self.part_of(key).outbox;
        // What is in the engine, and what will be once all that is held is sent.
        let mut sent: HashMap<(Origin, Cell), Tally> = HashMap::new();
        for known in known.filter(|known| self.is_own(&known.origin)) {
            let tally = Tally { counted: known.tally.counted, deleted: known.removed };
            sent.entry((known.origin.clone(), known.cell)).or_default().merge(tally);
        }
        for (cell, tally) in outbox.held(key, levels) {
            sent.entry((self.origin.clone(), cell)).or_default().merge(tally);
        }
        let mut missing = 0;
        for span in spans {
            let in_span = sent.iter().filter(|((_, cell), _)| span.has(*cell));
            let sent_hits: u64 = in_span.map(|(_, tally)| tally.hits()).sum();
            let hits = span.hits.saturating_sub(sent_hits);
            if hits > 0 {
                let cell = span.last_cell();
                let tally = sent.get(&(self.origin.clone(), cell)).copied().unwrap_or_default();
                outbox.top_up(key, cell, tally, hits);
                missing += hits;
            }
        }
        missing
    }

    /// The keys with counts that others do not have.
    pub(super) fn unsent_keys(&self) -> usize {
        let keys = |part: MutexGuard<'_, Part>| part.outbox.changed_keys() + part.late.len();
        (0..OUTGOING_PARTS).map(|part| keys(self.lock(part))).sum()
    }

    /// Memory of what is held, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let bytes = |part: MutexGuard<'_, Part>| part.outbox.held_bytes() + late_bytes(&part.late);
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
            let is_held = *origin == self.origin && part.outbox.holds(key, *cell);
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
        most_bytes: usize,
        now: Timestamp,
    ) {
        let has_room = self.outbox.held_bytes() + late_bytes(&self.late) < most_bytes;
        match self.outbox.hit(key, hits, levels, has_room, now) {
            Ok(()) => {}
            Err(NotTaken::TooOld) if self.late.contains(key) => {}
            Err(NotTaken::TooOld) if has_room => _ = self.late.insert(key.into()),
            Err(_) => self.has_left_out = true,
        }
    }
}

/// About what a list of keys takes.
fn late_bytes(late: &HashSet<Box<[u8]>>) -> usize {
    late.capacity() * 2 * size_of::<Box<[u8]>>() + late.len() * MAX_KEY_BYTES / 16
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
