//! Counts of others that an engine has lost. Nodes send theirs again within minutes. Until then what was read before still counts, and a
//! deletion marks it. Counts only grow: a node with fewer hits than before, in cells that are read both times, has some that the engine lost.

use std::collections::HashMap;

use lately::{Tier, Timestamp};
use lately_engines::{Known, Told};

use super::Cluster;
use super::reconcile::after;
use super::worker::{known_from, parts};
use crate::limits::{LOSS_FORGOTTEN_MS, LOSS_NOTICED_MS};
use crate::service::Service;

/// What an engine has of a key, with what it has lost. That an engine was emptied is noticed within seconds: until then it shows in a key
/// that has far fewer hits than before.
pub(super) fn with_lost(service: &Service, tier: Tier, key: &[u8], told: Told, now: Timestamp) -> Told {
    let cluster = parts(service).0;
    let mut fewer: HashMap<String, (u64, u64)> = HashMap::new();
    for (origin, hits) in service.store.known_hits(key, tier) {
        fewer.entry(origin.node().to_owned()).or_default().1 += hits;
    }
    for told in &told {
        if let Some((hits, _)) = fewer.get_mut(told.origin.node()) {
            *hits += told.tally.counted;
        }
    }
    let is_suspicious = fewer.values().any(|(told, known)| 2 * told < *known);
    if !cluster.may_lack_hits(now) && !is_suspicious {
        return told;
    }
    let sets = service.store.level_sets(key);
    let is_read = |known: &Known| {
        sets.all().any(|levels| levels.id() == known.levels && levels.is_read(known.cell, now))
    };
    let known: Vec<_> = known_from(&service.store, key, tier).filter(is_read).collect();
    let (merged, has_lost) = merge(told.clone(), &known, is_read);
    if !has_lost || cluster.may_lack_hits(now) || cluster.note_fewer(now) { merged } else { told }
}

/// Of each node, what has more hits: it is told, or it was known. A sum of both would count hits twice: after a loss a node may send hits under its
/// current start, and in other cells than before. Marks are taken from both. `is_read` says which cells count. Also returns whether
/// anything is lost.
fn merge(told: Told, known: &[Known], is_read: impl Fn(&Known) -> bool) -> (Told, bool) {
    // The hits of each node as they are told, and as they were known.
    let mut sums: HashMap<&str, (u64, u64)> = HashMap::new();
    for told in told.iter().filter(|told| is_read(told)) {
        sums.entry(told.origin.node()).or_default().0 += told.tally.counted;
    }
    known.iter().for_each(|known| sums.entry(known.origin.node()).or_default().1 += known.tally.counted);
    let has_lost = |known: &Known| sums.get(known.origin.node()).is_some_and(|(told, known)| told < known);
    if !known.iter().any(has_lost) {
        return (told, false);
    }
    let mut merged: Told = told.iter().filter(|told| !has_lost(told)).cloned().collect();
    for known in known.iter().filter(|known| has_lost(known)) {
        let mut known = known.clone();
        let is_same = |told: &&Known| {
            told.origin == known.origin && told.levels == known.levels && told.cell == known.cell
        };
        if let Some(told) = told.iter().find(is_same) {
            known.tally.deleted = known.tally.deleted.max(told.tally.deleted);
            known.removed = told.removed;
        }
        merged.push(known);
    }
    (merged, true)
}

impl Cluster {
    /// Notes that an engine has fewer hits of a key than before. Returns whether it may have been emptied just now: an engine that has really lost
    /// hits is known for it some seconds later. Hits that nobody has any more are forgotten after that.
    fn note_fewer(&self, now: Timestamp) -> bool {
        let mut is_new = false;
        self.set_state(|state| {
            let since = state
                .fewer_since
                .filter(|since| now < after(*since, LOSS_NOTICED_MS + LOSS_FORGOTTEN_MS))
                .unwrap_or(now);
            state.fewer_since = Some(since);
            is_new = now < after(since, LOSS_NOTICED_MS);
        });
        is_new
    }
}

#[cfg(test)]
mod tests {
    use lately::{Cell, LevelsId, Origin, Tally};

    use super::*;

    fn known(node: &str, incarnation: u64, second: i64, hits: u64, deleted: u64) -> Known {
        Known {
            origin: Origin::new(node, incarnation).expect("a name"),
            levels: LevelsId::default(),
            cell: Cell { start_ms: 1_000 * second, width_ms: 1_000 },
            tally: Tally { counted: hits, deleted },
            removed: 0,
        }
    }

    fn check(told: &[Known], before: &[Known], expected: &[Known]) {
        let (mut merged, has_lost) = merge(told.to_vec(), before, |_| true);
        merged.sort_by_key(|known| (known.origin.to_string(), known.cell.start_ms));
        assert_eq!((&*merged, has_lost), (expected, told != expected));
    }

    #[test]
    fn hits_that_an_engine_has_lost_still_count() {
        let both = [known("a", 1, 1, 5, 0), known("b", 1, 2, 7, 3)];
        check(&[], &both, &both);
        check(&both[..1], &both[1..], &both);
        check(&both, &both[..1], &both);
        // Marks that came since hold, also before the hits are there again.
        check(&[known("a", 1, 1, 0, 4)], &both[..1], &[known("a", 1, 1, 5, 4)]);
    }

    /// After a loss a node may send what it had counted under its current start, or in the last cell of a wide pane.
    #[test]
    fn hits_that_come_back_in_another_place_count_once() {
        let before = [known("a", 1, 1, 3, 0), known("a", 1, 2, 4, 0)];
        for again in [vec![known("a", 2, 1, 3, 0), known("a", 2, 2, 4, 0)], vec![known("a", 1, 2, 7, 0)]] {
            check(&again, &before, &again);
        }
        // Not all of them have come.
        check(&[known("a", 2, 1, 3, 0)], &before, &before);
        check(&[known("a", 1, 2, 6, 0)], &before, &before);
    }
}
