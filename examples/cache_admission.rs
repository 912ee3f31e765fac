//! A cache that takes in what is hot.
//!
//! A cache that drops what was unused for longest (LRU) takes in every object. A scan over many objects, each read once,
//! then flushes out those that are always needed. Here an object comes in only if it had more hits in the last minute than the
//! one that it would replace.
//!
//! The requests are like those of published traces: few objects are popular, by Zipf's law (Breslau et al., 1999), and now and
//! then there is a scan (Megiddo and Modha, 2003). The rule is that of TinyLFU (Einziger, Friedman and Manes, 2017).
//!
//! `cargo run --release -p lately --example cache_admission`

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use lately::{Store, Timestamp, minutes};

const REQUESTS: u64 = 300_000;
const OBJECTS: u64 = 50_000;
const CACHED: usize = 1_000;

fn main() -> std::io::Result<()> {
    write!(std::io::stdout(), "{}", report())
}

pub(crate) fn report() -> String {
    let mut text = format!("{REQUESTS} requests, {CACHED} objects in the cache    LRU    by heat\n");
    for (name, scan) in [("without scans", 0), ("a fifth of them are scans", 2_000)] {
        let [lru, heat] = [false, true].map(|by_heat| 100.0 * hit_ratio(scan, by_heat));
        text += &format!("hit ratio, {name:<32} {lru:>4.1} %     {heat:>4.1} %\n");
    }
    text
}

/// Plays all requests, one each millisecond. Returns the share that the cache had.
fn hit_ratio(scan: u64, by_heat: bool) -> f64 {
    let store = Store::builder().window(minutes(1)).retain(minutes(3)).memory_ceiling(64 << 20).build();
    let store = store.expect("the settings agree");
    let (mut cache, mut popular, mut hits) = (Lru::default(), Zipf::new(), 0_u32);
    for number in 0..REQUESTS {
        // Of every ten thousand requests, the first are a scan of objects that nobody asked for before.
        let object = if number % 10_000 < scan { OBJECTS + number } else { popular.next() };
        let now = Timestamp::from_millis(i64::try_from(number).expect("few")).expect("a time");
        let heat = |object: u64| store.hits(&object.to_le_bytes(), minutes(1), now).estimate;
        store.hit(&object.to_le_bytes(), now).expect("there is room");
        if cache.use_again(object) {
            hits += 1;
            continue;
        }
        let is_welcome = match cache.oldest() {
            Some(oldest) if by_heat => heat(object) > heat(oldest),
            _ => true,
        };
        if is_welcome {
            cache.insert(object);
        }
    }
    f64::from(hits) / REQUESTS as f64
}

/// The cached objects, by when they were used last.
#[derive(Default)]
struct Lru {
    used: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    uses: u64,
}

impl Lru {
    /// Whether the object is there. It is then the newest.
    fn use_again(&mut self, object: u64) -> bool {
        let is_there = self.used.contains_key(&object);
        if is_there {
            self.insert(object);
        }
        is_there
    }

    /// The object that is dropped for another one, if the cache is full.
    fn oldest(&self) -> Option<u64> {
        self.order.values().next().copied().filter(|_| self.used.len() == CACHED)
    }

    fn insert(&mut self, object: u64) {
        self.uses += 1;
        if let Some(before) = self.used.insert(object, self.uses) {
            self.order.remove(&before);
        }
        self.order.insert(self.uses, object);
        if self.used.len() > CACHED {
            let (_, oldest) = self.order.pop_first().expect("it is full");
            self.used.remove(&oldest);
        }
    }
}

/// Objects by Zipf's law: the second is asked for about half as often as the first, the third a third as often.
struct Zipf {
    sums: Vec<f64>,
    random: u64,
}

impl Zipf {
    fn new() -> Zipf {
        let mut sum = 0.0;
        let weights = (1..=OBJECTS).map(|rank| (rank as f64).powf(-0.9));
        Zipf {
            sums: weights
                .map(|weight| {
                    sum += weight;
                    sum
                })
                .collect(),
            random: 1,
        }
    }

    fn next(&mut self) -> u64 {
        // Numbers that look random, the same in each run (xorshift, Marsaglia, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let point = (self.random >> 11) as f64 / (1_u64 << 53) as f64 * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum < point) as u64
    }
}
