//! Compares what this node has counted with what the engine has of it, key by key, and sends what is missing there.
//!
//! The counts of new hits are sent at once, from the hits themselves. What else is missing is found here: hits that are late by
//! more than a few seconds, the last hits of a server that was killed, which its successor read from the journal, hits in
//! cells that both have counted in, and all hits after an engine has lost what it had. All keys are looked at again and
//! again; after a start and after a loss as fast as the engine takes it.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use lately::{Cell, Cursor, Levels, Tally, Timestamp};
use lately_engines::{Block, Engine, EngineError, Known, OwnedBlock, Told};

use crate::limits::{
    DRAIN_SENDS_MS, RECONCILE_FULL_EVERY, RECONCILE_KEYS, RECONCILE_MOST_OLDER_KEYS, RECONCILE_OLDER_KEYS,
    RECONCILE_PAUSE_MS, RECONCILE_ROUND_MS, RECONCILE_SETTLE_MS, UPSTREAM_SETTLE_MS,
};

use super::group::{Group, groups, retain};
use super::outgoing::Pending;
use super::upstream::{Answer, Standing};
use super::worker::{Worker, all_told, latest_loaded, parts};

/// Hits are looked for until the next multiple of this time, in milliseconds.
const LATEST_GRID_MS: i64 = 10_000;

/// How far the keys have been looked at.
pub(super) struct Reconcile {
    /// Keys of which some hits are known only here to be missing.
    older: HashSet<Box<[u8]>>,
    cursor: Cursor,
    /// Keys of a page that are compared next, and where the round goes on behind them.
    rest: Option<(Vec<Box<[u8]>>, Cursor)>,
    /// Not before this.
    due: Timestamp,
    /// Whether something is known to be missing.
    is_urgent: bool,
    /// Whether the upstream engine was away while keys were compared. Not all that was missing was sent then.
    was_away: bool,
    /// Whether it was not away so far in this round.
    is_whole: bool,
    /// What is compared once the upstream engine was read, and the life of the local one then.
    asked: Vec<Step>,
    asked_life: u64,
    /// See `Tables::changes`: what is asked for is of the levels that were known then.
    tables: u64,
    /// Rounds that were begun.
    rounds: u64,
    /// When this round began, and the one before. Cells that ended before that have been compared, unless this round is full.
    begun: Timestamp,
    begun_before: Timestamp,
}

/// Keys that are compared together.
struct Step {
    keys: Vec<Box<[u8]>>,
    /// Cells that ended in this time are compared.
    range_ms: (i64, i64),
    /// Where the round goes on, if they are part of it.
    next: Option<Cursor>,
}

/// What the upstream engine has of blocks that are compared.
enum Above {
    /// There is no upstream engine.
    None,
    /// It is away.
    Away,
    Told(HashMap<OwnedBlock, Told>),
}

impl Reconcile {
    pub(super) fn new() -> Reconcile {
        Reconcile {
            older: HashSet::new(),
            cursor: Cursor::START,
            rest: None,
            due: Timestamp::MIN,
            is_urgent: false,
            was_away: false,
            is_whole: false,
            asked: Vec::new(),
            asked_life: 0,
            tables: 0,
            rounds: 0,
            begun: Timestamp::MIN,
            begun_before: Timestamp::MIN,
        }
    }

