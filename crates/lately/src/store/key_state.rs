//! The state of a key: its hits and what limits know of it. Most keys have hits only. Otherwise both are in
//! one allocation, so that one cache miss fetches them.

use std::borrow::Cow;
use std::mem;

use crate::allocation::allocated;
use crate::entry::{Entry, Fetched, LimitWindow};
use crate::error::HitError;
use crate::gcra::Arrival;
use crate::limit::Decision;
use crate::lockout::PastLockout;
use crate::machine::prefetch;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};
use crate::uniques::Uniques;

use super::cached_denial::CachedDenial;
use super::eviction_guard::{EvictionGuard, LimitGuard, PackedLimitGuard, PackedRateGuard, RateGuard};
use super::id_owner::Owner;
use super::recent_denials::RecentDenials;

/// The state of a key: 16 bytes, and heap memory.
#[derive(Debug)]
pub(super) enum KeyState {
    /// Hits only.
    Hits(Entry),
    /// A limit watches the key, and nothing was denied.
    Watched(Box<Watched>),
    /// Hits were denied, or the key is locked out.
    Limited(Box<Limited>),
    /// Like `Limited`, and the limit's last denial is still valid. The next request can be denied without
    /// reading the hits.
    DenialCached(Box<Limited>),
}

/// A key that used half of a limit, or that has an arrival time.
#[derive(Default, Debug)]
#[repr(C)]
pub(super) struct Watched {
    hits: Entry,
    watch: Watch,
}

/// What limits know of a watched key.
#[derive(Default, Debug)]
#[repr(C)]
pub(super) struct Watch {
    /// See [`Arrival::to_parts`]. The default is long ago.
    arrival: (u64, u64),
    limit_guard: PackedLimitGuard,
    rate_guard: PackedRateGuard,
}

/// A key with denied hits. The order of fields keeps what a repeated denial reads in two cache lines.
#[derive(Default, Debug)]
#[repr(C)]
pub(super) struct Limited {
    /// The denied hits, without the recent ones, which are in `last`.
    denied: Entry,
    watched: Watched,
    denial: CachedDenial,
    last: RecentDenials,
    /// Most keys with denied hits have none.
    lockout: Option<Box<KeptLockout>>,
}

/// A lockout of a key, and what the next one grows from.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct KeptLockout {
    /// The epoch if it is over.
    until: Timestamp,
    past: Option<PastLockout>,
}

/// The state of a key besides its hits, when the key is taken out of the store or put back.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(super) limited_until: Option<Timestamp>,
    pub(super) past: Option<PastLockout>,
    pub(super) arrival: Arrival,
    pub(super) guard: EvictionGuard,
    pub(super) denied: Entry,
    pub(super) last: RecentDenials,
    /// Whose the key's ids are. It is kept by place.
    pub(super) owner: Owner,
    /// The members of the key. They are kept by place.
    pub(super) uniques: Option<Box<Uniques>>,
}

impl Watch {
    pub(super) fn arrival(&self) -> Arrival {
        Arrival::from_parts(self.arrival.0, self.arrival.1)
    }

    pub(super) fn set_arrival(&mut self, arrival: Arrival) {
        self.arrival = arrival.to_parts();
    }

    #[inline]
    pub(super) fn guard(&self) -> EvictionGuard {
        EvictionGuard { limit: self.limit_guard.get(), rate: self.rate_guard.get() }
    }

    #[inline]
    pub(super) fn set_guard(&mut self, guard: EvictionGuard) {
        self.limit_guard.set(guard.limit);
        self.rate_guard.set(guard.rate);
    }

    #[inline]
    pub(super) fn limit_guard(&self) -> Option<LimitGuard> {
        self.limit_guard.get()
    }
}

/// A repeated denial.
pub(super) struct Repeated {
    pub(super) decision: Decision,
    /// The new guard of the key, if it changed.
    pub(super) guard: Option<LimitGuard>,
    /// Whether the hit was counted among the recent denials. Otherwise the caller must call
    /// [`KeyState::deny`].
    pub(super) is_counted: bool,
}

impl Limited {
    /// Prefetches what a repeated denial reads, which is at most two cache lines.
    #[inline]
    fn prefetch(&self) {
        prefetch(&raw const self.watched.watch.limit_guard);
        prefetch((&raw const self.last).wrapping_add(1).cast::<u8>().wrapping_sub(1));
    }
}

