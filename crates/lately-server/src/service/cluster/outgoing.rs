//! What this node tells the others: the counts of its hits in cells of time.
//!
//! The store has the hits of a cell. This node sends the hits that were deleted from the cell, too, because counts that others
//! have merged only grow.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use lately::limits::SENT_WITHIN_MS;
use lately::{Cell, LevelSets, Levels, LevelsId, Origin, OwnSpan, Tally, Timestamp};
use lately_engines::{Block, Known, Told, Write};

use super::deletion_log::{DeletedKeys, DeletionLog, Line, Logged, Step};
use super::group::Group;
use super::late_hits::LateHits;
use super::origins::Origins;
use super::reconcile::before;
use super::upstream::Upstream;
use crate::limits::{BLOCK_SLACK_MS, LATE_HITS_PART, PROMPT_DELETION_MS};

/// What this node counts under, and what it knows of its counts beside the hits in the store.
pub(super) struct Outgoing {
    life: RwLock<Life>,
    /// What the deletions may take.
    most_bytes: usize,
    deletions: Mutex<Deletions>,
    pub(super) late: LateHits,
}

/// What this node counts under, until its store is emptied.
struct Life {
    /// The origin of hits of now.
    origin: Origin,
    /// The origins whose hits are in the store.
    origins: Origins,
    /// Cells that begin later have hits of this origin only. Known when the store is loaded.
    alone_from_ms: Option<i64>,
}

#[derive(Default)]
struct Deletions {
    /// Keys that were deleted, and when: what the engine has of them is to be marked.
    keys: DeletedKeys,
    /// What was known of these keys as they were deleted. The engine may lose it before it is marked.
    known: HashMap<Box<[u8]>, Vec<Known>>,
    /// Until when the hits of others are marked: of these keys the own hits wait, which may be on their way to the engine.
    others_marked: HashMap<Box<[u8]>, Timestamp>,
    /// These keys, and those that wait for the upstream engine.
    log: DeletionLog,
    /// Hits that are deleted, in cells that may get more hits.
    cells: HashMap<Box<[u8]>, Vec<(Cell, u64)>>,
    /// Bytes of both, and of the first.
    bytes: usize,
    waiting_bytes: usize,
    /// The marks that were sent last, in case the engine loses them.
    sent: VecDeque<SentMarks>,
    sent_bytes: usize,
}

/// The marks for a deletion of a key.
struct SentMarks {
    at: Timestamp,
    key: Box<[u8]>,
    marks: Vec<Known>,
    /// Whether the engine had them.
    is_sent: bool,
}

/// Counts of a key to be sent.
pub(super) struct Pending<'p> {
    pub(super) key: &'p [u8],
    pub(super) sets: LevelSets<'p>,
    pub(super) counts: Vec<Known>,
}

/// A key that was deleted, and whose marks are not all sent.
pub(super) struct Unsent {
    pub(super) key: Box<[u8]>,
    /// When it was deleted last.
    pub(super) at: Timestamp,
    /// Only those of own hits are not.
    pub(super) is_own_only: bool,
}

/// What a key takes in a map beside its name.
const KEY_BYTES: usize = 2 * size_of::<(Box<[u8]>, Vec<(Cell, u64)>)>();

/// What a deletion takes in a list.
const DELETION_BYTES: usize = 4 * size_of::<Timestamp>();

fn cells_bytes(cells: &Vec<(Cell, u64)>) -> usize {
    cells.capacity() * size_of::<(Cell, u64)>()
}

impl Outgoing {
    /// Nothing was counted yet. Deletions that an earlier start has not sent are there again. What is known of deletions in
    /// cells takes at most about `most_bytes`.
    ///
    /// # Errors
    /// The data folder does not work.
    pub(super) fn new(
        node: &str,
        folder: Option<&Path>,
        most_bytes: usize,
        now: Timestamp,
    ) -> io::Result<Outgoing> {
        let mut origins = Origins::load(folder)?;
        let origin = origins.add(node, now)?;
        let life = RwLock::new(Life { origin, origins, alone_from_ms: None });
        let (log, Logged { deleted, others_marked, marks }) = DeletionLog::load(folder)?;
        let mut deletions = Deletions { log, others_marked, ..Deletions::default() };
        deleted
            .into_iter()
            .for_each(|(key, times)| times.into_iter().for_each(|at| deletions.insert(&key, at)));
        for (key, at, known) in marks {
            deletions.keep(SentMarks { at, key, marks: vec![known], is_sent: true });
        }
        Ok(Outgoing { life, most_bytes, deletions: Mutex::new(deletions), late: LateHits::default() })
    }

