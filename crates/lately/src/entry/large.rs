//! The form of a key with more hits than a list holds: the newest as a list or a ring, and panes before them.

use std::ops::Range;

use super::coarse::Coarse;
use super::fetched::Fetched;
use super::list::{self, Buffer, Head, List, ListMut};
use super::moment::Moment;
use super::ring::Ring;
use crate::allocation::allocated;
use crate::panes::{Pane, Panes};
use crate::settings::Settings;
use crate::time::Timestamp;

/// Many hits.
#[derive(Clone, Debug)]
pub(crate) struct Large {
    recent: Recent,
    older: Option<Box<Older>>,
    /// A summary of `older`, so that counting does not read it: its bytes, whether it has coarse panes, and
    /// the hits of its panes.
    older_bytes: u32,
    has_coarse: bool,
    older_total: u64,
}

/// Hits that are neither in the list nor in the ring.
#[derive(Clone, Default, Debug)]
struct Older {
    /// The hits before the recent ones.
    panes: Panes,
    /// Hits from elsewhere in panes that do not fit the class, at any time. They are not in `panes`.
    coarse: Option<Box<Coarse>>,
}

impl Older {
    fn bytes(&self) -> u32 {
        let coarse = self.coarse.as_ref().map_or(0, |coarse| coarse.heap_bytes());
        let bytes = allocated(size_of::<Older>()) + self.panes.heap_bytes() + coarse;
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    fn is_empty(&self) -> bool {
        self.panes.is_empty() && self.coarse.is_none()
    }

    /// Drops expired hits and merges old panes.
    fn merge(&mut self, settings: &Settings, now: Timestamp) {
        self.panes.merge(settings, now);
        let horizon_ms = settings.horizon_ms(now);
        if let Some(coarse) = self.coarse.take_if(|coarse| coarse.begins_before(horizon_ms)) {
            self.coarse = coarse.without_those_before(horizon_ms, settings).map(Box::new);
        }
    }
}

/// The parts of an entry from elsewhere, or of hits that were removed. Panes and moments fit the class.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) panes: Panes,
    pub(super) coarse: Option<Coarse>,
    /// Sorted.
    pub(super) moments: Vec<Moment>,
    /// Whether the newest panes become a ring, if it is no larger than they are. Then moments are added one by one.
    pub(super) is_ring: bool,
    /// The end of the last pane whose hits may be later than the first moment.
    pub(super) mixed_end_ms: i64,
}

#[derive(Clone, Debug)]
enum Recent {
    /// At most [`list::MOST_MOMENTS`] moments, possibly none.
    List {
        head: Head,
        bytes: Buffer,
    },
    Ring(Ring),
}

/// How large a ring may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rings {
    /// It may take more memory than the list and the panes, because it is faster: this many times as much, or some KiB.
    Faster,
    /// It takes no more memory. When hits are replayed, keys must not take more than before: others would be evicted.
    Smaller,
}

/// See [`Rings::Faster`].
const FASTER_TIMES: usize = 4;
/// See [`Rings::Faster`].
const FASTER_BYTES: usize = 4 << 10;

impl Rings {
    /// The most bytes of a ring in place of a list and panes that take `held` bytes.
    fn most_bytes(self, held: usize) -> usize {
        match self {
            Rings::Faster => FASTER_BYTES.max(FASTER_TIMES * held),
            Rings::Smaller => held,
        }
    }
}

impl Large {
    /// The large form of a key that had a list.
    pub(super) fn from_list(head: Head, bytes: Buffer) -> Large {
        let recent = Recent::List { head, bytes };
        Large { recent, older: None, older_bytes: 0, has_coarse: false, older_total: 0 }
    }