    /// Looks at all keys. What a connection that was lost has sent may still arrive, so it waits a little.
    pub(super) fn restart(&mut self, now: Timestamp, has_upstream: bool) {
        let due = after(now, if has_upstream { UPSTREAM_SETTLE_MS } else { RECONCILE_SETTLE_MS });
        let Reconcile { older, asked, asked_life, tables, was_away, .. } =
            mem::replace(self, Reconcile::new());
        *self = Reconcile {
            older,
            asked,
            asked_life,
            tables,
            was_away,
            due,
            is_urgent: true,
            ..Reconcile::new()
        };
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

    /// Whether a key was noted, and is not compared yet.
    pub(super) fn waits(&self, key: &[u8]) -> bool {
        let asked = self.asked.iter().filter(|step| step.next.is_none());
        self.older.contains(key) || asked.flat_map(|step| &step.keys).any(|asked| **asked == *key)
    }

    /// These keys of a step are compared later.
    fn leave(&mut self, keys: Vec<Box<[u8]>>, next: Option<Cursor>) {
        match next {
            _ if keys.is_empty() => {}
            Some(next) => self.rest = Some((keys, next)),
            None => self.older.extend(keys),
        }
    }

    /// The keys of a step could not be compared.
    fn fail(&mut self, keys: Vec<Box<[u8]>>, next: Option<Cursor>) {
        match next {
            // The page is read again.
            Some(_) => self.rest = None,
            None => self.older.extend(keys),
        }
    }

    /// Begins a round, if the last one is over.
    fn begin(&mut self, now: Timestamp) {
        if self.cursor == Cursor::START {
            self.rounds += 1;
            self.is_whole = true;
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

impl<E: Engine> Worker<E> {
    /// Looks at some keys, if it is time.
    pub(super) async fn reconcile(&mut self) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let cluster = parts(&service).0;
        let now = service.now();
        if service.is_loading() || !self.is_settled() {
            return Ok(());
        }
        let tables = cluster.tables.changes();
        if self.reconcile.tables != tables {
            self.put_back();
            self.reconcile.restart(now, cluster.upstream.is_some());
            self.reconcile.tables = tables;
        }
        let Some(upstream) = &cluster.upstream else {
            let older = self.older_step();
            self.take(older, &Above::None, now).await?;
            let page = self.page_step(now);
            return self.take(page, &Above::None, now).await;
        };
        upstream.take_older().iter().for_each(|key| self.reconcile.note_older(key));
        let above = if self.reconcile.asked.is_empty() {
            // Before older keys are taken out: a page with such a key is compared over its whole range.
            let page = self.page_step(now);
            let mut steps: Vec<Step> = self.older_step().into_iter().chain(page).collect();
            if steps.is_empty() {
                return Ok(());
            }
            let mut blocks = Vec::new();
            for step in &mut steps {
                let (of_step, counts) = self.blocks_of(&step.keys, step.range_ms, now, |_| true);
                blocks.extend(of_step.into_iter().map(OwnedBlock::from));
                let rest = step.keys.split_off(counts.len());
                self.reconcile.leave(rest, step.next);
            }
            let standing = upstream.ask(blocks);
            (self.reconcile.asked, self.reconcile.asked_life) = (steps, self.engine.life());
            match standing {
                Standing::Reached => return Ok(()),
                Standing::Away => Above::Away,
                Standing::Unknown => {
                    self.put_back();
                    return Ok(());
                }
            }
        } else {
            match upstream.take_answer() {
                Answer::Waits => return Ok(()),
                Answer::Away => Above::Away,
                Answer::Told(told) => Above::Told(told),
            }
        };
        if self.reconcile.asked_life != self.engine.life() {
            // The local engine may have lost what the upstream one got since. All is looked at again.
            self.put_back();
            return Ok(());
        }
        let steps = mem::take(&mut self.reconcile.asked);
        for step in steps {
            self.take(Some(step), &above, now).await?;
        }
        if matches!(above, Above::Told(_)) && self.reconcile.was_away && !self.reconcile.is_urgent {
            self.reconcile.restart(now, true);
        }
        Ok(())
    }

    /// What was asked for is not compared now.
    fn put_back(&mut self) {
        for Step { keys, next, .. } in mem::take(&mut self.reconcile.asked) {
            self.reconcile.fail(keys, next);
        }
    }

    /// Takes keys with hits that are known to be missing. More may be noted of them from here on.
    fn older_step(&mut self) -> Option<Step> {
        let older = &mut self.reconcile.older;
        let keys: Vec<_> = older.iter().take(RECONCILE_OLDER_KEYS).cloned().collect();
        keys.iter().for_each(|key| _ = older.remove(key));
        (!keys.is_empty()).then_some(Step { keys, range_ms: (i64::MIN, i64::MAX), next: None })
    }

    /// The next keys of the round, if it is time.
    fn page_step(&mut self, now: Timestamp) -> Option<Step> {
        if now < self.reconcile.due {
            return None;
        }
        let store = &self.service.store;
        let rest = self.reconcile.rest.take();
        if rest.is_none() {
            self.reconcile.begin(now);
        }
        let (count, until_ms) = if self.reconcile.is_urgent {
            (RECONCILE_KEYS, i64::MAX)
        } else {
            let steps = usize::try_from(RECONCILE_ROUND_MS / RECONCILE_PAUSE_MS).unwrap_or(1);
            // What was counted last may be on its way.
            (store.len().div_ceil(steps).max(1), now.as_millis() - RECONCILE_SETTLE_MS)
        };
        let (keys, next) = rest.unwrap_or_else(|| {
            let page = store.scan(self.reconcile.cursor, None, count, now);
            (page.keys, page.next)
        });
        // Of a key that waits, narrower cells lack hits that are older.
        let waits = keys.iter().any(|key| self.reconcile.waits(key));
        let from_ms = if waits { i64::MIN } else { self.reconcile.compared_ms() };
        let range_ms = (from_ms, until_ms);
        Some(Step { keys, range_ms, next: Some(next) })
    }

    /// Compares the keys of a step.
    async fn take(&mut self, step: Option<Step>, above: &Above, now: Timestamp) -> Result<(), EngineError> {
        let Some(Step { mut keys, range_ms, next }) = step else { return Ok(()) };
        let compared = self.compare(&keys, range_ms, above, now).await;
        let service = Arc::clone(&self.service);
        self.reconcile.was_away |= matches!(above, Above::Away);
        match compared {
            Ok(done) => {
                self.reconcile.leave(keys.split_off(done), next);
                let Reconcile { is_urgent, rounds, .. } = self.reconcile;
                let is_whole = is_urgent || rounds.is_multiple_of(RECONCILE_FULL_EVERY);
                if self.engine.carries_key_texts() && (next.is_none() || is_whole) {
                    keys.iter().for_each(|key| self.members.note(key, &service));
                    // What fails is read again in the next of these rounds.
                    if let Err(error) = self.read_members(keys.iter().map(|key| &**key), false, now).await {
                        self.warning =
                            Some(format!("deleted members of some keys may still be here: {error}"));
                    }
                }
            }
            Err(error) => {
                self.reconcile.fail(keys, next);
                return Err(error);
            }
        }
        let reconcile = &mut self.reconcile;
        let Some(next) = next else { return Ok(()) };
        reconcile.is_whole &= !matches!(above, Above::Away);
        if reconcile.rest.is_some() {
            return Ok(());
        }
        let is_at_end = next == Cursor::START;
        if is_at_end && reconcile.is_urgent && reconcile.is_whole {
            reconcile.was_away = false;
            parts(&service).0.set_state(|state| state.is_reconciled = true);
        }
        reconcile.cursor = next;
        reconcile.is_urgent &= !is_at_end;
        if !reconcile.is_urgent {
            reconcile.due = after(now, RECONCILE_PAUSE_MS);
        }
        Ok(())
    }

    /// The own hits of a key in cells that ended between two times.
    fn groups(&self, key: &[u8], (from_ms, until_ms): (i64, i64), now: Timestamp) -> Vec<Group> {
        let (store, tables) = (&self.service.store, &parts(&self.service).0.tables);
        let find = || {
            let spans = store.own_spans(key, now);
            // It stays the same for a while. So a comparison asks for the same blocks before and after they are read.
            let latest_ms = Cell::of(latest_loaded(&self.service).as_millis(), LATEST_GRID_MS).end_ms();
            let latest = Timestamp::from_millis(latest_ms).unwrap_or(Timestamp::MAX);
            // Panes may have merged by a later time.
            groups(spans, &store.level_sets(key), (now.max(store.now()), latest))
        };
        let mut groups = find();
        let too_wide = groups.iter().flat_map(Group::too_wide);
        let added = too_wide.filter(|&(pane_ms, held)| tables.add_around(pane_ms, held, store, now)).count();
        if added > 0 {
            groups = find();
        }
        // To say where hits of a wide pane are missing, it has to be known which narrower cells have them.
        let mut wanted: Vec<(i64, i64)> = Vec::new();
        let mut kept: Vec<Group> = Vec::with_capacity(groups.len());
        while let Some(group) = groups.pop() {
            let is_inside =
                wanted.iter().any(|(start_ms, end_ms)| *start_ms < group.end_ms && group.start_ms < *end_ms);
            if is_inside || group.end_ms >= from_ms && group.end_ms <= until_ms {
                if group.has_wide_cell() {
                    wanted.push((group.start_ms, group.end_ms));
                }
                kept.push(group);
            }
        }
        kept.reverse();
        kept
    }

    /// The blocks with the own hits of keys, in cells that ended between two times and in blocks that `is_wanted`; of the first keys,
    /// at least one, whose blocks are read at once. With the number of blocks of each key.
    fn blocks_of<'k>(
        &self,
        keys: &'k [Box<[u8]>],
        range_ms: (i64, i64),
        now: Timestamp,
        is_wanted: impl Fn(&Block<'_>) -> bool,
    ) -> (Vec<Block<'k>>, Vec<usize>) {
        let most = parts(&self.service).0.read_blocks;
        let (mut blocks, mut counts) = (Vec::new(), Vec::with_capacity(keys.len()));
        for key in keys {
            let mut of_key = self.blocks_of_key(key, range_ms, now);
            of_key.retain(|block| is_wanted(block));
            if !counts.is_empty() && blocks.len() + of_key.len() > most {
                break;
            }
            counts.push(of_key.len());
            blocks.extend(of_key);
        }
        (blocks, counts)
    }

    /// The blocks with these hits, each once.
    fn blocks_of_key<'k>(&self, key: &'k [u8], range_ms: (i64, i64), now: Timestamp) -> HashSet<Block<'k>> {
        self.groups(key, range_ms, now).iter().flat_map(|group| group.blocks(key)).collect()
    }

    /// Looks at all keys before the stop, when nothing is counted any more, for [`DRAIN_SENDS_MS`] at most.
    pub(super) async fn reconcile_all(&mut self) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        if !self.knows_former() {
            return Ok(());
        }
        let (begun, mut cursor) = (service.now(), Cursor::START);
        let above = if parts(&service).0.upstream.is_some() { Above::Away } else { Above::None };
        let is_over = |now: Timestamp| now.as_millis() - begun.as_millis() > DRAIN_SENDS_MS;
        loop {
            let page = service.store.scan(cursor, None, RECONCILE_KEYS, service.now());
            let mut keys = &page.keys[..];
            while !keys.is_empty() {
                let now = service.now();
                if is_over(now) {
                    return Ok(());
                }
                let done = self.compare(keys, (i64::MIN, i64::MAX), &above, now).await?;
                keys = &keys[done..];
            }
            cursor = page.next;
            if cursor == Cursor::START {
                return Ok(());
            }
        }
    }

