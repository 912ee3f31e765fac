//! A slot: a key and its state, in 40 bytes.

use std::num::NonZeroU8;

use super::context::Hit;
use super::key_state::{Extras, KeyState};
use super::long_keys::{Location, LongKeys};
use crate::class::ClassId;
use crate::entry::{Entry, Fetched, ListHint};
use crate::error::HitError;
use crate::frame::Frame;
use crate::gcra::Arrival;
use crate::settings::Settings;
use crate::time::Timestamp;

/// The longest key that is stored in the slot itself.
const INLINE_BYTES: usize = 22;
/// The length byte of a longer key, which is stored elsewhere.
const LONG: NonZeroU8 = NonZeroU8::MAX;

/// The end of the bytes is free in a slot with a shorter key. A watched key has the address of its list
/// there, another key its arrival time.
const FREE_BYTES_AT: usize = INLINE_BYTES - ListHint::BYTES;

/// A key, its class and its state.
#[derive(Debug)]
pub(super) struct Slot {
    /// Length of the key, or [`LONG`]. Never 0, so that `Option<Slot>` needs no more room.
    len: NonZeroU8,
    bytes: [u8; INLINE_BYTES],
    pub(super) class: ClassId,
    /// Use [`Slot::change`] for changes that may turn it into another variant.
    pub(super) state: KeyState,
}

impl Slot {
    /// A slot for a new key, which is not empty.
    pub(super) fn new(key: &[u8], hash: u64, class: ClassId, long_keys: &mut LongKeys) -> Slot {
        let mut bytes = [0; INLINE_BYTES];
        let short = u8::try_from(key.len()).ok().filter(|&len| usize::from(len) <= INLINE_BYTES);
        let len = short.and_then(NonZeroU8::new).unwrap_or(LONG);
        if len == LONG {
            bytes[..Location::BYTES].copy_from_slice(&long_keys.insert(hash, key).to_bytes());
        } else {
            bytes[..key.len()].copy_from_slice(key);
        }
        Slot { len, bytes, class, state: KeyState::default() }
    }

    /// The key.
    pub(super) fn key<'a>(&'a self, long_keys: &'a LongKeys) -> &'a [u8] {
        match self.location() {
            Some(location) => long_keys.get(location),
            None => &self.bytes[..usize::from(self.len.get())],
        }
    }

    /// Whether this slot holds `key`.
    #[inline]
    pub(super) fn is(&self, key: &[u8], long_keys: &LongKeys) -> bool {
        if self.len == LONG {
            return self.key(long_keys) == key;
        }
        usize::from(self.len.get()) == key.len() && begins_with(&self.bytes, key)
    }

    /// The fast path: counts hits of now if the key lives and its hits are in the slot or in a list.
    /// Otherwise returns `None` and changes nothing. Returns the hits of the frame's window, and the growth
    /// of the heap in bytes.
    #[inline(always)]
    pub(super) fn fast_hit(&mut self, weight: u64, frame: &Frame) -> Option<(u64, usize)> {
        match &mut self.state {
            KeyState::Hits(entry) => entry.fast_hit(weight, frame),
            _ => self.fast_hit_watched(weight, frame),
        }
    }

    /// [`Slot::fast_hit`] of a watched key.
    #[inline(never)]
    fn fast_hit_watched(&mut self, weight: u64, frame: &Frame) -> Option<(u64, usize)> {
        let counted = self.state.hits_mut().fast_hit(weight, frame)?;
        self.note_hits();
        Some(counted)
    }

    /// Prefetches the heap memory.
    #[inline]
    pub(super) fn prefetch(&self) -> Fetched {
        match self.state.prefetch() {
            Fetched::First if self.hint().is_some_and(ListHint::prefetch) => Fetched::All,
            fetched => fetched,
        }
    }

    /// The free bytes of the slot, if the key leaves any.
    #[inline]
    fn free_bytes(&self) -> Option<[u8; ListHint::BYTES]> {
        self.bytes.last_chunk().copied().filter(|_| usize::from(self.len.get()) <= FREE_BYTES_AT)
    }

    fn hint(&self) -> Option<ListHint> {
        self.free_bytes().filter(|_| self.state.is_watched()).map(ListHint::from_bytes)
    }

    /// Stores the address of a watched key's list in the free bytes, so that the next operation can prefetch
    /// the list without loading the state first.
    #[inline]
    fn note_list(&mut self, list: ListHint) {
        if self.free_bytes().is_some_and(|hint| hint != list.to_bytes()) {
            self.bytes[FREE_BYTES_AT..].copy_from_slice(&list.to_bytes());
        }
    }

    /// Updates the address of the list, if the key is watched.
    #[inline]
    pub(super) fn note_hits(&mut self) {
        if self.state.is_watched() {
            self.note_list(ListHint::of(self.state.hits()));
        }
    }

