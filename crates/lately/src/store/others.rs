//! What other nodes counted: their tallies by key, and the sum of each key as hits that answers are made of.
//!
//! A store that merges nothing has none of this, and pays nothing for it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Store;
use super::key::{self, SHARDS};
use super::shares::{HitsByNode, Shares, share_out};
use crate::allocation::allocated;
use crate::count::Count;
use crate::delta::DeltaBatch;
use crate::entry::Entry;
use crate::error::MergeError;
use crate::ladder::RUNGS_MS;
use crate::limits::{MAX_ORIGINS, MAX_TOTAL};
use crate::merge::{
    Cell, Cells, Changes, LevelSets, LevelTable, LevelsId, Merged, Origin, OriginId, Tally, Watermarks,
};
use crate::panes::Pane;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};
use crate::uniques::Uniques;
use crate::window::Window;

/// What others counted, by key.
#[derive(Debug)]
pub(super) struct Others {
    watermarks: RwLock<Watermarks>,
    parts: Box<[Mutex<Keys>]>,
}

pub(super) type Keys = HashMap<Box<[u8]>, OtherKey>;

/// What others counted of a key.
#[derive(Default, Debug)]
pub(super) struct OtherKey {
    cells: Cells,
    /// What the upstream engine has of it. Mostly empty: few stores have one.
    upstream: Cells,
    /// The hits of all others. `None` when the cells have changed since.
    sum: Option<Arc<Entry>>,
    /// The distinct members that others have counted, as each engine has them.
    members: HashMap<Tier, Arc<Uniques>>,
}

/// The engine that counts were read from. What is known from one stays when the other is read again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tier {
    /// The engine of this data centre.
    Local,
    /// The engine that all data centres share.
    Upstream,
}

/// Parts with a lock each.
const PARTS: usize = 64;
const _: () = assert!(SHARDS.is_multiple_of(PARTS) || cfg!(loom), "each part belongs to a range of shards");

/// What a key takes beside its name and its cells.
const KEY_BYTES: usize = 2 * size_of::<(Box<[u8]>, OtherKey)>();

/// Hits of a store in one or several cells of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnSpan {
    /// The width of the cells, in milliseconds.
    pub width_ms: i64,
    /// The first millisecond of the first cell.
    pub start_ms: i64,
    /// One past the last millisecond of the last cell.
    pub end_ms: i64,
    /// The hits in all of them.
    pub hits: u64,
    /// The widest pane of this age that has the span: its first millisecond, and one past its last. Before a restart, the hits may have
    /// been in any cell of it.
    pub pane_ms: (i64, i64),
}

impl OwnSpan {
    /// Whether a cell is one of them.
    #[must_use]
    pub fn has(&self, cell: Cell) -> bool {
        cell.width_ms == self.width_ms && (self.start_ms..self.end_ms).contains(&cell.start_ms)
    }

    /// Whether there is one only.
    #[must_use]
    pub fn is_one_cell(&self) -> bool {
        self.end_ms - self.start_ms == self.width_ms
    }

    /// The last cell.
    #[must_use]
    pub fn last_cell(&self) -> Cell {
        Cell { start_ms: self.end_ms - self.width_ms, width_ms: self.width_ms }
    }
}

impl OtherKey {
    fn bytes(&self, key: &[u8]) -> usize {
        let sum = self.sum.as_ref().map_or(0, |sum| size_of::<Entry>() + sum.heap_bytes());
        let members: usize = self.members.values().map(|members| members.bytes()).sum();
        KEY_BYTES
            + allocated(key.len())
            + self.cells.heap_bytes()
            + self.upstream.heap_bytes()
            + sum
            + members
    }

    fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.upstream.is_empty() && self.members.is_empty()
    }

    fn expire(&mut self, (settings, sets): (&Settings, &LevelSets<'_>), now: Timestamp) {
        self.cells.expire(sets, now);
        self.upstream.expire(sets, now);
        self.members.retain(|_, members| !members.have_expired(settings, now));
    }

    /// Replaces the members that an engine has.
    pub(super) fn set_members(&mut self, tier: Tier, members: Option<Arc<Uniques>>) {
        match members {
            Some(members) => _ = self.members.insert(tier, members),
            None => _ = self.members.remove(&tier),
        }
    }

    /// The members of both engines.
    pub(super) fn members(&self, settings: &Settings, now: Timestamp) -> Option<Arc<Uniques>> {
        let mut engines = self.members.values();
        let first = engines.next().map(Arc::clone);
        engines.fold(first, |all, members| {
            let mut all = all.map_or_else(Uniques::default, Arc::unwrap_or_clone);
            all.absorb((**members).clone(), settings, now);
            Some(Arc::new(all))
        })
    }

    /// The counts of both engines, merged.
    fn all(&self) -> Cow<'_, Cells> {
        if self.upstream.is_empty() {
            return Cow::Borrowed(&self.cells);
        }
        Cow::Owned(self.cells.iter().chain(self.upstream.iter()).collect())
    }

    /// The counts of one engine.
    fn of(&self, tier: Tier) -> &Cells {
        match tier {
            Tier::Local => &self.cells,
            Tier::Upstream => &self.upstream,
        }
    }

    /// The hits of all others.
    fn sum(&mut self, settings: &Settings, sets: &LevelSets<'_>, now: Timestamp) -> Arc<Entry> {
        let fits = |sum: &&mut Arc<Entry>| !sum.is_to_fit_again(now);
        if let Some(sum) = self.sum.as_mut().filter(fits) {
            return Arc::clone(sum);
        }
        let panes = self.all().panes(sets, now);
        let sum = Arc::new(Entry::of_panes(panes, settings, now));
        Arc::clone(self.sum.insert(sum))
    }
}

impl Others {
    pub(super) fn new() -> Others {
        Others { watermarks: RwLock::default(), parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }

    pub(super) fn part(&self, hash: u64) -> MutexGuard<'_, Keys> {
        self.lock((hash >> 32) as usize % PARTS)
    }

    fn with_origins(&self, cells: &Cells) -> Vec<(Origin, LevelsId, Cell, Tally)> {
        let watermarks = self.read();
        let cells = cells.iter();
        cells
            .map(|(levels, cell, origin, tally)| (watermarks.origin(origin).clone(), levels, cell, tally))
            .collect()
    }

    fn lock(&self, part: usize) -> MutexGuard<'_, Keys> {
        self.parts[part].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Merges what another node counted. Its hits show in the answers of this store from here on, and limits count them.
    ///
    /// Merging is commutative, associative and idempotent: messages may come in any order, and more than once.
    ///
    /// # Errors
    /// [`MergeError`] when the message is malformed. Nothing changes then.
    pub fn merge(&self, changes: &Changes, now: Timestamp) -> Result<Merged, MergeError> {
        check(changes)?;
        let others = self.others.get_or_init(Others::new);
        let ids = others.ids_of(changes)?;
        let Some(ids) = ids else { return Ok(Merged::Repeated) };
        let mut ids = ids.into_iter();
        let sender = ids.next().expect("the sender is the first");
        for its in &changes.keys {
            self.merge_key(
                others,
                (&its.key, its.levels),
                its.cells.iter().map(|(_, cell, tally)| (*cell, *tally)).zip(&mut ids),
                now,
            );
        }
        Ok(others.write().note(sender, changes))
    }

    fn merge_key(
        &self,
        others: &Others,
        (key, levels): (&[u8], LevelsId),
        cells: impl Iterator<Item = ((Cell, Tally), OriginId)>,
        now: Timestamp,
    ) {
        let mut part = others.part(self.hash(key));
        let sets = self.level_sets(key);
        let (before, held) = match part.get_mut(key) {
            Some(held) => (held.bytes(key), held),
            None => (0, part.entry(key.into()).or_default()),
        };
        if held.cells.merge(cells.map(|((cell, tally), origin)| (levels, cell, origin, tally))) {
            held.sum = None;
            held.cells.expire(&sets, self.advance(now));
        }
        let after = held.bytes(key);
        let is_empty = held.is_empty();
        if is_empty {
            part.remove(key);
        }
        drop(part);
        self.memory.change_other(before, if is_empty { 0 } else { after });
    }

