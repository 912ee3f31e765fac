//! Counts of other nodes that an engine has lost. The nodes send them again within minutes. Until then, what this node read before the loss
//! still counts, and a deletion marks it. Counts only grow. So if a node has fewer hits than at the last reading, the engine has lost some.

use std::collections::HashMap;

use lately::{Span, Tier, Timestamp};
use lately_engines::{Known, Told};

use super::Cluster;
use super::reconcile::after;
use super::worker::{known_from, parts, reach};
use crate::limits::{LOSS_FORGOTTEN_MS, LOSS_NOTICED_MS};
use crate::service::Service;

/// The counts of a key as they were just read for a window, and with them what the engine has lost since the last reading. It takes seconds to
/// notice that an engine was emptied. Until then, a key of which a node has lost more than half of its hits is a hint.
pub(super) fn with_lost(
    service: &Service,
    tier: Tier,
    (key, window): (&[u8], Span),
    told: Told,
    now: Timestamp,
) -> Told {
    let cluster = parts(service).0;
    let before = service.store.known_hits(key, tier);
    let before = before.iter().map(|(origin, hits)| (origin.node(), *hits));
    let is_suspicious =
        by_node(told.iter().map(hits_of), before).values().any(|(now, before)| 2 * now < *before);
    if !cluster.may_lack_hits(now) && !is_suspicious {
        return told;
    }
    let sets = service.store.level_sets(key);
    // Hits that have left the window since are not lost.
    let (oldest_ms, _) = reach(window, service, key, now);
    let is_read = |known: &Known| {
        known.cell.start_ms >= oldest_ms
            && sets.all().any(|levels| levels.id() == known.levels && levels.is_read(known.cell, now))
    };
    let known: Vec<_> = known_from(&service.store, key, tier).filter(is_read).collect();
    let (merged, has_lost) = merge(told.clone(), &known, is_read);
    if !has_lost || cluster.may_lack_hits(now) || cluster.note_fewer(now) { merged } else { told }
}

/// For each node, the reading with more hits: this one, or the last. Both together would count hits twice, because after a loss a node may send
/// them under its current start or in other cells. Marks of deletions come from both readings. Only cells of which `is_read` is true are compared. Also
/// returns whether anything is lost.
fn merge(told: Told, known: &[Known], is_read: impl Fn(&Known) -> bool) -> (Told, bool) {
    let sums = by_node(told.iter().filter(|told| is_read(told)).map(hits_of), known.iter().map(hits_of));
    let has_lost = |known: &Known| sums.get(known.origin.node()).is_some_and(|(now, before)| now < before);
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

fn hits_of(known: &Known) -> (&str, u64) {
    (known.origin.node(), known.tally.counted)
}

/// The hits of each node in this reading, and in the last one.
fn by_node<'n>(
    now: impl Iterator<Item = (&'n str, u64)>,
    before: impl Iterator<Item = (&'n str, u64)>,
) -> HashMap<&'n str, (u64, u64)> {
    let mut sums: HashMap<&str, (u64, u64)> = HashMap::new();
    now.for_each(|(node, hits)| sums.entry(node).or_default().0 += hits);
    before.for_each(|(node, hits)| sums.entry(node).or_default().1 += hits);
    sums
}

impl Cluster {
    /// Notes that a key has fewer hits than at the last reading. Returns whether the engine may have been emptied just now. If it was, that is
    /// noticed within seconds. If nothing is noticed, the hits are gone for good, and are forgotten.
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
    use std::sync::Arc;

    use lately::{Cell, Clock, LevelsId, ManualClock, Origin, Tally, seconds};

    use super::*;
    use crate::config::{ClusterConfig, Config};

    /// A key with few hits left, which nobody has asked for in some seconds, has lost none.
    #[test]
    fn hits_that_have_left_the_window_are_not_lost() {
        let start = Timestamp::from_millis(1_700_000_000_000).expect("a time");
        let clock = Arc::new(ManualClock::new(start));
        let cluster = ClusterConfig::new("b", &["redis://127.0.0.1:1"]).expect("valid");
        let config = Config { cluster: Some(cluster), ..Config::default() };
        let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let service = Service::new(config, shared).expect("valid");
        super::super::start(&service).expect("there is no folder");
        let window = seconds(10);
        let levels = service.store.level_sets(b"k").own().id();
        let cells = |now: Timestamp, many: u64| -> Told {
            let (oldest_ms, _) = reach(window, &service, b"k", now);
            let width_ms = service.store.level_sets(b"k").own().as_slice()[0].width_ms;
            // The first ones of the reach have many hits, the later ones one each.
            let starts = (oldest_ms..now.as_millis()).step_by(usize::try_from(width_ms).expect("small"));
            let cell = |start_ms: i64| Cell::of(start_ms + width_ms, width_ms);
            let starts = starts.map(cell).filter(|cell| cell.end_ms() <= now.as_millis());
            let known = |(index, cell): (usize, Cell)| Known {
                origin: Origin::new("a", 1).expect("a name"),
                levels,
                cell,
                tally: Tally { counted: if index < 5 { many } else { 1 }, deleted: 0 },
                removed: 0,
            };
            starts.enumerate().map(known).collect()
        };
        let first = cells(start, 10_000);
        let of = |told: &Told| {
            let of = |known: &Known| (known.origin.clone(), known.levels, known.cell, known.tally);
            told.iter().map(of).collect::<Vec<_>>()
        };
        service.store.learn(b"k", Tier::Local, of(&first).into_iter(), start).expect("valid");
        clock.advance(seconds(9));
        let told = cells(service.now(), 1);
        let learned = with_lost(&service, Tier::Local, (b"k", window), told.clone(), service.now());
        assert_eq!(learned, told);
        // An empty engine has lost them.
        let learned = with_lost(&service, Tier::Local, (b"k", window), Vec::new(), service.now());
        assert!(!learned.is_empty());
    }

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