    /// The arrival time in the slot; the default is long ago. `None` if the slot cannot have one.
    #[inline]
    pub(super) fn arrival_here(&self) -> Option<Arrival> {
        self.free_bytes().filter(|_| !self.state.is_watched()).map(Arrival::from_bytes)
    }

    /// The arrival time: when all that the key was granted is used up. The default is long ago.
    #[inline]
    pub(super) fn arrival(&self) -> Arrival {
        self.arrival_here().unwrap_or_else(|| self.state.arrival())
    }

    /// Whether the slot has room for an arrival time.
    #[inline]
    pub(super) fn has_room_for(&self, arrival: Arrival) -> bool {
        self.arrival_here().is_some() && arrival.to_bytes().is_some()
    }

    /// Sets the arrival time in the slot. False if there is no room; nothing changes then.
    #[inline]
    pub(super) fn set_arrival_here(&mut self, arrival: Arrival) -> bool {
        let bytes = arrival.to_bytes().filter(|_| self.arrival_here().is_some());
        if let Some(bytes) = bytes {
            self.bytes[FREE_BYTES_AT..].copy_from_slice(&bytes);
        }
        bytes.is_some()
    }

    pub(super) fn set_arrival(&mut self, arrival: Arrival) {
        if !self.set_arrival_here(arrival) {
            self.change(|state| state.set_arrival(arrival));
        }
    }

    /// Changes the state of the key. The arrival time moves into the state before the change, and afterwards
    /// to where it takes the least memory.
    pub(super) fn change<T>(&mut self, change: impl FnOnce(&mut KeyState) -> T) -> T {
        let was_watched = self.state.is_watched();
        if let Some(arrival) = self.arrival_here() {
            self.set_arrival_here(Arrival::default());
            self.state.set_arrival(arrival);
        }
        let result = change(&mut self.state);
        let fits = |arrival: &Arrival| self.free_bytes().is_some() && arrival.to_bytes().is_some();
        // A key that was used lately will be watched again soon: it stays watched even without an arrival
        // time.
        let lone = self.state.lone_arrival().filter(|&lone| !was_watched || lone != Arrival::default());
        if let Some(arrival) = lone.filter(fits) {
            self.state.unwatch();
            self.set_arrival_here(arrival);
        } else if was_watched && !self.state.is_watched() {
            self.set_arrival_here(Arrival::default());
        }
        result
    }

    /// Drops what has expired, and tidies the rest.
    pub(super) fn tidy(&mut self, settings: &Settings, now: Timestamp) {
        self.state.hits_to_tidy().merge(settings, now);
        match self.arrival_here() {
            Some(arrival) if arrival.is_after(now) => {}
            Some(_) => _ = self.set_arrival_here(Arrival::default()),
            None => self.change(|state| state.tidy(settings, now)),
        }
    }

    /// Whether limits keep the key when its hits have expired. `oldest_ms` is the edge of the retention.
    pub(super) fn outlives_hits(&self, now: Timestamp, oldest_ms: i64) -> bool {
        self.arrival().is_after(now) || self.state.outlives_hits(now, oldest_ms)
    }

    /// The hits, and the rest of the state.
    pub(super) fn into_parts(self) -> (Entry, Extras) {
        let arrival = self.arrival();
        let (hits, extras) = self.state.into_parts();
        (hits, Extras { arrival, ..extras })
    }

    /// Counts hits whose time was checked. Returns the hits of the default window that ends at them, or 0 if
    /// a limit counts them. Adds the growth of the heap to `bytes`.
    #[inline]
    pub(super) fn count(
        &mut self,
        hit: &Hit<'_>,
        frame: &Frame,
        settings: &Settings,
        bytes: &mut usize,
    ) -> Result<u64, HitError> {
        let entry = self.state.hits_mut();
        let before = entry.heap_bytes();
        let counted = match (hit.at, hit.limit_window) {
            (None, None) if hit.weight > 0 => entry.hit_now(hit.weight, frame, settings),
            (None, None) => Ok(entry.count_now(frame, settings)),
            (Some(at), None) => entry.add(at, hit.weight, settings, frame.now).map(|()| {
                // Far back, the estimate is a share of a cell; but these hits are certainly in the window.
                entry.count_at(at, settings, frame.now).estimate.max(hit.weight)
            }),
            (None, Some(window)) => match entry.fast_hit(hit.weight, &frame.of_limit(window)) {
                Some((hits, _)) => Ok(hits),
                None => entry.add(frame.now, hit.weight, settings, frame.now).map(|()| 0),
            },
            (Some(at), Some(_)) => entry.add(at, hit.weight, settings, frame.now).map(|()| 0),
        };
        *bytes = *bytes + entry.heap_bytes() - before;
        self.note_hits();
        counted
    }

    /// Where a long key is stored.
    #[inline]
    pub(super) fn location(&self) -> Option<Location> {
        let bytes = self.bytes.first_chunk().copied();
        bytes.filter(|_| self.len == LONG).map(Location::from_bytes)
    }