    /// Replaces what is known of a key from one engine by what that has of it. What the other has is merged with it. Returns
    /// the memory that both take, in bytes.
    ///
    /// # Errors
    /// [`MergeError`] when a count is malformed. Nothing changes then.
    pub fn learn(
        &self,
        key: &[u8],
        tier: Tier,
        told: impl Iterator<Item = (Origin, LevelsId, Cell, Tally)>,
        now: Timestamp,
    ) -> Result<usize, MergeError> {
        let told: Vec<_> = told.collect();
        check_key(key)?;
        told.iter().try_for_each(|(.., cell, tally)| check_cell(*cell, *tally))?;
        if told.is_empty() && self.others.get().is_none() {
            return Ok(0);
        }
        let others = self.others.get_or_init(Others::new);
        let mut watermarks = others.write();
        let cells = told.into_iter().map(|(origin, levels, cell, tally)| {
            let id = watermarks.id(&origin, MAX_ORIGINS).ok_or(MergeError::Origins { most: MAX_ORIGINS })?;
            Ok((levels, cell, id, tally))
        });
        let mut cells: Cells = cells.collect::<Result<_, _>>()?;
        drop(watermarks);
        cells.expire(&self.level_sets(key), self.advance(now));
        Ok(self.replace(others, key, |held| match tier {
            Tier::Local => held.cells = cells,
            Tier::Upstream => held.upstream = cells,
        }))
    }

    /// Forgets what is known of a key of others.
    pub fn unlearn(&self, key: &[u8]) {
        if let Some(others) = self.others.get() {
            self.replace(others, key, |held| *held = OtherKey::default());
        }
    }

    /// The hits that this store counted of a key, in the cells of all levels, ascending in each level. Where a pane is wider than a
    /// cell, it is a span of several cells.
    #[must_use]
    pub fn own_spans(&self, key: &[u8], now: Timestamp) -> Vec<OwnSpan> {
        let hash = self.hash(key);
        let (mut shard, now, mut context) = self.lock_for(hash, now, None);
        let Some(slot) = shard.live(key, hash, &mut context) else { return Vec::new() };
        let settings = self.classes.settings(slot.class);
        let mut panes: Vec<_> = slot.state.hits().spans_ms(settings).collect();
        drop(shard);
        panes.sort_unstable();
        let mut spans = Vec::new();
        for (level, from_ms, _) in settings.levels().ranges_ms(now) {
            let oldest_ms = from_ms.max(settings.horizon_ms(now));
            let mut of_level: Vec<OwnSpan> = Vec::new();
            for &(start_ms, end_ms, hits) in &panes {
                let (pane_ms, width_ms) = settings.ladder().cell(start_ms, now.as_millis());
                let start_ms = level.cell_of_ms(start_ms).start_ms;
                if start_ms < oldest_ms {
                    // It is read in wider cells. Narrower panes inside of it may be read here.
                    continue;
                }
                let last_ms = level.cell_of_ms(end_ms - 1).end_ms();
                let pane_ms = (start_ms.min(pane_ms), last_ms.max(pane_ms + width_ms));
                // A wide pane may reach over now, and its hits do not: in later cells, nobody would see them.
                let now_ms = now.as_millis().max(start_ms);
                let end_ms = last_ms.min(level.cell_of_ms(now_ms).end_ms());
                match of_level.last_mut().filter(|last| start_ms < last.end_ms) {
                    Some(last) => {
                        (last.end_ms, last.hits) = (last.end_ms.max(end_ms), last.hits + hits);
                        last.pane_ms = (last.pane_ms.0.min(pane_ms.0), last.pane_ms.1.max(pane_ms.1));
                    }
                    None => {
                        of_level.push(OwnSpan { width_ms: level.width_ms, start_ms, end_ms, hits, pane_ms });
                    }
                }
            }
            spans.extend(of_level);
        }
        spans
    }

