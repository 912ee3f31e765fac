//! What few keys have, by place: a generation that is not the first, a theoretical arrival time, and what limits
//! know of the key beside its hits.
//!
//! Nobody needs generations before a key is forgotten. After that every new key has one: eight bytes a
//! place, in chunks. Arrival times are kept likewise, sixteen bytes a place.

use super::chunks::Chunks;
use super::slab::Slab;
use crate::delta::Generation;
use crate::entry::Entry;
use crate::gcra::Arrival;
use crate::settings::Settings;
use crate::time::Timestamp;

/// What few keys have.
#[derive(Debug, Default)]
pub(super) struct Side {
    generations: Chunks<Generation>,
    arrivals: Chunks<Arrival>,
    /// Where in `few` a place has something, plus one.
    few_at: Chunks<u32>,
    few: Slab<Few>,
}

/// What limits know of a key beside its hits.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Few {
    limited_until: Option<Timestamp>,
    guard: Option<Guard>,
    denied: Entry,
}

/// What a key takes with it when it goes, and gets back when it comes back.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(super) limited_until: Option<Timestamp>,
    pub(super) arrival: Arrival,
    pub(super) denied: Entry,
}

/// A key that would be allowed more if it were evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Guard {
    pub(super) until: Timestamp,
    /// Whether nothing was left: it never goes. Else it goes after others.
    pub(super) is_full: bool,
}

/// What one of the few costs beside the hits that were denied, with a chunk that is not full.
const FEW_BYTES: usize = size_of::<Option<Few>>() * 5 / 4;

impl Few {
    fn bytes(&self) -> usize {
        FEW_BYTES + self.denied.heap_bytes()
    }
}

impl Side {
    /// The generation of the key at `place`: the first, unless another was set.
    pub(super) fn generation(&self, place: u32) -> Generation {
        self.generations.get(place)
    }

    /// Sets the generation of the key at `place`.
    pub(super) fn set_generation(&mut self, place: u32, generation: Generation) {
        self.generations.set(place, generation);
    }

    /// When all that the key at `place` was given is used up; long ago, unless it was set.
    #[inline]
    pub(super) fn arrival(&self, place: u32) -> Arrival {
        self.arrivals.get(place)
    }

    pub(super) fn set_arrival(&mut self, place: u32, arrival: Arrival) {
        self.arrivals.set(place, arrival);
    }

    /// What the key at `place` costs here.
    pub(super) fn bytes_at(&self, place: u32) -> usize {
        let few_bytes = self.few(place).map_or(0, Few::bytes);
        self.generations.bytes_at(place)
            + self.arrivals.bytes_at(place)
            + self.few_at.bytes_at(place)
            + few_bytes
    }

    /// Has what limits know of the key at `place` fetched.
    #[inline]
    pub(super) fn prefetch(&self, place: u32) {
        self.arrivals.prefetch(place);
        if let Some(at) = self.few_at.get(place).checked_sub(1) {
            self.few.prefetch(at);
        }
    }

    #[inline]
    fn few(&self, place: u32) -> Option<&Few> {
        self.few.get(self.few_at.get(place).checked_sub(1)?)
    }

    /// As `few`, and there is one from here on.
    fn few_mut(&mut self, place: u32) -> &mut Few {
        if self.few_at.get(place) == 0 {
            self.put_few(place, Few::default());
        }
        self.few.get_mut(self.few_at.get(place) - 1).expect("it was put there")
    }

    fn put_few(&mut self, place: u32, few: Few) {
        let at = self.few.insert(few);
        self.few_at.set(place, at + 1);
    }

    fn take_few(&mut self, place: u32) -> Option<Few> {
        let few = self.few.take(self.few_at.get(place).checked_sub(1)?);
        self.few_at.set(place, 0);
        few
    }

    /// Until when the key at `place` is limited, if it ever was.
    pub(super) fn limited_until(&self, place: u32) -> Option<Timestamp> {
        self.few(place)?.limited_until
    }

    /// Limits the key at `place` until `until`, or as long as was asked for before.
    pub(super) fn limit_until(&mut self, place: u32, until: Timestamp) {
        let few = self.few_mut(place);
        few.limited_until = few.limited_until.max(Some(until));
    }

    /// What keeps the key at `place` from being evicted, if anything ever did.
    pub(super) fn guard(&self, place: u32) -> Option<Guard> {
        self.few(place)?.guard
    }

