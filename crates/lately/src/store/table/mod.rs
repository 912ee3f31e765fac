//! An open-addressing hash table. Its slots are in pages, and its [`Tags`] are stored separately.
//!
//! A lookup reads a cache line of tags. A tag is equal by chance in 1 of 253 cases; then one slot is read in
//! vain. Linear probing by words of eight tags (Knuth, The Art of Computer Programming 3, 6.4, algorithm L,
//! with buckets of eight).
//!
//! A full table is replaced by a larger one. Values move a page at a time, so that no hit waits for all of
//! them, and a value that is looked up moves at once. Slots are in the order of their hashes, so both tables
//! are accessed sequentially. Pages are small and of equal size: a freed page fits the next table that grows.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::tags::{GROUP, Tags, fraction, low_half, seat_in_word};
use crate::machine::prefetch_all;

/// Slots of a full page.
pub(super) const PAGE: usize = 256;
/// A table of up to this number of slots may be completely full: a search reads few tags anyway.
const SMALL: usize = 4 * GROUP;
/// The load of a larger table at which it is replaced.
const MOST_USED: (usize, usize) = (15, 16);

/// The slots of a page. Empty until the first of them is used. The last page may be shorter.
pub(super) type Page<T> = Box<[Option<T>]>;

/// The addresses of pages, for prefetching; 0 for a page that does not exist yet.
pub(super) type Addresses = Arc<[AtomicUsize]>;

/// A table of values. It does not know their keys: the caller compares them.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Table<T> {
    // The fields that a search reads come first.
    tags: Tags,
    pages: Box<[Page<T>]>,
    slots: u32,
    len: u32,
    /// Slots that are in use, or that a search must not stop at.
    used: u32,
    addresses: Addresses,
    /// The previous table, while values move.
    old: Option<Box<Old<T>>>,
}

/// A table that is being replaced.
#[derive(Debug)]
struct Old<T> {
    tags: Tags,
    pages: Box<[Page<T>]>,
    /// The number of values that have not moved yet.
    left: u32,
    /// Pages before this one have moved.
    moved: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table::with_slots(0)
    }
}

impl<T> Table<T> {
    /// The bytes of the fields that a search reads.
    #[cfg(test)]
    pub(super) const SEARCHED_BYTES: usize = mem::offset_of!(Table<T>, slots);

    /// A table with room for this number of values.
    pub(super) fn with_room(values: usize) -> Table<T> {
        Table::with_slots(slots_for(values, 0))
    }

