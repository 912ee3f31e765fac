//! Deletions whose marks are made once more: of hits that a node did not know of when it deleted their key, because their node was away.
//! The list is in memory only.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lately::{Tally, Timestamp};
use lately_engines::{Away, Engine, EngineError, Known, Told};

use super::outgoing::Pending;
use super::reconcile::{after, before};
use super::worker::{all_told_of, parts};
use crate::limits::{
    AWAY_NOTICED_MS, CLUSTER_DELETE_KEYS, LATE_HITS_CELL_MS, LATE_HITS_EVERY_MS, LATE_HITS_MS,
};
use crate::service::Service;

/// Keys that were deleted while hits of them may have been away, and those that were deleted last: that a node is away is noticed later.
#[derive(Default)]
pub(super) struct LateHits(Mutex<List>);

#[derive(Default)]
struct List {
    deleted: BTreeMap<Box<[u8]>, Deleted>,
    /// How many of them may have hits that were away.
    away: usize,
    bytes: usize,
    /// The key up to which marks were made, and when.
    looked_at: Option<Box<[u8]>>,
    looked: Option<Timestamp>,
    /// Since when all nodes are here.
    all_here: Option<Timestamp>,
}

/// When a key was deleted last, and whose hits may have been away then.
#[derive(Clone)]
pub(super) struct Deleted {
    pub(super) at: Timestamp,
    may_be_away: bool,
    /// The hits of these nodes were not.
    here: Vec<String>,
}

impl Deleted {
    fn bytes(&self, key: &[u8]) -> usize {
        let names = self.here.iter().map(|name| size_of::<String>() + name.len());
        2 * size_of::<(Box<[u8]>, Deleted)>() + key.len() + names.sum::<usize>()
    }
}

impl LateHits {
    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whose hits may be missing now. That is noticed some seconds late, so it holds for the last deleted keys, too. Returns whether all
    /// nodes have been here for so long that everything of theirs has come.
    pub(super) fn note_away(&self, away: Away, now: Timestamp) -> bool {
        let list = &mut *self.list();
        let Away::AllBut(here) = away else {
            let since = *list.all_here.get_or_insert(now);
            return now >= after(since, LATE_HITS_MS);
        };
        list.all_here = None;
        if list.away < list.deleted.len() {
            for (key, deleted) in list.deleted.iter_mut().filter(|(_, deleted)| !deleted.may_be_away) {
                list.bytes -= deleted.bytes(key);
                (deleted.may_be_away, deleted.here) = (true, here.clone());
                list.bytes += deleted.bytes(key);
            }
            list.away = list.deleted.len();
        }
        false
    }

    /// Memory of the list, in bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.list().bytes
    }

    /// A key was deleted, and its hits are marked as far as they are known. Those of nodes that are away may come. Without room, the key
    /// is left out.
    pub(super) fn add(&self, key: &[u8], at: Timestamp, away: Away, most_bytes: usize) {
        let (may_be_away, here) = match away {
            Away::Nobody => (false, Vec::new()),
            Away::AllBut(here) => (true, here),
        };
        let list = &mut *self.list();
        let before = list.remove(key);
        let at = before.map_or(at, |before| at.max(before.at));
        let deleted = Deleted { at, may_be_away, here };
        let bytes = deleted.bytes(key);
        if list.bytes + bytes <= most_bytes {
            list.bytes += bytes;
            list.away += usize::from(may_be_away);
            list.deleted.insert(key.into(), deleted);
        }
    }

    /// The next keys with hits that may have been away, if some are due.
    pub(super) fn due(&self, now: Timestamp) -> Vec<(Box<[u8]>, Deleted)> {
        let list = &mut *self.list();
        if list.deleted.is_empty() || list.looked.is_some_and(|last| now < after(last, LATE_HITS_EVERY_MS)) {
            return Vec::new();
        }
        list.looked = Some(now);
        list.forget(before(now, AWAY_NOTICED_MS));
        list.next(CLUSTER_DELETE_KEYS)
    }

    /// All hits of a key that were away are marked, if it was not deleted again.
    pub(super) fn marked(&self, key: &[u8], at: Timestamp) {
        let list = &mut *self.list();
        if list.deleted.get(key).is_some_and(|held| held.at <= at) {
            list.remove(key);
        }
    }
}

impl List {
    fn remove(&mut self, key: &[u8]) -> Option<Deleted> {
        let removed = self.deleted.remove(key)?;
        self.bytes -= removed.bytes(key);
        self.away -= usize::from(removed.may_be_away);
        Some(removed)
    }