impl Default for KeyState {
    fn default() -> KeyState {
        KeyState::Hits(Entry::new())
    }
}

impl KeyState {
    /// The hits.
    #[inline]
    pub(super) fn hits(&self) -> &Entry {
        match self {
            KeyState::Hits(hits) => hits,
            KeyState::Watched(watched) => &watched.hits,
            KeyState::Limited(limited) | KeyState::DenialCached(limited) => &limited.watched.hits,
        }
    }

    /// The hits, for changes that do not affect answers: a cached denial stays valid.
    pub(super) fn hits_to_tidy(&mut self) -> &mut Entry {
        self.parts_mut().0
    }

    /// The hits, for changes: a cached denial is dropped.
    #[inline]
    pub(super) fn hits_mut(&mut self) -> &mut Entry {
        self.hits_and_watch().0
    }

    /// The hits, for changes, and the watch if there is one. A cached denial is dropped.
    #[inline(always)]
    pub(super) fn hits_and_watch(&mut self) -> (&mut Entry, Option<&mut Watch>) {
        self.forget_denial();
        self.parts_mut()
    }

    #[inline(always)]
    fn parts_mut(&mut self) -> (&mut Entry, Option<&mut Watch>) {
        match self {
            KeyState::Hits(hits) => (hits, None),
            KeyState::Watched(watched) => (&mut watched.hits, Some(&mut watched.watch)),
            KeyState::Limited(limited) | KeyState::DenialCached(limited) => {
                (&mut limited.watched.hits, Some(&mut limited.watched.watch))
            }
        }
    }

    #[inline]
    fn watch(&self) -> Option<&Watch> {
        match self {
            KeyState::Hits(_) => None,
            KeyState::Watched(watched) => Some(&watched.watch),
            KeyState::Limited(limited) | KeyState::DenialCached(limited) => Some(&limited.watched.watch),
        }
    }

    /// The watched part. Turns a key with hits only into a watched one.
    fn watched_mut(&mut self) -> &mut Watched {
        if let KeyState::Hits(hits) = self {
            *self = KeyState::Watched(Box::new(Watched { hits: mem::take(hits), ..Watched::default() }));
        }
        match self {
            KeyState::Hits(_) => unreachable!("it is watched by now"),
            KeyState::Watched(watched) => watched,
            KeyState::Limited(limited) | KeyState::DenialCached(limited) => &mut limited.watched,
        }
    }

    fn limited(&self) -> Option<&Limited> {
        match self {
            KeyState::Limited(limited) | KeyState::DenialCached(limited) => Some(limited),
            _ => None,
        }
    }

    /// The limited part. Turns the key into a limited one.
    fn limited_mut(&mut self) -> &mut Limited {
        if self.limited().is_none() {
            let watched = mem::take(self.watched_mut());
            *self = KeyState::Limited(Box::new(Limited { watched, ..Limited::default() }));
        }
        match self {
            KeyState::Limited(limited) | KeyState::DenialCached(limited) => limited,
            _ => unreachable!("it is limited by now"),
        }
    }

    /// Whether the key has heap memory.
    #[inline(always)]
    pub(super) fn has_heap(&self) -> bool {
        !matches!(self, KeyState::Hits(hits) if hits.is_inline())
    }

    /// Prefetches the heap memory.
    #[inline]
    pub(super) fn prefetch(&self) -> Fetched {
        match self {
            KeyState::Hits(hits) => hits.prefetch(0),
            KeyState::Watched(watched) => {
                prefetch(&raw const **watched);
                prefetch(&raw const watched.watch);
                Fetched::First
            }
            KeyState::Limited(limited) => {
                prefetch(&raw const **limited);
                limited.prefetch();
                Fetched::First
            }
            KeyState::DenialCached(limited) => {
                limited.prefetch();
                Fetched::All
            }
        }
    }

    /// Prefetches deeper heap memory that a decision at `now` needs: at level 1 what the first allocation
    /// points to, and so on.
    #[inline]
    pub(super) fn prefetch_behind(&self, level: usize, now: Timestamp) -> Fetched {
        match self {
            KeyState::Hits(hits) => hits.prefetch(level),
            KeyState::DenialCached(_) => Fetched::All,
            KeyState::Watched(watched) => watched.hits.prefetch(level - 1),
            KeyState::Limited(limited) => {
                if level == 1 && !limited.last.reaches(now) {
                    limited.denied.prefetch(0);
                }
                limited.watched.hits.prefetch(level - 1)
            }
        }
    }

