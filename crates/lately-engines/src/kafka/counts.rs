//! The counts of all origins in memory, as far as the state topic was read, with what this node itself has added. Pure: it does no
//! I/O, and time is passed in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

use lately::limits::MAX_ORIGINS;
use lately::{Cell, LevelsId, Origin, Span, Tally, Timestamp};

use crate::layout::CELLS_OF_A_BLOCK;
use crate::limits::{KAFKA_PARTS, KAFKA_SLACK_MS};
use crate::noted::Noted;
use crate::{Block, EngineError, Known, OwnedBlock, Told, VisitRecords};

use super::partition::AHEAD_BYTES;

/// The counts.
pub(super) struct Counts {
    /// The keys, spread by their hash.
    parts: Vec<HashMap<Box<[u8]>, Vec<HeldBlock>>>,
    hasher: RandomState,
    origins: Origins,
    /// Blocks that were noted as changed, for [`crate::Engine::take_changed`].
    noted: Noted,
    bytes: usize,
    /// What else takes a part of `most_bytes`.
    other_bytes: usize,
    most_bytes: usize,
    /// The part that is tidied next.
    next_part: usize,
}

#[derive(Default)]
struct Origins {
    numbers: HashMap<Origin, OriginNumber>,
    list: Vec<Origin>,
}

/// An origin, in these counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct OriginNumber(u32);

/// A block of some key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct BlockId {
    pub(super) levels: LevelsId,
    pub(super) width_ms: i64,
    pub(super) number: i64,
}

struct HeldBlock {
    id: BlockId,
    keep_until_ms: i64,
    cells: Vec<HeldCell>,
}

#[derive(Clone, Copy)]
struct HeldCell {
    origin: OriginNumber,
    place: u8,
    counted: u64,
    deleted: u64,
    removed: u64,
}

/// The counts of an origin in a cell of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Count {
    /// The place of the cell in its block.
    pub(super) place: u8,
    pub(super) tally: Tally,
    pub(super) removed: u64,
}

/// Hits that are added to a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Addition {
    pub(super) id: BlockId,
    pub(super) place: u8,
    pub(super) keep_until_ms: i64,
    pub(super) hits: u64,
}

/// There is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoRoom;

/// What a block and a key take beside their content. A block may be noted as ahead.
const BLOCK_BYTES: usize = size_of::<HeldBlock>() + AHEAD_BYTES;
const KEY_BYTES: usize = 96;
const CELL_BYTES: usize = size_of::<HeldCell>();

impl BlockId {
    /// The block of a cell, and the place of the cell in it.
    pub(super) fn of(levels: LevelsId, cell: Cell) -> (BlockId, u8) {
        let Block { width_ms, number, .. } = Block::of(&[], levels, cell);
        let place = (cell.start_ms / width_ms).rem_euclid(CELLS_OF_A_BLOCK);
        (BlockId { levels, width_ms, number }, u8::try_from(place).expect("a place in a block"))
    }

    /// The same block with its key.
    pub(super) fn of_key(self, key: &[u8]) -> Block<'_> {
        let BlockId { levels, width_ms, number } = self;
        Block { key, levels, width_ms, number }
    }

    /// One past its last millisecond.
    pub(super) fn end_ms(self) -> i64 {
        self.of_key(&[]).end_ms()
    }

    fn cell(self, place: u8) -> Cell {
        let start_ms = (self.number * CELLS_OF_A_BLOCK + i64::from(place)) * self.width_ms;
        Cell { start_ms, width_ms: self.width_ms }
    }
}

impl From<&Block<'_>> for BlockId {
    fn from(block: &Block<'_>) -> BlockId {
        BlockId { levels: block.levels, width_ms: block.width_ms, number: block.number }
    }
}

impl HeldCell {
    fn merge(&mut self, count: &Count) {
        self.counted = self.counted.max(count.tally.counted);
        self.deleted = self.deleted.max(count.tally.deleted);
        self.removed = self.removed.max(count.removed);
    }