    fn life(&self) -> RwLockReadGuard<'_, Life> {
        self.life.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn life_mut(&self) -> RwLockWriteGuard<'_, Life> {
        self.life.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn deletions(&self) -> MutexGuard<'_, Deletions> {
        self.deletions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The origin of hits of now.
    pub(super) fn origin(&self) -> Origin {
        self.life().origin.clone()
    }

    /// Whether the hits of an origin are in the store of this node: it counted them since its start, or has loaded them.
    pub(super) fn is_own(&self, origin: &Origin) -> bool {
        self.life().is_own(origin)
    }

    /// Whether earlier starts of this node have counted, and the store may have their hits.
    pub(super) fn has_former(&self) -> bool {
        self.life().origins.has_former()
    }

    /// Whether the hits of each span are in one cell and of this origin only. Then their number is the count of that cell,
    /// whatever an engine has lost of it.
    pub(super) fn is_alone(&self, group: &Group) -> bool {
        let alone_from_ms = self.life().alone_from_ms;
        group.spans.iter().all(OwnSpan::is_one_cell)
            && alone_from_ms.is_some_and(|from_ms| from_ms <= group.start_ms)
    }

    /// The store is loaded. Hits that were loaded may be as late as `newest`.
    pub(super) fn loaded(&self, newest: impl FnOnce() -> Timestamp) {
        if self.life().alone_from_ms.is_none() {
            let life = &mut *self.life_mut();
            // Without a data folder, and at the first start in one, there are no others.
            let newest_ms = if life.origins.has_former() { newest().as_millis() } else { i64::MIN };
            life.alone_from_ms = Some(newest_ms);
        }
    }

    /// The store is emptied. What this node had counted stays with the others, as if another node had counted it.
    ///
    /// # Errors
    /// The new origin cannot be written to the data folder.
    pub(super) fn emptied(&self, node: &str, now: Timestamp) -> io::Result<()> {
        let life = &mut *self.life_mut();
        let (origin, written) = life.origins.begin_anew(node, now);
        (life.origin, life.alone_from_ms) = (origin, Some(i64::MIN));
        let deletions = &mut *self.deletions();
        *deletions = Deletions { log: std::mem::take(&mut deletions.log), ..Deletions::default() };
        written.and(deletions.log.tidy(true, Vec::new).map(drop))
    }

    /// What is to be sent of a key in cells of these levels, and whether some of it is known only after a comparison with the engine.
    pub(super) fn counts(&self, key: &[u8], levels: LevelsId, cells: &[(Cell, u64)]) -> (Vec<Known>, bool) {
        let Life { origin, alone_from_ms, .. } = &*self.life();
        let alone_from_ms = alone_from_ms.unwrap_or(i64::MAX);
        let deletions = self.deletions();
        let deleted = deletions.cells.get(key);
        let mut has_shared = false;
        let counts = cells.iter().filter_map(|&(cell, hits)| {
            if cell.start_ms < alone_from_ms {
                has_shared = true;
                return None;
            }
            let deleted = deleted.and_then(|cells| cells.iter().find(|(of, _)| *of == cell));
            let deleted = deleted.map_or(0, |(_, deleted)| *deleted);
            let tally = Tally { counted: hits + deleted, deleted };
            Some(Known { origin: origin.clone(), levels, cell, tally, removed: deleted })
        });
        (counts.collect(), has_shared)
    }

    /// Whether there is room to note that these keys are deleted.
    pub(super) fn may_delete<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> bool {
        let bytes: usize = keys.map(|key| DELETION_BYTES + bytes_of(key)).sum();
        self.deletions().waiting_bytes + bytes <= self.most_bytes
    }

