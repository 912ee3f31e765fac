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

use super::denial::Denial;
use super::guard::{Guard, PackedGuard};
use super::recent::Recent;

/// What is kept of a key, in 16 bytes and what is on the heap.
#[derive(Debug)]
pub(super) enum Record {
    /// Nothing but its hits.
    Hits(Entry),
    /// It is watched, and was not denied anything.
    Watched(Box<Watched>),
    /// It was denied something, or all.
    Limited(Box<Limited>),
    /// And a limit would say so again, and nothing else does: the hits are not needed for that.
    Denying(Box<Limited>),
}

/// A key that used half of a limit, or has an arrival time.
#[derive(Default, Debug)]
#[repr(C)]
pub(super) struct Watched {
    hits: Entry,
    beside: Beside,
}

/// What is known of a key that is watched.
#[derive(Default, Debug)]
#[repr(C)]
pub(super) struct Beside {
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
    denial: Denial,
    last: Recent,
    /// The epoch when it is not.
    limited_until: Timestamp,
}

/// What a key takes with it beside its hits when it goes, and gets back when it comes back.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(super) limited_until: Option<Timestamp>,
    pub(super) arrival: Arrival,
    pub(super) guard: Option<Guard>,
    pub(super) denied: Entry,
    pub(super) last: Recent,
}

impl Beside {
    pub(super) fn arrival(&self) -> Arrival {
        Arrival::from_parts(self.arrival.0, self.arrival.1)
    }

    pub(super) fn set_arrival(&mut self, arrival: Arrival) {
        self.arrival = arrival.to_parts();
    }

    pub(super) fn guard(&self) -> Option<Guard> {
        self.guard.get()
    }

    pub(super) fn set_guard(&mut self, guard: Option<Guard>) {
        self.guard.set(guard);
    }
}

impl Limited {
    /// Has fetched what is looked at to deny something again: it is never in more than two lines.
    #[inline]
    fn prefetch(&self) {
        prefetch(&raw const self.watched.beside.guard);
        prefetch((&raw const self.last).wrapping_add(1).cast::<u8>().wrapping_sub(1));
    }
}

impl Default for Record {
    fn default() -> Record {
        Record::Hits(Entry::new())
    }
}

impl Record {
    /// The hits.
    #[inline]
    pub(super) fn hits(&self) -> &Entry {
        match self {
            Record::Hits(hits) => hits,
            Record::Watched(watched) => &watched.hits,
            Record::Limited(limited) | Record::Denying(limited) => &limited.watched.hits,
        }
    }

    /// The hits, to be tidied: what a limit said of them still holds.
    pub(super) fn hits_to_tidy(&mut self) -> &mut Entry {
        self.parts_mut().0
    }

    /// The hits, to be changed: what a limit said of them is forgotten.
    #[inline]
    pub(super) fn hits_mut(&mut self) -> &mut Entry {
        self.hits_and_beside().0
    }

    /// As `hits_mut`, and what else is known of a key that is watched.
    #[inline(always)]
    pub(super) fn hits_and_beside(&mut self) -> (&mut Entry, Option<&mut Beside>) {
        self.forget_denial();
        self.parts_mut()
    }

    #[inline(always)]
    fn parts_mut(&mut self) -> (&mut Entry, Option<&mut Beside>) {
        match self {
            Record::Hits(hits) => (hits, None),
            Record::Watched(watched) => (&mut watched.hits, Some(&mut watched.beside)),
            Record::Limited(limited) | Record::Denying(limited) => {
                (&mut limited.watched.hits, Some(&mut limited.watched.beside))
            }
        }
    }

    #[inline]
    fn beside(&self) -> Option<&Beside> {
        match self {
            Record::Hits(_) => None,
            Record::Watched(watched) => Some(&watched.beside),
            Record::Limited(limited) | Record::Denying(limited) => Some(&limited.watched.beside),
        }
    }

