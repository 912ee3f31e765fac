//! What one node sends another, as bytes.
//!
//! A page has tables first: the origins, the grids (levels and width of cells), and the nodes that changes come from. Then each key
//! stands once, with its cells. Numbers are as short as they can be (LEB128), those of cells count from the first one of their
//! grid. So a change takes some five bytes beside its key.

use std::collections::HashMap;

use lately::limits::{MAX_KEY_BYTES, MAX_ORIGINS};
use lately::{Cell, LevelsId, Origin};

use crate::limits::{MAX_PEER_GRIDS, MAX_PEER_LIVES, MAX_PEER_TEXT_BYTES};
use crate::numbers::{put, put_bytes, put_signed};

/// The state of one cell of one origin at the sender, or of a text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Page {
    pub(crate) counts: Vec<(Box<[u8]>, Vec<Count>)>,
    pub(crate) texts: Vec<Text>,
}

/// What is known of a cell of one origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Count {
    pub(crate) origin: Origin,
    pub(crate) levels: LevelsId,
    pub(crate) cell: Cell,
    /// How long after its end the block of the cell is kept.
    pub(crate) kept_ms: i64,
    pub(crate) counted: u64,
    pub(crate) deleted: u64,
    pub(crate) removed: u64,
    /// Where this state was published, if not by the sender.
    pub(crate) stamp: Option<Stamp>,
}

/// A place in what a life of a node has published.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Stamp {
    pub(crate) life: u64,
    pub(crate) until: u64,
}

/// A text in a list, or that it was removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Text {
    pub(crate) list: u8,
    pub(crate) name: String,
    pub(crate) text: Option<String>,
    /// Of two texts with one name, that with the greater version counts.
    pub(crate) version: u64,
    /// How long it is kept from now on.
    pub(crate) left_ms: u64,
    pub(crate) stamp: Option<Stamp>,
}

impl Page {
    /// The number of cells and texts in it.
    pub(crate) fn changes(&self) -> u64 {
        let counts = self.counts.iter().map(|(_, counts)| counts.len()).sum::<usize>();
        (counts + self.texts.len()) as u64
    }
}

/// Why bytes are no page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoPage(&'static str);

/// Things with a number each, in the order in which they came.
struct Table<T> {
    numbers: HashMap<T, u64>,
    list: Vec<T>,
}

impl<T: Clone + Eq + std::hash::Hash> Table<T> {
    fn new() -> Table<T> {
        Table { numbers: HashMap::new(), list: Vec::new() }
    }

    fn number(&mut self, of: &T) -> u64 {
        if let Some(&number) = self.numbers.get(of) {
            return number;
        }
        let number = self.list.len() as u64;
        self.numbers.insert(of.clone(), number);
        self.list.push(of.clone());
        number
    }
}

/// A grid: the levels, the width of its cells, and how long their blocks are kept.
type Grid = (LevelsId, i64, i64);