    pub(super) fn set_guard(&mut self, place: u32, guard: Guard) {
        self.few_mut(place).guard = Some(guard);
    }

    /// The hits that were denied to the key at `place`.
    pub(super) fn denied(&self, place: u32) -> Option<&Entry> {
        self.few(place).map(|few| &few.denied)
    }

    /// As `denied`, to be changed.
    pub(super) fn denied_mut(&mut self, place: u32) -> &mut Entry {
        &mut self.few_mut(place).denied
    }

    /// Drops what is over of the key at `place`: `now` is the time, `oldest_ms` the edge of the retention.
    pub(super) fn tidy(&mut self, place: u32, now: Timestamp, oldest_ms: i64) {
        if !self.arrivals.get(place).is_after(now) {
            self.arrivals.set(place, Arrival::default());
        }
        if self.few(place).is_none() {
            return;
        }
        let few = self.few_mut(place);
        few.limited_until = few.limited_until.filter(|&until| until > now);
        few.guard = few.guard.filter(|guard| guard.until > now);
        if few.denied.expired(oldest_ms) {
            few.denied = Entry::new();
        }
        if few.limited_until.is_none() && few.guard.is_none() && few.denied.is_empty() {
            self.take_few(place);
        }
    }

    /// Forgets the key at `place`; gives what it had.
    pub(super) fn take(&mut self, place: u32) -> Extras {
        let arrival = self.arrivals.get(place);
        self.arrivals.set(place, Arrival::default());
        self.generations.set(place, Generation::default());
        let Few { limited_until, denied, .. } = self.take_few(place).unwrap_or_default();
        Extras { limited_until, arrival, denied }
    }

    /// Gives a key that is at `place` now what one had that went, beside what it has.
    pub(super) fn give(&mut self, place: u32, extras: Extras, settings: &Settings, now: Timestamp) {
        let Extras { limited_until, arrival, denied } = extras;
        if arrival > self.arrivals.get(place) {
            self.arrivals.set(place, arrival);
        }
        if let Some(until) = limited_until {
            self.limit_until(place, until);
        }
        if !denied.is_empty() {
            self.denied_mut(place).absorb(denied, settings, now);
        }
    }

    /// Takes over what the key that was at `from` in another table, and is at `to` now, has there.
    pub(super) fn take_over(&mut self, to: u32, before: &mut Side, from: u32) {
        self.set_generation(to, before.generation(from));
        self.set_arrival(to, before.arrival(from));
        if let Some(few) = before.take_few(from) {
            self.put_few(to, few);
        }
    }

    /// Whether no key has anything here.
    pub(super) fn is_empty(&self) -> bool {
        self.generations.is_empty() && self.arrivals.is_empty() && self.few_at.is_empty()
    }

    /// Places that limits know something of.
    pub(super) fn limited(&self) -> impl Iterator<Item = u32> {
        self.few_at.places()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_key_has_goes_with_it() {
        let until = Timestamp::from_millis(7).expect("a time");
        let mut before = Side::default();
        before.set_generation(3, Generation(9));
        before.set_arrival(3, Arrival::from_parts(5, 1));
        before.limit_until(4, until);
        before.limit_until(4, Timestamp::MIN);
        let mut after = Side::default();
        for place in 0..8 {
            after.take_over(100 - place, &mut before, place);
        }
        assert_eq!((after.generation(97), after.limited_until(97)), (Generation(9), None));
        assert_eq!((after.generation(96), after.limited_until(96)), (Generation(0), Some(until)));
        assert_eq!(after.arrival(97), Arrival::from_parts(5, 1));
        assert_eq!(after.limited().collect::<Vec<_>>(), [96]);
    }

    #[test]
    fn what_is_over_is_dropped() {
        let at = |ms| Timestamp::from_millis(ms).expect("a time");
        let mut side = Side::default();
        side.limit_until(1, at(10));
        side.set_guard(1, Guard { until: at(20), is_full: true });
        side.set_arrival(1, Arrival::from_parts(15, 1));
        let few_bytes = side.bytes_at(1) - side.arrivals.bytes_at(1);
        assert!(few_bytes > 0 && side.arrivals.bytes_at(1) > 0);
        side.tidy(1, at(15), 0);
        assert!(side.limited_until(1).is_none() && side.guard(1).is_some());
        assert_eq!(side.arrival(1), Arrival::from_parts(15, 1));
        side.tidy(1, at(20), 0);
        assert_eq!((side.bytes_at(1), side.guard(1)), (0, None));
    }
}