    /// Compares the cells of the first keys, at least one, that ended between two times, and sends what is missing. Returns the number
    /// of these keys.
    async fn compare(
        &mut self,
        keys: &[Box<[u8]>],
        range_ms: (i64, i64),
        above: &Above,
        now: Timestamp,
    ) -> Result<usize, EngineError> {
        let service = Arc::clone(&self.service);
        let (cluster, outgoing) = parts(&service);
        let store = &service.store;
        let (blocks, counts) = self.blocks_of(keys, range_ms, now, |block| match above {
            // Late hits may have come since it was read.
            Above::Told(above) => above.contains_key(&OwnedBlock::from(*block)),
            Above::None | Above::Away => true,
        });
        let keys = &keys[..counts.len()];
        for key in keys {
            self.complete(key, now).await?;
        }
        let life = self.engine.life();
        let mut told = self.engine.read(&blocks).await?;
        if let Above::Told(above) = above {
            if life != self.engine.life() {
                // What the upstream engine has got since may be lost here.
                keys.iter().for_each(|key| self.reconcile.note_older(key));
                return Ok(keys.len());
            }
            self.restore(&blocks, &mut told, above).await?;
        }
        let mut read = blocks.iter().zip(told);
        let (mut pending, mut sent_hits) = (Vec::new(), 0);
        let decreases = store.decreases();
        for (key, count) in keys.iter().zip(counts).filter(|(_, count)| *count > 0) {
            let told: HashMap<_, _> = read.by_ref().take(count).collect();
            self.remove(key, told.values().flatten(), now).await?;
            // Late hits may have come since.
            let mut groups = self.groups(key, range_ms, now);
            let count = groups.len();
            retain(&mut groups, |group| group.blocks(key).all(|block| told.contains_key(&block)));
            if groups.len() < count {
                self.reconcile.note_older(key);
            }
            if matches!(above, Above::Away) {
                // The local engine may have lost the other hits, and the upstream one may have them in another cell, or of
                // another origin.
                retain(&mut groups, |group| outgoing.is_alone(group));
            }
            let sets = store.level_sets(key);
            let (counts, hits) = outgoing.missing(&groups, told.values().flatten(), &sets);
            if !counts.is_empty() {
                pending.push(Pending { key, sets, counts });
                sent_hits += hits;
            }
        }
        cluster.committed(&service).await;
        if store.decreases() != decreases {
            // They are looked at again.
            keys.iter().for_each(|key| self.reconcile.note_older(key));
            self.reconcile.restart(now, cluster.upstream.is_some());
            return Ok(keys.len());
        }
        // The marks of a deletion come first.
        pending.retain(|pending| !outgoing.is_deleted(pending.key));
        self.write(&pending).await?;
        cluster.set_state(|state| state.resent_hits += sent_hits);
        Ok(keys.len())
    }

