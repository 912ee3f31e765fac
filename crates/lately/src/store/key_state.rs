//! What is kept of a key: its hits, and what limits know of it beside them. Of most keys they know nothing: then it is
//! the hits alone. Else both are on the heap together, so that who decides fetches them at once.

use std::borrow::Cow;
use std::mem;

use crate::allocation::allocated;
use crate::entry::{Entry, Fetched};
use crate::error::HitError;
use crate::gcra::Arrival;
use crate::limit::Decision;
use crate::machine::prefetch;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

use super::cached_denial::CachedDenial;
use super::eviction_guard::{EvictionGuard, PackedGuard};
use super::recent_denials::RecentDenials;

/// What is kept of a key, in 16 bytes and what is on the heap.
#[derive(Debug)]
pub(super) enum KeyState {
    /// Nothing but its hits.
    Hits(Entry),
    /// It is watched, and was not denied anything.
    Watched(Box<Watched>),
    /// It was denied something, or all.
    Limited(Box<Limited>),
    /// And a limit would say so again, and nothing else does: the hits are not needed for that.
    DenialCached(Box<Limited>),
}

/// A key that used half of a limit, or has an arrival time.
#[derive(Default, Debug)]
#[repr(C)]
pub(super) struct Watched {
    hits: Entry,
    watch: Watch,
}

/// What is known of a key that is watched.
#[derive(Default, Debug)]
#[repr(C)]
pub(super) struct Watch {
    /// As [`Arrival::to_parts`] has it: long ago, unless it was set.
    arrival: (u64, u64),
    guard: PackedGuard,
}

/// A key that was denied something. In this order what is looked at to deny something again lies together.
#[derive(Default, Debug)]
#[repr(C)]
pub(super) struct Limited {
    /// What it was denied, by panes; what it was denied last is not among them.
    denied: Entry,
    watched: Watched,
    denial: CachedDenial,
    last: RecentDenials,
    /// The epoch when it is not.
    limited_until: Timestamp,
}

/// What a key takes with it beside its hits when it goes, and gets back when it comes back.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(super) limited_until: Option<Timestamp>,
    pub(super) arrival: Arrival,
    pub(super) guard: Option<EvictionGuard>,
    pub(super) denied: Entry,
    pub(super) last: RecentDenials,
}

impl Watch {
    pub(super) fn arrival(&self) -> Arrival {
        Arrival::from_parts(self.arrival.0, self.arrival.1)
    }

    pub(super) fn set_arrival(&mut self, arrival: Arrival) {
        self.arrival = arrival.to_parts();
    }

    pub(super) fn guard(&self) -> Option<EvictionGuard> {
        self.guard.get()
    }

    pub(super) fn set_guard(&mut self, guard: Option<EvictionGuard>) {
        self.guard.set(guard);
    }
}

/// A denial that was repeated.
pub(super) struct Repeated {
    pub(super) decision: Decision,
    /// The guard that the key got, if it changed.
    pub(super) guard: Option<EvictionGuard>,
    /// Whether the hit is counted among those that were denied last; else [`KeyState::deny`] is to count it.
    pub(super) is_counted: bool,
}