    /// Notes what is known of a key that is about to be deleted: own hits in these spans, which nobody can count again, and the hits of
    /// others. It is marked even if the engine has lost it by then.
    pub(super) fn note_known(&self, key: &[u8], spans: &[OwnSpan], levels: LevelsId, others: Vec<Known>) {
        let life = self.life();
        let alone_from_ms = life.alone_from_ms.unwrap_or(i64::MAX);
        let deletions = &mut *self.deletions();
        let deleted = deletions.cells.get(key);
        let own =
            spans.iter().filter(|span| span.is_one_cell() && span.start_ms >= alone_from_ms).map(|span| {
                let cell = span.last_cell();
                let deleted = deleted.and_then(|cells| cells.iter().find(|(of, _)| *of == cell));
                let counted = span.hits + deleted.map_or(0, |(_, deleted)| *deleted);
                let tally = Tally { counted, deleted: 0 };
                Known { origin: life.origin.clone(), levels, cell, tally, removed: 0 }
            });
        let known: Vec<Known> = own.chain(others).collect();
        let bytes = known_bytes(&known);
        // Without room, what the engine has is marked.
        if deletions.bytes + bytes <= self.most_bytes {
            let held = deletions.known.entry(key.into()).or_default();
            held.extend(known);
            deletions.bytes += bytes;
        }
    }

    /// What was known of a key that was deleted, as it was.
    pub(super) fn known(&self, key: &[u8]) -> Vec<Known> {
        self.deletions().known.get(key).cloned().unwrap_or_default()
    }

