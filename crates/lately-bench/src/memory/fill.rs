//! Fills a keeper with the hits of a layout, in the order of time.

use std::collections::{HashMap, VecDeque};
use std::io::Write;

use lately::{Op, Outcome, Store, Timestamp};

use super::layout::{Hits, Keeper};
use crate::library::keys::{KEY_BYTES, Key, Random};

/// Where time starts, in milliseconds: late in 2023.
const START_MS: u64 = 1_700_000_000_000;
/// Hits that come at one time.
const BATCH: usize = 64;

/// What is filled in, and holds on to it.
pub(crate) enum Kept {
    Store(Box<Store>),
    Queues(HashMap<Box<[u8]>, VecDeque<(u32, u32)>>),
    Floor { index: Vec<u32>, entries: Vec<(Key, u32, u32)>, keys: usize },
}

impl Kept {
    /// Nothing yet.
    pub(crate) fn new(keeper: Keeper, keys: u32) -> Kept {
        match keeper {
            Keeper::Store => Kept::Store(Box::new(Store::builder().build().expect("the defaults are valid"))),
            Keeper::Queues => Kept::Queues(HashMap::new()),
            Keeper::Floor => Kept::Floor { index: Vec::new(), entries: Vec::new(), keys: keys as usize },
        }
    }

    /// Hits to keys by their numbers, all at one time.
    fn hit(&mut self, keys: &[u32], now_ms: u64) {
        let rendered: Vec<Key> = keys.iter().map(|&key| render(key)).collect();
        let second = u32::try_from(now_ms / 1_000).expect("before 2106");
        match self {
            Kept::Store(store) => hit_store(store, &rendered, now_ms),
            Kept::Queues(queues) => rendered.iter().for_each(|key| hit_queue(queues, key, second)),
            Kept::Floor { index, entries, keys } => {
                if entries.is_empty() {
                    entries.reserve_exact(*keys);
                    // As a table of seven eighths at most is sized; each place is written once, in any order.
                    index.resize((*keys * 8 / 7).next_power_of_two(), u32::MAX);
                }
                for key in rendered {
                    index[entries.len()] = u32::try_from(entries.len()).expect("fewer than 2^32 keys");
                    entries.push((key, second, 1));
                }
            }
        }
    }

    /// Keys there are.
    pub(crate) fn keys(&self) -> usize {
        match self {
            Kept::Store(store) => store.len(),
            Kept::Queues(queues) => queues.len(),
            Kept::Floor { entries, .. } => entries.len(),
        }
    }
}

fn hit_store(store: &Store, keys: &[Key], now_ms: u64) {
    let now = Timestamp::from_millis(now_ms.cast_signed()).expect("a time of this century");
    let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::Hit { key, weight: 1, at: None }).collect();
    let mut outcomes = Vec::with_capacity(ops.len());
    store.apply(&ops, now, &mut outcomes);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Hit(Ok(_)))), "a hit now is in time");
}

fn hit_queue(queues: &mut HashMap<Box<[u8]>, VecDeque<(u32, u32)>>, key: &Key, second: u32) {
    if !queues.contains_key(key.as_slice()) {
        queues.insert(key.as_slice().into(), VecDeque::new());
    }
    let queue = queues.get_mut(key.as_slice()).expect("it was put there");
    match queue.back_mut() {
        Some((newest, count)) if *newest == second => *count += 1,
        _ => queue.push_back((second, 1)),
    }
}

/// All hits to so many keys. The keys of a batch are hit in the same millisecond.
pub(crate) fn fill(kept: &mut Kept, keys: u32, hits: Hits) {
    let all: Vec<u32> = (0..keys).collect();
    match hits {
        Hits::Every { ms, times } => {
            for turn in 0..u64::from(times) {
                // The keys are spread over the time between two hits of one.
                for (index, batch) in all.chunks(BATCH).enumerate() {
                    let within_ms = index as u64 * BATCH as u64 * u64::from(ms) / u64::from(keys);
                    kept.hit(batch, START_MS + turn * u64::from(ms) + within_ms);
                }
            }
        }
        Hits::Randomly { within_ms, times } => {
            let mut random = Random::new();
            let count = u64::from(keys) * u64::from(times);
            for hit in 0..count {
                let key = all[random.below(all.len())];
                kept.hit(&[key], START_MS + hit * u64::from(within_ms) / count);
            }
        }
    }
}

fn render(key: u32) -> Key {
    let mut rendered = [0; KEY_BYTES];
    write!(rendered.as_mut_slice(), "key:{key:012}").expect("sixteen bytes");
    rendered
}

#[cfg(test)]
mod tests {
    use super::*;
    use lately::{days, minutes};

    fn filled(keeper: Keeper, hits: Hits) -> Kept {
        let mut kept = Kept::new(keeper, 100);
        fill(&mut kept, 100, hits);
        assert_eq!(kept.keys(), 100);
        kept
    }

    #[test]
    fn every_key_gets_its_hits() {
        let Kept::Store(store) = filled(Keeper::Store, Hits::Every { ms: 1_000, times: 5 }) else {
            unreachable!("a store was asked for")
        };
        let end = Timestamp::from_millis(START_MS.cast_signed() + 5_000).expect("a time");
        assert!((0..100).all(|key| store.hits(&render(key), minutes(5), end).estimate == 5));
    }

    #[test]
    fn random_hits_are_as_many_as_they_should_be() {
        let Kept::Store(store) = filled(Keeper::Store, Hits::Randomly { within_ms: 3_600_000, times: 30 })
        else {
            unreachable!("a store was asked for")
        };
        let end = Timestamp::from_millis(START_MS.cast_signed() + 3_600_000).expect("a time");
        let hits: u64 = (0..100).map(|key| store.hits(&render(key), days(7), end).estimate).sum();
        assert_eq!(hits, 3_000);
    }

    #[test]
    fn the_others_keep_the_same_keys() {
        for (keeper, times) in [(Keeper::Queues, 3), (Keeper::Floor, 1)] {
            filled(keeper, Hits::Every { ms: 1_000, times });
        }
    }
}
