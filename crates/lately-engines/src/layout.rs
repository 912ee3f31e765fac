//! The names of counts in an engine of keys and values.
//!
//! A block is a sorted set `lately:LEVELS:WIDTH:NUMBER:{KEY}`. A member is a kind, the place of the cell in the block, and
//! the origin. Its score is the count. Counts only grow, and `ZADD GT` keeps the greater one, which merges counts
//! without a script. All blocks of a key have the key as their hash tag, so they are in one slot.

use std::collections::HashMap;
use std::io::Write;

use lately::{Cell, LevelsId, Origin, Tally};

use crate::{Block, EngineError, Known, OwnedBlock, Told};

/// Cells of a block. With two origins, a block fits the compact form of a sorted set, 128 members.
pub(crate) const CELLS_OF_A_BLOCK: i64 = 64;

/// The kinds of members: hits that were counted, hits that were deleted, and deleted hits that their origin has
/// removed.
const COUNTED: u8 = b'c';
const DELETED: u8 = b'd';
const REMOVED: u8 = b'r';

/// The name of a block.
pub(crate) fn name(block: &Block<'_>) -> Vec<u8> {
    // Room for both numbers.
    let mut name = Vec::with_capacity(block.key.len() + 56);
    _ = write!(name, "lately:{:x}:{}:{}:{{", block.levels.number(), block.width_ms, block.number);
    name.extend_from_slice(block.key);
    name.push(b'}');
    name
}

/// The name of the texts about a key: a hash. It is in the slot of the key's blocks.
pub(crate) fn name_of_texts(key: &[u8]) -> Vec<u8> {
    [b"lately:texts:{", key, b"}"].concat()
}

/// Parses the name of a block. `None` for any other name.
pub(crate) fn read_name(text: &[u8]) -> Option<OwnedBlock> {
    let rest = text.strip_prefix(b"lately:")?;
    let mut parts = rest.splitn(4, |&byte| byte == b':').map(std::str::from_utf8);
    let levels = LevelsId::new(u32::from_str_radix(parts.next()?.ok()?, 16).ok()?);
    let mut number = || parts.next()?.ok()?.parse::<i64>().ok();
    let (width_ms, number) = (number()?, number()?);
    let key = rest.splitn(4, |&byte| byte == b':').nth(3)?.strip_prefix(b"{")?.strip_suffix(b"}")?;
    OwnedBlock::read(key, levels, width_ms, number).filter(|block| name(&block.as_block()) == text)
}

/// The members of a count with their scores. `origin` is its origin as text.
pub(crate) fn members(known: &Known, origin: &str) -> impl Iterator<Item = (Vec<u8>, u64)> {
    let Known { cell, tally, removed, .. } = known;
    let place = (cell.start_ms / cell.width_ms).rem_euclid(CELLS_OF_A_BLOCK);
    let place = u8::try_from(place).expect("a place in a block");
    let scores = [(COUNTED, tally.counted), (DELETED, tally.deleted), (REMOVED, *removed)];
    scores.into_iter().filter(|&(_, score)| score > 0).map(move |(kind, score)| {
        let score = score.min(MOST_HITS);
        let mut member = Vec::with_capacity(2 + origin.len());
        member.extend_from_slice(&[kind, place]);
        member.extend_from_slice(origin.as_bytes());
        (member, score)
    })
}

/// Parses the members of a block. Also returns what is wrong with the first one that no node wrote. Such members are left out.
pub(crate) fn read_block(block: &Block<'_>, members: &[(Vec<u8>, f64)]) -> (Told, Option<EngineError>) {
    let mut counts: HashMap<(Origin, Cell), Known> = HashMap::new();
    let mut foreign = None;
    for (member, score) in members {
        let Some((kind, origin, cell, hits)) = read_member(block, member, *score) else {
            foreign.get_or_insert_with(|| {
                let name = String::from_utf8_lossy(&name(block)).escape_debug().to_string();
                let member = String::from_utf8_lossy(member).escape_debug().to_string();
                EngineError::Foreign { name, what: format!("{member} with a score of {score}") }
            });
            continue;
        };
        let known = counts.entry((origin, cell)).or_insert_with_key(|(origin, cell)| Known {
            origin: origin.clone(),
            levels: block.levels,
            cell: *cell,
            tally: Tally::default(),
            removed: 0,
        });
        match kind {
            COUNTED => known.tally.counted = hits,
            DELETED => known.tally.deleted = hits,
            _ => known.removed = hits,
        }
    }
    (counts.into_values().collect(), foreign)
}

fn read_member(block: &Block<'_>, member: &[u8], score: f64) -> Option<(u8, Origin, Cell, u64)> {
    let [kind @ (COUNTED | DELETED | REMOVED), place, origin @ ..] = member else { return None };
    let place = i64::from(*place);
    let origin = std::str::from_utf8(origin).ok()?.parse().ok()?;
    let start_ms = block.start_ms() + place * block.width_ms;
    let is_count = place < CELLS_OF_A_BLOCK && (0.0..=MOST).contains(&score) && score.fract() == 0.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number up to 2^53"
    )]
    let hits = score as u64;
    is_count.then_some((*kind, origin, Cell { start_ms, width_ms: block.width_ms }, hits))
}