impl Limited {
    /// Has fetched what is looked at to deny something again: it is never in more than two lines.
    #[inline]
    fn prefetch(&self) {
        prefetch(&raw const self.watched.watch.guard);
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

    /// The hits, to be tidied: what a limit said of them still holds.
    pub(super) fn hits_to_tidy(&mut self) -> &mut Entry {
        self.parts_mut().0
    }

    /// The hits, to be changed: what a limit said of them is forgotten.
    #[inline]
    pub(super) fn hits_mut(&mut self) -> &mut Entry {
        self.hits_and_watch().0
    }

    /// As `hits_mut`, and what else is known of a key that is watched.
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

    /// What is known of a key that is watched, and its hits; it is from here on.
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

    /// As `limited`, and it is from here on.
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

    /// Whether something is on the heap.
    #[inline(always)]
    pub(super) fn has_heap(&self) -> bool {
        !matches!(self, KeyState::Hits(hits) if hits.is_inline())
    }

    /// Has what is on the heap fetched.
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

    /// Has what is behind that fetched, as far as who decides at a time needs it: at level 1 what is behind the first, and so
    /// on.
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

    /// Bytes on the heap.
    #[inline]
    pub(super) fn heap_bytes(&self) -> usize {
        const WATCHED_BYTES: usize = allocated(size_of::<Watched>());
        const LIMITED_BYTES: usize = allocated(size_of::<Limited>());
        match self {
            KeyState::Hits(hits) => hits.heap_bytes(),
            KeyState::Watched(watched) => WATCHED_BYTES + watched.hits.heap_bytes(),
            KeyState::Limited(limited) | KeyState::DenialCached(limited) => {
                LIMITED_BYTES + limited.watched.hits.heap_bytes() + limited.denied.heap_bytes()
            }
        }
    }

    /// When all that the key was given is used up; long ago, unless it was set.
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

    /// The arrival time, if one was set, of a key that is watched for nothing else.
    pub(super) fn lone_arrival(&self) -> Option<Arrival> {
        let KeyState::Watched(watched) = self else { return None };
        let Watched { watch, .. } = &**watched;
        watch.guard().is_none().then(|| watch.arrival())
    }

    /// Keeps no more than the hits of a key that was not denied anything.
    pub(super) fn unwatch(&mut self) {
        if let KeyState::Watched(watched) = self {
            *self = KeyState::Hits(mem::take(&mut watched.hits));
        }
    }

    /// What keeps the key from being evicted, if anything ever did.
    #[inline]
    pub(super) fn guard(&self) -> Option<EvictionGuard> {
        self.watch()?.guard()
    }

    pub(super) fn set_guard(&mut self, guard: EvictionGuard) {
        self.watched_mut().watch.set_guard(Some(guard));
    }

    /// Guards the key, as well as it is guarded already.
    pub(super) fn add_guard(&mut self, guard: EvictionGuard) {
        let known = self.guard().unwrap_or(guard);
        let (until, is_full) = (guard.until.max(known.until), guard.is_full || known.is_full);
        self.set_guard(EvictionGuard { until, is_full });
    }

    /// Until when the key is limited, if it ever was.
    #[inline]
    pub(super) fn limited_until(&self) -> Option<Timestamp> {
        self.limited().map(|limited| limited.limited_until).filter(|&until| until > Timestamp::MIN)
    }

    /// Limits the key until `until`, or as long as was asked for before.
    pub(super) fn limit_until(&mut self, until: Timestamp) {
        let limited = self.limited_mut();
        limited.limited_until = limited.limited_until.max(until);
        self.forget_denial();
    }

    /// What a limit said last, if it would say that again.
    #[inline]
    pub(super) fn denial(&self) -> Option<CachedDenial> {
        match self {
            KeyState::DenialCached(limited) => Some(limited.denial),
            _ => None,
        }
    }

    /// Whether the key was denied something: then what a limit says takes no memory.
    pub(super) fn is_limited(&self) -> bool {
        self.limited().is_some()
    }

    /// Takes note of what a limit says of the hits that are there.
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

    /// The hits that were denied to the key, if there are any.
    pub(super) fn denied(&self, settings: &Settings, now: Timestamp) -> Option<Cow<'_, Entry>> {
        let Limited { denied, last, .. } = self.limited()?;
        let mut denied = Cow::Borrowed(denied);
        if !last.is_empty() {
            last.add_to(denied.to_mut(), settings, now);
        }
        (!denied.is_empty()).then_some(denied)
    }

    /// When hits were denied last; `None` when none were.
    pub(super) fn denied_last(&self) -> Option<Timestamp> {
        let Limited { denied, last, .. } = self.limited()?;
        let newest = if denied.is_empty() { None } else { Some(denied.newest()) };
        newest.max(last.newest())
    }