    /// Forgets keys that were deleted before a time and had no hits that were away.
    fn forget(&mut self, before: Timestamp) {
        let bytes = &mut self.bytes;
        self.deleted.retain(|key, deleted| {
            let is_kept = deleted.may_be_away || deleted.at >= before;
            *bytes -= if is_kept { 0 } else { deleted.bytes(key) };
            is_kept
        });
    }

    /// Up to `most` keys with hits that may have been away, those after the ones of the last call.
    fn next(&mut self, most: usize) -> Vec<(Box<[u8]>, Deleted)> {
        if self.away == 0 {
            return Vec::new();
        }
        let from = self.looked_at.take().map_or(Unbounded, Excluded);
        let next = self.deleted.range::<Box<[u8]>, _>((from, Unbounded));
        let next = next.filter(|(_, deleted)| deleted.may_be_away).take(most);
        let next: Vec<_> = next.map(|(key, deleted)| (key.clone(), deleted.clone())).collect();
        self.looked_at = next.last().filter(|_| next.len() == most).map(|(key, _)| key.clone());
        next
    }
}

/// The marks for late hits of some keys, of what an engine has of them by now.
///
/// # Errors
/// [`EngineError`]: it could not be read.
pub(super) async fn marks_of<'k>(
    late: &'k [(Box<[u8]>, Deleted)],
    engine: &mut impl Engine,
    service: &'k Service,
    now: Timestamp,
) -> Result<Vec<Pending<'k>>, EngineError> {
    let (mut pending, mut rest) = (Vec::new(), late);
    while !rest.is_empty() {
        let told = all_told_of(engine, service, rest.iter().map(|(key, _)| &**key), now).await?;
        let (read, next) = rest.split_at(told.len());
        rest = next;
        let marks = read.iter().zip(told).map(|((key, deleted), told)| {
            let counts = deleted.marks(told, |known| parts(service).1.is_own(&known.origin));
            Pending { key, sets: service.store.level_sets(key), counts }
        });
        pending.extend(marks.filter(|pending| !pending.counts.is_empty()));
    }
    Ok(pending)
}

impl Deleted {
    /// Whether its hits have left the retention.
    pub(super) fn is_over(&self, key: &[u8], service: &Service, now: Timestamp) -> bool {
        now > after(self.at, service.store.settings_of(key).retain().as_millis())
    }

    /// The marks for hits of other nodes that were away, by their time: of what an engine has of the key by now. A cell that has a
    /// mark was known when the key was deleted.
    pub(super) fn marks(&self, mut told: Told, is_own: impl Fn(&Known) -> bool) -> Vec<Known> {
        let is_here = |known: &Known| self.here.iter().any(|here| here == known.origin.node());
        told.retain(|known| known.tally.counted > 0 && !is_here(known) && !is_own(known));
        told.sort_by(|one, next| {
            let place = |known: &Known| (known.levels, known.cell.width_ms, known.cell.start_ms);
            one.origin.cmp(&next.origin).then(place(one).cmp(&place(next)))
        });
        let mut marks = Vec::new();
        for of_origin in told.chunk_by(|one, next| (&one.origin, one.levels) == (&next.origin, next.levels)) {
            let mut older: Vec<(&Known, u64)> = Vec::with_capacity(of_origin.len());
            for known in of_origin {
                let hits = self.older_hits(known, &older);
                if known.tally.deleted == 0 && hits > 0 {
                    let tally = Tally { counted: known.tally.counted, deleted: hits };
                    marks.push(Known { tally, removed: 0, ..known.clone() });
                }
                older.push((known, hits));
            }
        }
        marks
    }

