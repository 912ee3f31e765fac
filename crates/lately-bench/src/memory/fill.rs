//! Fills a keeper with the hits of a layout, in the order of time.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::ops::Range;

use lately::{Op, Outcome, Store, Timestamp};

use super::layout::{Hits, Keeper, ONE_HIT, Stretch};
use crate::library::keys::{KEY_BYTES, Key, Random};

/// The initial time in milliseconds: late in 2023.
const START_MS: u64 = 1_700_000_000_000;
/// Hits at the same time.
const BATCH: usize = 64;
/// Keys with a hit that a store has before the measured ones: four for each of its 1,024 shards, so that the
/// fixed cost of a shard's first keys does not count.
pub(crate) const BASE_KEYS: u32 = 4_096;

/// The filled object.
pub(crate) enum Kept {
    Store(Box<Store>),
    Queues(HashMap<Box<[u8]>, VecDeque<(u32, u32)>>),
    Floor { index: Vec<u32>, entries: Vec<(Key, u32, u32)>, keys: usize },
}

impl Kept {
    /// An empty one.
    pub(crate) fn new(keeper: Keeper, keys: u32) -> Kept {
        match keeper {
            Keeper::Store => Kept::Store(Box::new(Store::builder().build().expect("the defaults are valid"))),
            Keeper::Queues => Kept::Queues(HashMap::new()),
            Keeper::Floor => Kept::Floor { index: Vec::new(), entries: Vec::new(), keys: keys as usize },
        }
    }

    /// A hit of this weight to each of the keys, all at one time.
    fn hit(&mut self, keys: &[Key], weight: u32, now_ms: u64, outcomes: &mut Vec<Outcome>) {
        let second = u32::try_from(now_ms / 1_000).expect("before 2106");
        match self {
            Kept::Store(store) => hit_store(store, keys, weight, now_ms, outcomes),
            Kept::Queues(queues) => keys.iter().for_each(|key| hit_queue(queues, key, second, weight)),
            Kept::Floor { index, entries, keys: count } => {
                if entries.is_empty() {
                    entries.reserve_exact(*count);
                    // The size of a table that is at most seven eighths full. Each place is written once, in
                    // any order.
                    index.resize((*count * 8 / 7).next_power_of_two(), u32::MAX);
                }
                for &key in keys {
                    index[entries.len()] = u32::try_from(entries.len()).expect("fewer than 2^32 keys");
                    entries.push((key, second, weight));
                }
            }
        }
    }

    /// The bytes that it accounts for itself; 0 if it does not.
    pub(crate) fn accounted_bytes(&self) -> f64 {
        match self {
            Kept::Store(store) => store.memory().used_bytes as f64,
            Kept::Queues(_) | Kept::Floor { .. } => 0.0,
        }
    }

    /// The number of keys.
    pub(crate) fn keys(&self) -> usize {
        match self {
            Kept::Store(store) => store.len(),
            Kept::Queues(queues) => queues.len(),
            Kept::Floor { entries, .. } => entries.len(),
        }
    }
}

/// Gives a store its base keys. The others need none.
pub(crate) fn give_base(kept: &mut Kept) {
    if let Kept::Store(_) = kept {
        fill(kept, &render(u32::MAX - BASE_KEYS..u32::MAX), ONE_HIT);
    }
}