    fn count(&self) -> Count {
        let tally = Tally { counted: self.counted, deleted: self.deleted };
        Count { place: self.place, tally, removed: self.removed }
    }
}

impl HeldBlock {
    fn cell(&mut self, origin: OriginNumber, place: u8) -> Option<&mut HeldCell> {
        self.cells.iter_mut().find(|cell| cell.origin == origin && cell.place == place)
    }
}

/// The hits of origins in a window of a key. Each level has all hits: of those that are kept for as long as the window, the narrowest one
/// is read. Cells that an end of the window cuts count as a whole.
fn hits_in(blocks: &[HeldBlock], origins: &[OriginNumber], (window, at): (Span, Timestamp)) -> u64 {
    let (window_ms, until_ms) = (window.as_millis(), at.as_millis());
    let width_of = |levels: LevelsId| {
        let of_levels = blocks.iter().filter(move |block| block.id.levels == levels);
        let lasts = |block: &&HeldBlock| {
            block.keep_until_ms.saturating_sub(block.id.end_ms() + KAFKA_SLACK_MS) >= window_ms
        };
        let narrowest = of_levels.clone().filter(lasts).map(|block| block.id.width_ms).min();
        narrowest.or_else(|| of_levels.map(|block| block.id.width_ms).max())
    };
    let mut hits = 0_u64;
    for block in blocks.iter().filter(|block| width_of(block.id.levels) == Some(block.id.width_ms)) {
        for cell in block.cells.iter().filter(|cell| origins.contains(&cell.origin)) {
            let Cell { start_ms, width_ms } = block.id.cell(cell.place);
            if start_ms <= until_ms && start_ms + width_ms > until_ms.saturating_sub(window_ms) {
                hits = hits.saturating_add(cell.counted.saturating_sub(cell.deleted));
            }
        }
    }
    hits
}

impl Counts {
    /// Counts of nothing yet. They take about `most_bytes` at most.
    pub(super) fn new(most_bytes: usize) -> Counts {
        Counts {
            parts: (0..KAFKA_PARTS).map(|_| HashMap::new()).collect(),
            hasher: RandomState::new(),
            origins: Origins::default(),
            noted: Noted::default(),
            bytes: 0,
            other_bytes: 0,
            most_bytes,
            next_part: 0,
        }
    }

