//! What a node of a mesh knows of the counts of all nodes. Pure: it does no I/O, and time is passed in.
//!
//! Every change of a cell gets the next number of this replica. The changed cells are in an index by that number, each at its
//! last change only. So "all that changed after number n" is always known, whatever n is: a node that was cut off for a day gets each
//! cell once, and one that has nothing gets everything. No log can be too short.
//!
//! A cell that this node changed itself is its own: it *publishes* it. What it learned from others it passes on as well, because their
//! node may be gone, but only to nodes that lack it. To know that, each cell has a stamp: the replica that published this state, and a
//! number of it. A node that has followed that replica up to the number has the state, or a greater one. Two rules make that true:
//!
//! 1. A state that comes from elsewhere keeps its stamp only where it replaces what was there. If both states had something that
//!    the other lacked, the merged one is published here.
//! 2. A cell that was published here once stays so: later changes of it from elsewhere are published here again.
//!
//! So whoever has read all own cells up to a number has every state that was stamped with a number up to it.
//!
//! In a tree most of what a node has comes from elsewhere. There a follower asks for *all* changes, own and learned, after one number.
//! Each cell has the neighbour that its state came from, which does not get it back. And the answer says how far its node has followed
//! every replica: with the last page, that holds for the follower, too.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lately::limits::MAX_ORIGINS;
use lately::{Cell, LevelsId, Origin, Tally, Timestamp};

use crate::layout::CELLS_OF_A_BLOCK;
use crate::limits::{
    MAX_PEER_KEPT_MS, MAX_PEER_LIVES, MAX_PEER_TEXTS, MAX_PEER_TEXTS_BYTES, PEER_PAGE_BYTES,
};
use crate::noted::Noted;
use crate::{Block, EngineError, Known, OwnedBlock, Told, Write};

use super::page::{Count, Page, Stamp, Text};

/// The counts of all nodes, as far as they are known here.
pub(super) struct Replica {
    /// The numbers of this replica and the others, this one first.
    lives: Lives,
    /// The number of the last change.
    last: u64,
    keys: BTreeMap<Arc<[u8]>, Vec<HeldBlock>>,
    origins: Origins,
    texts: BTreeMap<Arc<(u8, String)>, HeldText>,
    /// Blocks and texts with cells that were published here, each at its last such change.
    own: BTreeMap<u64, Item>,
    /// Those with states from elsewhere.
    learned: BTreeMap<u64, Item>,
    /// Blocks that were noted as changed, for [`crate::Engine::take_changed`].
    noted: Noted,
    /// Whether changes from elsewhere are noted, too.
    notes_all: bool,
    bytes: usize,
    most_bytes: usize,
    /// The texts about keys, and the others.
    key_texts: TextsSize,
    list_texts: TextsSize,
    /// The key up to which expired blocks were looked for.
    swept: Option<Arc<[u8]>>,
}

/// How many texts there are, and the memory that they take.
#[derive(Clone, Copy, Default)]
struct TextsSize {
    count: usize,
    bytes: usize,
}

fn text_bytes(name: &str, text: Option<&str>) -> usize {
    KEY_BYTES + INDEX_BYTES + 2 * name.len() + text.map_or(0, str::len)
}

/// The list of the texts about keys.
pub(super) const OF_KEYS: u8 = 3;

/// The name of a text about a key in this list; with an empty name, how all of them begin.
pub(super) fn name_of_key_text(key: &[u8], name: &str) -> String {
    format!("{} {name}", STANDARD.encode(key))
}

/// The key of such a name.
pub(super) fn key_of_text(name: &str) -> Option<Vec<u8>> {
    STANDARD.decode(name.split_once(' ')?.0).ok()
}

/// This replica, in `Lives`.
const SELF: u32 = 0;
/// No replica.
const NOBODY: u32 = u32::MAX;

/// Where a state comes from: its stamp, and the replica that sent it.
#[derive(Clone, Copy)]
struct From {
    stamp: Stamp,
    via: u32,
}

struct Lives {
    numbers: HashMap<u64, u32>,
    list: Vec<Life>,
}

struct Life {
    id: u64,
    /// All own cells of that replica up to this number are merged.
    until: u64,
}