    /// The large form of a key from elsewhere.
    pub(super) fn of_parts(parts: Parts, settings: &Settings, now: Timestamp) -> Large {
        let Parts { panes, coarse, mut moments, is_ring, mixed_end_ms } = parts;
        let mut large = Large::from_list(Head::default(), Buffer::new());
        large.older = Some(Box::new(Older { panes, coarse: coarse.map(Box::new) }));
        large.settle_older();
        let is_ring = is_ring && large.may_be_ring(moments.first(), Rings::Smaller, settings, now);
        if is_ring {
            large.make_ring(settings, now);
        } else {
            // Before panes are merged: merged panes may end after moments that are later than all of their hits.
            let panes = &mut large.older.get_or_insert_default().panes;
            let mixed = moments.partition_point(|moment| moment.at_ms < mixed_end_ms);
            moments.drain(..mixed).for_each(|moment| panes.add(moment.at_ms, moment.hits, settings));
        }
        if !is_ring && are_a_list(&moments) {
            let (head, bytes) = list::list_of_any(moments.into_iter());
            large.recent = Recent::List { head, bytes };
        } else {
            for moment in moments {
                large.add(moment, Rings::Smaller, settings, now);
            }
        }
        large.settle_grown(settings, now);
        large
    }

    /// Whether there are coarse panes.
    #[inline]
    pub(super) fn has_coarse(&self) -> bool {
        self.has_coarse
    }

    /// The coarse panes.
    pub(super) fn coarse(&self) -> Option<&Coarse> {
        self.older.as_ref().filter(|_| self.has_coarse).and_then(|older| older.coarse.as_deref())
    }

    /// The panes before the recent hits.
    pub(super) fn older_panes(&self) -> Option<&Panes> {
        self.older.as_deref().map(|older| &older.panes)
    }

    /// The panes before the recent hits, oldest first.
    pub(super) fn panes(&self) -> impl Iterator<Item = Pane> {
        self.older_panes().into_iter().flat_map(Panes::iter)
    }

    /// The end of the newest of these panes.
    fn panes_end_ms(&self) -> Option<i64> {
        self.older.as_ref().and_then(|older| older.panes.end_ms())
    }

    /// The panes of the ring with hits, oldest first.
    pub(super) fn cells(&self, settings: &Settings) -> impl Iterator<Item = Pane> {
        let ring = match &self.recent {
            Recent::Ring(ring) => Some(ring),
            Recent::List { .. } => None,
        };
        ring.into_iter().flat_map(|ring| ring.panes(settings))
    }