    /// Takes back hits of this store that another node has deleted: of each cell, this number. The key goes when none are left.
    /// Returns how many hits of each cell are not there.
    pub fn take_back(
        &self,
        key: &[u8],
        cells: &[(Cell, u64)],
        now: Timestamp,
        deltas: &mut DeltaBatch,
    ) -> Vec<u64> {
        deltas.advance(now);
        let hash = self.hash(key);
        let (mut shard, _, mut context) = self.lock_for(hash, now, Some(deltas));
        let mut lacking: Vec<_> = cells.iter().map(|(_, hits)| *hits).collect();
        if shard.live(key, hash, &mut context).is_some() {
            let taken = shard.take_back((key, hash), cells, &mut context);
            lacking.iter_mut().zip(taken).for_each(|(lacking, taken)| *lacking -= taken);
        }
        lacking
    }

    /// The levels in which this store counts.
    #[must_use]
    pub fn level_table(&self) -> LevelTable {
        let (default, named) = self.classes.all().split_last().expect("there is a default");
        let patterns = self.classes.patterns().iter().cloned();
        let named = patterns.zip(named).map(|(pattern, settings)| (pattern, settings.levels().clone()));
        LevelTable::new(named.collect(), default.levels().clone()).expect("the number of classes is bounded")
    }

    /// Others count in these levels, too: other nodes with other classes, and earlier starts of nodes.
    pub fn set_other_levels(&self, tables: Vec<LevelTable>) {
        *self.other_levels.write().unwrap_or_else(PoisonError::into_inner) = tables;
    }