    /// What is known of a key that is watched, and its hits; it is from here on.
    fn watched_mut(&mut self) -> &mut Watched {
        if let Record::Hits(hits) = self {
            *self = Record::Watched(Box::new(Watched { hits: mem::take(hits), ..Watched::default() }));
        }
        match self {
            Record::Hits(_) => unreachable!("it is watched by now"),
            Record::Watched(watched) => watched,
            Record::Limited(limited) | Record::Denying(limited) => &mut limited.watched,
        }
    }

    fn limited(&self) -> Option<&Limited> {
        match self {
            Record::Limited(limited) | Record::Denying(limited) => Some(limited),
            _ => None,
        }
    }

    /// As `limited`, and it is from here on.
    fn limited_mut(&mut self) -> &mut Limited {
        if self.limited().is_none() {
            let watched = mem::take(self.watched_mut());
            *self = Record::Limited(Box::new(Limited { watched, ..Limited::default() }));
        }
        match self {
            Record::Limited(limited) | Record::Denying(limited) => limited,
            _ => unreachable!("it is limited by now"),
        }
    }

    /// Whether something is on the heap.
    #[inline(always)]
    pub(super) fn has_heap(&self) -> bool {
        !matches!(self, Record::Hits(hits) if hits.is_inline())
    }

    /// Has what is on the heap fetched.
    #[inline]
    pub(super) fn prefetch(&self) -> Fetched {
        match self {
            Record::Hits(hits) => hits.prefetch(0),
            Record::Watched(watched) => {
                prefetch(&raw const **watched);
                prefetch(&raw const watched.beside);
                Fetched::First
            }
            Record::Limited(limited) => {
                prefetch(&raw const **limited);
                limited.prefetch();
                Fetched::First
            }
            Record::Denying(limited) => {
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
            Record::Hits(hits) => hits.prefetch(level),
            Record::Denying(_) => Fetched::All,
            Record::Watched(watched) => watched.hits.prefetch(level - 1),
            Record::Limited(limited) => {
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
            Record::Hits(hits) => hits.heap_bytes(),
            Record::Watched(watched) => WATCHED_BYTES + watched.hits.heap_bytes(),
            Record::Limited(limited) | Record::Denying(limited) => {
                LIMITED_BYTES + limited.watched.hits.heap_bytes() + limited.denied.heap_bytes()
            }
        }
    }

    /// When all that the key was given is used up; long ago, unless it was set.
    #[inline]
    pub(super) fn arrival(&self) -> Arrival {
        self.beside().map_or_else(Arrival::default, Beside::arrival)
    }

    pub(super) fn set_arrival(&mut self, arrival: Arrival) {
        if arrival != self.arrival() {
            self.watched_mut().beside.set_arrival(arrival);
        }
    }

    /// Whether the key is watched.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        !matches!(self, Record::Hits(_))
    }

    /// The arrival time, if one was set, of a key that is watched for nothing else.
    pub(super) fn lone_arrival(&self) -> Option<Arrival> {
        let Record::Watched(watched) = self else { return None };
        let Watched { beside, .. } = &**watched;
        beside.guard().is_none().then(|| beside.arrival())
    }

    /// Keeps no more than the hits of a key that was not denied anything.
    pub(super) fn unwatch(&mut self) {
        if let Record::Watched(watched) = self {
            *self = Record::Hits(mem::take(&mut watched.hits));
        }
    }

    /// What keeps the key from being evicted, if anything ever did.
    #[inline]
    pub(super) fn guard(&self) -> Option<Guard> {
        self.beside()?.guard()
    }

    pub(super) fn set_guard(&mut self, guard: Guard) {
        self.watched_mut().beside.set_guard(Some(guard));
    }

    /// Guards the key, as well as it is guarded already.
    pub(super) fn add_guard(&mut self, guard: Guard) {
        let known = self.guard().unwrap_or(guard);
        let (until, is_full) = (guard.until.max(known.until), guard.is_full || known.is_full);
        self.set_guard(Guard { until, is_full });
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
    pub(super) fn denial(&self) -> Option<Denial> {
        match self {
            Record::Denying(limited) => Some(limited.denial),
            _ => None,
        }
    }

    /// Whether the key was denied something: then what a limit says takes no memory.
    pub(super) fn is_limited(&self) -> bool {
        self.limited().is_some()
    }

    /// Takes note of what a limit says of the hits that are there.
    pub(super) fn set_denial(&mut self, denial: Denial) {
        self.limited_mut().denial = denial;
        if let Record::Limited(_) = self
            && let Record::Limited(limited) = mem::take(self)
        {
            *self = Record::Denying(limited);
        }
    }

    #[inline(always)]
    fn forget_denial(&mut self) {
        if let Record::Denying(_) = self {
            self.forget_it();
        }
    }

    #[inline(never)]
    fn forget_it(&mut self) {
        if let Record::Denying(limited) = mem::take(self) {
            *self = Record::Limited(limited);
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
        match Recent::new(start, hits, settings) {
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
            Record::Limited(limited) | Record::Denying(limited) => limited.last.add(at, hits),
            _ => false,
        }
    }

    /// Denies a hit now, if a limit that denied one would say so again: gives what it says, and whether the hit is counted
    /// where others were that were denied last; else it is to be counted by [`Record::deny`]. `None`, and nothing changes,
    /// if it would not.
    #[inline]
    pub(super) fn deny_as_before(
        &mut self,
        hits: u64,
        (max, window): (u64, Span),
        now: Timestamp,
    ) -> Option<(Decision, bool)> {
        let Record::Denying(limited) = self else { return None };
        let decision = limited.denial.again(max, window, now).filter(|_| hits == 1)?;
        let beside = &mut limited.watched.beside;
        if let Some(guard) = Guard::next(beside.guard(), (0, max), window, now) {
            beside.set_guard(Some(guard));
        }
        Some((decision, limited.last.add(now, 1)))
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
        if let Record::Limited(limited) | Record::Denying(limited) = self {
            limited.denied.fit_again(settings, now);
        }
    }

    /// Drops what is over of what limits know, and tidies the rest.
    pub(super) fn tidy(&mut self, settings: &Settings, now: Timestamp) {
        if self.beside().is_none() {
            return;
        }
        if !self.arrival().is_after(now) {
            self.set_arrival(Arrival::default());
        }
        let beside = &mut self.watched_mut().beside;
        beside.set_guard(beside.guard().filter(|guard| guard.until > now));
        if self.denial().is_some_and(|denial| denial.until <= now) {
            self.forget_denial();
        }
        // Who came lately comes again: it is counted on where it was.
        let long_ago_ms = now.as_millis() - settings.window().as_millis();
        if let Record::Limited(limited) | Record::Denying(limited) = self {
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
                *self = Record::Watched(Box::new(mem::take(&mut limited.watched)));
            }
        }
        if let Record::Watched(watched) = self
            && watched.beside.guard().is_none()
            && watched.beside.arrival == (0, 0)
            && watched.hits.newest_ms() <= long_ago_ms
        {
            self.unwatch();
        }
    }

    /// The hits, and what the key takes with it beside them.
    pub(super) fn into_parts(self) -> (Entry, Extras) {
        let (arrival, limited_until, guard) = (self.arrival(), self.limited_until(), self.guard());
        match self {
            Record::Hits(hits) => (hits, Extras::default()),
            Record::Watched(watched) => (watched.hits, Extras { arrival, guard, ..Extras::default() }),
            Record::Limited(limited) | Record::Denying(limited) => {
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
        assert_eq!((size_of::<Record>(), size_of::<Entry>()), (16, 16));
    }

    #[test]
    fn what_is_over_is_dropped() {
        let settings = Settings::default();
        let mut record = Record::default();
        record.hits_mut().add(at(1), 1, &settings, at(1)).expect("counted");
        record.limit_until(at(10));
        record.limit_until(Timestamp::MIN);
        record.set_guard(Guard { until: at(20), is_full: true });
        record.set_arrival(Arrival::from_parts(15, 1));
        assert_eq!(record.limited_until(), Some(at(10)));
        record.tidy(&settings, at(15));
        assert!(matches!(record, Record::Watched(_)) && record.guard().is_some());
        assert_eq!(record.arrival(), Arrival::from_parts(15, 1));
        let window_ms = settings.window().as_millis();
        record.tidy(&settings, at(window_ms));
        assert!(matches!(record, Record::Watched(_)) && record.guard().is_none());
        assert_eq!(record.arrival(), Arrival::default());
        record.tidy(&settings, at(window_ms + 1));
        assert!(matches!(record, Record::Hits(_)));
        assert_eq!((record.hits().total(), record.heap_bytes()), (1, 0));
    }

    #[test]
    fn what_was_said_holds_until_hits_change() {
        let denial = Denial::new(1, seconds(1), at(9), at(9)).expect("small");
        let mut record = Record::default();
        record.set_denial(denial);
        assert_eq!((record.hits().is_empty(), record.denial()), (true, Some(denial)));
        record.hits_mut();
        assert_eq!(record.denial(), None);
        let settings = Settings::default();
        record.deny(at(5), 1, &settings, at(5)).expect("counted");
        record.set_denial(denial);
        record.tidy(&settings, at(8));
        assert_eq!(record.denial(), Some(denial));
        assert!(record.deny_in_place(at(0), 1), "who comes lately is counted where it was");
        record.tidy(&settings, at(9));
        assert_eq!(record.denial(), None);
        record.tidy(&settings, at(settings.window().as_millis()));
        assert!(!record.deny_in_place(at(0), 1));
        assert_eq!(record.denied(&settings, at(9)).map(|denied| denied.total()), Some(2));
    }

    #[test]
    fn what_was_denied_last_is_counted_with_the_rest() {
        let settings = Settings::default();
        let mut record = Record::default();
        let counted =
            |record: &Record, ms| record.denied(&settings, at(ms)).map_or(0, |denied| denied.total());
        for (denied, total) in [(MOST_LAST, 1), (MOST_LAST, 2), (MOST_LAST, 3)] {
            record.deny(at(1_500), denied, &settings, at(1_500)).expect("counted");
            assert_eq!(counted(&record, 1_500), total * MOST_LAST);
        }
        record.deny(at(1_999), MOST_LAST + 1, &settings, at(1_999)).expect("counted");
        record.deny(at(2_000), 1, &settings, at(2_000)).expect("counted");
        let all = 4 * MOST_LAST + 2;
        assert_eq!((counted(&record, 2_000), record.denied_last()), (all, Some(at(2_000))));
        record.tidy(&settings, at(2_001));
        assert_eq!((counted(&record, 2_001), record.denied_last()), (all, Some(at(2_000))));
        // As for hits that were allowed, no more are counted than can be.
        record.deny(at(2_000), 1, &settings, at(2_001)).expect("counted");
        assert!(record.deny(at(2_000), MAX_TOTAL, &settings, at(2_000)).is_err());
        let mut single = Record::default();
        single.deny(at(2_000), 1, &settings, at(2_000)).expect("counted");
        single.tidy(&settings, at(2_001));
        assert_eq!(counted(&single, 2_001), 1);
        assert!(single.outlives_hits(at(2_001), 2_000) && !single.outlives_hits(at(2_001), 2_001));
    }

    #[test]
    fn what_a_key_has_goes_with_it() {
        let (settings, now) = (Settings::default(), at(7));
        let mut before = Record::default();
        before.set_arrival(Arrival::from_parts(9, 1));
        before.limit_until(at(8));
        (0..3).for_each(|_| before.deny(now, 1, &settings, now).expect("counted"));
        let (hits, extras) = before.into_parts();
        let mut after = Record::Hits(hits);
        after.give(extras, &settings, now);
        assert_eq!((after.limited_until(), after.arrival()), (Some(at(8)), Arrival::from_parts(9, 1)));
        assert_eq!(after.denied(&settings, now).map(|denied| denied.total()), Some(3));
    }
}