impl Page {
    /// The page as bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        let (mut origins, mut grids, mut lives) =
            (Table::<Origin>::new(), Table::<Grid>::new(), Table::<u64>::new());
        let mut firsts: Vec<i64> = Vec::new();
        let mut body = Vec::new();
        put(&mut body, self.counts.len() as u64);
        for (key, counts) in &self.counts {
            put_bytes(&mut body, key);
            put(&mut body, counts.len() as u64);
            for count in counts {
                let grid = grids.number(&(count.levels, count.cell.width_ms, count.kept_ms));
                let number = count.cell.start_ms.div_euclid(count.cell.width_ms);
                let index = usize::try_from(grid).expect("an index");
                if index == firsts.len() {
                    firsts.push(number);
                }
                let has_marks = count.deleted > 0 || count.removed > 0;
                put(&mut body, grid << 2 | u64::from(count.stamp.is_some()) << 1 | u64::from(has_marks));
                put(&mut body, origins.number(&count.origin));
                put_signed(&mut body, number.wrapping_sub(firsts[index]));
                put(&mut body, count.counted);
                if has_marks {
                    put(&mut body, count.deleted);
                    put(&mut body, count.removed);
                }
                put_stamp(&mut body, count.stamp, &mut lives);
            }
        }
        put(&mut body, self.texts.len() as u64);
        for text in &self.texts {
            body.push(text.list);
            body.push(u8::from(text.stamp.is_some()) << 1 | u8::from(text.text.is_some()));
            put_bytes(&mut body, text.name.as_bytes());
            text.text.iter().for_each(|text| put_bytes(&mut body, text.as_bytes()));
            put(&mut body, text.version);
            put(&mut body, text.left_ms);
            put_stamp(&mut body, text.stamp, &mut lives);
        }
        let mut page = Vec::with_capacity(body.len() + 64);
        put(&mut page, origins.list.len() as u64);
        for origin in &origins.list {
            put_bytes(&mut page, origin.node().as_bytes());
            put(&mut page, origin.incarnation());
        }
        put(&mut page, grids.list.len() as u64);
        for ((levels, width_ms, kept_ms), first) in grids.list.iter().zip(firsts) {
            put(&mut page, levels.number().into());
            put_signed(&mut page, *width_ms);
            put_signed(&mut page, *kept_ms);
            put_signed(&mut page, first);
        }
        put(&mut page, lives.list.len() as u64);
        lives.list.iter().for_each(|life| page.extend_from_slice(&life.to_le_bytes()));
        page.extend_from_slice(&body);
        page
    }

    /// Reads a page.
    ///
    /// # Errors
    /// [`NoPage`]: no node wrote these bytes.
    pub(crate) fn read(bytes: &[u8]) -> Result<Page, NoPage> {
        let mut rest = Rest(bytes);
        let origins = rest.list(MAX_ORIGINS, |rest| {
            let node = rest.text()?;
            Origin::new(node, rest.number()?).ok_or(NoPage("the name of a node is none"))
        })?;
        let grids = rest.list(MAX_PEER_GRIDS, |rest| {
            let levels = u32::try_from(rest.number()?).map_err(|_| NoPage("levels are none"))?;
            let (width_ms, kept_ms) = (rest.signed()?, rest.signed()?);
            let first = rest.signed()?;
            if width_ms <= 0 || kept_ms < 0 {
                return Err(NoPage("a width of cells is none"));
            }
            Ok((LevelsId::new(levels), width_ms, kept_ms, first))
        })?;
        let lives = rest.list(MAX_PEER_LIVES, Rest::fixed)?;
        let counts = rest.list(usize::MAX, |rest| {
            let key: Box<[u8]> = rest.bytes()?.into();
            if key.is_empty() || key.len() > MAX_KEY_BYTES {
                return Err(NoPage("a key is empty or too long"));
            }
            let counts = rest.list(usize::MAX, |rest| {
                let head = rest.number()?;
                let &(levels, width_ms, kept_ms, first) =
                    at(&grids, head >> 2).ok_or(NoPage("a grid is missing"))?;
                let origin = at(&origins, rest.number()?).ok_or(NoPage("an origin is missing"))?.clone();
                let start_ms = rest.signed()?.checked_add(first).and_then(|it| it.checked_mul(width_ms));
                let start_ms = start_ms.ok_or(NoPage("a cell is in no time"))?;
                let counted = rest.number()?;
                let (deleted, removed) =
                    if head & 1 == 1 { (rest.number()?, rest.number()?) } else { (0, 0) };
                let stamp = if head & 2 == 2 { Some(rest.stamp(&lives)?) } else { None };
                let cell = Cell { start_ms, width_ms };
                Ok(Count { origin, levels, cell, kept_ms, counted, deleted, removed, stamp })
            })?;
            Ok((key, counts))
        })?;
        let texts = rest.list(usize::MAX, |rest| {
            let (list, flags) = (rest.byte()?, rest.byte()?);
            let name = rest.text()?.to_owned();
            let text = if flags & 1 == 1 { Some(rest.text()?.to_owned()) } else { None };
            if name.len() > MAX_PEER_TEXT_BYTES || text.iter().any(|it| it.len() > MAX_PEER_TEXT_BYTES) {
                return Err(NoPage("a text is too long"));
            }
            let (version, left_ms) = (rest.number()?, rest.number()?);
            let stamp = if flags & 2 == 2 { Some(rest.stamp(&lives)?) } else { None };
            Ok(Text { list, name, text, version, left_ms, stamp })
        })?;
        if !rest.0.is_empty() {
            return Err(NoPage("bytes are left over"));
        }
        Ok(Page { counts, texts })
    }
}

fn at<T>(list: &[T], index: u64) -> Option<&T> {
    list.get(usize::try_from(index).ok()?)
}