    /// The recent hits, if they are a list.
    pub(super) fn list(&self) -> Option<List<'_>> {
        match &self.recent {
            Recent::List { head, bytes } => Some(List { head, bytes }),
            Recent::Ring(_) => None,
        }
    }

    /// Takes the list out, if there is nothing else.
    pub(super) fn take_list(&mut self) -> Option<(Head, Buffer)> {
        match self {
            Large { recent: Recent::List { head, bytes }, older: None, .. } => {
                Some((*head, std::mem::take(bytes)))
            }
            _ => None,
        }
    }

    pub(super) fn total(&self) -> u64 {
        let recent = match &self.recent {
            Recent::List { head, bytes } => List { head, bytes }.total(),
            Recent::Ring(ring) => ring.total(),
        };
        recent + self.older_total + self.coarse().map_or(0, Coarse::total)
    }

    pub(super) fn add(&mut self, moment: Moment, rings: Rings, settings: &Settings, now: Timestamp) {
        let Moment { at_ms, hits } = moment;
        match &mut self.recent {
            Recent::List { head, bytes } => {
                let list = ListMut { head, bytes };
                if is_older(at_ms, list.shared(), self.older.as_deref()) {
                    self.add_older(moment, settings, now);
                } else if !is_crowded(&list, at_ms, hits, settings, now) {
                    self.add_moment(moment, rings, settings, now);
                } else if self.may_be_ring(Some(&moment), rings, settings, now) {
                    self.make_ring(settings, now);
                    self.reach_and_add(moment, settings, now);
                } else if self.list().is_some_and(|list| list.total() + hits <= list::MAX_TOTAL) {
                    self.add_moment(moment, rings, settings, now);
                } else {
                    self.move_list_to_panes(settings);
                    self.add_older(moment, settings, now);
                }
            }
            Recent::Ring(ring) => {
                let ended = ring.ends_before(at_ms, settings);
                if ended {
                    self.advance_ring(at_ms, settings, now);
                }
                if ended && self.is_quiet() {
                    self.recent = Recent::List { head: Head::default(), bytes: Buffer::new() };
                    self.add(moment, rings, settings, now);
                } else {
                    self.add_to_ring(at_ms, hits, settings, now);
                }
            }
        }
    }

    /// Whether the recent hits and this one may become a ring. The memory of the ring is estimated: as if each block since the oldest of
    /// them had hits.
    fn may_be_ring(&self, more: Option<&Moment>, rings: Rings, settings: &Settings, now: Timestamp) -> bool {
        let start_ms = Ring::start_at(settings, now);
        let list = self.list();
        let of_list = list.into_iter().flat_map(List::moments).chain(more.copied());
        let (mut first_ms, mut last_ms, mut most) = (i64::MAX, start_ms, 0);
        for Moment { at_ms, hits } in of_list {
            (first_ms, last_ms, most) = (first_ms.min(at_ms), last_ms.max(at_ms), most.max(hits));
        }
        if let Some(panes) = self.older_panes()
            && let Some(pane) = panes.ending_after(start_ms).next()
        {
            (first_ms, last_ms, most) =
                (first_ms.min(pane.start_ms), last_ms.max(pane.end_ms()), most.max(panes.mean()));
        }
        let filled = settings.pane_of(last_ms) - settings.pane_of(first_ms.max(start_ms)) + 1;
        let fits = |most| Ring::bytes_for(settings, filled, most) <= rings.most_bytes(self.heap_bytes());
        // Only then is it worth a look at all panes.
        fits(most) && fits(self.most_of_a_pane(more, settings, start_ms))
    }

    /// The most hits of a pane from a time on, with further ones.
    fn most_of_a_pane(&self, more: Option<&Moment>, settings: &Settings, from_ms: i64) -> u64 {
        let (mut most, mut pane, mut sum) = (0, i64::MIN, 0_u64);
        let older = self.older_panes().into_iter().flat_map(|panes| panes.ending_after(from_ms));
        let older = older.map(|pane| (pane.start_ms, pane.hits));
        let of_list = self.list().into_iter().flat_map(List::moments).chain(more.copied());
        for (at_ms, hits) in older.chain(of_list.map(|moment| (moment.at_ms, moment.hits))) {
            let next = settings.pane_of(at_ms);
            sum = if next == pane { sum.saturating_add(hits) } else { hits };
            (most, pane) = (most.max(sum), next);
        }
        most
    }

    /// Moves all moments to the panes.
    fn move_list_to_panes(&mut self, settings: &Settings) {
        let Large { recent: Recent::List { head, bytes }, older, .. } = self else { return };
        let panes = &mut older.get_or_insert_default().panes;
        for Moment { at_ms, hits } in (List { head, bytes }).moments() {
            panes.add(at_ms, hits, settings);
        }
        (*head, *bytes) = (Head::default(), Buffer::new());
    }

    /// Counts hits of now, if the recent ones are in a ring that ends now or later. Returns the hits of the
    /// default window that ends now, which are exact. Otherwise returns `None` and counts nothing.
    pub(super) fn hit_now(&mut self, hits: u64, now: Timestamp, settings: &Settings) -> Option<u64> {
        let now_ms = now.as_millis();
        match &self.recent {
            _ if self.has_coarse => return None,
            Recent::Ring(ring) if ring.ends_with(now_ms, settings) => {}
            Recent::Ring(ring) if ring.ends_before(now_ms, settings) => {
                self.advance_ring(now_ms, settings, now);
                if self.is_quiet() {
                    return None;
                }
            }
            _ => return None,
        }
        match &mut self.recent {
            Recent::Ring(ring) => ring.add_newest(hits),
            Recent::List { .. } => None,
        }
    }

    /// Advances the ring to a time.
    fn advance_ring(&mut self, at_ms: i64, settings: &Settings, now: Timestamp) {
        let Large { recent: Recent::Ring(ring), older, .. } = self else { return };
        let mut have_left = false;
        ring.advance(settings.pane_of(at_ms), settings, |start_ms, hits| {
            older.get_or_insert_default().panes.add(start_ms, hits, settings);
            have_left = true;
        });
        if have_left {
            self.settle_grown(settings, now);
        }
    }

    /// Whether the ring is empty: the key is not hot any more.
    fn is_quiet(&self) -> bool {
        matches!(&self.recent, Recent::Ring(ring) if ring.total() == 0)
    }

    /// Advances the ring to a moment, and adds it.
    fn reach_and_add(&mut self, Moment { at_ms, hits }: Moment, settings: &Settings, now: Timestamp) {
        self.advance_ring(at_ms, settings, now);
        self.add_to_ring(at_ms, hits, settings, now);
    }

    /// Adds hits at a time that is not after the ring.
    fn add_to_ring(&mut self, at_ms: i64, hits: u64, settings: &Settings, now: Timestamp) {
        let Recent::Ring(ring) = &mut self.recent else { return };
        if !ring.add(at_ms, hits, settings) {
            self.add_older(Moment { at_ms, hits }, settings, now);
        }
    }

    /// Adds a moment to the list. A full list first moves its oldest moments to the panes.
    fn add_moment(&mut self, moment: Moment, rings: Rings, settings: &Settings, now: Timestamp) {
        let Large { recent: Recent::List { head, bytes }, older, .. } = self else { return };
        let mut list = ListMut { head, bytes };
        if list.has_room(moment.at_ms, moment.hits) {
            return list.add(moment);
        }
        if list.shared().oldest_ms().is_some_and(|oldest_ms| moment.at_ms < oldest_ms) {
            return self.add_older(moment, settings, now);
        }
        let older = &mut older.get_or_insert_default().panes;
        list.take_oldest(moment.at_ms, |Moment { at_ms, hits }| older.add(at_ms, hits, settings));
        self.settle_grown(settings, now);
        self.add(moment, rings, settings, now);
    }

    fn add_older(&mut self, moment: Moment, settings: &Settings, now: Timestamp) {
        self.older.get_or_insert_default().panes.add(moment.at_ms, moment.hits, settings);
        self.settle_grown(settings, now);
    }

    /// Must be called after hits were added to the panes.
    fn settle_grown(&mut self, settings: &Settings, now: Timestamp) {
        self.older.get_or_insert_default().panes.merge_if_long(settings, now);
        self.settle_older();
    }

    /// Must be called after `older` may have changed.
    fn settle_older(&mut self) {
        self.older.take_if(|older| older.is_empty());
        self.older_bytes = self.older.as_deref().map_or(0, Older::bytes);
        self.has_coarse = self.older.as_deref().is_some_and(|older| older.coarse.is_some());
        self.older_total = self.older.as_deref().map_or(0, |older| older.panes.total());
    }

    fn make_ring(&mut self, settings: &Settings, now: Timestamp) {
        let ring = Ring::new(settings, now);
        let start_ms = ring.start_ms(settings);
        let Recent::List { head, bytes } = std::mem::replace(&mut self.recent, Recent::Ring(ring)) else {
            unreachable!("only a list becomes a ring");
        };
        let newer =
            self.older.as_deref_mut().map(|older| older.panes.split_off(start_ms)).unwrap_or_default();
        self.settle_older();
        let newer = newer.into_iter().map(|Pane { start_ms, hits, .. }| Moment { at_ms: start_ms, hits });
        for moment in newer.chain((List { head: &head, bytes: &bytes }).moments()) {
            self.reach_and_add(moment, settings, now);
        }
    }

    /// From now on the exact times of the newest hits are kept. A ring is turned into panes.
    pub(super) fn keep_moments(&mut self, settings: &Settings, now: Timestamp) {
        match &mut self.recent {
            Recent::List { head, bytes } => ListMut { head, bytes }.keep_moments(),
            Recent::Ring(ring) => {
                let older = &mut self.older.get_or_insert_default().panes;
                for Pane { start_ms, hits, .. } in ring.panes(settings) {
                    older.add(start_ms, hits, settings);
                }
                self.recent = Recent::List { head: Head::default(), bytes: Buffer::new() };
                self.settle_grown(settings, now);
            }
        }
    }

    /// Removes hits of the ring in the pane of a time, as far as there are any. Returns how many.
    pub(super) fn subtract_from_ring(&mut self, at_ms: i64, hits: u64, settings: &Settings) -> u64 {
        let Recent::Ring(ring) = &mut self.recent else { return 0 };
        let taken = ring.subtract(at_ms, hits, settings);
        if self.is_quiet() {
            self.recent = Recent::List { head: Head::default(), bytes: Buffer::new() };
        }
        taken
    }

    /// Removes the hits with these ranks, counted from the oldest of each part: coarse panes, panes, and the list. Returns
    /// them.
    pub(super) fn take(&mut self, ranks: [Range<u64>; 3], settings: &Settings) -> Parts {
        let mut taken = Parts::default();
        let [of_coarse, of_panes, of_list] = ranks;
        if let Some(Older { panes, coarse }) = self.older.as_deref_mut() {
            if !of_panes.is_empty() {
                taken.panes = panes.take(of_panes);
            }
            if !of_coarse.is_empty() {
                taken.coarse = coarse.as_mut().and_then(|coarse| coarse.take(of_coarse, settings));
                coarse.take_if(|coarse| coarse.is_empty());
            }
        }
        if let Recent::List { head, bytes } = &mut self.recent
            && !of_list.is_empty()
        {
            taken.moments = ListMut { head, bytes }.take(&of_list);
        }
        self.settle_older();
        taken
    }

    /// The hits between two pane borders.
    pub(super) fn sum(&self, from_ms: i64, to_ms: i64, settings: &Settings) -> u64 {
        let recent = match &self.recent {
            Recent::List { head, bytes } => List { head, bytes }.sum(from_ms, to_ms),
            Recent::Ring(ring) => ring.sum(from_ms, to_ms, settings),
        };
        if self.moments_from_ms() <= from_ms {
            // All older hits are before the moments.
            return recent;
        }
        recent + self.older.as_ref().map_or(0, |older| older.panes.sum(from_ms, to_ms))
    }

    /// Like [`ListMut::sum_and_keep`], if the recent hits are a list.
    pub(super) fn sum_and_keep(&mut self, from_ms: i64) -> Option<u64> {
        match &mut self.recent {
            Recent::List { head, bytes } => ListMut { head, bytes }.sum_and_keep(from_ms),
            Recent::Ring(_) => None,
        }
    }

    /// Before this time only the pane of a hit is known.
    pub(super) fn moments_from_ms(&self) -> i64 {
        self.list().and_then(List::oldest_ms).unwrap_or(i64::MAX)
    }

    /// The hits from a pane border on, without the exact moments.
    pub(super) fn pane_sum(&self, from_ms: i64, settings: &Settings) -> u64 {
        let ring = match &self.recent {
            Recent::List { .. } => 0,
            Recent::Ring(ring) => ring.sum(from_ms, i64::MAX, settings),
        };
        ring + self.older.as_ref().map_or(0, |older| older.panes.sum(from_ms, i64::MAX))
    }

    /// The pane in which the hits of panes and ring from `from_ms` on, summed from the oldest, reach `hits`.
    /// `None` if there are fewer, or `hits` is 0.
    pub(super) fn reach(&self, from_ms: i64, hits: u64, settings: &Settings) -> Option<Pane> {
        if hits == 0 {
            return None;
        }
        let older = self.older.as_ref().map_or(Err(hits), |older| older.panes.reach(from_ms, hits));
        match (older, &self.recent) {
            (Ok(pane), _) => Some(pane),
            (Err(left), Recent::Ring(ring)) => ring.reach(from_ms, left, settings),
            (Err(_), Recent::List { .. }) => None,
        }
    }

    /// The hits between two pane borders, from the running total if the range is the default window near the
    /// newest hit.
    pub(super) fn exact_sum(&self, from_ms: i64, to_ms: i64, settings: &Settings) -> u64 {
        if let Recent::Ring(ring) = &self.recent
            && let Some(hits) = ring.window_sum(from_ms, to_ms, settings)
        {
            return hits;
        }
        self.sum(from_ms, to_ms, settings)
    }

    /// Advances the cursor or the running total to the default window from `from_ms` to `now`.
    pub(super) fn advance(&mut self, from_ms: i64, settings: &Settings, now: Timestamp) {
        self.advance_list(from_ms);
        if let Recent::Ring(ring) = &self.recent
            && ring.ends_before(now.as_millis(), settings)
        {
            self.advance_ring(now.as_millis(), settings, now);
        }
    }

    /// The same if the recent hits are a list.
    pub(super) fn advance_list(&mut self, from_ms: i64) {
        if let Recent::List { head, bytes } = &mut self.recent {
            ListMut { head, bytes }.advance(from_ms);
        }
    }

    /// Drops expired hits and merges old panes. A key that is not hot any more frees its ring.
    pub(super) fn merge(&mut self, settings: &Settings, now: Timestamp) {
        match &mut self.recent {
            Recent::List { head, bytes } => {
                ListMut { head, bytes }.drop_before(settings.horizon_ms(now));
            }
            Recent::Ring(_) => {
                self.advance_ring(now.as_millis(), settings, now);
                if self.is_quiet() {
                    self.recent = Recent::List { head: Head::default(), bytes: Buffer::new() };
                } else if let Recent::Ring(ring) = &mut self.recent {
                    ring.narrow();
                }
            }
        }
        if let Some(older) = &mut self.older {
            older.merge(settings, now);
        }
        self.settle_older();
    }

    /// See [`super::Entry::prefetch`].
    #[inline]
    pub(super) fn prefetch(&self, level: usize) -> Fetched {
        match &self.recent {
            Recent::List { head, bytes } => List { head, bytes }.prefetch(level),
            Recent::Ring(ring) => {
                ring.prefetch();
                Fetched::All
            }
        }
    }

    /// The heap bytes, including this struct.
    pub(super) fn heap_bytes(&self) -> usize {
        let recent = match &self.recent {
            Recent::List { bytes, .. } => bytes.heap_bytes(),
            Recent::Ring(ring) => ring.heap_bytes(),
        };
        allocated(size_of::<Large>()) + recent + self.older_bytes as usize
    }

    /// The name of the form, for tests.
    #[cfg(test)]
    pub(super) fn form(&self) -> &'static str {
        match self.recent {
            Recent::List { .. } => "list and panes",
            Recent::Ring(_) => "ring",
        }
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check_consistency(&self, settings: &Settings, now: Timestamp) {
        match &self.recent {
            Recent::List { head, bytes } => List { head, bytes }.check_consistency(),
            Recent::Ring(ring) => ring.check_consistency(self.panes_end_ms(), settings, now),
        }
        let older = self.older.as_deref();
        assert_eq!(self.older_bytes, older.map_or(0, Older::bytes), "bytes of the panes");
        assert_eq!(self.older_total, older.map_or(0, |older| older.panes.total()), "hits of the panes");
        if let Some(older) = older {
            assert!(!older.is_empty(), "panes are kept that are none");
            older.panes.check_consistency(settings, now);
            assert_eq!(self.has_coarse, older.coarse.is_some(), "whether some does not fit");
            older.coarse.iter().for_each(|coarse| coarse.check_consistency());
        }
    }
}