    /// The hits that were denied to the key, all of them, to be changed.
    pub(super) fn denied_mut(&mut self, settings: &Settings, now: Timestamp) -> &mut Entry {
        let Limited { denied, last, .. } = self.limited_mut();
        mem::take(last).add_to(denied, settings, now);
        denied
    }

    /// Counts hits that were denied: only their pane is kept, of which all answers are made.
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

    /// Counts hits that were denied before. Where there would be more than can be counted now, the oldest go.
    pub(super) fn deny_again(&mut self, at: Timestamp, hits: u64, settings: &Settings, now: Timestamp) {
        if self.deny(at, hits, settings, now).is_err() {
            self.denied_mut(settings, now).add_again(settings.pane_start(at), hits, settings, now);
        }
    }

    /// Counts hits that were denied, if their pane is among those in which others were denied last; false, and
    /// nothing changes, when it is not.
    #[inline]
    pub(super) fn deny_in_place(&mut self, at: Timestamp, hits: u64) -> bool {
        match self {
            KeyState::Limited(limited) | KeyState::DenialCached(limited) => limited.last.add(at, hits),
            _ => false,
        }
    }

    /// Denies a hit now by the cached denial, if that is of the same limit and holds; else `None`, and nothing changes.
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
        let guard = EvictionGuard::next(watch.guard(), (0, max), window, now);
        if guard.is_some() {
            watch.set_guard(guard);
        }
        Some(Repeated { decision, guard, is_counted: limited.last.add(now, 1) })
    }

    /// Whether limits other than rates keep the key when its hits are gone: `now` is the time, `oldest_ms` the edge of
    /// the retention.
    pub(super) fn outlives_hits(&self, now: Timestamp, oldest_ms: i64) -> bool {
        self.limited_until().is_some_and(|until| until > now)
            || self.denied_last().is_some_and(|last| last.as_millis() >= oldest_ms)
    }

    /// Whether there are hits, counted or denied, that did not fit the class and do now.
    #[inline]
    pub(super) fn is_to_fit_again(&self, now: Timestamp) -> bool {
        self.hits().is_to_fit_again(now)
            || self.limited().is_some_and(|limited| limited.denied.is_to_fit_again(now))
    }

    /// Fits them again.
    pub(super) fn fit_again(&mut self, settings: &Settings, now: Timestamp) {
        self.hits_to_tidy().fit_again(settings, now);
        if let KeyState::Limited(limited) | KeyState::DenialCached(limited) = self {
            limited.denied.fit_again(settings, now);
        }
    }

    /// Drops what is over of what limits know, and tidies the rest.
    pub(super) fn tidy(&mut self, settings: &Settings, now: Timestamp) {
        if self.watch().is_none() {
            return;
        }
        if !self.arrival().is_after(now) {
            self.set_arrival(Arrival::default());
        }
        let watch = &mut self.watched_mut().watch;
        watch.set_guard(watch.guard().filter(|guard| guard.until > now));
        if self.denial().is_some_and(|denial| denial.until <= now) {
            self.forget_denial();
        }
        // Who came lately comes again: it is counted on where it was.
        let long_ago_ms = now.as_millis() - settings.window().as_millis();
        if let KeyState::Limited(limited) | KeyState::DenialCached(limited) = self {
            if limited.last.newest().is_some_and(|newest| newest.as_millis() <= long_ago_ms) {
                mem::take(&mut limited.last).add_to(&mut limited.denied, settings, now);
            }
            if limited.limited_until <= now {
                limited.limited_until = Timestamp::MIN;
            }
            if limited.denied.expired(settings.horizon_ms(now)) {
                limited.denied = Entry::new();
            } else {
                limited.denied.merge(settings, now);
            }
            let Limited { limited_until, denied, last, .. } = &**limited;
            if *limited_until == Timestamp::MIN && denied.is_empty() && last.is_empty() {
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

    /// The hits, and what the key takes with it beside them.
    pub(super) fn into_parts(self) -> (Entry, Extras) {
        let (arrival, limited_until, guard) = (self.arrival(), self.limited_until(), self.guard());
        match self {
            KeyState::Hits(hits) => (hits, Extras::default()),
            KeyState::Watched(watched) => (watched.hits, Extras { arrival, guard, ..Extras::default() }),
            KeyState::Limited(limited) | KeyState::DenialCached(limited) => {
                let Limited { watched, denied, last, .. } = *limited;
                (watched.hits, Extras { limited_until, arrival, guard, denied, last })
            }
        }
    }

    /// Gives the key what one had that went, beside what it has.
    pub(super) fn give(&mut self, extras: Extras, settings: &Settings, now: Timestamp) {
        let Extras { limited_until, arrival, guard, denied, last } = extras;
        self.set_arrival(arrival.max(self.arrival()));
        if let Some(guard) = guard {
            self.add_guard(guard);
        }
        if let Some(until) = limited_until {
            self.limit_until(until);
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

    /// The most hits of a pane among the last.
    const MOST_LAST: u64 = u16::MAX as u64;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    #[test]
    fn a_record_takes_no_more_than_its_hits() {
        assert_eq!((size_of::<KeyState>(), size_of::<Entry>()), (16, 16));
    }

    #[test]
    fn what_is_over_is_dropped() {
        let settings = Settings::default();
        let mut state = KeyState::default();
        state.hits_mut().add(at(1), 1, &settings, at(1)).expect("counted");
        state.limit_until(at(10));
        state.limit_until(Timestamp::MIN);
        state.set_guard(EvictionGuard { until: at(20), is_full: true });
        state.set_arrival(Arrival::from_parts(15, 1));
        assert_eq!(state.limited_until(), Some(at(10)));
        state.tidy(&settings, at(15));
        assert!(matches!(state, KeyState::Watched(_)) && state.guard().is_some());
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
    fn what_was_said_holds_until_hits_change() {
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
        assert!(state.deny_in_place(at(0), 1), "who comes lately is counted where it was");
        state.tidy(&settings, at(9));
        assert_eq!(state.denial(), None);
        state.tidy(&settings, at(settings.window().as_millis()));
        assert!(!state.deny_in_place(at(0), 1));
        assert_eq!(state.denied(&settings, at(9)).map(|denied| denied.total()), Some(2));
    }

    #[test]
    fn what_was_denied_last_is_counted_with_the_rest() {
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
        // As for hits that were allowed, no more are counted than can be.
        state.deny(at(2_000), 1, &settings, at(2_001)).expect("counted");
        assert!(state.deny(at(2_000), MAX_TOTAL, &settings, at(2_000)).is_err());
        let mut single = KeyState::default();
        single.deny(at(2_000), 1, &settings, at(2_000)).expect("counted");
        single.tidy(&settings, at(2_001));
        assert_eq!(counted(&single, 2_001), 1);
        assert!(single.outlives_hits(at(2_001), 2_000) && !single.outlives_hits(at(2_001), 2_001));
    }

    #[test]
    fn what_a_key_has_goes_with_it() {
        let (settings, now) = (Settings::default(), at(7));
        let mut before = KeyState::default();
        before.set_arrival(Arrival::from_parts(9, 1));
        before.limit_until(at(8));
        (0..3).for_each(|_| before.deny(now, 1, &settings, now).expect("counted"));
        let (hits, extras) = before.into_parts();
        let mut after = KeyState::Hits(hits);
        after.give(extras, &settings, now);
        assert_eq!((after.limited_until(), after.arrival()), (Some(at(8)), Arrival::from_parts(9, 1)));
        assert_eq!(after.denied(&settings, now).map(|denied| denied.total()), Some(3));
    }
}