    /// Memory of what is held, in bytes, about.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes + self.other_bytes
    }

    /// Charges what is held beside the counts.
    pub(super) fn charge(&mut self, other_bytes: usize) {
        self.other_bytes = other_bytes;
    }

    /// The bound of [`Counts::held_bytes`].
    pub(super) fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// Takes another bound.
    #[cfg(test)]
    pub(super) fn limit(&mut self, most_bytes: usize) {
        self.most_bytes = most_bytes;
    }

    /// The number of an origin.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn origin(&mut self, origin: &Origin) -> Result<OriginNumber, NoRoom> {
        let Origins { numbers, list } = &mut self.origins;
        if let Some(&number) = numbers.get(origin) {
            return Ok(number);
        }
        let number = u32::try_from(list.len()).ok().filter(|_| list.len() < MAX_ORIGINS).ok_or(NoRoom)?;
        numbers.insert(origin.clone(), OriginNumber(number));
        list.push(origin.clone());
        Ok(OriginNumber(number))
    }

    fn part(&self, key: &[u8]) -> usize {
        usize::try_from(self.hasher.hash_one(key) % KAFKA_PARTS as u64).expect("a part")
    }

    /// What all these cells of a key would take more.
    fn lacking(&self, key: &[u8], origin: OriginNumber, cells: impl Iterator<Item = (BlockId, u8)>) -> usize {
        let blocks = self.parts[self.part(key)].get(key);
        let mut bytes = if blocks.is_some() { 0 } else { KEY_BYTES + key.len() };
        let mut new: BTreeMap<BlockId, BTreeSet<u8>> = BTreeMap::new();
        for (id, place) in cells {
            let block = blocks.and_then(|blocks| blocks.iter().find(|block| block.id == id));
            let has_cell = block.is_some_and(|block| {
                block.cells.iter().any(|cell| cell.origin == origin && cell.place == place)
            });
            if !has_cell && new.get(&id).is_none_or(|places| !places.contains(&place)) {
                bytes += CELL_BYTES;
                bytes += if block.is_none() && !new.contains_key(&id) { BLOCK_BYTES } else { 0 };
                new.entry(id).or_default().insert(place);
            }
        }
        bytes
    }

    /// Changes cells of a key: all of them, or none if there is no room.
    fn change(
        &mut self,
        key: &[u8],
        origin: OriginNumber,
        cells: impl ExactSizeIterator<Item = (BlockId, u8, i64)> + Clone,
        mut change: impl FnMut(usize, &mut HeldCell),
    ) -> Result<(), NoRoom> {
        let most = KEY_BYTES + key.len() + cells.len() * (CELL_BYTES + BLOCK_BYTES);
        if self.held_bytes() + most > self.most_bytes {
            let lacking = self.lacking(key, origin, cells.clone().map(|(id, place, _)| (id, place)));
            if lacking > 0 && self.held_bytes() + lacking > self.most_bytes {
                return Err(NoRoom);
            }
        }
        let part = self.part(key);
        let part = &mut self.parts[part];
        let blocks = match part.get_mut(key) {
            Some(blocks) => blocks,
            None => {
                self.bytes += KEY_BYTES + key.len();
                part.entry(key.into()).or_default()
            }
        };
        for (index, (id, place, keep_until_ms)) in cells.enumerate() {
            let at = match blocks.iter().position(|block| block.id == id) {
                Some(at) => at,
                None => {
                    self.bytes += BLOCK_BYTES;
                    blocks.push(HeldBlock { id, keep_until_ms, cells: Vec::with_capacity(1) });
                    blocks.len() - 1
                }
            };
            let block = &mut blocks[at];
            block.keep_until_ms = block.keep_until_ms.max(keep_until_ms);
            let cell = match block.cell(origin, place) {
                Some(cell) => cell,
                None => {
                    self.bytes += CELL_BYTES;
                    block.cells.reserve_exact(1 + block.cells.len() / 4);
                    block.cells.push(HeldCell { origin, place, counted: 0, deleted: 0, removed: 0 });
                    block.cells.last_mut().expect("it was added")
                }
            };
            change(index, cell);
        }
        Ok(())
    }

    /// Merges counts of an origin in a block: the greater ones stay. Counts that are not kept any more are left out.
    ///
    /// # Errors
    /// [`NoRoom`]: nothing is merged.
    pub(super) fn merge(
        &mut self,
        block: &Block<'_>,
        origin: &Origin,
        counts: &[Count],
        keep_until_ms: i64,
        now: Timestamp,
    ) -> Result<(), NoRoom> {
        if keep_until_ms < now.as_millis() || counts.is_empty() {
            return Ok(());
        }
        let (origin, id) = (self.origin(origin)?, BlockId::from(block));
        let cells = counts.iter().map(|count| (id, count.place, keep_until_ms));
        self.change(block.key, origin, cells, |index, cell| cell.merge(&counts[index]))
    }

    /// Adds hits of an origin to cells of a key.
    ///
    /// # Errors
    /// [`NoRoom`]: nothing is added.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        origin: OriginNumber,
        additions: &[Addition],
    ) -> Result<(), NoRoom> {
        let cells = additions.iter().map(|addition| (addition.id, addition.place, addition.keep_until_ms));
        self.change(key, origin, cells, |index, cell| {
            // A partition has fewer than 2^63 records, of 2^32 hits at most: the sum of those that a topic can hold fits.
            cell.counted = cell.counted.saturating_add(additions[index].hits);
        })
    }

    /// The counts of an origin in a block, and until when they are kept.
    pub(super) fn of_origin(&self, block: &Block<'_>, origin: OriginNumber) -> Option<(Vec<Count>, i64)> {
        let held = self.block(block)?;
        let cells = held.cells.iter().filter(|cell| cell.origin == origin);
        Some((cells.map(HeldCell::count).collect(), held.keep_until_ms))
    }

    fn block(&self, block: &Block<'_>) -> Option<&HeldBlock> {
        let id = BlockId::from(block);
        self.parts[self.part(block.key)].get(block.key)?.iter().find(|block| block.id == id)
    }

    /// The counts of a block.
    pub(super) fn read(&self, block: &Block<'_>) -> Told {
        let held = self.block(block);
        let cells = held.into_iter().flat_map(|held| held.cells.iter().map(move |cell| (held.id, cell)));
        let known = cells.map(|(id, cell)| {
            let Count { place, tally, removed } = cell.count();
            let origin = self.origins.list[cell.origin.0 as usize].clone();
            Known { origin, levels: id.levels, cell: id.cell(place), tally, removed }
        });
        known.collect()
    }

    /// Lists about `count` blocks from a part on, and the next part, if there is one.
    pub(super) fn scan(&self, from: usize, count: usize) -> (Vec<OwnedBlock>, Option<usize>) {
        let mut listed = Vec::new();
        for (number, part) in self.parts.iter().enumerate().skip(from) {
            let blocks = part.iter().flat_map(|(key, blocks)| blocks.iter().map(move |block| (key, block)));
            listed.extend(blocks.map(|(key, block)| OwnedBlock::from(block.id.of_key(key))));
            if listed.len() >= count {
                return (listed, Some(number + 1).filter(|next| *next < self.parts.len()));
            }
        }
        (listed, None)
    }

    /// Visits the keys of a part that have counts of these origins. Returns whether there are more parts.
    pub(super) fn visit(&self, part: usize, origins: &[OriginNumber], visit: &mut VisitRecords<'_>) -> bool {
        for (key, blocks) in self.parts.get(part).into_iter().flatten() {
            if blocks.iter().any(|block| block.cells.iter().any(|cell| origins.contains(&cell.origin))) {
                visit(key, &|window, at| hits_in(blocks, origins, (window, at)));
            }
        }
        part + 1 < self.parts.len()
    }

    /// Notes that blocks were written.
    pub(super) fn note_changed(&mut self, blocks: &[Block<'_>]) {
        blocks.iter().for_each(|block| self.noted.note(OwnedBlock::from(*block)));
    }

    /// Takes noted blocks.
    pub(super) fn take_changed(&mut self, most: usize) -> Vec<OwnedBlock> {
        self.noted.take(most)
    }

    /// The number of noted blocks.
    pub(super) fn changed(&self) -> usize {
        self.noted.len()
    }

    /// Drops all counts of an origin.
    pub(super) fn drop_origin(&mut self, origin: OriginNumber) {
        let bytes = &mut self.bytes;
        for part in &mut self.parts {
            part.retain(|key, blocks| {
                blocks.retain_mut(|block| {
                    let before = block.cells.len();
                    block.cells.retain(|cell| cell.origin != origin);
                    *bytes -= (before - block.cells.len()) * CELL_BYTES;
                    *bytes -= if block.cells.is_empty() { BLOCK_BYTES } else { 0 };
                    !block.cells.is_empty()
                });
                *bytes -= if blocks.is_empty() { KEY_BYTES + key.len() } else { 0 };
                !blocks.is_empty()
            });
            part.shrink_to_fit();
        }
    }

    /// Drops what is not kept any more, of the next parts.
    pub(super) fn tidy(&mut self, parts: usize, now: Timestamp) {
        let now_ms = now.as_millis();
        for _ in 0..parts {
            let (part, bytes) = (&mut self.parts[self.next_part], &mut self.bytes);
            part.retain(|key, blocks| {
                blocks.retain(|block| {
                    let is_kept = block.keep_until_ms >= now_ms;
                    *bytes -= if is_kept { 0 } else { BLOCK_BYTES + block.cells.len() * CELL_BYTES };
                    is_kept
                });
                if blocks.capacity() > 2 * blocks.len() {
                    blocks.shrink_to_fit();
                }
                *bytes -= if blocks.is_empty() { KEY_BYTES + key.len() } else { 0 };
                !blocks.is_empty()
            });
            if part.capacity() > 4 * part.len() {
                part.shrink_to_fit();
            }
            self.next_part = (self.next_part + 1) % self.parts.len();
        }
    }
}

