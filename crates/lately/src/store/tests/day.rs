//! A day of virtual time with a million keys that do not fit under the ceiling.

use std::collections::HashMap;

use lately_classics::{ExactLog, HitOutcome, ModelCount, ModelSettings};

use super::*;

const KEYS: i64 = 1_000_000;
const DAY_MS: i64 = 86_400_000;
/// Room for less than half of the keys.
const CEILING_BYTES: u64 = 24 << 20;
/// A hit may take this much before another key is evicted for it.
const HIT_BYTES: u64 = 1_000;
/// A key is hit again when this many others have come: after a minute, and after half an hour.
const LATER: [i64; 2] = [700, 21_000];
/// Each of these keys is hit every 43 seconds, all day.
const REGULARS: i64 = 10;
/// Of each of this many keys, one is compared with the model.
const SAMPLE: i64 = 499;

/// A store, and the model of some of its keys. What is evicted is forgotten in the model.
struct Day {
    store: Store,
    models: HashMap<Vec<u8>, ExactLog>,
    created: u64,
}

impl Day {
    fn hit(&mut self, key: String, is_compared: bool, late: Option<Span>, now: Timestamp) {
        let (key, at) = (key.into_bytes(), late.map_or(now, |late| now.saturating_sub(late)));
        let is_new = !self.store.contains(&key, now);
        self.created += u64::from(is_new);
        let hits = self.store.hit_at(&key, at, now).expect("there is always a key to evict");
        let used_bytes = self.store.memory().used_bytes;
        assert!(used_bytes <= CEILING_BYTES + HIT_BYTES, "{used_bytes} bytes");
        if is_compared {
            let (at_ms, now_ms) = (at.as_millis(), now.as_millis());
            let model = self.models.entry(key).or_insert_with(|| ExactLog::new(ModelSettings::default()));
            if is_new {
                model.forget(0, now_ms);
            }
            assert_eq!(model.hit(0, at_ms, 1, now_ms), HitOutcome::Hits(hits));
        }
    }
}

#[test]
fn a_million_keys_in_a_day_stay_below_the_ceiling_and_are_counted_exactly() {
    let store = Store::builder().memory_ceiling(CEILING_BYTES).build().expect("valid");
    let bytes_at_start = store.memory().used_bytes;
    let mut day = Day { store, models: HashMap::new(), created: 0 };
    let (mut cursor, mut now) = (Cursor::START, START);
    for newest in 0..KEYS {
        now = Timestamp::from_millis(START.as_millis() + newest * DAY_MS / KEYS).expect("a time");
        for n in [newest, newest - LATER[0], newest - LATER[1]] {
            if n >= 0 {
                // Some hits come late.
                let late = (n % 3 == 0).then(|| seconds(1 + n.unsigned_abs() % 200));
                day.hit(format!("user:{n}"), n % SAMPLE == 0, late, now);
            }
        }
        if newest % 50 == 0 {
            day.hit(format!("regular:{}", newest / 50 % REGULARS), true, None, now);
            cursor = day.store.sweep(cursor, 200, now);
        }
    }
    let Day { store, mut models, created } = day;
    store.check_consistency();
    let memory = store.memory();
    assert_eq!((memory.evicted_keys + store.len() as u64, memory.expired_keys), (created, 0));
    assert!(memory.evicted_keys > 400_000 && store.len() > 100_000, "{memory:?}");
    assert!((0..REGULARS).all(|n| store.contains(format!("regular:{n}").as_bytes(), now)));
    let mut compared = 0;
    for (key, model) in &mut models {
        if !store.contains(key, now) {
            continue;
        }
        compared += 1;
        for window in [seconds(10), minutes(1), minutes(5), hours(1), hours(6), days(1), days(7)] {
            let Count { estimate, lower, upper, cell, .. } = store.count(key, Some(window), None, now);
            let answer = ModelCount { estimate, lower, upper, cell_ms: cell.as_millis() };
            let expected = model.read(0, now.as_millis(), window.as_millis(), now.as_millis());
            assert_eq!(answer, expected, "{} in {window}", key.escape_ascii());
        }
    }
    assert!(compared > 100, "{compared}");
    sweep(&store, now.saturating_add(days(8)));
    let memory = store.memory();
    assert!(store.is_empty() && memory.evicted_keys + memory.expired_keys == created, "{memory:?}");
    assert_eq!(memory.used_bytes, bytes_at_start);
}
