//! Other libraries that count by key in a process. Each gets time in its own form, and its best
//! configuration.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use dashmap::DashMap;
use governor::clock::{Clock, FakeRelativeClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use throttlecrab::PeriodicStore;
use trypema::local::LocalRateLimiterProvider;
use trypema::{BucketSize, RateLimit, RateLimiterBuilder, WindowSize};

use super::keys::{Key, Keys, Walk};
use super::subject::{START_MS, places_in_batches};
use crate::clock::nanos_of;
use crate::rounds::Contender;

/// A counter or limiter by key.
pub(crate) trait Rival {
    fn hit(&mut self, keys: &Keys, place: usize);

    /// Sets the time. Rivals that read a clock of their own ignore it.
    fn set_time(&mut self, _now_ms: i64) {}
}

/// `rival` as a contender of single hits. It has had a hit for every key when this returns.
pub(crate) fn contender<'a>(
    name: &'static str,
    keys: &'a Keys,
    ops: usize,
    mut rival: impl Rival + 'a,
) -> Contender<'a> {
    let walk = Walk::new(keys.len());
    keys.fill_order().for_each(|place| rival.hit(keys, place));
    let mut now_ms = START_MS;
    Contender::new(name, move || {
        let places = walk.stride(ops);
        let count = places.len();
        let nanos = nanos_of(|| {
            now_ms = places_in_batches(places, now_ms, |places, now_ms| {
                rival.set_time(now_ms);
                places.for_each(|place| rival.hit(keys, place));
            });
        });
        nanos / count as f64
    })
}

/// All rivals with these keys, and the floor: an array with a number for each key.
pub(crate) fn contenders(keys: &Keys, ops: usize) -> Vec<Contender<'_>> {
    vec![
        contender("governor", keys, ops, Governor::of_bytes()),
        contender("governor, u64 keys", keys, ops, Governor::of_numbers()),
        contender("throttlecrab", keys, ops, Throttlecrab::new(keys)),
        contender("trypema", keys, ops, Trypema::new()),
        contender("dashmap, u64 add", keys, ops, Dashmap(DashMap::new())),
        floor(keys, ops),
    ]
}

/// The floor: no key, no window, no lock.
pub(crate) fn floor(keys: &Keys, ops: usize) -> Contender<'_> {
    contender("bare array", keys, ops, Array(vec![0; keys.len()]))
}

/// A quota that is never reached, so that the rivals are timed on allowed requests.
pub(crate) fn quota() -> Quota {
    Quota::per_second(NonZeroU32::MAX)
}

/// A middleware without extra results.
pub(crate) type Admit = NoOpMiddleware<<FakeRelativeClock as Clock>::Instant>;

/// The limiter without a key.
pub(crate) type Direct = RateLimiter<NotKeyed, InMemoryState, FakeRelativeClock, Admit>;

/// governor's limiter on dashmap. The clock is governor's mock, one atomic; its real clock would be read for
/// every hit.
pub(crate) struct Governor<K: Clone + Eq + std::hash::Hash> {
    limiter: RateLimiter<K, DashMapStateStore<K>, FakeRelativeClock, Admit>,
    clock: FakeRelativeClock,
    now_ms: i64,
    key: fn(&Keys, usize) -> K,
}

impl Governor<Key> {
    pub(crate) fn of_bytes() -> Governor<Key> {
        Governor::new(|keys, place| keys.bytes()[place])
    }
}

impl Governor<u64> {
    fn of_numbers() -> Governor<u64> {
        Governor::new(|keys, place| u64::from(keys.id(place)))
    }
}

impl<K: Clone + Eq + std::hash::Hash> Governor<K> {
    fn new(key: fn(&Keys, usize) -> K) -> Governor<K> {
        let clock = FakeRelativeClock::default();
        let limiter = RateLimiter::dashmap_with_clock(quota(), clock.clone());
        Governor { limiter, clock, now_ms: START_MS, key }
    }

    /// A hit from any thread.
    pub(crate) fn check(&self, key: &K) {
        black_box(self.limiter.check_key(key).is_ok());
    }
}

impl<K: Clone + Eq + std::hash::Hash> Rival for Governor<K> {
    fn hit(&mut self, keys: &Keys, place: usize) {
        self.check(&(self.key)(keys, place));
    }

    fn set_time(&mut self, now_ms: i64) {
        let passed_ms = u64::try_from(now_ms - self.now_ms).expect("time runs forward");
        if passed_ms > 0 {
            self.clock.advance(Duration::from_millis(passed_ms));
            self.now_ms = now_ms;
        }
    }
}

/// throttlecrab's store with periodic cleanup. No lock, because only one thread uses it.
struct Throttlecrab {
    limiter: throttlecrab::RateLimiter<PeriodicStore>,
    now: SystemTime,
}

impl Throttlecrab {
    fn new(keys: &Keys) -> Throttlecrab {
        let store = PeriodicStore::with_capacity(keys.len());
        Throttlecrab { limiter: throttlecrab::RateLimiter::new(store), now: SystemTime::UNIX_EPOCH }
    }
}

impl Rival for Throttlecrab {
    fn hit(&mut self, keys: &Keys, place: usize) {
        let decision = self.limiter.rate_limit(keys.text(place), 1_000_000, 1_000_000, 1, 1, self.now);
        black_box(decision.is_ok_and(|(allowed, _)| allowed));
    }

    fn set_time(&mut self, now_ms: i64) {
        let since_epoch = Duration::from_millis(now_ms.unsigned_abs());
        self.now = SystemTime::UNIX_EPOCH + since_epoch;
    }
}

/// trypema's sliding window, in buckets of a second over five minutes. It reads the clock for every hit.
struct Trypema {
    provider: Arc<LocalRateLimiterProvider>,
    rate: RateLimit,
}

impl Trypema {
    fn new() -> Trypema {
        let builder = LocalRateLimiterProvider::builder()
            .window_size(WindowSize::minutes_or_panic(5))
            .bucket_size(BucketSize::seconds_or_panic(1))
            .disable_cleanup();
        let provider = builder.build().expect("a bucket shorter than its window");
        Trypema { provider, rate: RateLimit::per_second_or_panic(1e9) }
    }
}

impl Rival for Trypema {
    fn hit(&mut self, keys: &Keys, place: usize) {
        black_box(self.provider.absolute().inc(keys.text(place), &self.rate, 1));
    }
}

/// No window: the cost of the lookup and an atomic.
struct Dashmap(DashMap<u64, AtomicU64>);

impl Rival for Dashmap {
    fn hit(&mut self, keys: &Keys, place: usize) {
        let id = u64::from(keys.id(place));
        if let Some(count) = self.0.get(&id) {
            black_box(count.fetch_add(1, Relaxed));
            return;
        }
        self.0.entry(id).or_default().fetch_add(1, Relaxed);
    }
}

struct Array(Vec<u64>);

impl Rival for Array {
    fn hit(&mut self, keys: &Keys, place: usize) {
        let count = &mut self.0[keys.id(place) as usize];
        *count += 1;
        black_box(*count);
    }
}