    /// Notes that these keys are being deleted. Called before the deletion is committed, so that it is not forgotten when this node
    /// is killed.
    ///
    /// # Errors
    /// It cannot be written to the data folder.
    pub(super) fn delete<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        at: Timestamp,
    ) -> io::Result<()> {
        let deletions = &mut *self.deletions();
        deletions.log.add(keys.clone().map(|key| (Step::Deleted, key.into(), at)))?;
        keys.for_each(|key| deletions.insert(key, at));
        Ok(())
    }

    /// These deletions were rolled back.
    pub(super) fn undelete<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, at: Timestamp) {
        let deletions = &mut *self.deletions();
        for key in keys {
            let mut found = false;
            deletions.retain(key, |time| *time != at || std::mem::replace(&mut found, true));
            deletions.log.set_stale();
        }
    }

    /// Whether the marks for a deletion of a key are not sent.
    pub(super) fn is_deleted(&self, key: &[u8]) -> bool {
        let deletions = self.deletions();
        !deletions.keys.is_empty() && deletions.keys.contains_key(key)
    }

    /// When a key was deleted last, if the marks for it are not sent.
    pub(super) fn deleted_at(&self, key: &[u8]) -> Option<Timestamp> {
        self.deletions().keys.get(key).map(|times| newest(times))
    }

    /// How many keys were deleted whose marks are not sent.
    pub(super) fn deleted_keys(&self) -> usize {
        self.deletions().keys.len()
    }

    /// Up to `most` keys that were deleted and whose marks are not sent: those of the hits of others, and `with_own`, of all.
    pub(super) fn deleted(&self, most: usize, with_own: bool) -> Vec<Unsent> {
        let Deletions { keys, others_marked, .. } = &*self.deletions();
        let unsent = keys.iter().map(|(key, times)| {
            let at = newest(times);
            let is_own_only = others_marked.get(key).is_some_and(|until| *until >= at);
            Unsent { key: key.clone(), at, is_own_only }
        });
        unsent.filter(|unsent| with_own || !unsent.is_own_only).take(most).collect()
    }

    /// Whether that is so still.
    pub(super) fn is_deleted_at(&self, key: &[u8], at: Timestamp) -> bool {
        self.deletions().keys.get(key).is_some_and(|times| newest(times) == at)
    }

    /// The marks for the hits of others on a deleted key are sent. This is in the data folder, too: after its next start, the node does not mark
    /// what they have counted since.
    ///
    /// # Errors
    /// It cannot be written to the data folder.
    pub(super) fn others_marked(&self, key: &[u8], deleted_at: Timestamp) -> io::Result<()> {
        let deletions = &mut *self.deletions();
        if !deletions.keys.contains_key(key) {
            return Ok(());
        }
        deletions.others_marked.insert(key.into(), deleted_at);
        deletions.log.add([(Step::OthersMarked, key.into(), deleted_at)].into_iter())
    }

    /// The marks for a deletion of a key are sent.
    pub(super) fn marked(&self, key: &[u8], deleted_at: Timestamp) {
        self.deletions().retain(key, |time| *time > deleted_at);
    }

    /// Keeps marks that were sent, here and in the data folder. They go when the engine can no longer lose them, or when there is no
    /// room. What was deleted was counted before.
    ///
    /// # Errors
    /// They cannot be written to the data folder.
    pub(super) fn note_sent(&self, sent: &[Pending<'_>], at: Timestamp) -> io::Result<()> {
        self.note_marks(sent.iter().map(|Pending { key, counts, .. }| (*key, &counts[..])), at, true)
    }

    /// Notes own hits that were removed because another node deleted them. Call it before the engine gets the counts. The note is in the data
    /// folder, too. So the next start does not remove them a second time, even if the engine has lost that they are removed.
    ///
    /// # Errors
    /// It cannot be written to the data folder.
    pub(super) fn note_removed(&self, key: &[u8], removed: &[Known], at: Timestamp) -> io::Result<()> {
        self.note_marks([(key, removed)].into_iter(), at, false)
    }

    fn note_marks<'m>(
        &self,
        marks: impl Iterator<Item = (&'m [u8], &'m [Known])>,
        at: Timestamp,
        is_sent: bool,
    ) -> io::Result<()> {
        let deletions = &mut *self.deletions();
        let mut lines = Vec::new();
        for (key, counts) in marks.filter(|(_, counts)| !counts.is_empty()) {
            let of_key =
                SentMarks { at, key: key.into(), marks: counts.iter().map(whole).collect(), is_sent };
            lines.extend(of_key.lines());
            deletions.keep(of_key);
        }
        deletions.drop_sent(Timestamp::MIN, self.most_bytes);
        deletions.log.add(lines.into_iter())
    }

    /// The engine knows which hits of a key were removed.
    pub(super) fn removed_sent(&self, key: &[u8], at: Timestamp) {
        let deletions = &mut *self.deletions();
        for sent in deletions.sent.iter_mut().filter(|sent| !sent.is_sent && *sent.key == *key) {
            (sent.is_sent, sent.at) = (true, at);
        }
    }

    /// Merges the marks that were sent last into counts of a key, which the engine may have lost. Returns the counts of which the engine
    /// has fewer removed hits than the marks.
    pub(super) fn merge_sent(&self, key: &[u8], told: &mut Told) -> Vec<Known> {
        let deletions = self.deletions();
        let of_key = deletions.sent.iter().filter(|sent| *sent.key == *key);
        let marks: Vec<&Known> = of_key.flat_map(|sent| &sent.marks).collect();
        let mut lacking = Vec::new();
        for known in told {
            let removed = known.removed;
            for mark in &marks {
                if (&known.origin, known.levels, known.cell) == (&mark.origin, mark.levels, mark.cell) {
                    known.merge(mark);
                }
            }
            if known.removed > removed {
                lacking.push(known.clone());
            }
        }
        lacking
    }

    /// The marks that were sent last. Older ones may not be sent again: nodes forget which hits they have removed for them.
    pub(super) fn sent(&self, now: Timestamp) -> Vec<(Box<[u8]>, Vec<Known>)> {
        let from = before(now, SENT_WITHIN_MS);
        let deletions = self.deletions();
        let last = deletions.sent.iter().filter(|sent| !sent.is_sent || sent.at >= from);
        last.map(|SentMarks { key, marks, .. }| (key.clone(), marks.clone())).collect()
    }

    /// All engines have the marks.
    pub(super) fn marked_everywhere(&self, key: &[u8], deleted_at: Timestamp) {
        // If this cannot be written, the marks are sent again after the next start.
        let _ = self.deletions().log.add([(Step::Marked, key.into(), deleted_at)].into_iter());
    }

    /// The most bytes of [`Outgoing::late`].
    pub(super) fn most_late_bytes(&self) -> usize {
        self.most_bytes / LATE_HITS_PART
    }

    /// The marks for a key that was deleted at a time, of what an engine has of it now.
    pub(super) fn marks(&self, (deleted_at, now): (Timestamp, Timestamp), told: Told) -> Vec<Known> {
        // Clocks of nodes differ: at once, all that is there is older. Later only what is older by its time.
        let is_prompt = now.as_millis() - deleted_at.as_millis() <= PROMPT_DELETION_MS;
        let newest_ms = if is_prompt { i64::MAX } else { deleted_at.as_millis() };
        let life = self.life();
        let is_deleted = |Known { origin, cell, tally, .. }: &Known| {
            // What began later has no hit that was deleted. This node sends no counts of a key before its marks.
            tally.counted > 0 && (cell.start_ms <= newest_ms || *origin == life.origin)
        };
        let mark = |known: Known| {
            // Own hits left the store when the key was deleted.
            let removed = if life.is_own(&known.origin) { known.tally.counted } else { 0 };
            // The engine may have lost what was counted. With a mark alone, its origin would count its hits once more beside it.
            let tally = Tally { counted: known.tally.counted, deleted: known.tally.counted };
            Known { tally, removed, ..known }
        };
        told.into_iter().filter(is_deleted).map(mark).collect()
    }

    /// Notes hits of this origin that have left the store, though others have their count.
    pub(super) fn note_deleted(&self, key: &[u8], counts: &[Known]) {
        let life = self.life();
        let own = counts.iter().filter(|known| known.origin == life.origin && known.removed > 0);
        let deletions = &mut *self.deletions();
        for Known { cell, removed, .. } in own {
            if !deletions.cells.contains_key(key) {
                // Without room, what is counted next in these cells is found by a comparison, once they have ended.
                if deletions.bytes > self.most_bytes {
                    return;
                }
                deletions.bytes += KEY_BYTES + key.len();
                deletions.cells.insert(key.into(), Vec::new());
            }
            let cells = deletions.cells.get_mut(key).expect("it is there by now");
            let before = cells_bytes(cells);
            match cells.iter_mut().find(|(of, _)| of == cell) {
                Some((_, deleted)) => *deleted = (*deleted).max(*removed),
                None => cells.push((*cell, *removed)),
            }
            deletions.bytes += cells_bytes(cells) - before;
        }
    }

    /// Forgets deleted hits in cells that are only compared by now. Keeps the deletions that wait in the data folder.
    ///
    /// # Errors
    /// The data folder does not work.
    pub(super) fn tidy(&self, upstream: Option<&Upstream>, now: Timestamp) -> io::Result<()> {
        let unsynced = self.tidy_unsynced(upstream, now)?;
        unsynced.map_or(Ok(()), |file| file.sync_data())
    }

    fn tidy_unsynced(&self, upstream: Option<&Upstream>, now: Timestamp) -> io::Result<Option<Arc<File>>> {
        let over_ms = now.as_millis() - 2 * SENT_WITHIN_MS;
        let deletions = &mut *self.deletions();
        let Deletions { cells, bytes, .. } = deletions;
        cells.retain(|key, cells| {
            cells.retain(|(cell, _)| cell.end_ms() > over_ms);
            if cells.is_empty() {
                *bytes -= KEY_BYTES + key.len() + cells_bytes(cells);
            }
            !cells.is_empty()
        });
        // No node sends marks again for which these hits were removed.
        deletions.drop_sent(before(now, 2 * SENT_WITHIN_MS), self.most_bytes);
        let Deletions { keys, others_marked, log, sent, .. } = deletions;
        let all_marked = keys.is_empty() && upstream.is_none_or(|upstream| upstream.unsent_deletions() == 0);
        log.tidy(all_marked && sent.is_empty(), || {
            let here = keys.iter().flat_map(|(key, times)| times.iter().map(|at| (key.clone(), *at)));
            let deleted = here.chain(upstream.into_iter().flat_map(Upstream::deletions));
            let marks = sent.iter().flat_map(SentMarks::lines);
            let of_others = others_marked.iter().map(|(key, at)| (Step::OthersMarked, key.clone(), *at));
            deleted.map(|(key, at)| (Step::Deleted, key, at)).chain(of_others).chain(marks).collect()
        })
    }

    /// What the engine lacks of the hits in these groups, as counts to be sent. `known` is what it has in their blocks. Also returns
    /// how many hits it lacks.
    pub(super) fn missing<'k>(
        &self,
        groups: &[Group],
        known: impl Iterator<Item = &'k Known>,
        sets: &LevelSets<'_>,
    ) -> (Vec<Known>, u64) {
        let life = self.life();
        let mut own: Vec<Known> = known.filter(|known| life.is_own(&known.origin)).cloned().collect();
        let alone_from_ms = life.alone_from_ms.unwrap_or(i64::MAX);
        let (mut counts, mut missing) = (Vec::new(), 0);
        // What is in the cells of the last level, and of the one before it.
        let (mut narrower, mut found, mut width_ms) = (Vec::new(), Vec::new(), 0);
        for group in groups {
            if group.width_ms != width_ms {
                (narrower, found, width_ms) = (found, Vec::new(), group.width_ms);
            }
            let sent: Vec<&Known> = own.iter().collect();
            let lacking = group.missing(&sent, &narrower, (&life.origin, alone_from_ms));
            // Hits to send, by the levels, width and start of their cell.
            let mut cells: BTreeMap<(LevelsId, i64, i64), u64> = BTreeMap::new();
            let mut add = |levels, cell: Cell, hits| {
                *cells.entry((levels, cell.width_ms, cell.start_ms)).or_default() += hits;
            };
            let mut places = Vec::new();
            for (span, hits) in &lacking {
                missing += hits;
                let (inside, rest) = group.places((span, *hits), &sent, &narrower);
                places.extend(inside);
                let Some((levels, cell)) = group.wide_cell(span).filter(|_| rest > 0) else {
                    places.push((span.last_cell(), rest));
                    continue;
                };
                add(levels, cell, rest);
                let others = sets.others().filter(|others| others.id() == levels);
                let wider = others.flat_map(Levels::as_slice).filter(|level| level.width_ms > cell.width_ms);
                wider.for_each(|level| add(levels, level.cell_of_ms(cell.start_ms), rest));
            }
            places.retain(|(_, hits)| *hits > 0);
            places.iter().for_each(|&(cell, hits)| add(group.levels, cell, hits));
            found.extend(group.told(&sent, &places));
            for ((levels, width_ms, start_ms), hits) in cells {
                let (origin, cell) = (&life.origin, Cell { start_ms, width_ms });
                let is_same = |held: &Known| (held.levels, held.cell, &held.origin) == (levels, cell, origin);
                let sent = own.iter().find(|held| is_same(held));
                let mut tally = sent.map_or_else(Tally::default, |held| held.tally);
                tally.counted = tally.counted.max(tally.deleted) + hits;
                let removed = sent.map_or(0, |held| held.removed);
                let known = Known { origin: origin.clone(), levels, cell, tally, removed };
                if levels != group.levels {
                    // The wider cells of this group's levels do not lack these hits, and the cell is written once.
                    [&mut own, &mut counts].into_iter().for_each(|held| held.retain(|held| !is_same(held)));
                    own.push(known.clone());
                }
                counts.push(known);
            }
        }
        (counts, missing)
    }

    /// Memory of what is known of deletions, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let deletions = self.deletions();
        deletions.bytes + deletions.sent_bytes + self.late.bytes()
    }
}

