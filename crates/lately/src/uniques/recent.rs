//! The most recent members of a key, each with the pane of its last hit.

use thin_vec::ThinVec;

use crate::allocation::allocated;
use crate::leb128;
use crate::limits::EXACT_MEMBERS;
use crate::machine::prefetch;

use super::coarse::Coarse;
use super::{Member, take_ms};

/// A member in 12 bytes: 48 bits of its hash, and of the start of its last pane in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Known {
    hash_low: u32,
    ms_low: u32,
    highs: [u16; 2],
}

impl Known {
    #[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
    fn new(Member(hash): Member, at_ms: i64) -> Known {
        let ms = at_ms.cast_unsigned();
        Known { hash_low: hash as u32, ms_low: ms as u32, highs: [(hash >> 32) as u16, (ms >> 32) as u16] }
    }

    fn member(self) -> Member {
        Member(u64::from(self.hash_low) | u64::from(self.highs[0]) << 32)
    }

    fn at_ms(self) -> i64 {
        (u64::from(self.ms_low) | u64::from(self.highs[1]) << 32).cast_signed()
    }
}

/// By how many members the list grows.
const MORE: usize = 4;

/// The most recent members, the most recent one last.
#[derive(Clone, Default, Debug)]
pub(super) struct Recent {
    members: ThinVec<Known>,
    /// No other member was hit later than this. Below 0 if there is no other.
    floor_ms: Floor,
    /// Rarely there, so it is elsewhere.
    coarse: Option<Box<Coarse>>,
}

#[derive(Clone, Copy, Debug)]
struct Floor(i64);

impl Default for Floor {
    fn default() -> Floor {
        Floor(-1)
    }
}