    /// Sets where a long key is stored.
    pub(super) fn set_location(&mut self, location: Location) {
        self.bytes[..Location::BYTES].copy_from_slice(&location.to_bytes());
    }
}

/// Whether `bytes` starts with `key`. Comparing slices would be a call; this is two or three loads.
#[inline]
fn begins_with(bytes: &[u8; INLINE_BYTES], key: &[u8]) -> bool {
    let Some(start) = bytes.get(..key.len()) else { return false };
    if key.len() >= 8 {
        return start.first_chunk::<8>() == key.first_chunk()
            && start.last_chunk::<8>() == key.last_chunk()
            && (key.len() <= 16 || start[8..].first_chunk::<8>() == key[8..].first_chunk());
    }
    start.iter().eq(key)
}

#[cfg(test)]
mod tests {
    use super::super::eviction_guard::{EvictionGuard, RateGuard};
    use super::*;
    use crate::class::Classes;
    use crate::limits::MAX_KEY_BYTES;
    use crate::settings::Settings;

    #[test]
    fn a_slot_has_forty_bytes_used_or_free() {
        assert_eq!((size_of::<Slot>(), size_of::<Option<Slot>>()), (40, 40));
    }

    #[test]
    fn keys_of_every_length_round_trip() {
        let classes = Classes::new(Vec::new(), Settings::default()).expect("few");
        let mut long_keys = LongKeys::default();
        for len in 1..=MAX_KEY_BYTES {
            let key = vec![b'k'; len];
            let mut slot = Slot::new(&key, 7, classes.of(&key), &mut long_keys);
            let (whole, part) = (Arrival::from_parts(1 << 47, 0), Arrival::from_parts(9, 1));
            for arrival in [whole, part, Arrival::default(), Arrival::from_parts(1 << 48, 0), whole] {
                slot.set_arrival(arrival);
                assert_eq!((slot.arrival(), slot.key(&long_keys)), (arrival, &key[..]));
            }
            assert_eq!(slot.state.is_watched(), len > 16);
            slot.change(|state| state.lock_out(Timestamp::MAX, None));
            assert_eq!((slot.arrival_here(), slot.arrival()), (None, whole));
            slot.note_list(ListHint::from_bytes([7; ListHint::BYTES]));
            assert_eq!(slot.hint().is_some_and(ListHint::prefetch), len <= 16);
            assert_eq!(slot.arrival(), whole);
            assert_eq!(slot.key(&long_keys), key);
            assert!(slot.is(&key, &long_keys));
            let mut other = key.clone();
            other[len - 1] = b'x';
            for other in [&other, &key[1..], &[&key[..], b"k"].concat()] {
                assert!(!slot.is(other, &long_keys), "{len}");
            }
        }
    }

    #[test]
    fn an_arrival_time_is_in_the_slot_or_on_the_heap() {
        let classes = Classes::new(Vec::new(), Settings::default()).expect("few");
        let settings = Settings::default();
        let at = |ms| Timestamp::from_millis(ms).expect("a time");
        let mut slot = Slot::new(b"key", 7, classes.of(b"key"), &mut LongKeys::default());
        slot.set_arrival(Arrival::from_parts(9_000, 0));
        assert_eq!((slot.state.is_watched(), slot.outlives_hits(at(8_999), 0)), (false, true));
        slot.tidy(&settings, at(8_999));
        assert_eq!((slot.state.is_watched(), slot.arrival()), (false, Arrival::from_parts(9_000, 0)));
        slot.tidy(&settings, at(9_000));
        assert_eq!((slot.state.is_watched(), slot.arrival()), (false, Arrival::default()));
        slot.set_arrival(Arrival::from_parts(9_000, 0));
        slot.change(|_| ());
        assert_eq!((slot.state.is_watched(), slot.arrival()), (false, Arrival::from_parts(9_000, 0)));
        // A guard moves the arrival time to the heap. It comes back when the guard ends.
        let rate = Some(RateGuard::Until { until: at(5_000), is_full: false });
        slot.change(|state| state.put_guard(EvictionGuard { limit: None, rate }, at(0)));
        slot.note_list(ListHint::from_bytes([7; ListHint::BYTES]));
        assert_eq!((slot.state.is_watched(), slot.arrival()), (true, Arrival::from_parts(9_000, 0)));
        slot.tidy(&settings, at(5_000));
        assert_eq!((slot.state.is_watched(), slot.arrival()), (false, Arrival::from_parts(9_000, 0)));
        // The address of a list must not be read as an arrival time.
        slot.set_arrival(Arrival::from_parts(9_000, 1));
        slot.note_list(ListHint::from_bytes([7; ListHint::BYTES]));
        slot.tidy(&settings, at(400_000));
        assert_eq!((slot.state.is_watched(), slot.arrival()), (false, Arrival::default()));
        assert!(!slot.outlives_hits(at(9_000), 0));
        slot.set_arrival(Arrival::from_parts(9_001, 0));
        assert_eq!(slot.into_parts().1.arrival, Arrival::from_parts(9_001, 0));
    }
}
