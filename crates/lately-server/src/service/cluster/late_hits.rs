//! Deletions whose marks are made once more: of hits that a node did not know of when it deleted their key, because their node, or the
//! counts in the engine, were away. The list is in memory only.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use lately::{Tally, Timestamp};
use lately_engines::{Away, Known, Told};

use crate::limits::LATE_HITS_CELL_MS;

/// Keys that were deleted while hits of them may have been away, and those that were deleted last: that the engine has lost counts is noticed
/// later.
#[derive(Default)]
pub(super) struct LateHits {
    deleted: BTreeMap<Box<[u8]>, Deleted>,
    /// How many of them may have hits that were away.
    away: usize,
    bytes: usize,
    /// The key up to which marks were made.
    looked_at: Option<Box<[u8]>>,
}

/// When a key was deleted last, and whose hits may have been away then.
#[derive(Clone)]
pub(super) struct Deleted {
    pub(super) at: Timestamp,
    away: Away,
}

const DELETED_BYTES: usize = 2 * size_of::<(Box<[u8]>, Deleted)>();

fn bytes_of(key: &[u8]) -> usize {
    DELETED_BYTES + key.len()
}

impl LateHits {
    pub(super) fn is_empty(&self) -> bool {
        self.deleted.is_empty()
    }

    /// The engine has lost counts: hits of all of them may have been away.
    pub(super) fn all_may_be_away(&mut self) {
        self.deleted.values_mut().for_each(|deleted| deleted.away = Away::AllBut(Vec::new()));
        self.away = self.deleted.len();
    }

    /// Forgets keys that were deleted before a time and had no hits that were away.
    pub(super) fn forget(&mut self, before: Timestamp) {
        let bytes = &mut self.bytes;
        self.deleted.retain(|key, deleted| {
            let is_kept = deleted.away != Away::Nobody || deleted.at >= before;
            *bytes -= if is_kept { 0 } else { bytes_of(key) };
            is_kept
        });
    }

    /// Memory of the list, in bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A key was deleted, and its hits are marked as far as they are known. Without room it is left out.
    pub(super) fn add(&mut self, key: &[u8], at: Timestamp, away: Away, most_bytes: usize) {
        let is_away = usize::from(away != Away::Nobody);
        if let Some(held) = self.deleted.get_mut(key) {
            self.away = self.away - usize::from(held.away != Away::Nobody) + is_away;
            *held = Deleted { at: at.max(held.at), away };
        } else if self.bytes + bytes_of(key) <= most_bytes {
            self.bytes += bytes_of(key);
            self.away += is_away;
            self.deleted.insert(key.into(), Deleted { at, away });
        }
    }

    /// Up to `most` keys with hits that may have been away, those after the ones of the last call.
    pub(super) fn next(&mut self, most: usize) -> Vec<(Box<[u8]>, Deleted)> {
        if self.away == 0 {
            return Vec::new();
        }
        let from = self.looked_at.take().map_or(Unbounded, Excluded);
        let next = self.deleted.range::<Box<[u8]>, _>((from, Unbounded));
        let next = next.filter(|(_, deleted)| deleted.away != Away::Nobody).take(most);
        let next: Vec<_> = next.map(|(key, deleted)| (key.clone(), deleted.clone())).collect();
        self.looked_at = next.last().filter(|_| next.len() == most).map(|(key, _)| key.clone());
        next
    }

    /// All hits of a key that were away are marked, if it was not deleted again.
    pub(super) fn remove(&mut self, key: &[u8], at: Timestamp) {
        if let Some(held) = self.deleted.get(key).filter(|held| held.at <= at) {
            self.away -= usize::from(held.away != Away::Nobody);
            self.deleted.remove(key);
            self.bytes -= bytes_of(key);
        }
    }
}