/// A mark of hits that were deleted, with as many counted.
fn whole(known: &Known) -> Known {
    let deleted = known.tally.deleted.max(known.removed);
    Known { tally: Tally { counted: deleted, deleted }, ..known.clone() }
}

impl SentMarks {
    fn bytes(&self) -> usize {
        size_of::<SentMarks>() + self.key.len() + size_of_val(&self.marks[..])
    }

    fn lines(&self) -> impl Iterator<Item = Line> {
        self.marks.iter().map(|known| (Step::Mark(known.clone()), self.key.clone(), self.at))
    }
}

/// What a deleted key takes: in `keys`, and later in `others_marked`.
fn bytes_of(key: &[u8]) -> usize {
    2 * (KEY_BYTES + key.len())
}

/// What they take in a list.
fn known_bytes(known: &[Known]) -> usize {
    size_of_val(known)
}

fn newest(times: &[Timestamp]) -> Timestamp {
    times.iter().copied().max().unwrap_or(Timestamp::MIN)
}

impl Deletions {
    fn keep(&mut self, sent: SentMarks) {
        self.sent_bytes += sent.bytes();
        self.sent.push_back(sent);
    }

    /// Drops the oldest marks: those that were sent before a time, and those beyond `most_bytes`.
    fn drop_sent(&mut self, before: Timestamp, most_bytes: usize) {
        while let Some(first) = self.sent.front()
            && (first.is_sent && first.at < before || self.sent_bytes > most_bytes)
        {
            self.sent_bytes -= first.bytes();
            self.sent.pop_front();
        }
    }

