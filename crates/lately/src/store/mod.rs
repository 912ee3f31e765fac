//! The keyed store: how many hits came lately, for any key, from any thread.

mod builder;
mod busy;
mod busy_keys;
mod cached_denial;
mod cell;
mod chunks;
mod clock_repair;
mod context;
mod eviction;
mod eviction_guard;
mod executor;
mod id_ceiling;
mod id_owner;
mod ids;
mod joint_limit;
mod key;
mod key_state;
mod long_keys;
mod mark;
mod members;
mod memory;
#[cfg(all(test, loom))]
mod models;
mod operation;
mod others;
mod places;
mod positions;
mod prefetch;
mod rate_limit;
mod recent_denials;
mod replay;
mod rollback;
mod saved_key;
mod scan;
mod shard;
mod shares;
mod slot;
mod snapshot;
mod sources;
mod stretch;
mod table;
mod tags;
mod unsent;
mod unsent_keys;
mod window_limit;

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Mutex, OnceLock, RwLock};
use std::thread::available_parallelism;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use std::hash::BuildHasher;

pub use builder::StoreBuilder;
pub use busy::BusyKeys;
pub use eviction::Newcomers;
pub use eviction_guard::{EvictionGuard, LimitGuard, RateGuard};
pub(crate) use key_state::Extras;
pub(crate) use mark::Before;
pub use members::{LearnedMembers, OwnMembers, SentMembers};
pub use memory::MemoryStats;
pub use operation::{HitOnce, JointRequest, Limit, MemberHit, Op, Outcome, Question, Request};
pub use others::{OwnSpan, Tier};
pub use replay::{Portion, Replay};
pub use saved_key::Content;
pub use scan::{Cursor, ScanPage};
pub use shares::HitsByNode;
pub use snapshot::Part;
pub use sources::Source;
pub use unsent::{Taken, UnsentKey};

use crate::class::{ClassId, Classes};
use crate::count::Count;
use crate::delta::{Delta, DeltaBatch, Generation, Sequence};
use crate::error::{HitError, LimitError, QueryError};
use crate::frame::Frame;
use crate::gcra::Throttle;
use crate::limit::{Decision, JointDecision};
use crate::merge::LevelTable;
use crate::series::{Point, SeriesReader};
use crate::settings::Settings;
use crate::sync::MutexGuard;
use crate::time::{Span, Timestamp};
use crate::window::Window;

use cell::{LockedShard, ShardCell};
use context::{Context, FastPath};
use key::{SHARDS, shard_of};
use shard::Shard;

/// Sliding-window counts for many keys.
///
/// All methods take `&self` and may be called from any thread. Each works on one key under the lock
/// of the key's shard: a read sees every hit acknowledged before it began and none of a hit refused.
/// `scan` walks shard by shard; `flush` holds all locks.
///
/// `now` is the caller's clock. The store's time never goes back: a `now` earlier than the latest one is
/// replaced by the latest. Times of hits and reads (`at`) may be any.
#[derive(Debug)]
pub struct Store {
    shards: Box<[ShardCell; SHARDS]>,
    classes: Classes,
    hasher: SeedableRandomState,
    /// The latest `now`, in milliseconds. It carries the time from shard to shard. Decisions use the time of
    /// the shard, which is read under the shard's lock.
    now_ms: AtomicI64,
    generation: AtomicU64,
    memory: memory::Memory,
    ids: ids::IdMemory,
    /// The busy keys, if a class asks for them.
    busy: Option<Box<busy::Busy>>,
    prefetch_tables: prefetch::PrefetchTables,
    clock_repair: clock_repair::ClockRepair,
    /// The batches that are being rolled back. Usually empty.
    rollback: Mutex<rollback::Rollback>,
    /// The counts of other nodes. Set by the first merge.
    others: OnceLock<others::Others>,
    /// The levels in which others count, where they differ from those here.
    other_levels: RwLock<Vec<LevelTable>>,
    /// Whether keys are marked that have hits to be sent to other nodes.
    is_tracked: AtomicBool,
    /// See [`Store::decreases`].
    decreases: AtomicU64,
}

impl Store {
    /// Starts a store with the default settings and no memory ceiling.
    pub fn builder() -> StoreBuilder {
        StoreBuilder::default()
    }