    /// All levels that hits of a key may be counted in.
    #[must_use]
    pub fn level_sets(&self, key: &[u8]) -> LevelSets<'_> {
        let tables = self.other_levels.read().unwrap_or_else(PoisonError::into_inner);
        LevelSets::new(self.settings_of(key).levels(), &tables, key)
    }

    pub(super) fn replace(&self, others: &Others, key: &[u8], change: impl FnOnce(&mut OtherKey)) -> usize {
        let mut part = others.part(self.hash(key));
        let (name, mut held) = part.remove_entry(key).unwrap_or_else(|| (key.into(), OtherKey::default()));
        let before = if held.is_empty() { 0 } else { held.bytes(key) };
        held.sum = None;
        change(&mut held);
        let mut after = 0;
        if !held.is_empty() {
            after = held.bytes(key);
            part.insert(name, held);
        }
        drop(part);
        self.memory.change_other(before, after);
        after
    }

    /// How far the messages of an origin were merged: the end of the last one before which none is missing.
    #[must_use]
    pub fn watermark(&self, origin: &Origin) -> u64 {
        self.others.get().map_or(0, |others| others.read().watermark(origin))
    }

    /// What is known of a key of other origins, in all cells.
    #[must_use]
    pub fn known(&self, key: &[u8]) -> Vec<(Origin, LevelsId, Cell, Tally)> {
        let Some(others) = self.others.get() else { return Vec::new() };
        let known = others.part(self.hash(key)).get(key).map(|held| held.all().into_owned());
        others.with_origins(&known.unwrap_or_default())
    }

    /// The same of those that were read from one engine.
    #[must_use]
    pub fn known_from(&self, key: &[u8], tier: Tier) -> Vec<(Origin, LevelsId, Cell, Tally)> {
        let Some(others) = self.others.get() else { return Vec::new() };
        let known = others.part(self.hash(key)).get(key).map(|held| held.of(tier).clone());
        others.with_origins(&known.unwrap_or_default())
    }

    /// The hits that are known of each origin from one engine, in all cells. A hit may be in a cell of each width.
    #[must_use]
    pub fn known_hits(&self, key: &[u8], tier: Tier) -> Vec<(Origin, u64)> {
        let Some(others) = self.others.get() else { return Vec::new() };
        let mut of_origins: Vec<(OriginId, u64)> = Vec::new();
        if let Some(held) = others.part(self.hash(key)).get(key) {
            for (_, _, origin, tally) in held.of(tier).iter() {
                match of_origins.iter_mut().find(|(id, _)| *id == origin) {
                    Some((_, hits)) => *hits += tally.counted,
                    None => of_origins.push((origin, tally.counted)),
                }
            }
        }
        let watermarks = others.read();
        let of_origins = of_origins.into_iter();
        of_origins.map(|(origin, hits)| (watermarks.origin(origin).clone(), hits)).collect()
    }

    /// Marks the hits of other origins on a key as deleted, as far as they are known. Returns the marks, which the others are to
    /// be told.
    pub fn delete_known(&self, key: &[u8]) -> Vec<(Origin, LevelsId, Cell, Tally)> {
        let Some(others) = self.others.get() else { return Vec::new() };
        let mut part = others.part(self.hash(key));
        let Some(held) = part.get_mut(key) else { return Vec::new() };
        let before = held.bytes(key);
        held.sum = None;
        held.cells.delete();
        held.upstream.delete();
        let marks: Vec<_> = held.all().iter().collect();
        self.memory.change_other(before, held.bytes(key));
        drop(part);
        let watermarks = others.read();
        let marks = marks.into_iter();
        marks.map(|(levels, cell, id, tally)| (watermarks.origin(id).clone(), levels, cell, tally)).collect()
    }

    /// Drops what is read no more of the part that a sweep comes to with a shard.
    pub(super) fn sweep_others(&self, shard: usize, now: Timestamp) {
        let Some(others) = self.others.get().filter(|_| shard.is_multiple_of(SHARDS.div_ceil(PARTS))) else {
            return;
        };
        let (mut before, mut after) = (0, 0);
        others.lock(shard / SHARDS.div_ceil(PARTS)).retain(|key, held| {
            before += held.bytes(key);
            held.expire((self.settings_of(key), &self.level_sets(key)), now);
            let is_kept = !held.is_empty();
            after += if is_kept { held.bytes(key) } else { 0 };
            is_kept
        });
        self.memory.change_other(before, after);
    }

    /// The hits of a key in a window (default: that of the key's class) that ends with the pane of `at` (default: now), by the
    /// node that counted them.
    #[must_use]
    pub fn hits_by_node(
        &self,
        key: &[u8],
        window: Option<Span>,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> HitsByNode {
        let (window, now, count) = self.count_own(key, window, at, now);
        let own = count.estimate;
        match self.shares_of_others((key, self.hash(key)), &window, now) {
            Some((of_others, others)) => HitsByNode { count: count.plus(of_others), own, others },
            None => HitsByNode { count, own, others: Vec::new() },
        }
    }

    /// The hits of a key that this store has counted itself, in a window as for [`Store::hits_by_node`].
    #[must_use]
    pub fn own_count(
        &self,
        key: &[u8],
        window: Option<Span>,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> Count {
        self.count_own(key, window, at, now).2
    }

    /// The window, the time of the store, and the hits.
    fn count_own(
        &self,
        key: &[u8],
        window: Option<Span>,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> (Window, Timestamp, Count) {
        let hash = self.hash(key);
        let settings = self.settings_of(key);
        let (mut shard, now, mut context) = self.lock_for(hash, now, None);
        let window = Window::ending_at(at.unwrap_or(now), window.unwrap_or(settings.window()), settings, now);
        let own = shard.live(key, hash, &mut context);
        let count =
            own.map_or(window.count(|_, _| 0), |slot| slot.state.hits().count_window(&window, settings));
        (window, now, count)
    }

    fn shares_of_others(
        &self,
        (key, hash): (&[u8], u64),
        window: &Window,
        now: Timestamp,
    ) -> Option<(Count, Shares)> {
        let others = self.others.get()?;
        let settings = self.settings_of(key);
        let mut part = others.part(hash);
        let held = part.get_mut(key)?;
        let before = held.bytes(key);
        // Made anew, from the cells that the shares are made of.
        held.sum = None;
        let sets = self.level_sets(key);
        let total = held.sum(settings, &sets, now).count_window(window, settings);
        self.memory.change_other(before, held.bytes(key));
        let by_origin = held.all().panes_by_origin(&sets, window, now);
        drop(part);
        let mut by_node: BTreeMap<Box<str>, BTreeMap<(i64, i64), u64>> = BTreeMap::new();
        let watermarks = others.read();
        for (origin, panes) in by_origin {
            let of_node = by_node.entry(watermarks.origin(origin).node().into()).or_default();
            for Pane { start_ms, width_ms, hits } in panes {
                let sum = of_node.entry((start_ms, width_ms)).or_default();
                *sum = sum.saturating_add(hits);
            }
        }
        drop(watermarks);
        let count = |panes: BTreeMap<(i64, i64), u64>| {
            let panes =
                panes.into_iter().map(|((start_ms, width_ms), hits)| Pane { start_ms, width_ms, hits });
            Entry::of_panes(panes.collect(), settings, now).count_window(window, settings)
        };
        let by_node = by_node.into_iter().map(|(node, panes)| (node, count(panes))).collect();
        Some((total, share_out(total.estimate, by_node)))
    }

    /// The hits of others on a key; `None` when there are none.
    pub(super) fn hits_of_others(&self, key: &[u8], hash: u64, now: Timestamp) -> Option<Arc<Entry>> {
        let others = self.others.get()?;
        let mut part = others.part(hash);
        let held = part.get_mut(key)?;
        let before = held.bytes(key);
        let sum = held.sum(self.settings_of(key), &self.level_sets(key), now);
        self.memory.change_other(before, held.bytes(key));
        Some(sum).filter(|sum| !sum.is_empty())
    }

    /// The hits of others on a key in a window.
    pub(super) fn count_of_others(
        &self,
        (key, hash): (&[u8], u64),
        window: Option<Span>,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Count> {
        let sum = self.hits_of_others(key, hash, now)?;
        let settings = self.settings_of(key);
        Some(sum.count(at.unwrap_or(now), window.unwrap_or(settings.window()), settings, now))
    }
}

impl Others {
    fn read(&self) -> RwLockReadGuard<'_, Watermarks> {
        self.watermarks.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Watermarks> {
        self.watermarks.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The origins of a message as numbers: the sender, and that of each cell. `None` when all of it was merged before.
    fn ids_of(&self, changes: &Changes) -> Result<Option<Vec<OriginId>>, MergeError> {
        let mut watermarks = self.write();
        if watermarks.has(changes) {
            return Ok(None);
        }
        let origins = changes.keys.iter().flat_map(|its| &its.cells);
        let origins = origins.map(|(of, ..)| of.as_ref().unwrap_or(&changes.origin));
        let ids = [&changes.origin].into_iter().chain(origins).map(|origin| {
            watermarks.id(origin, MAX_ORIGINS).ok_or(MergeError::Origins { most: MAX_ORIGINS })
        });
        ids.collect::<Result<_, _>>().map(Some)
    }
}

/// Checks what a message says before any of it is merged.
fn check(changes: &Changes) -> Result<(), MergeError> {
    if changes.after > changes.until {
        return Err(MergeError::Sequence { after: changes.after, until: changes.until });
    }
    for its in &changes.keys {
        check_key(&its.key)?;
        its.cells.iter().try_for_each(|&(_, cell, tally)| check_cell(cell, tally))?;
    }
    Ok(())
}

fn check_key(key: &[u8]) -> Result<(), MergeError> {
    key::check_key(key).map_err(|_| MergeError::KeyLength { bytes: key.len() })
}

fn check_cell(Cell { start_ms, width_ms }: Cell, tally: Tally) -> Result<(), MergeError> {
    let is_cell = RUNGS_MS.contains(&width_ms)
        && start_ms % width_ms == 0
        && (0..=Timestamp::MAX.as_millis()).contains(&start_ms);
    if !is_cell || tally.counted.max(tally.deleted) > MAX_TOTAL {
        return Err(MergeError::Cell { start_ms, width_ms });
    }
    Ok(())
}