    fn insert(&mut self, key: &[u8], at: Timestamp) {
        let mut bytes = DELETION_BYTES;
        if let Some(times) = self.keys.get_mut(key) {
            times.push(at);
        } else {
            bytes += bytes_of(key);
            self.keys.insert(key.into(), vec![at]);
        }
        (self.bytes, self.waiting_bytes) = (self.bytes + bytes, self.waiting_bytes + bytes);
    }

    /// Keeps the deletions of a key of which this is true.
    fn retain(&mut self, key: &[u8], is_kept: impl FnMut(&Timestamp) -> bool) {
        let Some(times) = self.keys.get_mut(key) else { return };
        let count = times.len();
        times.retain(is_kept);
        let mut bytes = (count - times.len()) * DELETION_BYTES;
        if times.is_empty() {
            bytes += bytes_of(key);
            self.keys.remove(key);
            self.others_marked.remove(key);
            self.bytes -= self.known.remove(key).map_or(0, |known| known_bytes(&known));
        }
        (self.bytes, self.waiting_bytes) = (self.bytes - bytes, self.waiting_bytes - bytes);
    }
}

impl Life {
    fn is_own(&self, origin: &Origin) -> bool {
        *origin == self.origin || self.origins.contains(origin)
    }
}

/// The writes that send counts: one for each block.
pub(super) fn writes<'p>(pending: &'p [Pending<'_>]) -> Vec<Write<'p>> {
    let mut writes: Vec<Write<'p>> = Vec::with_capacity(pending.len());
    for Pending { key, sets, counts, .. } in pending {
        let first = writes.len();
        for known in counts {
            let block = Block::of(key, known.levels, known.cell);
            match writes[first..].iter_mut().find(|write| write.block == block) {
                Some(write) => write.counts.push(known),
                None => {
                    writes.push(Write { block, keep_until: keep_until(&block, sets), counts: vec![known] });
                }
            }
        }
    }
    writes
}

/// Until when a block may be read.
pub(super) fn keep_until(block: &Block<'_>, sets: &LevelSets<'_>) -> Timestamp {
    let read_for_ms = sets.until_age_ms(block.levels, block.width_ms) + BLOCK_SLACK_MS;
    Timestamp::from_millis(block.end_ms().saturating_add(read_for_ms)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_that_wait_take_bounded_memory() {
        let now = Timestamp::from_millis(1_700_000_000_000).expect("a time");
        let outgoing = Outgoing::new("a", None, 10_000, now).expect("no folder");
        let keys: Vec<_> = (0..1_000).map(|number: u32| number.to_string().into_bytes()).collect();
        let mut count = 0;
        for key in &keys {
            let key = || std::iter::once(&key[..]);
            if outgoing.may_delete(key()) {
                outgoing.delete(key(), now).expect("no folder");
                count += 1;
            }
        }
        assert!((20..200).contains(&count) && outgoing.held_bytes() <= 10_000, "{count}");
        assert!(!outgoing.may_delete(keys.iter().map(|key| &key[..])));
        // Those of others are marked first. A later deletion is another one.
        let unsent = outgoing.deleted(7, false);
        assert_eq!(unsent.len(), 7);
        unsent.iter().for_each(|Unsent { key, at, .. }| outgoing.others_marked(key, *at).expect("no folder"));
        let later = Timestamp::from_millis(now.as_millis() + 1).expect("a time");
        outgoing.delete(std::iter::once(&*unsent[0].key), later).expect("no folder");
        assert_eq!(outgoing.deleted(usize::MAX, false).len(), count - 6);
        let all = outgoing.deleted(usize::MAX, true);
        assert_eq!((all.len(), all.iter().filter(|unsent| unsent.is_own_only).count()), (count, 6));
        all.iter().for_each(|Unsent { key, at, .. }| outgoing.marked(key, *at));
        assert_eq!((outgoing.held_bytes(), outgoing.deleted(1, true).len()), (0, 0));
        assert!(outgoing.may_delete(std::iter::once(&b"k"[..])));
    }
}