    fn new(classes: Classes, ceiling_bytes: Option<u64>, seed: Option<u64>) -> Store {
        let hasher = match seed {
            Some(seed) => SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            None => {
                let seed = std::collections::hash_map::RandomState::new().hash_one(0);
                SeedableRandomState::with_seed(seed, SharedSeed::global_random())
            }
        };
        Store::with_hasher(classes, ceiling_bytes, hasher)
    }

    /// An empty store with the settings, the ceiling and the hash seed of this store. A key is in the same
    /// shard of both.
    #[must_use]
    pub fn empty_like(&self) -> Store {
        Store::with_hasher(self.classes.clone(), self.memory.ceiling(), self.hasher.clone())
    }

    fn with_hasher(classes: Classes, ceiling_bytes: Option<u64>, hasher: SeedableRandomState) -> Store {
        let busy = busy::Busy::new(&classes, ceiling_bytes);
        let memory = memory::Memory::new(ceiling_bytes);
        memory.change_other(0, busy.as_ref().map_or(0, |busy| busy.fixed_bytes()));
        let shards = (0..).take(SHARDS).map(|part| ShardCell::new(Shard::new(part, hasher.clone())));
        Store {
            shards: shards.collect::<Vec<_>>().try_into().expect("as many as were taken"),
            classes,
            hasher,
            now_ms: AtomicI64::new(0),
            generation: AtomicU64::new(0),
            memory,
            busy,
            ids: ids::IdMemory::new(),
            prefetch_tables: prefetch::PrefetchTables::new(
                SHARDS,
                available_parallelism().map_or(1, usize::from),
            ),
            clock_repair: clock_repair::ClockRepair::default(),
            rollback: Mutex::default(),
            others: OnceLock::new(),
            other_levels: RwLock::default(),
            is_tracked: AtomicBool::new(false),
            decreases: AtomicU64::new(0),
        }
    }

    /// Counts a hit now. Returns the hits in the key's default window, this one included.
    ///
    /// # Errors
    /// [`HitError`] says why the hit was refused. Nothing changes then.
    pub fn hit(&self, key: &[u8], now: Timestamp) -> Result<u64, HitError> {
        match self.fast_hit(key, 1, now) {
            Some(hits) => Ok(hits),
            None => self.apply_one(&Op::Hit { key, weight: 1, at: None }, now).into_hit(),
        }
    }

    /// Counts a hit that happened at `at`. Returns the hits in the key's default window that ends there.
    ///
    /// # Errors
    /// [`HitError`] says why the hit was refused. Nothing changes then.
    pub fn hit_at(&self, key: &[u8], at: Timestamp, now: Timestamp) -> Result<u64, HitError> {
        self.hit_n(key, 1, Some(at), now)
    }