    /// Completes the wider cells of earlier starts of this node, when these had other classes. A node sends wider cells a little
    /// later, and may have been killed before. The levels here are compared with whichever of those are read at a time, so all of
    /// them have to have the same hits.
    async fn complete(&mut self, key: &[u8], now: Timestamp) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let sets = service.store.level_sets(key);
        if sets.others().next().is_none() {
            return Ok(());
        }
        let mut own = all_told(&mut self.engine, &service, key, now).await?;
        own.retain(|known| parts(&service).1.is_own(&known.origin));
        let counts: Vec<Known> = sets.others().flat_map(|levels| wider(&own, levels, now)).collect();
        if counts.is_empty() { Ok(()) } else { self.write(&[Pending { key, sets, counts }]).await }
    }

    /// Copies counts of this node that only the upstream engine has: into the local engine, and into `told`. These are counts that the
    /// local engine lost, and marks of deletions in other data centres.
    async fn restore(
        &mut self,
        blocks: &[Block<'_>],
        told: &mut [Told],
        above: &HashMap<OwnedBlock, Told>,
    ) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let outgoing = parts(&service).1;
        let mut pending = Vec::new();
        for (block, told) in blocks.iter().zip(told) {
            let above = above.get(&OwnedBlock::from(*block)).into_iter().flatten();
            let mut counts = Vec::new();
            for known in above.filter(|known| outgoing.is_own(&known.origin)) {
                if merge_into(told, known) {
                    counts.push(known.clone());
                }
            }
            if !counts.is_empty() {
                let sets = service.store.level_sets(block.key);
                pending.push(Pending { key: block.key, sets, counts });
            }
        }
        if pending.is_empty() { Ok(()) } else { self.write(&pending).await }
    }
}