/// Whether the moments fit in a list.
fn are_a_list(moments: &[Moment]) -> bool {
    let hits: u64 = moments.iter().map(|moment| moment.hits).sum();
    !moments.is_empty() && moments.len() <= list::MOST_MOMENTS && hits <= list::MAX_TOTAL
}

/// Whether hits at a time belong in the panes: older than all moments, and before the end of the panes.
fn is_older(at_ms: i64, list: List<'_>, older: Option<&Older>) -> bool {
    // Most hits are newer than some moment. Check that first: panes are in other memory.
    list.oldest_ms().is_none_or(|oldest_ms| at_ms < oldest_ms)
        && older.and_then(|older| older.panes.end_ms()).is_some_and(|end_ms| at_ms < end_ms)
}

/// Whether the list has no room for a hit although its oldest moment is within the exact span, or its total would be above the bound of a
/// list. Then a ring is faster, and may be smaller.
fn is_crowded(list: &ListMut<'_>, at_ms: i64, hits: u64, settings: &Settings, now: Timestamp) -> bool {
    if list.has_room(at_ms, hits) {
        return false;
    }
    let exact_from_ms = now.as_millis() - settings.exact().as_millis();
    let list = list.shared();
    !list.is_full_for(at_ms)
        || list.contains(at_ms)
        || list.total() + hits > list::MAX_TOTAL
        || !list.keeps_moments() && list.oldest_ms().is_some_and(|oldest_ms| oldest_ms >= exact_from_ms)
}