#[derive(Default)]
struct Origins {
    numbers: HashMap<Origin, u32>,
    list: Vec<Origin>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Item {
    Block(Arc<[u8]>, BlockId),
    Text(Arc<(u8, String)>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BlockId {
    levels: LevelsId,
    width_ms: i64,
    number: i64,
}

struct HeldBlock {
    id: BlockId,
    keep_until_ms: i64,
    /// Its places in the two indices; 0 for none.
    at: Places,
    cells: Vec<HeldCell>,
}

/// Places in the indices of own and learned changes.
#[derive(Clone, Copy, Default)]
struct Places {
    own: u64,
    learned: u64,
}

#[derive(Clone, Copy)]
struct HeldCell {
    origin: u32,
    place: u8,
    mark: Mark,
    counted: u64,
    deleted: u64,
    removed: u64,
}

/// The last change of a cell or a text: its number here, and its stamp.
#[derive(Clone, Copy)]
struct Mark {
    changed: u64,
    source: u32,
    /// The replica that sent this very state, or `NOBODY`.
    via: u32,
    until: u64,
}

struct HeldText {
    text: Option<String>,
    version: u64,
    until_ms: i64,
    at: Places,
    mark: Mark,
}

/// A page to a node that follows this one.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) page: Page,
    /// The follower goes on from here.
    pub(super) until: u64,
    /// Whether there was nothing more.
    pub(super) is_all: bool,
}

/// What a follower has from other replicas: up to which number it has merged the own cells of each.
pub(super) type Seen = HashMap<u64, u64>;

/// The replica has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoRoom;

/// What a block takes beside its cells: in its list, and in an index.
const BLOCK_BYTES: usize = size_of::<HeldBlock>() + INDEX_BYTES;
const INDEX_BYTES: usize = 2 * (size_of::<u64>() + size_of::<Item>());
/// What a key takes beside its name.
const KEY_BYTES: usize = 96;

impl Lives {
    /// The index of a replica. `None` if there is no room for another one.
    fn index(&mut self, id: u64) -> Option<u32> {
        if let Some(&index) = self.numbers.get(&id) {
            return Some(index);
        }
        let index = u32::try_from(self.list.len()).ok().filter(|_| self.list.len() < MAX_PEER_LIVES)?;
        self.numbers.insert(id, index);
        self.list.push(Life { id, until: 0 });
        Some(index)
    }
}

impl Origins {
    fn index(&mut self, origin: &Origin) -> Option<u32> {
        if let Some(&index) = self.numbers.get(origin) {
            return Some(index);
        }
        let index = u32::try_from(self.list.len()).ok().filter(|_| self.list.len() < MAX_ORIGINS)?;
        self.numbers.insert(origin.clone(), index);
        self.list.push(origin.clone());
        Some(index)
    }
}

/// What is in an index after a number. `is_own` says which of the two it is.
fn after_in(
    index: &BTreeMap<u64, Item>,
    after: u64,
    is_own: bool,
) -> impl Iterator<Item = (u64, &Item, bool)> {
    let items = index.range((Excluded(after), Unbounded));
    items.map(move |(&changed, item)| (changed, item, is_own))
}

/// Moves something to its place in an index.
fn move_to(index: &mut BTreeMap<u64, Item>, at: &mut u64, changed: u64, item: impl FnOnce() -> Item) {
    let moved = if *at == 0 { None } else { index.remove(at) };
    *at = changed;
    index.insert(changed, moved.unwrap_or_else(item));
}

/// How a change came about.
enum Change {
    /// There was nothing new.
    None,
    /// The new state has replaced the old one.
    Replaced,
    /// Both had something that the other lacked.
    Merged,
}

impl HeldCell {
    fn merge(&mut self, tally: Tally, removed: u64) -> Change {
        let before = (self.counted, self.deleted, self.removed);
        let other = (tally.counted, tally.deleted, removed);
        let merged = (before.0.max(other.0), before.1.max(other.1), before.2.max(other.2));
        (self.counted, self.deleted, self.removed) = merged;
        match merged {
            _ if merged == before => Change::None,
            _ if merged == other => Change::Replaced,
            _ => Change::Merged,
        }
    }
}

impl Replica {
    /// An empty replica. The number must differ from those of all others, also of earlier starts. Its counts take about
    /// `most_bytes` at most.
    pub(super) fn new(life: u64, most_bytes: usize) -> Replica {
        let mut lives = Lives { numbers: HashMap::new(), list: Vec::new() };
        lives.index(life);
        Replica {
            lives,
            last: 0,
            keys: BTreeMap::new(),
            origins: Origins::default(),
            texts: BTreeMap::new(),
            own: BTreeMap::new(),
            learned: BTreeMap::new(),
            noted: Noted::default(),
            notes_all: false,
            bytes: 0,
            most_bytes,
            key_texts: TextsSize::default(),
            list_texts: TextsSize::default(),
            swept: None,
        }
    }

    /// The number of this replica.
    pub(super) fn life(&self) -> u64 {
        self.lives.list[0].id
    }

    /// The number of the last own change.
    pub(super) fn last_own(&self) -> u64 {
        self.own.last_key_value().map_or(0, |(&changed, _)| changed)
    }

    /// The number of the last change, own or learned, of what is still kept.
    pub(super) fn last(&self) -> u64 {
        let last_learned = self.learned.last_key_value().map_or(0, |(&changed, _)| changed);
        self.last_own().max(last_learned)
    }

    /// Memory of what is held, in bytes, about.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes + self.key_texts.bytes + self.list_texts.bytes
    }

    /// Merges counts of this node.
    ///
    /// # Errors
    /// [`NoRoom`]: some of them are not merged.
    pub(super) fn write(&mut self, writes: &[Write<'_>], now: Timestamp) -> Result<(), NoRoom> {
        for Write { block, keep_until, counts } in writes {
            for known in counts {
                let count = Count {
                    origin: known.origin.clone(),
                    levels: known.levels,
                    cell: known.cell,
                    kept_ms: keep_until.as_millis().saturating_sub(block.end_ms()).max(0),
                    counted: known.tally.counted,
                    deleted: known.tally.deleted,
                    removed: known.removed,
                    stamp: None,
                };
                self.merge_count(block.key, &count, None, now)?;
            }
        }
        Ok(())
    }

    /// Merges a page of another replica, which has its own cells up to `until`, or, with stamps, cells of others. Repeated and late
    /// pages change nothing.
    ///
    /// # Errors
    /// [`NoRoom`]: some of it is not merged. It must be sent again.
    pub(super) fn merge(
        &mut self,
        page: &Page,
        (life, until): (u64, u64),
        now: Timestamp,
    ) -> Result<(), NoRoom> {
        if page.counts.is_empty() && page.texts.is_empty() {
            return Ok(());
        }
        let direct = Stamp { life, until };
        let via = self.lives.index(life).unwrap_or(NOBODY);
        let from = |stamp: Option<Stamp>| Some(From { stamp: stamp.unwrap_or(direct), via });
        for (key, counts) in &page.counts {
            for count in counts {
                self.merge_count(key, count, from(count.stamp), now)?;
            }
        }
        page.texts.iter().try_for_each(|text| self.merge_text(text, from(text.stamp), now))
    }

    /// All own cells of another replica up to this number are merged.
    pub(super) fn note_followed(&mut self, life: u64, until: u64) {
        if let Some(index) = self.lives.index(life) {
            let known = &mut self.lives.list[index as usize];
            known.until = known.until.max(until);
        }
    }

    /// How far this replica has followed the others.
    pub(super) fn seen(&self) -> Seen {
        let followed = self.lives.list[1..].iter().filter(|life| life.until > 0);
        followed.map(|life| (life.id, life.until)).collect()
    }

    /// The mark of a change that came from elsewhere, or was made here. A merged state is that of nobody else.
    fn mark(&mut self, from: Option<From>, is_own: bool, is_merged: bool) -> Mark {
        self.last += 1;
        let changed = self.last;
        let via = from.filter(|_| !is_merged).map_or(NOBODY, |from| from.via);
        let stamp =
            from.map(|from| from.stamp).filter(|stamp| !is_own && !is_merged && stamp.life != self.life());
        let source = stamp.and_then(|stamp| Some((self.lives.index(stamp.life)?, stamp.until)));
        let (source, until) = source.unwrap_or((SELF, changed));
        Mark { changed, source, via, until }
    }

    fn merge_count(
        &mut self,
        key: &[u8],
        count: &Count,
        from: Option<From>,
        now: Timestamp,
    ) -> Result<(), NoRoom> {
        let block = Block::of(key, count.levels, count.cell);
        let Block { levels, width_ms, number, .. } = block;
        if OwnedBlock::read(key, levels, width_ms, number).is_none() || count.cell.start_ms % width_ms != 0 {
            return Ok(());
        }
        let keep_until_ms = block.end_ms().saturating_add(count.kept_ms.min(MAX_PEER_KEPT_MS));
        if keep_until_ms < now.as_millis() {
            return Ok(());
        }
        let Some(origin) = self.origins.index(&count.origin) else { return Err(NoRoom) };
        let id = BlockId { levels, width_ms, number };
        let place = (count.cell.start_ms / width_ms).rem_euclid(CELLS_OF_A_BLOCK);
        let place = u8::try_from(place).expect("a place in a block");
        let tally = Tally { counted: count.counted, deleted: count.deleted };

        // What is there already.
        let held = self.keys.get(key).and_then(|blocks| {
            let block = blocks.iter().find(|block| block.id == id)?;
            Some(block.cells.iter().find(|cell| cell.origin == origin && cell.place == place))
        });
        let (mut cell, is_new_block, is_new_cell) = match held {
            Some(Some(cell)) => (*cell, false, false),
            found => {
                let mark = Mark { changed: 0, source: NOBODY, via: NOBODY, until: 0 };
                let cell = HeldCell { origin, place, mark, counted: 0, deleted: 0, removed: 0 };
                (cell, found.is_none(), true)
            }
        };
        let change = cell.merge(tally, count.removed);
        if matches!(change, Change::None) {
            return Ok(());
        }
        let mut bytes = if is_new_cell { size_of::<HeldCell>() } else { 0 };
        if is_new_block {
            bytes += BLOCK_BYTES;
            bytes += if self.keys.contains_key(key) { 0 } else { KEY_BYTES + key.len() };
        }
        if bytes > 0 && self.bytes + self.key_texts.bytes + bytes > self.most_bytes {
            return Err(NoRoom);
        }
        self.bytes += bytes;
        let is_merged = matches!(change, Change::Merged);
        cell.mark = self.mark(from, cell.mark.source == SELF, is_merged);
        let (name, blocks) = match self.keys.get_key_value(key) {
            Some((name, _)) => {
                let name = Arc::clone(name);
                let blocks = self.keys.get_mut(key).expect("it is there");
                (name, blocks)
            }
            None => {
                let name: Arc<[u8]> = key.into();
                (Arc::clone(&name), self.keys.entry(name).or_default())
            }
        };
        if is_new_block {
            blocks.push(HeldBlock { id, keep_until_ms, at: Places::default(), cells: Vec::with_capacity(1) });
        }
        let block = blocks.iter_mut().find(|block| block.id == id).expect("it is there");
        block.keep_until_ms = block.keep_until_ms.max(keep_until_ms);
        match block.cells.iter_mut().find(|held| held.origin == origin && held.place == place) {
            Some(held) => *held = cell,
            None => {
                block.cells.reserve_exact(1 + block.cells.len() / 4);
                block.cells.push(cell);
            }
        }
        let item = || Item::Block(name, id);
        if cell.mark.source == SELF {
            move_to(&mut self.own, &mut block.at.own, cell.mark.changed, item);
        } else {
            move_to(&mut self.learned, &mut block.at.learned, cell.mark.changed, item);
        }
        if self.notes_all && from.is_some() {
            self.noted.note(OwnedBlock { key: key.into(), levels, width_ms, number });
        }
        Ok(())
    }

    /// Stores a text of this node, or removes one.
    ///
    /// # Errors
    /// [`NoRoom`]: a text about a key is not stored.
    pub(super) fn set_text(
        &mut self,
        (list, name): (u8, &str),
        text: Option<&str>,
        lasts_ms: u64,
        now: Timestamp,
    ) -> Result<(), NoRoom> {
        let key = Arc::new((list, name.to_owned()));
        let held = self.texts.get(&key).map_or(0, |held| held.version);
        let version = u64::try_from(now.as_millis()).unwrap_or(0).max(held + 1);
        let (name, text) = (name.to_owned(), text.map(str::to_owned));
        let text = Text { list, name, text, version, left_ms: lasts_ms, stamp: None };
        self.merge_text(&text, None, now)
    }

    fn merge_text(&mut self, text: &Text, from: Option<From>, now: Timestamp) -> Result<(), NoRoom> {
        let Text { list, name, text, version, left_ms, .. } = text;
        let left_ms = i64::try_from(*left_ms).unwrap_or(i64::MAX).min(MAX_PEER_KEPT_MS);
        if left_ms == 0 {
            return Ok(());
        }
        let until_ms = now.as_millis().saturating_add(left_ms);
        let key = Arc::new((*list, name.clone()));
        let held = self.texts.get(&key);
        let is_newer = held.is_none_or(|held| (*version, text) > (held.version, &held.text));
        let new_bytes = text_bytes(name, text.as_deref());
        let old_bytes = held.map_or(0, |held| text_bytes(name, held.text.as_deref()));
        let texts = match *list {
            OF_KEYS => &self.key_texts,
            _ => &self.list_texts,
        };
        let texts = TextsSize {
            count: texts.count + usize::from(held.is_none()),
            bytes: texts.bytes + new_bytes - old_bytes,
        };
        if !is_newer {
            return Ok(());
        }
        if *list == OF_KEYS {
            if new_bytes > old_bytes && self.bytes + texts.bytes > self.most_bytes {
                return Err(NoRoom);
            }
            self.key_texts = texts;
        } else if texts.count <= MAX_PEER_TEXTS && texts.bytes <= MAX_PEER_TEXTS_BYTES {
            self.list_texts = texts;
        } else {
            return Ok(());
        }
        let is_own = held.is_some_and(|held| held.mark.source == SELF);
        let mut at = held.map_or_else(Places::default, |held| held.at);
        let mark = self.mark(from, is_own, false);
        let item = || Item::Text(Arc::clone(&key));
        if mark.source == SELF {
            move_to(&mut self.own, &mut at.own, mark.changed, item);
        } else {
            move_to(&mut self.learned, &mut at.learned, mark.changed, item);
        }
        let held = HeldText { text: text.clone(), version: *version, until_ms, at, mark };
        self.texts.insert(key, held);
        Ok(())
    }

    /// The texts of a list whose names begin like this, by name.
    pub(super) fn texts(
        &self,
        (list, prefix): (u8, String),
        now: Timestamp,
    ) -> impl Iterator<Item = (&str, &str)> {
        let from = self.texts.range((Included((list, prefix.clone())), Unbounded));
        let of_list = from.take_while(move |(name, _)| name.0 == list && name.1.starts_with(&prefix));
        let live = of_list.filter(move |(_, held)| held.until_ms > now.as_millis());
        live.filter_map(|(name, held)| Some((name.1.as_str(), held.text.as_deref()?)))
    }

    /// Own cells and texts that changed after a number.
    pub(super) fn own_after(&self, after: u64, now: Timestamp) -> Part {
        let own = after_in(&self.own, after, true);
        self.part(own, after, now, |mark| mark.changed > after)
    }

    /// States from elsewhere that changed here after a number, and that the follower lacks.
    pub(super) fn learned_after(&self, after: u64, follower: u64, seen: &Seen, now: Timestamp) -> Part {
        let learned = after_in(&self.learned, after, false);
        self.part(learned, after, now, |mark| mark.changed > after && !self.has(mark, follower, seen))
    }

    /// Everything that changed here after a number, and that the follower lacks.
    pub(super) fn all_after(&self, after: u64, follower: u64, seen: &Seen, now: Timestamp) -> Part {
        let (own, learned) = (after_in(&self.own, after, true), after_in(&self.learned, after, false));
        let (mut own, mut learned) = (own.peekable(), learned.peekable());
        let all = std::iter::from_fn(move || match (own.peek(), learned.peek()) {
            (Some(one), Some(other)) if one.0 < other.0 => own.next(),
            (_, Some(_)) => learned.next(),
            _ => own.next(),
        });
        self.part(all, after, now, |mark| mark.changed > after && !self.has(mark, follower, seen))
    }

    /// Whether a follower has the state with this mark, or a greater one: it came from it, or it has read what the replica had that
    /// published it.
    fn has(&self, mark: Mark, follower: u64, seen: &Seen) -> bool {
        let id = |index: u32| self.lives.list.get(index as usize).map(|life| life.id);
        let source = id(mark.source).filter(|_| mark.source != SELF);
        id(mark.via) == Some(follower)
            || source.is_some_and(|source| {
                source == follower || seen.get(&source).is_some_and(|until| *until >= mark.until)
            })
    }

    /// The first changes of an index, or of both: own ones at their places among the own ones, learned ones at theirs.
    fn part<'r>(
        &'r self,
        items: impl Iterator<Item = (u64, &'r Item, bool)>,
        after: u64,
        now: Timestamp,
        is_lacking: impl Fn(Mark) -> bool,
    ) -> Part {
        let stamp = |mark: Mark| {
            let life = self.lives.list[mark.source as usize].id;
            (mark.source != SELF).then_some(Stamp { life, until: mark.until })
        };
        let mut counts: BTreeMap<&[u8], Vec<Count>> = BTreeMap::new();
        let (mut page, mut bytes) = (Page::default(), 0);
        let (mut until, mut is_all) = (after, true);
        for (changed, item, is_own) in items {
            if bytes > PEER_PAGE_BYTES {
                is_all = false;
                break;
            }
            until = changed;
            let is_wanted = |mark: Mark| (mark.source == SELF) == is_own && is_lacking(mark);
            match item {
                Item::Block(key, id) => {
                    let Some(block) = self.block(key, *id) else { continue };
                    let wanted = block.cells.iter().filter(|cell| is_wanted(cell.mark));
                    let before = bytes;
                    let wanted = wanted.map(|cell| {
                        bytes += 10;
                        self.count(block, cell, stamp(cell.mark))
                    });
                    let wanted: Vec<Count> = wanted.collect();
                    if bytes > before {
                        bytes += key.len();
                        counts.entry(key).or_default().extend(wanted);
                    }
                }
                Item::Text(name) => {
                    let Some(held) = self.texts.get(name).filter(|held| is_wanted(held.mark)) else {
                        continue;
                    };
                    let left_ms = held.until_ms.saturating_sub(now.as_millis());
                    let Ok(left_ms @ 1..) = u64::try_from(left_ms) else { continue };
                    bytes += name.1.len() + held.text.as_ref().map_or(0, String::len);
                    page.texts.push(Text {
                        list: name.0,
                        name: name.1.clone(),
                        text: held.text.clone(),
                        version: held.version,
                        left_ms,
                        stamp: stamp(held.mark),
                    });
                }
            }
        }
        page.counts = counts.into_iter().map(|(key, counts)| (Box::from(key), counts)).collect();
        Part { page, until, is_all }
    }

    fn block(&self, key: &[u8], id: BlockId) -> Option<&HeldBlock> {
        self.keys.get(key)?.iter().find(|block| block.id == id)
    }

    fn count(&self, block: &HeldBlock, cell: &HeldCell, stamp: Option<Stamp>) -> Count {
        let BlockId { levels, width_ms, number } = block.id;
        let end_ms = (number + 1) * width_ms * CELLS_OF_A_BLOCK;
        Count {
            origin: self.origins.list[cell.origin as usize].clone(),
            levels,
            cell: block.cell(cell),
            kept_ms: block.keep_until_ms.saturating_sub(end_ms).max(0),
            counted: cell.counted,
            deleted: cell.deleted,
            removed: cell.removed,
            stamp,
        }
    }

    /// The counts of a block.
    pub(super) fn read(&self, block: &Block<'_>) -> Told {
        let Block { key, levels, width_ms, number } = *block;
        let held = self.block(key, BlockId { levels, width_ms, number });
        let cells = held.into_iter().flat_map(|held| held.cells.iter().map(move |cell| (held, cell)));
        let known = cells.map(|(held, cell)| Known {
            origin: self.origins.list[cell.origin as usize].clone(),
            levels,
            cell: held.cell(cell),
            tally: Tally { counted: cell.counted, deleted: cell.deleted },
            removed: cell.removed,
        });
        known.collect()
    }

    /// Lists about `count` blocks behind one, or from the first one on. Also the one behind which to go on.
    pub(super) fn scan(&self, behind: Option<&OwnedBlock>, count: usize) -> (Vec<OwnedBlock>, bool) {
        let from = behind.map_or(&[][..], |block| &block.key[..]);
        let mut listed = Vec::new();
        for (key, blocks) in self.keys.range::<[u8], _>((Included(from), Unbounded)) {
            let all = blocks.iter().map(|HeldBlock { id, .. }| OwnedBlock {
                key: Box::from(&key[..]),
                levels: id.levels,
                width_ms: id.width_ms,
                number: id.number,
            });
            let mut of_key: Vec<OwnedBlock> =
                all.filter(|block| behind.is_none_or(|behind| block > behind)).collect();
            of_key.sort_unstable();
            listed.extend(of_key);
            if listed.len() > count {
                listed.truncate(count);
                return (listed, true);
            }
        }
        (listed, false)
    }

    /// Notes that blocks were written.
    pub(super) fn note_changed(&mut self, blocks: &[Block<'_>]) {
        blocks.iter().for_each(|block| self.noted.note(OwnedBlock::from(*block)));
    }

    /// Takes noted blocks. Blocks that others write are noted from now on.
    pub(super) fn take_changed(&mut self, most: usize) -> Vec<OwnedBlock> {
        self.notes_all = true;
        self.noted.take(most)
    }

    /// The number of noted blocks.
    pub(super) fn changed(&self) -> usize {
        self.noted.len()
    }

    /// Drops what is not kept any more, of the next `most` keys.
    pub(super) fn tidy(&mut self, most: usize, now: Timestamp) {
        let now_ms = now.as_millis();
        let from = self.swept.take().map_or(Unbounded, Excluded);
        let mut empty = Vec::new();
        let (mut looked, mut last) = (0, None);
        for (key, blocks) in self.keys.range_mut::<Arc<[u8]>, _>((from, Unbounded)) {
            looked += 1;
            let (own, learned, bytes) = (&mut self.own, &mut self.learned, &mut self.bytes);
            blocks.retain(|block| {
                let is_kept = block.keep_until_ms >= now_ms;
                if !is_kept {
                    own.remove(&block.at.own);
                    learned.remove(&block.at.learned);
                    *bytes -= BLOCK_BYTES + block.cells.len() * size_of::<HeldCell>();
                }
                is_kept
            });
            if blocks.is_empty() {
                empty.push(Arc::clone(key));
            } else if blocks.capacity() > 2 * blocks.len() {
                blocks.shrink_to_fit();
            }
            if looked == most {
                last = Some(Arc::clone(key));
                break;
            }
        }
        self.swept = last;
        for key in empty {
            self.keys.remove(&key);
            self.bytes -= KEY_BYTES + key.len();
        }
        let (own, learned) = (&mut self.own, &mut self.learned);
        let (key_texts, list_texts) = (&mut self.key_texts, &mut self.list_texts);
        self.texts.retain(|name, held| {
            let is_kept = held.until_ms > now_ms;
            if !is_kept {
                own.remove(&held.at.own);
                learned.remove(&held.at.learned);
                let texts = if name.0 == OF_KEYS { &mut *key_texts } else { &mut *list_texts };
                texts.count -= 1;
                texts.bytes -= text_bytes(&name.1, held.text.as_deref());
            }
            is_kept
        });
    }

    /// The keys that are held.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

impl HeldBlock {
    fn cell(&self, cell: &HeldCell) -> Cell {
        let BlockId { width_ms, number, .. } = self.id;
        let start_ms = (number * CELLS_OF_A_BLOCK + i64::from(cell.place)) * width_ms;
        Cell { start_ms, width_ms }
    }
}

impl std::convert::From<NoRoom> for EngineError {
    fn from(NoRoom: NoRoom) -> EngineError {
        EngineError::NoRoom
    }
}