    /// Counts `weight` hits at `at` (default: now). Returns the hits in the key's default window that ends there, these
    /// included. A weight of 0 counts nothing and makes no key.
    ///
    /// # Errors
    /// [`HitError`] says why the hit was refused. Nothing changes then.
    pub fn hit_n(
        &self,
        key: &[u8],
        weight: u64,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<u64, HitError> {
        if at.is_none()
            && let Some(hits) = self.fast_hit(key, weight, now)
        {
            return Ok(hits);
        }
        self.apply_one(&Op::Hit { key, weight, at }, now).into_hit()
    }

    /// Counts hits with an id, unless hits of the key with the same id were counted: their time differs by less than the
    /// class's [`dedupe`](Settings::dedupe). Returns the hits in the key's default window that ends at the hits' time.
    ///
    /// An id is known until that span has passed since its hits happened and since they came, and while its key exists.
    /// Of two ids, one in 2^64 pairs is taken for the same.
    ///
    /// # Errors
    /// [`HitError`] says why the hits were refused. Nothing changes then.
    pub fn hit_once(&self, hit: HitOnce<'_>, now: Timestamp) -> Result<u64, HitError> {
        self.apply_one(&Op::of_once(hit), now).into_hit()
    }

    /// Whether [`Store::hit_once`] would count nothing, because hits with this id were counted.
    #[must_use]
    pub fn is_repeated(&self, hit: &HitOnce<'_>, now: Timestamp) -> bool {
        let hash = self.hash(hit.key);
        let (mut shard, now, mut context) = self.lock_for(hash, now, None);
        let Some(place) = shard.place_of(hit.key, hash).and_then(|place| shard.alive(place, &mut context))
        else {
            return false;
        };
        let span = self.settings_of(hit.key).dedupe();
        span.is_some_and(|span| shard.has_id(place, hit.id, (hit.at.unwrap_or(now), span), &context))
    }

    /// Counts hits with a member. Returns the hits in the key's default window that ends at the hits' time.
    ///
    /// # Errors
    /// [`HitError`] says why the hits were refused. Nothing changes then.
    pub fn hit_member(&self, hit: MemberHit<'_>, now: Timestamp) -> Result<u64, HitError> {
        self.apply_one(&Op::HitMember(Box::new(hit)), now).into_hit()
    }

    /// The distinct members of `key` in a window (default: that of the key's class) that ends now: those of hits that
    /// [`Store::hit_member`] counted.
    ///
    /// Below [`EXACT_MEMBERS`](crate::limits::EXACT_MEMBERS) they are exact: two members are taken for the same with odds of
    /// one in 2^48. More are estimated with a standard error of 1.5 % while the key has up to 25,000 of them in its
    /// retention, or the window has an eighth of them; of shorter windows 7 %. The bounds are three standard errors away, and
    /// have what the edge of the window cuts: a pane of at most an eighth of its age.
    ///
    /// # Errors
    /// [`HitError::NoMembers`] when the class of the key does not count them.
    pub fn unique(&self, key: &[u8], window: Option<Span>, now: Timestamp) -> Result<Count, HitError> {
        self.apply_one(&Op::Unique { key, window }, now).into_unique()
    }

    /// The hits of `key` in the window of length `window` that ends now.
    #[must_use]
    pub fn hits(&self, key: &[u8], window: Span, now: Timestamp) -> Count {
        self.count(key, Some(window), None, now)
    }

    /// The hits of `key` in the window of length `window` that ends with the pane of `at`.
    #[must_use]
    pub fn hits_at(&self, key: &[u8], window: Span, at: Timestamp, now: Timestamp) -> Count {
        self.count(key, Some(window), Some(at), now)
    }

    /// The hits of `key` in a window (default: that of the key's class) that ends with the pane of `at` (default: now).
    #[must_use]
    pub fn count(&self, key: &[u8], window: Option<Span>, at: Option<Timestamp>, now: Timestamp) -> Count {
        self.apply_one(&Op::Hits { key, window, at }, now).into_count()
    }

    /// Decides a request for `cost` hits by a limit, and counts them if it is allowed: if the key then has at most `max`
    /// hits in the window of length `window` that ends now. So no window of that length ever has more than `max` allowed
    /// hits.
    ///
    /// # Errors
    /// [`LimitError`] says why nothing could be decided. Nothing changes then.
    pub fn limit(
        &self,
        key: &[u8],
        max: u64,
        window: Span,
        cost: u64,
        now: Timestamp,
    ) -> Result<Decision, LimitError> {
        self.decide(Request::new(key, max, window, cost), now)
    }

    /// Decides a request by a limit. Unlike [`Store::limit`], the request may have a time, be a peek, be of a shadow
    /// limit, start a lockout, or be admitted in another way.
    ///
    /// # Errors
    /// [`LimitError`] says why nothing could be decided. Nothing changes then.
    pub fn decide(&self, request: Request<'_>, now: Timestamp) -> Result<Decision, LimitError> {
        self.apply_one(&Op::of(request), now).into_decision()
    }

    /// Gives hits back that a request took: as many as it costs, but no more than its window has. The newest hits go first.
    /// It is always allowed. A peek gives nothing back. Returns what is left then.
    ///
    /// Hits of other nodes stay. A refund ends no lockout.
    ///
    /// # Errors
    /// [`LimitError`] says why nothing could be given back. Nothing changes then.
    pub fn refund(&self, request: Request<'_>, now: Timestamp) -> Result<Decision, LimitError> {
        self.apply_one(&Op::Refund(Box::new(request)), now).into_decision()
    }

    /// Decides a request by several limits, of one key or several, and counts its hits if all allow it. Returns the
    /// decision of each limit, in their order.
    ///
    /// # Errors
    /// [`LimitError`] says why nothing could be decided, such as too many limits. Nothing changes then.
    pub fn decide_all(&self, request: JointRequest<'_>, now: Timestamp) -> Result<JointDecision, LimitError> {
        self.apply_one(&Op::LimitAll(Box::new(request)), now).into_joint()
    }

    /// Decides a request by a rate, with the generic cell rate algorithm, and counts its hits if it is allowed. They show
    /// in [`Store::hits`]. Hits that were counted otherwise do not matter to the rate.
    ///
    /// # Errors
    /// [`LimitError`] says why nothing could be decided. Nothing changes then.
    pub fn throttle(&self, request: Throttle<'_>, now: Timestamp) -> Result<Decision, LimitError> {
        self.apply_one(&Op::of_throttle(request), now).into_decision()
    }

    /// The hits of `key` that limits denied, in a window (default: that of the key's class) that ends with the pane of
    /// `at` (default: now).
    #[must_use]
    pub fn denied(&self, key: &[u8], window: Option<Span>, at: Option<Timestamp>, now: Timestamp) -> Count {
        self.apply_one(&Op::Denied(Box::new(Question { key, window, at })), now).into_count()
    }

    /// The hits of `key` in each step of length `step`, over the window that ends with the pane of `at`.
    ///
    /// Steps start at multiples of `step`; the first and the last may reach out of the window, but
    /// only hits in the window count, so the points add up to the count of the window.
    ///
    /// # Errors
    /// [`QueryError`] when `step` is not a multiple of the key's resolution, or there are too many points.
    pub fn series(
        &self,
        key: &[u8],
        window: Span,
        step: Span,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Vec<Point>, QueryError> {
        let mut series = self.series_reader(key, window, step, at.unwrap_or(now.max(self.now())))?;
        Ok(self.read_series(key, &mut series, usize::MAX, now))
    }

    /// A [`Store::series`] that [`Store::read_series`] reads in parts.
    ///
    /// # Errors
    /// [`QueryError`] when `step` is not a multiple of the key's resolution, or there are too many points.
    pub fn series_reader(
        &self,
        key: &[u8],
        window: Span,
        step: Span,
        at: Timestamp,
    ) -> Result<SeriesReader, QueryError> {
        SeriesReader::new(window, step, at, self.settings_of(key))
    }

    /// The next points of a series of `key`, at most `most`, oldest first.
    #[must_use]
    pub fn read_series(
        &self,
        key: &[u8],
        series: &mut SeriesReader,
        most: usize,
        now: Timestamp,
    ) -> Vec<Point> {
        let hash = self.hash(key);
        let mut of_others = series.clone();
        let (mut shard, now, mut context) = self.lock_for(hash, now, None);
        let settings = self.classes.settings(self.classes.of(key));
        let entry = shard.live(key, hash, &mut context).map(|slot| slot.state.hits());
        let mut points = series.read(most, entry, settings, now);
        drop(shard);
        if let Some(others) = self.hits_of_others(key, hash, now) {
            for (point, of_others) in
                points.iter_mut().zip(of_others.read(most, Some(&others), settings, now))
            {
                point.hits = point.hits.saturating_add(of_others.hits);
            }
        }
        points
    }

    /// Deletes `key`. True if it existed. Its next hit starts a new generation.
    pub fn forget(&self, key: &[u8], now: Timestamp) -> bool {
        self.forget_into(key, now, None)
    }

    /// Deletes `key` like [`Store::forget`], and appends the change to `deltas`.
    pub fn forget_into(&self, key: &[u8], now: Timestamp, mut deltas: Option<&mut DeltaBatch>) -> bool {
        if let Some(deltas) = &mut deltas {
            deltas.advance(now);
        }
        let hash = self.hash(key);
        let (mut shard, _, mut context) = self.lock_for(hash, now, deltas);
        shard.forget_key(key, hash, &mut context)
    }

    /// Deletes all keys. Hits that other threads count meanwhile are deleted or kept; hits counted after this returns are
    /// kept.
    pub fn flush(&self) {
        self.flush_when(Timestamp::MIN, |_| true);
    }

    /// Deletes all keys like [`Store::flush`], if `commit` returns true. `commit` gets the change before it happens; all
    /// hits and reads wait meanwhile. Returns what `commit` returned.
    pub fn flush_when(&self, now: Timestamp, commit: impl FnOnce(&DeltaBatch) -> bool) -> bool {
        let mut shards: Vec<_> = (0..SHARDS).map(|index| self.lock(index, now)).collect();
        self.decreases.fetch_add(1, Release);
        // Under all locks: every key that is created later has a higher generation.
        let below = Generation(self.generation.fetch_add(1, Relaxed) + 1);
        let mut deltas = DeltaBatch::default();
        deltas.advance(self.advance(now));
        deltas.push(Sequence::default(), Delta::Flush { below });
        let agreed = commit(&deltas);
        if agreed {
            shards.iter_mut().for_each(|shard| shard.clear(&self.ids));
        }
        agreed
    }

    /// Whether `key` has hits within its retention, or a limit in force.
    #[must_use]
    pub fn contains(&self, key: &[u8], now: Timestamp) -> bool {
        self.time_to_live(key, now).is_some()
    }

    /// The time until the last hit of `key`, counted or denied, has left the retention and no limit on it is in force.
    /// `None` if the key does not exist.
    #[must_use]
    pub fn time_to_live(&self, key: &[u8], now: Timestamp) -> Option<Span> {
        let hash = self.hash(key);
        let (mut shard, now, mut context) = self.lock_for(hash, now, None);
        let slot = shard.live(key, hash, &mut context)?;
        let settings = self.classes.settings(slot.class);
        let leaves_ms = |newest: Timestamp| {
            let last_pane = settings.pane_of(newest.as_millis());
            (last_pane + settings.panes_in(settings.retain())) * settings.resolution().as_millis()
        };
        let hits_until_ms = leaves_ms(slot.state.hits().newest());
        let limits_until_ms = shard.limits_until_ms(key, hash, leaves_ms);
        let left_ms = hits_until_ms.max(limits_until_ms) - now.as_millis();
        (left_ms > 0).then(|| Span::from_millis(left_ms).unwrap_or(Span::MAX))
    }

    /// The settings of the class of `key`.
    #[must_use]
    pub fn settings_of(&self, key: &[u8]) -> &Settings {
        self.classes.settings(self.classes.of(key))
    }

    /// Whether each class keeps all hits in the window of length `window` that ends at `at`. If not, a key that is not in
    /// the store may have had hits in it.
    #[must_use]
    pub fn keeps(&self, window: Span, at: Timestamp, now: Timestamp) -> bool {
        let mut classes = self.classes.all().iter();
        classes.all(|settings| Window::ending_at(at, window, settings, now).is_known())
    }

    /// Protects `key` from eviction until `until`, because a limit on it is in force.
    pub fn limit_until(
        &self,
        key: &[u8],
        until: Timestamp,
        now: Timestamp,
        mut deltas: Option<&mut DeltaBatch>,
    ) {
        if let Some(deltas) = &mut deltas {
            deltas.advance(now);
        }
        let hash = self.hash(key);
        let (mut shard, _, mut context) = self.lock_for(hash, now, deltas);
        shard.limit_until(key, hash, until, &mut context);
    }

    /// The time until which a limit on `key` is in force, if one is.
    #[must_use]
    pub fn limited_until(&self, key: &[u8], now: Timestamp) -> Option<Timestamp> {
        let hash = self.hash(key);
        let (mut shard, _, _) = self.lock_for(hash, now, None);
        shard.limited_until(key, hash)
    }

    /// The number of keys, including expired ones that were not swept yet.
    #[must_use]
    pub fn len(&self) -> usize {
        (0..SHARDS).map(|index| self.lock(index, Timestamp::MIN).len()).sum()
    }

    /// Whether the store has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Merges old panes of `key` as far as their age allows, which frees memory before the next hit. Answers do not
    /// change.
    pub fn merge_panes(&self, key: &[u8], now: Timestamp) {
        let hash = self.hash(key);
        let (mut shard, _, _) = self.lock_for(hash, now, None);
        shard.merge_key(key, hash, &self.classes);
    }

    /// Verifies the internal invariants of every key. For tests.
    ///
    /// # Panics
    /// An invariant does not hold, which is a bug of this crate.
    pub fn check_consistency(&self) {
        for index in 0..SHARDS {
            self.lock(index, Timestamp::MIN).check_consistency(&self.classes);
        }
    }

    /// The fast path of a single hit. `None`: nothing was changed, and the hit must take the general path.
    /// The function is short, so that the processor can start on the next hit while it waits for this one's
    /// memory.
    #[inline]
    fn fast_hit(&self, key: &[u8], weight: u64, now: Timestamp) -> Option<u64> {
        if self.memory.is_far_over()
            || self.others.get().is_some()
            || self.is_tracked.load(Relaxed)
            || self.busy.is_some()
        {
            return None;
        }
        let hash = self.hash(key);
        let now = self.advance(now);
        let mut shard = self.shards[shard_of(hash)].lock_shard(now);
        let bytes = shard.bytes();
        let frame = |class, now| self.frame(class, now);
        let guess = shard.guess(hash);
        let fast = guess.map(|place| shard.fast_hit(place, (key, weight), true, frame));
        let hits = match fast {
            Some(FastPath::Done(hits)) => hits,
            Some(FastPath::At(..)) => return None,
            _ => {
                let place = shard.place_of_moved(key, hash)?;
                match shard.fast_hit(place, (key, weight), true, frame) {
                    FastPath::Done(hits) => hits,
                    _ => return None,
                }
            }
        };
        if shard.bytes() != bytes {
            self.grown(bytes, shard, key);
        }
        Some(hits)
    }

    /// Charges the growth of a shard since it had `bytes_before`, and evicts if the store is above the
    /// ceiling.
    #[inline(never)]
    fn grown(&self, bytes_before: usize, shard: MutexGuard<'_, Shard>, key: &[u8]) {
        let now = shard.now();
        self.memory.change(bytes_before, shard.bytes());
        drop(shard);
        self.settle(key, now, None);
    }

    fn frame(&self, class: ClassId, now: Timestamp) -> Frame {
        Frame::new(self.classes.settings(class), now)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Locks the shard of a hash, and advances its time and the store's to `now`.
    fn lock_for<'a>(
        &'a self,
        hash: u64,
        now: Timestamp,
        deltas: Option<&'a mut DeltaBatch>,
    ) -> (LockedShard<'a>, Timestamp, Context<'a>) {
        let shard = self.lock(shard_of(hash), now);
        let now = shard.now();
        (shard, now, self.context(deltas))
    }

    fn context<'a>(&'a self, deltas: Option<&'a mut DeltaBatch>) -> Context<'a> {
        let counted = (self.memory.expired_keys(), &self.ids);
        let is_tracked = self.is_tracked.load(Relaxed);
        Context::new((&self.classes, self.busy.as_deref()), &self.generation, counted, is_tracked, deltas)
    }

    fn lock(&self, index: usize, now: Timestamp) -> LockedShard<'_> {
        self.lock_at(index, self.advance(now))
    }

    /// Locks a shard like `lock`. `now` must be the store's time or earlier.
    #[inline]
    fn lock_at(&self, index: usize, now: Timestamp) -> LockedShard<'_> {
        self.shards[index].lock(self, now)
    }

    /// Locks a shard for replay, at time `now`, which may be earlier than the shard's time. A shard gets keys
    /// of several parts of another store, and each part has its own time. After the replay the store's time
    /// is advanced to the latest of them.
    #[inline]
    fn lock_as_of(&self, index: usize, now: Timestamp) -> LockedShard<'_> {
        let mut shard = self.lock_at(index, Timestamp::MIN);
        shard.set_now(now);
        shard
    }

    /// Must be called after changes, when no shard is locked. Evicts other keys than `keep` if the store is
    /// above its ceiling.
    #[inline]
    fn settle(&self, keep: &[u8], now: Timestamp, deltas: Option<&mut DeltaBatch>) {
        if self.memory.is_full() {
            self.make_room(keep, now, deltas);
        }
        self.prefetch_tables.tidy();
    }

    /// Advances the store's time to `now` and returns it.
    fn advance(&self, now: Timestamp) -> Timestamp {
        let seen_ms = self.now_ms.load(Relaxed);
        if now.as_millis() > seen_ms {
            self.now_ms.fetch_max(now.as_millis(), Relaxed);
            return now;
        }
        Timestamp::from_millis(seen_ms).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests;