impl From<NoRoom> for EngineError {
    fn from(NoRoom: NoRoom) -> EngineError {
        EngineError::NoRoom
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    const NOW_MS: i64 = 1_700_000_000_000;

    /// Additions to cells of a second and a minute.
    fn additions(at_ms: i64, hits: u64) -> Vec<Addition> {
        let addition = |width_ms| {
            let (id, place) = BlockId::of(LevelsId::new(7), Cell::of(at_ms, width_ms));
            Addition { id, place, keep_until_ms: id.end_ms() + 1_000, hits }
        };
        [1_000, 60_000].map(addition).to_vec()
    }

    #[test]
    fn the_counts_of_an_origin_are_dropped() {
        let mut counts = Counts::new(usize::MAX);
        let [one, two] = [0, 1].map(|partition| {
            counts.origin(&Origin::new("hits", partition).expect("a name")).expect("there is room")
        });
        counts.add(b"k", two, &additions(NOW_MS, 4)).expect("there is room");
        let before = counts.held_bytes();
        counts.add(b"k", one, &additions(NOW_MS, 3)).expect("there is room");
        counts.add(b"l", one, &additions(NOW_MS, 3)).expect("there is room");
        counts.drop_origin(one);
        assert_eq!(counts.held_bytes(), before);
        assert_eq!(counts.scan(0, 9).0.len(), 2);
        counts.drop_origin(two);
        assert_eq!((counts.held_bytes(), counts.scan(0, 9).0.len()), (0, 0));
    }

    #[test]
    fn no_part_of_a_hit_is_added_without_room() {
        let origin = Origin::new("hits", 0).expect("a name");
        let key_bytes = KEY_BYTES + 1;
        for (most_bytes, fits) in [
            (key_bytes + 2 * (BLOCK_BYTES + CELL_BYTES), true),
            (key_bytes + 2 * (BLOCK_BYTES + CELL_BYTES) - 1, false),
        ] {
            let mut counts = Counts::new(most_bytes);
            let number = counts.origin(&origin).expect("there is room");
            assert_eq!(counts.add(b"k", number, &additions(NOW_MS, 3)).is_ok(), fits);
            assert_eq!(counts.held_bytes(), if fits { most_bytes } else { 0 });
            // There is always room for more hits in the same cells.
            assert_eq!(counts.add(b"k", number, &additions(NOW_MS, 4)).is_ok(), fits);
            assert!(counts.add(b"l", number, &additions(NOW_MS, 4)).is_err());
            let (id, place) = BlockId::of(LevelsId::new(7), Cell::of(NOW_MS, 60_000));
            let told = counts.read(&id.of_key(b"k"));
            assert_eq!(told.iter().map(|known| known.tally.counted).sum::<u64>(), if fits { 7 } else { 0 });
            assert!(told.iter().all(|known| known.cell == id.cell(place)));
            counts.tidy(KAFKA_PARTS, at(id.end_ms() + 1_001));
            assert_eq!((counts.held_bytes(), counts.scan(0, 9)), (0, (Vec::new(), None)));
        }
    }
}