    /// The bytes on the heap.
    #[inline]
    pub(super) fn heap_bytes(&self) -> usize {
        const WATCHED_BYTES: usize = allocated(size_of::<Watched>());
        const LIMITED_BYTES: usize = allocated(size_of::<Limited>());
        const LOCKOUT_BYTES: usize = allocated(size_of::<KeptLockout>());
        match self {
            KeyState::Hits(hits) => hits.heap_bytes(),
            KeyState::Watched(watched) => WATCHED_BYTES + watched.hits.heap_bytes(),
            KeyState::Limited(limited) | KeyState::DenialCached(limited) => {
                let lockout = if limited.lockout.is_some() { LOCKOUT_BYTES } else { 0 };
                LIMITED_BYTES + lockout + limited.watched.hits.heap_bytes() + limited.denied.heap_bytes()
            }
        }
    }

    /// The arrival time: when all that the key was granted is used up. The default is long ago.
    #[inline]
    pub(super) fn arrival(&self) -> Arrival {
        self.watch().map_or_else(Arrival::default, Watch::arrival)
    }

    pub(super) fn set_arrival(&mut self, arrival: Arrival) {
        if arrival != self.arrival() {
            self.watched_mut().watch.set_arrival(arrival);
        }
    }

    /// Whether the key is watched.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        !matches!(self, KeyState::Hits(_))
    }

    /// The arrival time of a key that is watched for no other reason.
    pub(super) fn lone_arrival(&self) -> Option<Arrival> {
        let KeyState::Watched(watched) = self else { return None };
        let Watched { watch, .. } = &**watched;
        watch.guard().is_none().then(|| watch.arrival())
    }

    /// Drops everything but the hits, unless hits were denied.
    pub(super) fn unwatch(&mut self) {
        if let KeyState::Watched(watched) = self {
            *self = KeyState::Hits(mem::take(&mut watched.hits));
        }
    }

    /// The eviction guard. It may have ended.
    #[inline]
    pub(super) fn guard(&self) -> EvictionGuard {
        self.watch().map(Watch::guard).unwrap_or_default()
    }

    /// Adds a guard to the present one.
    pub(super) fn put_guard(&mut self, guard: EvictionGuard, now: Timestamp) {
        let guard = guard.in_force(now);
        if !guard.is_none() {
            let known = self.guard().in_force(now);
            self.watched_mut().watch.set_guard(known.with(guard));
        }
    }

    /// The end of the lockout, if one was ever set.
    #[inline]
    pub(super) fn limited_until(&self) -> Option<Timestamp> {
        self.lockout().map(|lockout| lockout.until).filter(|&until| until > Timestamp::MIN)
    }

    #[inline]
    fn lockout(&self) -> Option<&KeptLockout> {
        self.limited()?.lockout.as_deref()
    }

    /// What the next lockout grows from, if one was ever set.
    pub(super) fn past_lockout(&self) -> Option<PastLockout> {
        self.lockout()?.past
    }

    /// Locks the key out until `until`, or until the end of a longer lockout. The next one grows from `past`, or from
    /// what is kept for longer.
    pub(super) fn lock_out(&mut self, until: Timestamp, past: Option<PastLockout>) {
        let kept = self.limited_mut().lockout.get_or_insert_default();
        kept.until = kept.until.max(until);
        kept.past =
            [past, kept.past].into_iter().flatten().max_by_key(|past| (past.forgotten_at, past.length));
        self.forget_denial();
    }

    /// The cached denial, if it is valid.
    #[inline]
    pub(super) fn denial(&self) -> Option<CachedDenial> {
        match self {
            KeyState::DenialCached(limited) => Some(limited.denial),
            _ => None,
        }
    }

    /// Whether hits were denied. If so, caching a denial takes no memory.
    pub(super) fn is_limited(&self) -> bool {
        self.limited().is_some()
    }

    /// Caches the denial of the current hits.
    pub(super) fn set_denial(&mut self, denial: CachedDenial) {
        self.limited_mut().denial = denial;
        if let KeyState::Limited(_) = self
            && let KeyState::Limited(limited) = mem::take(self)
        {
            *self = KeyState::DenialCached(limited);
        }
    }

    #[inline(always)]
    fn forget_denial(&mut self) {
        if let KeyState::DenialCached(_) = self {
            self.forget_it();
        }
    }

    #[inline(never)]
    fn forget_it(&mut self) {
        if let KeyState::DenialCached(limited) = mem::take(self) {
            *self = KeyState::Limited(limited);
        }
    }

    /// The denied hits, if there are any.
    pub(super) fn denied(&self, settings: &Settings, now: Timestamp) -> Option<Cow<'_, Entry>> {
        let Limited { denied, last, .. } = self.limited()?;
        let mut denied = Cow::Borrowed(denied);
        if !last.is_empty() {
            last.add_to(denied.to_mut(), settings, now);
        }
        (!denied.is_empty()).then_some(denied)
    }

    /// The time of the newest denied hits. `None` if there are none.
    pub(super) fn denied_last(&self) -> Option<Timestamp> {
        let Limited { denied, last, .. } = self.limited()?;
        let newest = if denied.is_empty() { None } else { Some(denied.newest()) };
        newest.max(last.newest())
    }

    /// All denied hits, for changes.
    pub(super) fn denied_mut(&mut self, settings: &Settings, now: Timestamp) -> &mut Entry {
        let Limited { denied, last, .. } = self.limited_mut();
        mem::take(last).add_to(denied, settings, now);
        denied
    }

    /// Counts denied hits. Only the start of their pane is kept, which is all that answers need.
    #[inline]
    pub(super) fn deny(
        &mut self,
        at: Timestamp,
        hits: u64,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<(), HitError> {
        if self.deny_in_place(at, hits) {
            return Ok(());
        }
        let start = settings.pane_start(at);
        let denied = self.denied_mut(settings, now);
        match RecentDenials::new(start, hits, settings) {
            Some(last) => self.limited_mut().last = last,
            None => denied.add(start, hits, settings, now)?,
        }
        Ok(())
    }

    /// Replays denied hits. If the total would exceed the bound, the oldest are dropped.
    pub(super) fn deny_again(&mut self, at: Timestamp, hits: u64, settings: &Settings, now: Timestamp) {
        if self.deny(at, hits, settings, now).is_err() {
            self.denied_mut(settings, now).add_again(settings.pane_start(at), hits, settings, now);
        }
    }

    /// Counts denied hits, if their pane is among the recent denials. Otherwise returns false and changes
    /// nothing.
    #[inline]
    pub(super) fn deny_in_place(&mut self, at: Timestamp, hits: u64) -> bool {
        match self {
            KeyState::Limited(limited) | KeyState::DenialCached(limited) => limited.last.add(at, hits),
            _ => false,
        }
    }

    /// Denies a hit of now by the cached denial, if that is of the same limit and still valid. Otherwise
    /// returns `None` and changes nothing.
    #[inline]
    pub(super) fn deny_as_before(
        &mut self,
        hits: u64,
        (max, window): (u64, Span),
        now: Timestamp,
    ) -> Option<Repeated> {
        let KeyState::DenialCached(limited) = self else { return None };
        let decision = limited.denial.repeat(max, window, now).filter(|_| hits == 1)?;
        let watch = &mut limited.watched.watch;
        let guard = LimitGuard::next(watch.limit_guard(), (0, max), window);
        if guard.is_some() {
            watch.limit_guard.set(guard);
        }
        Some(Repeated { decision, guard, is_counted: limited.last.add(now, 1) })
    }

    /// Whether a lockout or denied hits keep the key when its hits have expired. `oldest_ms` is the edge of
    /// the retention.
    pub(super) fn outlives_hits(&self, now: Timestamp, oldest_ms: i64) -> bool {
        self.limited_until().is_some_and(|until| until > now)
            || self.past_lockout().is_some_and(|past| past.forgotten_at > now)
            || self.denied_last().is_some_and(|last| last.as_millis() >= oldest_ms)
    }

    /// Whether there are hits, counted or denied, that did not fit the class before and do now.
    #[inline]
    pub(super) fn is_to_fit_again(&self, now: Timestamp) -> bool {
        self.hits().is_to_fit_again(now)
            || self.limited().is_some_and(|limited| limited.denied.is_to_fit_again(now))
    }

    /// Fits these hits to the class.
    pub(super) fn fit_again(&mut self, settings: &Settings, now: Timestamp) {
        self.hits_to_tidy().fit_again(settings, now);
        if let KeyState::Limited(limited) | KeyState::DenialCached(limited) = self {
            limited.denied.fit_again(settings, now);
        }
    }

    /// Drops the limit state that has expired, and tidies the rest.
    pub(super) fn tidy(&mut self, settings: &Settings, now: Timestamp) {
        if self.watch().is_none() {
            return;
        }
        if !self.arrival().is_after(now) {
            self.set_arrival(Arrival::default());
        }
        let mut guard = self.guard().in_force(now);
        guard.limit = guard
            .limit
            .filter(|limit| self.hits().used(LimitWindow::ending_at(now, limit.window(), now), settings) > 0);
        guard.rate = guard.rate.filter(|rate| match rate {
            RateGuard::Burst { .. } => self.arrival().is_after(now),
            RateGuard::Until { .. } => true,
        });
        self.watched_mut().watch.set_guard(guard);
        if self.denial().is_some_and(|denial| denial.until <= now) {
            self.forget_denial();
        }
        // A key that was used lately will be used again: it keeps its form.
        let long_ago_ms = now.as_millis() - settings.window().as_millis();
        if let KeyState::Limited(limited) | KeyState::DenialCached(limited) = self {
            if limited.last.newest().is_some_and(|newest| newest.as_millis() <= long_ago_ms) {
                mem::take(&mut limited.last).add_to(&mut limited.denied, settings, now);
            }
            if let Some(lockout) = &mut limited.lockout {
                if lockout.until <= now {
                    lockout.until = Timestamp::MIN;
                }
                lockout.past = lockout.past.filter(|past| past.forgotten_at > now);
                if **lockout == KeptLockout::default() {
                    limited.lockout = None;
                }
            }
            if limited.denied.expired(settings.horizon_ms(now)) {
                limited.denied = Entry::new();
            } else {
                limited.denied.merge(settings, now);
            }
            let Limited { lockout, denied, last, .. } = &**limited;
            if lockout.is_none() && denied.is_empty() && last.is_empty() {
                *self = KeyState::Watched(Box::new(mem::take(&mut limited.watched)));
            }
        }
        if let KeyState::Watched(watched) = self
            && watched.watch.guard().is_none()
            && watched.watch.arrival == (0, 0)
            && watched.hits.newest_ms() <= long_ago_ms
        {
            self.unwatch();
        }
    }

    /// The hits, and the rest of the state.
    pub(super) fn into_parts(self) -> (Entry, Extras) {
        let (arrival, limited_until, guard) = (self.arrival(), self.limited_until(), self.guard());
        let past = self.past_lockout();
        match self {
            KeyState::Hits(hits) => (hits, Extras::default()),
            KeyState::Watched(watched) => (watched.hits, Extras { arrival, guard, ..Extras::default() }),
            KeyState::Limited(limited) | KeyState::DenialCached(limited) => {
                let Limited { watched, denied, last, .. } = *limited;
                let (owner, uniques) = (Owner::NONE, None);
                (watched.hits, Extras { limited_until, past, arrival, guard, denied, last, owner, uniques })
            }
        }
    }

    /// Merges `extras` into the state of the key.
    pub(super) fn give(&mut self, extras: Extras, settings: &Settings, now: Timestamp) {
        let Extras { limited_until, past, arrival, guard, denied, last, owner: _, uniques: _ } = extras;
        self.set_arrival(arrival.max(self.arrival()));
        self.put_guard(guard, now);
        if limited_until.is_some() || past.is_some() {
            self.lock_out(limited_until.unwrap_or(Timestamp::MIN), past);
        }
        if !denied.is_empty() || !last.is_empty() {
            let held = self.denied_mut(settings, now);
            held.absorb(denied, settings, now);
            last.add_to(held, settings, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_TOTAL;
    use crate::time::seconds;

    /// The most hits of a pane in the recent denials.
    const MOST_LAST: u64 = u16::MAX as u64;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    #[test]
    fn a_key_state_is_as_small_as_an_entry() {
        assert_eq!((size_of::<KeyState>(), size_of::<Entry>()), (16, 16));
    }

    #[test]
    fn ended_limit_state_is_dropped() {
        let settings = Settings::default();
        let mut state = KeyState::default();
        state.hits_mut().add(at(1), 1, &settings, at(1)).expect("counted");
        state.lock_out(at(10), None);
        state.lock_out(Timestamp::MIN, None);
        let rate = Some(RateGuard::Until { until: at(20), is_full: true });
        state.put_guard(EvictionGuard { limit: None, rate }, at(1));
        state.set_arrival(Arrival::from_parts(15, 1));
        assert_eq!(state.limited_until(), Some(at(10)));
        state.tidy(&settings, at(15));
        assert!(matches!(state, KeyState::Watched(_)) && !state.guard().is_none());
        assert_eq!(state.arrival(), Arrival::from_parts(15, 1));
        let window_ms = settings.window().as_millis();
        state.tidy(&settings, at(window_ms));
        assert!(matches!(state, KeyState::Watched(_)) && state.guard().is_none());
        assert_eq!(state.arrival(), Arrival::default());
        state.tidy(&settings, at(window_ms + 1));
        assert!(matches!(state, KeyState::Hits(_)));
        assert_eq!((state.hits().total(), state.heap_bytes()), (1, 0));
    }

    #[test]
    fn a_cached_denial_holds_until_hits_change() {
        let denial = CachedDenial::new(1, seconds(1), at(9), at(9)).expect("small");
        let mut state = KeyState::default();
        state.set_denial(denial);
        assert_eq!((state.hits().is_empty(), state.denial()), (true, Some(denial)));
        state.hits_mut();
        assert_eq!(state.denial(), None);
        let settings = Settings::default();
        state.deny(at(5), 1, &settings, at(5)).expect("counted");
        state.set_denial(denial);
        state.tidy(&settings, at(8));
        assert_eq!(state.denial(), Some(denial));
        assert!(state.deny_in_place(at(0), 1), "a late denial is counted in place");
        state.tidy(&settings, at(9));
        assert_eq!(state.denial(), None);
        state.tidy(&settings, at(settings.window().as_millis()));
        assert!(!state.deny_in_place(at(0), 1));
        assert_eq!(state.denied(&settings, at(9)).map(|denied| denied.total()), Some(2));
    }

    #[test]
    fn recent_denials_are_counted_with_older_ones() {
        let settings = Settings::default();
        let mut state = KeyState::default();
        let counted =
            |state: &KeyState, ms| state.denied(&settings, at(ms)).map_or(0, |denied| denied.total());
        for (denied, total) in [(MOST_LAST, 1), (MOST_LAST, 2), (MOST_LAST, 3)] {
            state.deny(at(1_500), denied, &settings, at(1_500)).expect("counted");
            assert_eq!(counted(&state, 1_500), total * MOST_LAST);
        }
        state.deny(at(1_999), MOST_LAST + 1, &settings, at(1_999)).expect("counted");
        state.deny(at(2_000), 1, &settings, at(2_000)).expect("counted");
        let all = 4 * MOST_LAST + 2;
        assert_eq!((counted(&state, 2_000), state.denied_last()), (all, Some(at(2_000))));
        state.tidy(&settings, at(2_001));
        assert_eq!((counted(&state, 2_001), state.denied_last()), (all, Some(at(2_000))));
        // The bound of counts holds for denied hits, too.
        state.deny(at(2_000), 1, &settings, at(2_001)).expect("counted");
        assert!(state.deny(at(2_000), MAX_TOTAL, &settings, at(2_000)).is_err());
        let mut single = KeyState::default();
        single.deny(at(2_000), 1, &settings, at(2_000)).expect("counted");
        single.tidy(&settings, at(2_001));
        assert_eq!(counted(&single, 2_001), 1);
        assert!(single.outlives_hits(at(2_001), 2_000) && !single.outlives_hits(at(2_001), 2_001));
    }

    #[test]
    fn limit_state_moves_with_its_key() {
        let (settings, now) = (Settings::default(), at(7));
        let mut before = KeyState::default();
        before.set_arrival(Arrival::from_parts(9, 1));
        before.lock_out(at(8), None);
        (0..3).for_each(|_| before.deny(now, 1, &settings, now).expect("counted"));
        let (hits, extras) = before.into_parts();
        let mut after = KeyState::Hits(hits);
        after.give(extras, &settings, now);
        assert_eq!((after.limited_until(), after.arrival()), (Some(at(8)), Arrival::from_parts(9, 1)));
        assert_eq!(after.denied(&settings, now).map(|denied| denied.total()), Some(3));
    }
}