fn hit_store(store: &Store, keys: &[Key], weight: u32, now_ms: u64, outcomes: &mut Vec<Outcome>) {
    let now = Timestamp::from_millis(now_ms.cast_signed()).expect("a time of this century");
    for keys in keys.chunks(BATCH) {
        let hit =
            |at: usize| Op::Hit { key: &keys[at.min(keys.len() - 1)], weight: u64::from(weight), at: None };
        let ops: [Op<'_>; BATCH] = std::array::from_fn(hit);
        outcomes.clear();
        store.apply(&ops[..keys.len()], now, outcomes);
        assert!(
            outcomes.iter().all(|outcome| matches!(outcome, Outcome::Hit(Ok(_)))),
            "a hit now is in time"
        );
    }
}

fn hit_queue(queues: &mut HashMap<Box<[u8]>, VecDeque<(u32, u32)>>, key: &Key, second: u32, weight: u32) {
    if !queues.contains_key(key.as_slice()) {
        queues.insert(key.as_slice().into(), VecDeque::new());
    }
    let queue = queues.get_mut(key.as_slice()).expect("it was put there");
    match queue.back_mut() {
        Some((newest, count)) if *newest == second => *count += weight,
        _ => queue.push_back((second, weight)),
    }
}

/// Applies all hits to the keys. Those of a batch have the same millisecond.
pub(crate) fn fill(kept: &mut Kept, keys: &[Key], hits: Hits) {
    let mut outcomes = Vec::with_capacity(BATCH);
    match hits {
        Hits::InTurn(stretches) => {
            let mut start_ms = START_MS;
            for &Stretch { ms, times, weight } in stretches {
                for _ in 0..times {
                    // The keys are spread over the time between two hits of one.
                    for (index, batch) in keys.chunks(BATCH).enumerate() {
                        let within_ms = (index * BATCH) as u64 * u64::from(ms) / keys.len() as u64;
                        kept.hit(batch, weight, start_ms + within_ms, &mut outcomes);
                    }
                    start_ms += u64::from(ms);
                }
            }
        }
        Hits::Randomly { within_ms, times } => {
            let mut random = Random::new();
            let count = keys.len() as u64 * u64::from(times);
            for hit in 0..count {
                let key = random.below(keys.len());
                let now_ms = START_MS + hit * u64::from(within_ms) / count;
                kept.hit(&keys[key..=key], 1, now_ms, &mut outcomes);
            }
        }
    }
}

/// The keys with these numbers.
pub(crate) fn render(numbers: Range<u32>) -> Vec<Key> {
    let render = |number: u32| {
        let mut key = [0; KEY_BYTES];
        write!(key.as_mut_slice(), "key:{number:012}").expect("sixteen bytes");
        key
    };
    numbers.map(render).collect()
}
#[cfg(test)]
mod tests {
    use super::*;
    use lately::{days, minutes};

    /// Five hits, a second apart except the last two.
    const FIVE: Hits =
        Hits::InTurn(&[Stretch { ms: 1_000, times: 3, weight: 1 }, Stretch { ms: 500, times: 1, weight: 2 }]);

    fn filled(keeper: Keeper, hits: Hits) -> Kept {
        let mut kept = Kept::new(keeper, 100);
        fill(&mut kept, &render(0..100), hits);
        assert_eq!(kept.keys(), 100);
        kept
    }

    #[test]
    fn every_key_gets_its_hits() {
        let Kept::Store(store) = filled(Keeper::Store, FIVE) else { unreachable!("a store was asked for") };
        let end = Timestamp::from_millis(START_MS.cast_signed() + 5_000).expect("a time");
        assert!((0..100).all(|key| store.hits(&render(key..key + 1)[0], minutes(5), end).estimate == 5));
    }

    #[test]
    fn a_base_opens_the_shards() {
        let mut kept = Kept::new(Keeper::Store, 1);
        give_base(&mut kept);
        assert_eq!(kept.keys(), 4_096);
        assert!(kept.accounted_bytes() > 0.0);
        fill(&mut kept, &render(0..1), ONE_HIT);
        assert_eq!(kept.keys(), 4_097);
    }

    #[test]
    fn the_number_of_random_hits_is_right() {
        let Kept::Store(store) = filled(Keeper::Store, Hits::Randomly { within_ms: 3_600_000, times: 30 })
        else {
            unreachable!("a store was asked for")
        };
        let end = Timestamp::from_millis(START_MS.cast_signed() + 3_600_000).expect("a time");
        let hits: u64 = (0..100).map(|key| store.hits(&render(key..key + 1)[0], days(7), end).estimate).sum();
        assert_eq!(hits, 3_000);
    }

    #[test]
    fn all_keepers_have_the_same_keys() {
        filled(Keeper::Queues, FIVE);
        filled(Keeper::Floor, ONE_HIT);
    }
}
