//! Busy keys against a walk over all keys.

use super::*;
use crate::store::BusyKeys;

/// A generator of random numbers (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }

    fn one_of<T: Copy, const N: usize>(&mut self, of: [T; N]) -> T {
        of[usize::try_from(self.below(N as u64)).expect("an index")]
    }

    /// Small numbers most often.
    fn skewed(&mut self, bound: u64) -> u64 {
        let most = 1 + self.below(bound);
        self.below(most)
    }
}

fn span(ms: u64) -> Span {
    Span::from_millis(ms.max(1).cast_signed()).expect("a span")
}

/// All keys and their hits in a window that ends now, by a walk.
fn walk(store: &Store, window: Option<Span>, now: Timestamp) -> Vec<(Box<[u8]>, Count)> {
    let (mut cursor, mut keys) = (Cursor::START, Vec::new());
    loop {
        let page = store.scan(cursor, None, 1_000, now);
        keys.extend(page.keys);
        cursor = page.next;
        if cursor == Cursor::START {
            return keys.into_iter().map(|key| (key.clone(), store.count(&key, window, None, now))).collect();
        }
    }
}

/// Checks the bound for each window. Returns how often busy keys were known, and how often they had the most-hit keys for sure.
fn check(store: &Store, now: Timestamp, prefix: &[u8], context: &str) -> (u64, u64) {
    let (mut known, mut sure) = (0, 0);
    for seconds in
        [None, Some(1), Some(3), Some(10), Some(17), Some(60), Some(200), Some(1_000), Some(100_000)]
    {
        let window = seconds.map(|seconds| span(seconds * 1_000));
        let Some(BusyKeys { keys, most_of_others }) = store.busy_keys(window, prefix, now) else { continue };
        known += 1;
        assert!(keys.is_sorted() && keys.iter().all(|key| key.starts_with(prefix)));
        let mut rows = walk(store, window, now);
        rows.retain(|(key, _)| key.starts_with(prefix));
        for (key, count) in &rows {
            assert!(
                keys.binary_search(key).is_ok() || count.estimate <= most_of_others,
                "{context}: {} has {count:?} in {window:?}, more than {most_of_others}",
                String::from_utf8_lossy(key)
            );
        }
        let third = rows.iter().filter(|(_, count)| count.estimate > most_of_others).count();
        sure += u64::from(third >= 3);
    }
    (known, sure)
}

fn store_with_busy_keys(ceiling_bytes: u64, seed: u64, precision: f64) -> Store {
    let settings = Settings::builder().window(seconds(10)).retain(hours(2)).max_skew(seconds(15)).top(true);
    let settings = settings.precision(precision).dedupe(minutes(1)).build().expect("valid");
    let builder = Store::builder().class(Pattern::new(b"k*"), settings.clone()).seed(seed);
    let short = Settings::builder().window(seconds(2)).retain(minutes(30)).top(true).build().expect("valid");
    let builder = builder.class(Pattern::new(b"short:*"), short).settings(Settings::builder().top(true));
    builder.memory_ceiling(ceiling_bytes).build().expect("valid")
}

/// One trace from one seed: hits of now, late and ahead, with ids, limits and rates, deletions, rollbacks, restarts, pauses.
fn trace(seed: u64) -> (u64, u64) {
    let mut random = Random(seed);
    let ceiling = random.one_of([1 << 18, 1 << 20, 1 << 24]);
    let (keys, precision) = (10 + random.skewed(2_000), random.one_of([0.01, 0.1, 1.0]));
    let mut store = store_with_busy_keys(ceiling, seed, precision);
    let (mut now, mut totals) = (START, (0, 0));
    let mut deltas = DeltaBatch::default();
    for step in 0..600 {
        let key = |random: &mut Random| {
            let name = random.one_of(["k", "k", "k", "short:", "short:", "other:"]);
            format!("{name}{}", random.skewed(keys)).into_bytes()
        };
        match random.below(100) {
            0..60 => {
                let names: Vec<_> = (0..=random.below(40)).map(|_| key(&mut random)).collect();
                let ops: Vec<_> =
                    names.iter().map(|key| Op::Hit { key, weight: 1 + random.skewed(3), at: None }).collect();
                let mut out = Vec::new();
                if random.below(2) == 0 {
                    store.apply_into(&ops, now, &mut out, &mut deltas);
                } else {
                    store.apply(&ops, now, &mut out);
                }
            }
            60..66 => {
                let late = now.saturating_sub(span(random.skewed(40_000)));
                _ = store.hit_n(&key(&mut random), 1 + random.skewed(30), Some(late), now);
            }
            66..68 => {
                let late = now.saturating_sub(span(random.skewed(3_000_000)));
                _ = store.hit_n(&key(&mut random), 1 + random.skewed(30), Some(late), now);
            }
            68..74 => {
                let ahead = now.saturating_add(span(random.below(15_000)));
                _ = store.hit_n(&key(&mut random), 1 + random.skewed(10), Some(ahead), now);
            }
            74..76 => {
                let names = [key(&mut random), key(&mut random)];
                let limit = |key| Limit { key, max: 60, window: seconds(9) };
                let limits = names.iter().map(|name| limit(&name[..])).collect();
                _ = store.decide_all(JointRequest { limits, cost: 3, at: None, is_peek: false }, now);
            }
            76..80 => {
                for _ in 0..random.below(20) {
                    _ = store.limit(&key(&mut random), 50, seconds(7), 1, now);
                }
            }
            80..83 => {
                let name = key(&mut random);
                _ = store.hit_once(
                    HitOnce { key: &name, weight: 2, at: None, id: &[random.one_of([1, 2, 3])] },
                    now,
                );
            }
            83..86 => _ = store.forget(&key(&mut random), now),
            86 => store.flush(),
            87 => {
                let name = key(&mut random);
                let mut failed = DeltaBatch::default();
                store.forget_into(&name, now, Some(&mut failed));
                store.roll_back(&mut failed);
                store.end_rollback();
            }
            88 => {
                let again = store_with_busy_keys(ceiling, seed + 1, precision);
                let mut part = Vec::new();
                for index in 0..Store::PARTS {
                    part.clear();
                    store.write_part(index, now, &mut part);
                    again.read_part(&part, now).expect("a part");
                }
                again.set_now(now);
                store = again;
            }
            89..98 => now = now.saturating_add(span(random.skewed(4_000))),
            _ => now = now.saturating_add(span(random.skewed(400_000))),
        }
        deltas.clear();
        if step % 40 == 39 {
            let prefix: &[u8] = random.one_of([&b""[..], b"k", b"k1", b"short:", b"other"]);
            let (known, sure) = check(&store, now, prefix, &format!("seed {seed}, step {step}"));
            totals = (totals.0 + known, totals.1 + sure);
        }
    }
    store.check_consistency();
    totals
}

#[test]
fn no_other_key_has_more_hits_than_the_bound() {
    let of_thread = |first: u64| move || (first..1_000).step_by(4).map(trace).fold((0, 0), add);
    let totals = std::thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|first| scope.spawn(of_thread(first)));
        threads.map(|thread| thread.join().expect("it panicked above")).into_iter().fold((0, 0), add)
    });
    assert!(totals.0 > 30_000 && totals.1 > totals.0 / 4, "(known, sure): {totals:?}");
}

fn add(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0 + other.0, one.1 + other.1)
}