impl Recent {
    /// Prefetches the members.
    pub(super) fn prefetch(&self) {
        let first = self.members.as_ptr().cast::<u8>();
        // The length is before them.
        prefetch(first.wrapping_sub(1));
        prefetch(first.wrapping_add(63));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether there is no room for this member.
    pub(super) fn is_full_without(&self, member: Member) -> bool {
        self.members.len() == EXACT_MEMBERS && self.position(member).is_none()
    }

    /// Adds a member or makes it more recent. If there is no room, the least recent one goes.
    pub(super) fn add(&mut self, member: Member, at_ms: i64) {
        let is_full = self.members.len() == EXACT_MEMBERS;
        if is_full && self.members[0].at_ms() >= at_ms {
            // All that are here are as recent. Whether the member is among them makes no difference: a window that begins at
            // this time or before has at least as many as are exact. So it is not looked up.
            self.floor_ms.0 = self.floor_ms.0.max(at_ms);
            return;
        }
        let known = self.position(member);
        if known.is_some_and(|index| self.members[index].at_ms() >= at_ms) {
            return;
        }
        match known {
            Some(index) => _ = self.members.remove(index),
            None if is_full => self.floor_ms.0 = self.floor_ms.0.max(self.members.remove(0).at_ms()),
            None if self.members.len() == self.members.capacity() => {
                self.members.reserve_exact(MORE.min(EXACT_MEMBERS - self.members.len()));
            }
            None => {}
        }
        let index = match self.members.last() {
            Some(last) if last.at_ms() > at_ms => self.first_from(at_ms + 1),
            _ => self.members.len(),
        };
        self.members.insert(index, Known::new(member, at_ms));
    }

    /// There are other members, which were hit at this time or before.
    pub(super) fn forget_until(&mut self, floor_ms: i64) {
        self.floor_ms.0 = self.floor_ms.0.max(floor_ms);
    }

    pub(super) fn floor_ms(&self) -> i64 {
        self.floor_ms.0
    }

    /// Whether all members that may have been hit at this time or later are here.
    pub(super) fn has_all_from(&self, from_ms: i64) -> bool {
        self.floor_ms.0 < self.coarse().earliest_ms(from_ms)
    }

    /// The number of members here that certainly were hit at this time or later, and of those that may have been.
    pub(super) fn count_from(&self, from_ms: i64) -> (u64, u64) {
        let from = |from_ms| (self.members.len() - self.first_from(from_ms)) as u64;
        (from(from_ms), from(self.coarse().earliest_ms(from_ms)))
    }

    /// Some times are known less well.
    pub(super) fn note_coarse(&mut self, coarse: Coarse) {
        if coarse != Coarse::default() {
            self.coarse.get_or_insert_default().note(coarse);
        }
    }

    /// All that is here is known to panes of this width.
    pub(super) fn note_coarse_until_newest(&mut self, width_ms: i64) {
        if let Some(newest) = self.members.last() {
            self.note_coarse(Coarse::until(newest.at_ms() + width_ms, width_ms));
        }
    }

    /// Panes have this width from here on. Times that are known as well as that are exact.
    pub(super) fn forget_coarse_within(&mut self, pane_ms: i64) {
        self.coarse = self.coarse.take().filter(|coarse| !coarse.divides(pane_ms));
    }

    pub(super) fn coarse(&self) -> Coarse {
        self.coarse.as_deref().copied().unwrap_or_default()
    }

    /// Removes the members that certainly were last hit before this time.
    pub(super) fn drop_before(&mut self, oldest_ms: i64) {
        let dropped = self.first_from(self.coarse().earliest_ms(oldest_ms));
        self.coarse = self.coarse.take().filter(|coarse| coarse.has(oldest_ms));
        if dropped > 0 {
            self.members.drain(..dropped);
            self.members.shrink_to_fit();
        }
    }

    /// Removes the members whose last pane begins at this time or before, and all others of then.
    pub(super) fn drop_until(&mut self, until_ms: i64) {
        let dropped = self.first_from(until_ms + 1);
        if dropped > 0 {
            self.members.drain(..dropped);
            self.members.shrink_to_fit();
        }
        if self.floor_ms.0 <= until_ms {
            self.floor_ms = Floor::default();
        }
    }

    /// Later times become this one.
    pub(super) fn end_by(&mut self, latest_ms: i64) {
        for known in &mut self.members {
            *known = Known::new(known.member(), known.at_ms().min(latest_ms));
        }
        self.floor_ms.0 = self.floor_ms.0.min(latest_ms);
        self.coarse.iter_mut().for_each(|coarse| coarse.end_by(latest_ms));
    }

    /// The members, and when they were last hit.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Member, i64)> {
        self.members.iter().map(|known| (known.member(), known.at_ms()))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        /// The length and the capacity.
        const HEAD_BYTES: usize = 2 * size_of::<usize>();
        let coarse = self.coarse.as_ref().map_or(0, |_| allocated(size_of::<Coarse>()));
        coarse
            + match self.members.capacity() {
                0 => 0,
                capacity => allocated(HEAD_BYTES + capacity * size_of::<Known>()),
            }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        leb128::push(out, (self.floor_ms.0 + 1).cast_unsigned());
        leb128::push(out, self.members.len() as u64);
        let mut before_ms = 0;
        for (Member(hash), at_ms) in self.iter() {
            leb128::push(out, (at_ms - before_ms).cast_unsigned());
            out.extend_from_slice(&hash.to_le_bytes()[..6]);
            before_ms = at_ms;
        }
    }

    pub(super) fn read(bytes: &mut &[u8]) -> Option<Recent> {
        let floor_ms = Floor(take_ms(bytes)? - 1);
        let len = usize::try_from(leb128::take(bytes)?).ok().filter(|&len| len <= EXACT_MEMBERS)?;
        let mut recent = Recent { members: ThinVec::new(), floor_ms, coarse: None };
        recent.members.reserve_exact(len);
        let mut at_ms = 0_i64;
        for _ in 0..len {
            at_ms += take_ms(bytes)?;
            let mut hash = [0; 8];
            hash[..6].copy_from_slice(bytes.split_off(..6)?);
            let member = Member(u64::from_le_bytes(hash));
            if at_ms >= 1 << 48 || recent.position(member).is_some() {
                return None;
            }
            recent.members.push(Known::new(member, at_ms));
        }
        Some(recent)
    }

    pub(super) fn check_consistency(&self) {
        assert!(self.members.is_sorted_by_key(|known| known.at_ms()), "the most recent is the last");
        assert!(self.members.len() <= EXACT_MEMBERS, "the list is bounded");
    }

    fn position(&self, Member(hash): Member) -> Option<usize> {
        #[expect(clippy::cast_possible_truncation, reason = "the halves are what is compared")]
        let (low, high) = (hash as u32, (hash >> 32) as u16);
        self.members.iter().rposition(|known| known.hash_low == low && known.highs[0] == high)
    }

    fn first_from(&self, from_ms: i64) -> usize {
        self.members.partition_point(|known| known.at_ms() < from_ms)
    }
}