/// Counts of wider cells in which these origins have less together than in the narrower cells inside. Narrower cells that are read no more
/// do not matter: their removed hits say nothing of the store, for hits leave it with the cells that are read.
fn wider(own: &[Known], levels: &Levels, now: Timestamp) -> Vec<Known> {
    // What is in the cells of a level, of all origins together, under the name of the last of them.
    let mut of_level: HashMap<Cell, Known> = HashMap::new();
    let mut counts = Vec::new();
    for (level, from_ms, _) in levels.ranges_ms(now) {
        let mut inside: HashMap<Cell, Known> = HashMap::new();
        for narrower in of_level.into_values() {
            add(&mut inside, level.cell_of_ms(narrower.cell.start_ms), &narrower);
        }
        let mut held: HashMap<Cell, Known> = HashMap::new();
        for known in own {
            if known.levels == levels.id() && known.cell.width_ms == level.width_ms {
                add(&mut held, known.cell, known);
            }
        }
        for (cell, inside) in inside {
            let held = held.entry(cell).or_insert_with(|| nothing_in(cell, &inside));
            let counted = inside.tally.counted.saturating_sub(held.tally.counted);
            let deleted = inside.tally.deleted.saturating_sub(held.tally.deleted);
            let removed = inside.removed.saturating_sub(held.removed);
            if (counted, deleted, removed) == (0, 0, 0) {
                continue;
            }
            let is_there = |known: &&Known| {
                (known.levels, known.cell) == (inside.levels, cell) && known.origin == inside.origin
            };
            let mut known = own.iter().find(is_there).cloned().unwrap_or_else(|| nothing_in(cell, &inside));
            known.tally.counted += counted;
            known.tally.deleted += deleted;
            known.removed += removed;
            counts.push(known);
            held.tally.counted += counted;
            held.tally.deleted += deleted;
            held.removed += removed;
        }
        held.retain(|cell, _| from_ms <= cell.start_ms);
        of_level = held;
    }
    counts
}