    fn with_slots(slots: usize) -> Table<T> {
        let pages = slots.div_ceil(PAGE);
        Table {
            tags: Tags::new(slots),
            pages: (0..pages).map(|_| Page::default()).collect(),
            slots: place_of(slots),
            len: 0,
            used: 0,
            addresses: (0..pages).map(|_| AtomicUsize::new(0)).collect(),
            old: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// The number of slots, used and free, without those of the old table.
    pub(super) fn places(&self) -> u32 {
        self.slots
    }

    pub(super) fn tags(&self) -> &Tags {
        &self.tags
    }

    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The address of the list of pages, for prefetching.
    pub(super) fn pages_at(&self) -> usize {
        self.pages.as_ptr().addr()
    }

    #[inline]
    pub(super) fn get(&self, place: u32) -> Option<&T> {
        let (page, within) = locate(place);
        self.pages.get(page)?.get(within)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        let (page, within) = locate(place);
        self.pages.get_mut(page)?.get_mut(within)?.as_mut()
    }

    /// The place of the value with this hash for which `is_it` is true. A value in the old table is moved
    /// first; `moved` gets its old and its new place.
    #[inline]
    pub(super) fn find(
        &mut self,
        hash: u64,
        mut is_it: impl FnMut(&T) -> bool,
        moved: impl FnOnce(u32, u32),
    ) -> Option<u32> {
        match self.find_moved(hash, &mut is_it) {
            None if self.old.is_some() => self.find_old(hash, is_it, moved),
            place => place,
        }
    }

    /// Like `find`, but without the values that have not moved yet.
    #[inline]
    pub(super) fn find_moved(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<u32> {
        search(&self.tags, &self.pages, hash, is_it).map(place_of)
    }

    #[cold]
    fn find_old(
        &mut self,
        hash: u64,
        is_it: impl FnMut(&T) -> bool,
        moved: impl FnOnce(u32, u32),
    ) -> Option<u32> {
        let old = self.old.as_mut()?;
        let slot = search(&old.tags, &old.pages, hash, is_it)?;
        let (page, within) = locate(place_of(slot));
        let value = old.pages[page][within].take();
        old.left -= 1;
        let place = self.put(hash, value);
        moved(place_of(slot), place);
        Some(place)
    }

    /// A fast lookup of the most likely place: the first slot in the first word of a search whose tag
    /// matches. The slot of its seat is loaded before the tags have arrived.
    #[inline]
    pub(super) fn near(&mut self, hash: u64) -> Option<(u32, &mut T)> {
        const GROUPS: usize = PAGE / GROUP;
        let group = self.tags.home(hash);
        let page = self.pages.get_mut(group / GROUPS)?;
        let slots = page.as_chunks_mut::<GROUP>().0.get_mut(group % GROUPS)?;
        prefetch_all(&raw const slots[seat_in_word(hash)]);
        let within = self.tags.first_in(group, hash)?;
        slots[within].as_mut().map(|slot| (place_of(group * GROUP + within), slot))
    }

    /// Whether there is room for another value. If not, call `resize` before `insert`.
    pub(super) fn has_room(&self) -> bool {
        if self.slots as usize <= SMALL {
            return self.len < self.slots;
        }
        // Leave room for the values that have not moved yet.
        let left = self.old.as_ref().map_or(0, |old| old.left);
        ((self.used + left) as usize) < self.slots as usize * MOST_USED.0 / MOST_USED.1
    }

    /// Adds a new value and returns its place.
    pub(super) fn insert(&mut self, hash: u64, value: T) -> u32 {
        assert!(self.has_room());
        self.len += 1;
        self.put(hash, Some(value))
    }

    fn put(&mut self, hash: u64, value: Option<T>) -> u32 {
        let (slot, was_empty) = self.tags.take(hash);
        self.used += u32::from(was_empty);
        let (page, within) = locate(place_of(slot));
        if self.pages[page].is_empty() {
            self.pages[page] =
                (page * PAGE..(self.slots as usize).min((page + 1) * PAGE)).map(|_| None).collect();
            self.addresses[page].store(self.pages[page].as_ptr().addr(), Relaxed);
        }
        // The slot is free. Reading it before writing would wait for memory.
        mem::forget(mem::replace(&mut self.pages[page][within], value));
        place_of(slot)
    }

    /// Removes a value.
    pub(super) fn take(&mut self, place: u32) -> Option<T> {
        let (page, within) = locate(place);
        let value = self.pages.get_mut(page)?.get_mut(within)?.take()?;
        self.len -= 1;
        self.used -= u32::from(self.tags.free(place as usize));
        Some(value)
    }

    /// Whether the table should shrink: to three quarters of its slots or fewer, or to half if it is small.
    /// Afterwards a little less than two thirds of them are used.
    pub(super) fn is_sparse(&self) -> bool {
        let (wanted, slots) = (slots_for(self.len(), 0), self.slots as usize);
        if slots <= SMALL { wanted * 2 < slots } else { wanted * 4 < slots * 3 }
    }

    /// Starts to move all values to a new table, with an eighth to a quarter more room than they need. The
    /// exact amount depends on `hash`, that of any key, so that tables of equal size do not all grow at the
    /// same time. No other move may be under way.
    pub(super) fn resize(&mut self, hash: u64) {
        assert!(!self.is_moving(), "one table after the other");
        let Table { tags, pages, len, .. } =
            mem::replace(self, Table::with_slots(slots_for(self.len(), hash)));
        self.len = len;
        self.old = (len > 0).then(|| Box::new(Old { tags, pages, left: len, moved: 0 }));
    }

    /// Whether values are being moved.
    #[inline]
    pub(super) fn is_moving(&self) -> bool {
        self.old.is_some()
    }

    /// Moves the values of one page, if any are left. `moved` gets the old and the new place of each.
    pub(super) fn move_page(&mut self, hash_of: impl Fn(&T) -> u64, mut moved: impl FnMut(u32, u32)) {
        let Some(mut old) = self.old.take() else { return };
        let mut page = mem::take(&mut old.pages[old.moved]);
        for (slot, from) in page.iter_mut().zip(place_of(old.moved * PAGE)..) {
            if let Some(hash) = slot.as_ref().map(&hash_of) {
                moved(from, self.put(hash, slot.take()));
                old.left -= 1;
            }
        }
        old.moved += 1;
        if old.left > 0 {
            self.old = Some(old);
        }
    }

    /// Values and their places, in memory order, without those that have not moved yet.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..self.slots).filter_map(|place| Some((place, self.get(place)?)))
    }

    /// Visits the values whose hash has a low half of at least `from`, in about `count` slots. Returns where
    /// to continue, if there are more. A value that stays in the table is visited exactly once over all
    /// calls. No move may be under way.
    pub(super) fn walk(
        &self,
        from: u32,
        count: usize,
        hash_of: impl Fn(&T) -> u64,
        mut visit: impl FnMut(u32, &T),
    ) -> Option<u32> {
        assert!(!self.is_moving());
        let groups = self.tags.groups();
        let first = self.tags.home(from.into());
        let end = groups.min(first + (count / GROUP).max(1));
        // The lowest low half of a hash whose search starts at the word `end`.
        let to = ((end as u64) << 32).div_ceil(groups.max(1) as u64);
        let mut before = None;
        for (step, group) in (first..groups).chain(0..first).enumerate() {
            // Values whose search starts before `end` may be behind it, because their words were full.
            if step >= end - first && before.is_none_or(|group| self.tags.ends_searches(group)) {
                break;
            }
            before = Some(group);
            for place in (group * GROUP..(group + 1) * GROUP).map(place_of) {
                let Some(value) = self.get(place) else { continue };
                if (from.into()..to).contains(&low_half(hash_of(value))) {
                    visit(place, value);
                }
            }
        }
        u32::try_from(to).ok().filter(|_| end < groups)
    }
}

/// The slot of the value with this hash for which `is_it` is true.
#[inline]
fn search<T>(tags: &Tags, pages: &[Page<T>], hash: u64, mut is_it: impl FnMut(&T) -> bool) -> Option<usize> {
    tags.find(hash, |slot| {
        let (page, within) = locate(place_of(slot));
        let slot = pages.get(page).and_then(|page| page.get(within));
        slot.and_then(Option::as_ref).is_some_and(&mut is_it)
    })
}

/// The page of a place, and the index in the page.
#[inline]
pub(super) fn locate(place: u32) -> (usize, usize) {
    let place = place as usize;
    (place / PAGE, place % PAGE)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a shard of 2^32 slots would take 160 GiB")]
pub(super) fn place_of(slot: usize) -> u32 {
    slot as u32
}

/// The number of slots for a growing table of `len` values.
fn slots_for(len: usize, hash: u64) -> usize {
    let eighth = len / 8;
    let wanted = len + eighth + fraction(eighth, hash) + 1;
    if wanted <= GROUP {
        return wanted;
    }
    if wanted <= SMALL {
        return wanted.next_multiple_of(2);
    }
    let slots = (wanted * MOST_USED.1).div_ceil(MOST_USED.0);
    slots.next_multiple_of(if slots <= PAGE { GROUP } else { SMALL })
}

#[cfg(test)]
mod tests;