impl Deleted {
    /// The marks for hits of other nodes that were away, by their time: of what an engine has of the key by now.
    ///
    /// A cell that has a mark was known when the key was deleted. A cell that goes on after the deletion may have later hits, too: of
    /// a wider one, as many are marked as in the narrower cells inside, and a cell without any of these is marked if it is short.
    pub(super) fn marks(&self, told: Told, is_own: impl Fn(&Known) -> bool) -> Vec<Known> {
        let at_ms = self.at.as_millis();
        let is_late = |known: &Known| {
            known.tally.counted > 0
                && known.tally.deleted == 0
                && known.cell.start_ms <= at_ms
                && self.away.may_be(known.origin.node())
                && !is_own(known)
        };
        let mut late: Told = told.into_iter().filter(is_late).collect();
        late.sort_by(|one, next| {
            let place = |known: &Known| (known.levels, known.cell.width_ms, known.cell.start_ms);
            one.origin.cmp(&next.origin).then(place(one).cmp(&place(next)))
        });
        let mut marks: Vec<Known> = Vec::with_capacity(late.len());
        for of_origin in late.chunk_by(|one, next| (&one.origin, one.levels) == (&next.origin, next.levels)) {
            let mut narrower = marks.len()..marks.len();
            for of_level in of_origin.chunk_by(|one, next| one.cell.width_ms == next.cell.width_ms) {
                let first = marks.len();
                for known in of_level {
                    let counted = known.tally.counted;
                    let inside =
                        marks[narrower.clone()].iter().filter(|of| known.cell.start_ms <= of.cell.start_ms);
                    let inside: u64 = inside.map(|of| of.tally.deleted).sum();
                    let is_over = known.cell.end_ms() <= at_ms + 1;
                    let is_short = narrower.is_empty() && known.cell.width_ms <= LATE_HITS_CELL_MS;
                    let deleted = if is_over || is_short { counted } else { inside.min(counted) };
                    if deleted > 0 {
                        let tally = Tally { counted, deleted };
                        marks.push(Known { tally, removed: 0, ..known.clone() });
                    }
                }
                narrower = first..marks.len();
            }
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use lately::{Cell, LevelsId, Origin};

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    fn known(node: &str, (start_ms, width_ms): (i64, i64), counted: u64, deleted: u64) -> Known {
        let (origin, cell) = (Origin::new(node, 1).expect("a name"), Cell { start_ms, width_ms });
        Known { origin, levels: LevelsId::default(), cell, tally: Tally { counted, deleted }, removed: 0 }
    }

    #[test]
    fn hits_of_before_the_deletion_are_marked() {
        let deleted = Deleted { at: at(65_500), away: Away::AllBut(vec!["here".to_owned()]) };
        let told = vec![
            known("a", (60_000, 1_000), 3, 0),
            known("a", (65_000, 1_000), 4, 0),
            // Later hits, and those of wider cells that have both.
            known("a", (66_000, 1_000), 5, 0),
            known("a", (60_000, 10_000), 12, 0),
            known("a", (60_000, 60_000), 20, 0),
            known("a", (0, 60_000), 9, 0),
            // Known when the key was deleted, and those of nodes that were there.
            known("a", (64_000, 1_000), 8, 7),
            known("here", (60_000, 1_000), 1, 0),
            known("own", (60_000, 1_000), 1, 0),
            // A long pane.
            known("b", (0, 3_600_000), 6, 0),
        ];
        let marks = deleted.marks(told, |known| known.origin.node() == "own");
        let marks: Vec<_> = marks
            .iter()
            .map(|mark| (mark.origin.node(), mark.cell.start_ms, mark.cell.width_ms, mark.tally.deleted))
            .collect();
        let expected = [
            ("a", 60_000, 1_000, 3),
            ("a", 65_000, 1_000, 4),
            ("a", 60_000, 10_000, 7),
            ("a", 0, 60_000, 9),
            ("a", 60_000, 60_000, 7),
        ];
        assert_eq!(marks, expected);
    }

    #[test]
    fn deletions_are_kept_while_hits_may_be_away() {
        let (mut late, away) = (LateHits::default(), || Away::AllBut(Vec::new()));
        let keys = |late: &mut LateHits, most| -> Vec<Box<[u8]>> {
            late.next(most).into_iter().map(|(key, _)| key).collect()
        };
        let most_bytes = 4 * bytes_of(b"a");
        for (key, ms, away) in [
            (b"a", 1, away()),
            (b"b", 2, Away::Nobody),
            (b"c", 3, away()),
            (b"d", 4, away()),
            (b"e", 5, away()),
        ] {
            late.add(key, at(ms), away, most_bytes);
        }
        assert_eq!(late.bytes(), most_bytes);
        // A part at a time, without those that had no hits away.
        let key = |name: &[u8; 1]| Box::<[u8]>::from(&name[..]);
        assert_eq!(keys(&mut late, 2), [key(b"a"), key(b"c")]);
        assert_eq!(keys(&mut late, 2), [key(b"d")]);
        assert_eq!(keys(&mut late, 2), [key(b"a"), key(b"c")]);
        late.remove(b"a", at(0));
        late.remove(b"c", at(3));
        late.forget(at(2));
        late.all_may_be_away();
        assert_eq!(keys(&mut late, 9), [key(b"a"), key(b"b"), key(b"d")]);
        for (name, ms) in [(b"a", 1), (b"b", 2), (b"d", 4)] {
            late.remove(name, at(ms));
        }
        assert!(late.is_empty() && late.bytes() == 0 && late.next(9).is_empty());
        late.add(b"b", at(2), Away::Nobody, most_bytes);
        late.forget(at(3));
        assert!(late.is_empty() && late.bytes() == 0);
    }
}