    /// How many hits of a cell are from before the deletion, as far as that is known. `narrower` has that of all narrower cells, by width.
    ///
    /// A cell that goes on after the deletion has those of the narrower cells inside. If there are none, it is one of the finest level, and
    /// taken for older if it is short.
    fn older_hits(&self, known: &Known, narrower: &[(&Known, u64)]) -> u64 {
        let (Tally { counted, deleted }, cell) = (known.tally, known.cell);
        let at_ms = self.at.as_millis();
        if deleted > 0 || cell.start_ms > at_ms {
            return deleted.min(counted);
        }
        if cell.end_ms() <= at_ms + 1 {
            return counted;
        }
        let is_inside = |of: &Known| {
            of.cell.width_ms < cell.width_ms && (cell.start_ms..cell.end_ms()).contains(&of.cell.start_ms)
        };
        let mut inside = narrower.iter().rev().filter(|(of, _)| is_inside(of)).peekable();
        let Some((widest, _)) = inside.peek() else {
            return if cell.width_ms <= LATE_HITS_CELL_MS { counted } else { 0 };
        };
        let width_ms = widest.cell.width_ms;
        let of_level = inside.take_while(|(of, _)| of.cell.width_ms == width_ms);
        of_level.map(|(_, hits)| hits).sum::<u64>().min(counted)
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
        let deleted = Deleted { at: at(65_500), may_be_away: true, here: vec!["here".to_owned()] };
        let told = vec![
            known("a", (60_000, 1_000), 3, 0),
            known("a", (65_000, 1_000), 4, 0),
            // Later hits, and those of wider cells that have both.
            known("a", (66_000, 1_000), 5, 0),
            known("a", (60_000, 10_000), 12, 0),
            known("a", (60_000, 60_000), 20, 0),
            known("a", (0, 60_000), 9, 0),
            // Known when the key was deleted, and those of nodes that were there.
            known("a", (64_000, 1_000), 8, 5),
            known("here", (60_000, 1_000), 1, 0),
            known("own", (60_000, 1_000), 1, 0),
            // A long pane.
            known("b", (0, 3_600_000), 6, 0),
            // Only later hits.
            known("c", (67_000, 1_000), 1, 0),
            known("c", (60_000, 10_000), 1, 0),
            known("c", (60_000, 60_000), 1, 0),
            // Those of before were known, and the wider cell comes later.
            known("d", (64_000, 1_000), 5, 5),
            known("d", (68_000, 1_000), 3, 0),
            known("d", (60_000, 10_000), 8, 0),
        ];
        let marks = deleted.marks(told, |known| known.origin.node() == "own");
        let marks: Vec<_> = marks
            .iter()
            .map(|mark| (mark.origin.node(), mark.cell.start_ms, mark.cell.width_ms, mark.tally.deleted))
            .collect();
        let expected = [
            ("a", 60_000, 1_000, 3),
            ("a", 65_000, 1_000, 4),
            ("a", 60_000, 10_000, 12),
            ("a", 0, 60_000, 9),
            ("a", 60_000, 60_000, 12),
            ("d", 60_000, 10_000, 5),
        ];
        assert_eq!(marks, expected);
    }

    #[test]
    fn deletions_are_kept_while_hits_may_be_away() {
        let late = LateHits::default();
        let keys =
            |most| -> Vec<Box<[u8]>> { late.list().next(most).into_iter().map(|(key, _)| key).collect() };
        let deleted = |may_be_away| Deleted { at: at(0), may_be_away, here: Vec::new() };
        let most_bytes = 4 * deleted(true).bytes(b"a");
        let some = || Away::AllBut(Vec::new());
        for (key, ms, away) in [
            (b"a", 1, some()),
            (b"b", 2, Away::Nobody),
            (b"c", 3, some()),
            (b"d", 4, some()),
            (b"e", 5, some()),
        ] {
            late.add(key, at(ms), away, most_bytes);
        }
        assert_eq!(late.bytes(), most_bytes);
        // A part at a time, without those that had no hits away.
        let key = |name: &[u8; 1]| Box::<[u8]>::from(&name[..]);
        assert_eq!(keys(2), [key(b"a"), key(b"c")]);
        assert_eq!(keys(2), [key(b"d")]);
        assert_eq!(keys(2), [key(b"a"), key(b"c")]);
        assert_eq!(keys(2), [key(b"d")]);
        late.marked(b"a", at(0));
        late.marked(b"c", at(3));
        late.list().forget(at(2));
        late.note_away(some(), at(9));
        assert_eq!(keys(9), [key(b"a"), key(b"b"), key(b"d")]);
        for (name, ms) in [(b"a", 1), (b"b", 2), (b"d", 4)] {
            late.marked(name, at(ms));
        }
        assert_eq!((late.bytes(), late.list().away), (0, 0));
        late.add(b"b", at(2), Away::Nobody, most_bytes);
        late.list().forget(at(3));
        assert_eq!((late.bytes(), late.due(at(9)).len()), (0, 0));
        // That a node is away is noticed late.
        late.add(b"b", at(2), Away::Nobody, most_bytes);
        assert!(!late.note_away(Away::Nobody, at(5)) && keys(9).is_empty());
        assert!(!late.note_away(Away::AllBut(vec!["c".to_owned()]), at(6)));
        assert_eq!(late.list().next(9)[0].1.here, ["c"]);
        assert!(!late.note_away(Away::Nobody, at(7)) && !late.note_away(Away::Nobody, at(6 + LATE_HITS_MS)));
        assert!(late.note_away(Away::Nobody, at(7 + LATE_HITS_MS)));
    }
}