fn put_stamp(into: &mut Vec<u8>, stamp: Option<Stamp>, lives: &mut Table<u64>) {
    if let Some(Stamp { life, until }) = stamp {
        put(into, lives.number(&life));
        put(into, until);
    }
}

/// The bytes of a page that are not read yet.
struct Rest<'b>(&'b [u8]);

impl<'b> Rest<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], NoPage> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(NoPage("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, NoPage> {
        self.take(1).map(|byte| byte[0])
    }

    fn number(&mut self) -> Result<u64, NoPage> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(NoPage("a number is too long"))
    }

    fn signed(&mut self) -> Result<i64, NoPage> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    fn fixed(&mut self) -> Result<u64, NoPage> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn bytes(&mut self) -> Result<&'b [u8], NoPage> {
        let count = usize::try_from(self.number()?).map_err(|_| NoPage("it ends too early"))?;
        self.take(count)
    }

    fn text(&mut self) -> Result<&'b str, NoPage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| NoPage("a text is not in UTF-8"))
    }

    fn stamp(&mut self, lives: &[u64]) -> Result<Stamp, NoPage> {
        let life = *at(lives, self.number()?).ok_or(NoPage("a node is missing"))?;
        Ok(Stamp { life, until: self.number()? })
    }

    /// A list of at most this many things. Each takes a byte at least, so memory is bounded by the bytes.
    fn list<T>(
        &mut self,
        most: usize,
        mut read: impl FnMut(&mut Rest<'b>) -> Result<T, NoPage>,
    ) -> Result<Vec<T>, NoPage> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if count > most || count > self.0.len() {
            return Err(NoPage("a list is too long"));
        }
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(read(self)?);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::replica::Replica;
    use super::super::simulation::state;
    use super::*;
    use crate::{Block, OwnedBlock};

    fn counts() -> impl Strategy<Value = Count> {
        let stamp = (any::<u64>(), any::<u64>()).prop_map(|(life, until)| Stamp { life, until });
        let place = (0..3_usize, 0..3_u64, 0..2_u32, -50_i64..50, prop_oneof![Just(1_000_i64), Just(60_000)]);
        let hits = (any::<u64>(), prop_oneof![Just(0), any::<u64>()], prop_oneof![Just(0), any::<u64>()]);
        (place, hits, proptest::option::of(stamp)).prop_map(|(place, (counted, deleted, removed), stamp)| {
            let (node, incarnation, levels, number, width_ms) = place;
            let origin = Origin::new(["a", "eu-1", "n"][node], incarnation).expect("a name");
            let cell =
                Cell { start_ms: 1_700_000_000_000 / width_ms * width_ms + number * width_ms, width_ms };
            let levels = LevelsId::new(levels);
            Count { origin, levels, cell, kept_ms: 5 * width_ms, counted, deleted, removed, stamp }
        })
    }

    fn texts() -> impl Strategy<Value = Text> {
        let stamp = (any::<u64>(), any::<u64>()).prop_map(|(life, until)| Stamp { life, until });
        let text = (0..3_u8, ".{0,9}", proptest::option::of(".{0,9}"), any::<u64>(), any::<u64>());
        (text, proptest::option::of(stamp)).prop_map(|((list, name, text, version, left_ms), stamp)| Text {
            list,
            name,
            text,
            version,
            left_ms,
            stamp,
        })
    }

    fn pages() -> impl Strategy<Value = Page> {
        let key = prop::collection::vec(any::<u8>(), 1..20).prop_map(Vec::into_boxed_slice);
        let counts = prop::collection::vec((key, prop::collection::vec(counts(), 0..5)), 0..5);
        (counts, prop::collection::vec(texts(), 0..3)).prop_map(|(counts, texts)| Page { counts, texts })
    }

    proptest! {
        #[test]
        fn pages_are_read_as_they_were_written(page in pages()) {
            prop_assert_eq!(Page::read(&page.write()), Ok(page));
        }

        /// Bytes that no node wrote are refused, or are a page of something; nothing panics.
        #[test]
        fn any_bytes_are_a_page_or_none(page in pages(), at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
            let mut bytes = page.write();
            let index = at.index(bytes.len());
            bytes[index] = byte;
            _ = Page::read(&bytes);
            prop_assert!(Page::read(&page.write()[..cut.index(page.write().len())]).is_err());
        }

        #[test]
        fn random_bytes_are_a_page_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            _ = Page::read(&bytes);
        }
    }

    proptest! {
        /// Whatever bytes come, and however they are damaged: what they say is merged, and nothing else changes.
        #[test]
        fn a_damaged_page_changes_only_what_it_names(
            page in pages(),
            other in pages(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            tail in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        ) {
            let now = lately::Timestamp::from_millis(1_700_000_000_000).expect("a time");
            let mut replica = Replica::new(1, usize::MAX);
            replica.merge(&page, (2, 7), now).expect("there is room");
            let before = state(&replica);
            let mut bytes = other.write();
            for (at, byte) in damage {
                let index = at.index(bytes.len());
                bytes[index] = byte;
            }
            bytes.extend(tail.into_iter().flatten());
            let Ok(read) = Page::read(&bytes) else { return Ok(()) };
            replica.merge(&read, (3, 9), now).expect("there is room");
            let mut expected = before;
            for (key, counts) in &read.counts {
                for count in counts {
                    let block = OwnedBlock::from(Block::of(key, count.levels, count.cell));
                    let place = (block, count.cell, count.origin.clone());
                    let new = (count.counted, count.deleted, count.removed);
                    let held = expected.entry(place).or_default();
                    *held = (held.0.max(new.0), held.1.max(new.1), held.2.max(new.2));
                }
            }
            // Cells of no time, and those that are over, are left out.
            let after = state(&replica);
            for (place, held) in &after {
                prop_assert_eq!(expected.get(place), Some(held));
            }
            // It still answers.
            let seen = HashMap::new();
            for part in [replica.own_after(0, now), replica.learned_after(0, 9, &seen, now), replica.all_after(0, 9, &seen, now)] {
                prop_assert_eq!(Page::read(&part.page.write()), Ok(part.page));
            }
            replica.tidy(usize::MAX, lately::Timestamp::MAX);
            prop_assert_eq!(replica.len(), 0);
        }
    }

    #[test]
    fn what_is_wrong_with_a_page_is_named() {
        let check = |bytes: &[u8], expected: &str| {
            assert_eq!(Page::read(bytes).expect_err(expected).to_string(), expected, "{bytes:?}");
        };
        assert_eq!(Page::read(&[0, 0, 0, 0, 0]), Ok(Page::default()));
        check(&[], "it ends too early");
        check(&[0, 0, 0, 0, 0, 0], "bytes are left over");
        check(&[5, 1], "a list is too long");
        check(&[1, 1, b'.', 7, 0, 0, 0, 0], "the name of a node is none");
        check(&[1, 1, 0xff, 7, 0, 0, 0, 0], "a text is not in UTF-8");
        check(&[0, 1, 7, 0, 0, 0, 0, 0, 0], "a width of cells is none");
        check(&[0, 0, 0, 1, 0, 0, 0], "a key is empty or too long");
        check(&[0, 0, 0, 1, 1, b'k', 1, 0, 0, 0, 0, 0], "a grid is missing");
        let longest = [0xff; 10];
        check(&longest, "a number is too long");
        let mut key = vec![0, 0, 0, 1];
        put(&mut key, MAX_KEY_BYTES as u64 + 1);
        key.resize(key.len() + MAX_KEY_BYTES + 1, b'k');
        key.extend([0, 0]);
        check(&key, "a key is empty or too long");
    }

    /// The cost of a change on the wire: a key of 16 bytes that was hit once, in one cell.
    #[test]
    fn a_change_takes_few_bytes() {
        let origin = Origin::new("eu-1", 1_764_000_000_000).expect("a name");
        let change = |number: u32, cells: i64| {
            let count = |cell: i64| Count {
                origin: origin.clone(),
                levels: LevelsId::new(7),
                cell: Cell {
                    start_ms: (1_764_000_000 + i64::from(number % 2) + cell) * 1_000,
                    width_ms: 1_000,
                },
                kept_ms: 4_600_000,
                counted: 1 + u64::from(number % 100),
                deleted: 0,
                removed: 0,
                stamp: None,
            };
            let key = format!("login:{number:010}").into_bytes().into_boxed_slice();
            assert_eq!(key.len(), 16);
            (key, (0..cells).map(count).collect())
        };
        for (cells, most) in [(1, 24), (5, 9)] {
            let page =
                Page { counts: (0..500).map(|number| change(number, cells)).collect(), texts: Vec::new() };
            let bytes = page.write().len();
            let changes = 500 * usize::try_from(cells).expect("few");
            assert!(bytes <= most * changes, "{bytes} bytes of {changes} changes");
        }
    }
}