/// A count of the same origin, of no hits in a cell.
fn nothing_in(cell: Cell, known: &Known) -> Known {
    Known { cell, tally: Tally::default(), removed: 0, ..known.clone() }
}

/// Adds a count to those in a cell.
fn add(sums: &mut HashMap<Cell, Known>, cell: Cell, known: &Known) {
    let sum = sums.entry(cell).or_insert_with(|| nothing_in(cell, known));
    sum.tally.counted += known.tally.counted;
    sum.tally.deleted += known.tally.deleted;
    sum.removed += known.removed;
    if known.origin.incarnation() > sum.origin.incarnation() {
        sum.origin = known.origin.clone();
    }
}

/// Merges a count of another engine. True if that told more.
pub(super) fn merge_into(told: &mut Told, known: &Known) -> bool {
    let held = told.iter_mut().find(|held| held.cell == known.cell && held.origin == known.origin);
    let Some(held) = held else {
        told.push(known.clone());
        return true;
    };
    let before = held.clone();
    held.merge(known);
    *held != before
}

#[cfg(test)]
mod tests {
    use lately::{Origin, Settings};

    use super::*;

    /// Symptom: a deleted hit was there again, after starts with other classes. Cause: the mark of a cell that is read no more came before that of the
    /// wider one. The cell was noted as removed, the hit left the store with the wider one only, and the completed wider one was removed, too.
    /// Fix: cells that are read no more complete nothing.
    #[test]
    fn cells_that_are_read_no_more_complete_nothing() {
        let levels = Settings::default().levels().clone();
        let now = Timestamp::from_millis(1_700_000_000_000).expect("a time");
        let check = |ago_ms: i64, expected: &[i64]| {
            let known = |width_ms: i64, hits: u64| Known {
                origin: Origin::new("a", 1).expect("a name"),
                levels: levels.id(),
                cell: Cell::of(now.as_millis() - ago_ms, width_ms),
                tally: Tally { counted: 1, deleted: hits },
                removed: hits,
            };
            let own = [known(10_000, 1), known(60_000, 0), known(600_000, 0), known(3_600_000, 0)];
            let completed = wider(&own, &levels, now);
            let widths: Vec<_> = completed.iter().map(|known| known.cell.width_ms).collect();
            assert_eq!(widths, expected, "{ago_ms}");
            assert!(completed.iter().all(|known| known.removed == 1));
        };
        check(5_000_000, &[60_000, 600_000, 3_600_000]);
        check(6_100_000, &[]);
    }
}