/// The most hits that a score can hold exactly. A larger count of one cell is written as this number.
const MOST_HITS: u64 = 1 << 53;
const MOST: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: LevelsId = LevelsId::new(0xc0_ffee);

    #[test]
    fn members_are_read_as_they_were_written() {
        let cell = Cell::of(1_700_000_003_999, 1_000);
        let block = Block::of(b"user:42", LEVELS, cell);
        assert_eq!(name(&block), b"lately:c0ffee:1000:26562500:{user:42}");
        assert!((block.start_ms()..block.end_ms()).contains(&cell.start_ms));
        let origin = Origin::new("eu-1", 7).expect("a name");
        let known =
            Known { origin, levels: LEVELS, cell, tally: Tally { counted: 12, deleted: 5 }, removed: 3 };
        let written: Vec<_> = members(&known, &known.origin.to_string()).collect();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let written: Vec<_> = written.into_iter().map(|(member, score)| (member, score as f64)).collect();
        let (counts, foreign) = read_block(&block, &written);
        assert!(counts == [known] && foreign.is_none());
    }

    #[test]
    fn names_are_read_as_they_were_written() {
        for key in [&b"user:42"[..], b"}", b"{a}:{", b"\x00\xff\r\n"] {
            for number in [-1, 0, 26_562_500] {
                let block = Block { key, levels: LEVELS, width_ms: 1_000, number };
                assert_eq!(read_name(&name(&block)), Some(block.into()));
            }
        }
        let longest = format!("lately:0:1:{}:{{k}}", i64::MAX / CELLS_OF_A_BLOCK - 1);
        assert!(read_name(longest.as_bytes()).is_some());
        let too_late = format!("lately:0:1:{}:{{k}}", i64::MAX / CELLS_OF_A_BLOCK);
        for name in [
            "",
            "lately:nodes",
            "lately:node:a",
            "lately:changed:0",
            "lately:texts:{k}",
            "lately:0:1000:1:k",
            "lately:0:1000:1:{}",
            "lately:0:1000:1:{k",
            "lately:0:1000:{k}",
            "lately:1000:1:{k}",
            "lately:00:1000:1:{k}",
            "lately:A:1000:1:{k}",
            "lately:100000000:1000:1:{k}",
            "lately:0:1:{k}",
            "lately:0:-1000:1:{k}",
            "lately:0:+1000:1:{k}",
            "lately:0:1000:01:{k}",
            "lately:0:1000:9223372036854775807:{k}",
            "other:0:1000:1:{k}",
            &too_late,
        ] {
            assert_eq!(read_name(name.as_bytes()), None, "{name}");
        }
    }

    /// Symptom: one hit of more than 2^53 stopped the reading of all keys. Cause: its score could be written and not be read. Fix: no
    /// greater score is written.
    #[test]
    fn the_greatest_counts_are_read_as_they_were_written() {
        let (cell, origin) = (Cell::of(1_000, 1_000), Origin::new("a", 1).expect("a name"));
        let block = Block::of(b"k", LEVELS, cell);
        for hits in [MOST_HITS - 1, MOST_HITS, MOST_HITS + 1, u64::MAX] {
            let tally = Tally { counted: hits, deleted: hits };
            let known = Known { origin: origin.clone(), levels: LEVELS, cell, tally, removed: hits };
            let name = known.origin.to_string();
            let written = members(&known, &name);
            #[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
            let written: Vec<_> = written.map(|(member, score)| (member, score as f64)).collect();
            let most = hits.min(MOST_HITS);
            let tally = Tally { counted: most, deleted: most };
            let (counts, foreign) = read_block(&block, &written);
            assert!(counts == [Known { tally, removed: most, ..known }] && foreign.is_none());
        }
    }

    #[test]
    fn what_no_node_wrote_is_left_out() {
        let block = Block { key: b"k", levels: LEVELS, width_ms: 1_000, number: 1 };
        for (member, score) in [
            (&b""[..], 1.0),
            (b"c", 1.0),
            (b"x\x00a.1", 1.0),
            (b"c\x40a.1", 1.0),
            (b"c\x00a", 1.0),
            (b"c\x00\xff.1", 1.0),
            (b"c\x00a.1", -1.0),
            (b"c\x00a.1", 1.5),
            (b"c\x00a.1", f64::NAN),
            (b"c\x00a.1", f64::INFINITY),
        ] {
            let ours = (b"c\x3fa.1".to_vec(), 3.0);
            let (counts, foreign) = read_block(&block, &[(member.to_vec(), score), ours]);
            assert!(counts.len() == 1 && counts[0].tally.counted == 3, "{member:?} {score}");
            let text = foreign.expect("it is named").to_string();
            assert!(text.starts_with("'lately:c0ffee:1000:1:{k}' holds what no node wrote: "), "{text}");
        }
    }
}
