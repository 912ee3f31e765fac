//! The ids of the hits of a partition that were counted: hits that are sent again count once. Pure: it does no I/O, and time is passed in.
//!
//! Whether a hit counts is a function of the records before it, as its count is. So whoever reads these decides alike, and a record that is read
//! again is not taken for a repeat of itself: only ids of smaller offsets matter. How long an id is known goes by the times of the records and not by
//! a clock, so that an old topic can be read from its beginning.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use lately::Timestamp;
use sha2::{Digest, Sha256};

use crate::limits::{KAFKA_IDS_OF_A_RECORD, KAFKA_IDS_OVER_AT_ONCE, KAFKA_SLACK_MS};

use super::state_record::StateRecord;

/// What is kept of an id and its key: the same on all nodes. To find an id that looks like a given one takes 2^64 tries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Fingerprint(pub(super) u64);

impl Fingerprint {
    pub(super) fn of(key: &[u8], id: &[u8]) -> Fingerprint {
        let mut hash = Sha256::new();
        hash.update((key.len() as u64).to_be_bytes());
        hash.update(key);
        hash.update(id);
        let hash: [u8; 32] = hash.finalize().into();
        Fingerprint(u64::from_be_bytes(*hash.first_chunk().expect("eight bytes")))
    }
}

/// The id of a hit that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HitId {
    pub(super) fingerprint: Fingerprint,
    /// The time of its record.
    pub(super) came_ms: i64,
    /// Another hit with this id counts if their times differ by this.
    pub(super) span_ms: i64,
    /// How long it is known.
    pub(super) known_ms: i64,
}

/// The id of a hit that was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CountedId {
    pub(super) fingerprint: Fingerprint,
    pub(super) offset: i64,
    /// The time of the hit.
    pub(super) at_ms: i64,
    /// The time of the partition when it was counted.
    pub(super) time_ms: i64,
    /// It is over at this time of the partition.
    pub(super) until_ms: i64,
}

/// The ids of a partition.
#[derive(Default)]
pub(super) struct Ids {
    known: BTreeMap<Place, Known>,
    /// The time of the partition: the greatest of the counted records with an id. It never goes back.
    time_ms: i64,
    /// Ids that this node has not written yet, by their offsets.
    unwritten: Vec<Place>,
    /// Records of the state topic: the first and the last offset.
    written: BTreeMap<Range, Written>,
    /// The same by the time when the last of their ids is over.
    ends: BTreeSet<(i64, Range)>,
    /// The last id that was looked at for whether it is over.
    visited: Option<Place>,
}

type Place = (Fingerprint, i64);

/// The first and the last offset of a record of the state topic.
type Range = (i64, i64);

struct Known {
    at_ms: i64,
    time_ms: i64,
    until_ms: i64,
}

struct Written {
    /// The time of the partition at the first of its ids.
    time_ms: i64,
    /// When the last of its ids is over.
    until_ms: i64,
}

/// What an id takes in memory, and a record of the state topic: nodes of the trees are two thirds full.
const ID_BYTES: usize = (size_of::<Place>() + size_of::<Known>()) * 3 / 2;
const WRITTEN_BYTES: usize = (size_of::<Range>() + size_of::<Written>() + size_of::<(i64, Range)>()) * 3 / 2;

impl Ids {
    /// Whether a hit at an offset counts. Then its id is known.
    pub(super) fn take(&mut self, offset: i64, at: Timestamp, id: &HitId, now: Timestamp) -> bool {
        let HitId { fingerprint, came_ms, span_ms, known_ms } = *id;
        // A producer whose clock is wrong must not make all ids be over.
        let is_ahead = came_ms > now.as_millis().saturating_add(KAFKA_SLACK_MS);
        let time_ms = if is_ahead { self.time_ms } else { came_ms.max(self.time_ms) };
        let at_ms = at.as_millis();
        let mut before = self.known.range((fingerprint, i64::MIN)..(fingerprint, offset));
        let is_same =
            |known: &Known| known.until_ms > time_ms && known.at_ms.abs_diff(at_ms) < span_ms.unsigned_abs();
        if before.any(|(_, known)| is_same(known)) {
            return false;
        }
        self.time_ms = time_ms;
        // That of a record that is ahead is later than the time of the partition.
        let own_ms = came_ms.min(now.as_millis().saturating_add(KAFKA_SLACK_MS));
        let until_ms = time_ms.max(own_ms).saturating_add(known_ms);
        self.known.insert((fingerprint, offset), Known { at_ms, time_ms, until_ms });
        self.unwritten.push((fingerprint, offset));
        true
    }

    /// Whether the id of a hit at an offset is known: that hit counts.
    pub(super) fn has(&self, fingerprint: Fingerprint, offset: i64) -> bool {
        self.known.contains_key(&(fingerprint, offset))
    }

    /// Goes on at an offset. The state topic has all ids before `complete`.
    pub(super) fn go_to(&mut self, next: i64, complete: i64) {
        self.unwritten.retain(|(_, offset)| (complete..next).contains(offset));
        let before = self.known.iter().filter(|((_, offset), _)| *offset < next);
        self.time_ms = before.map(|(_, known)| known.time_ms).max().unwrap_or(0);
    }

    /// Takes a record of the state topic. `None`: its ids are over.
    pub(super) fn note(&mut self, range: Range, ids: Option<&[CountedId]>) {
        if let Some(before) = self.written.remove(&range) {
            self.ends.remove(&(before.until_ms, range));
        }
        let Some(ids) = ids else { return };
        for id in ids {
            let CountedId { fingerprint, offset, at_ms, time_ms, until_ms } = *id;
            self.known.insert((fingerprint, offset), Known { at_ms, time_ms, until_ms });
        }
        if let Some(time_ms) = ids.iter().map(|id| id.time_ms).min() {
            let until_ms = ids.iter().map(|id| id.until_ms).max().unwrap_or(time_ms);
            self.written.insert(range, Written { time_ms, until_ms });
            self.ends.insert((until_ms, range));
        }
    }

    /// What is to be written of ids, before the record that says what is complete.
    pub(super) fn records(&self, partition: i32) -> impl Iterator<Item = StateRecord> {
        self.unwritten.chunks(KAFKA_IDS_OF_A_RECORD).filter_map(move |chunk| {
            let id = |place: &Place| {
                let (fingerprint, offset) = *place;
                let Known { at_ms, time_ms, until_ms } = *self.known.get(place)?;
                Some(CountedId { fingerprint, offset, at_ms, time_ms, until_ms })
            };
            let ids: Vec<CountedId> = chunk.iter().filter_map(id).collect();
            let (first, last) = (ids.first()?.offset, ids.last()?.offset);
            Some(StateRecord::Ids { partition, first, last, ids: Some(ids) })
        })
    }

    /// All of [`Ids::records`] are acknowledged.
    pub(super) fn written(&mut self) {
        self.unwritten.clear();
    }

    /// Takes records of the state topic out of which all ids are over for whoever goes on at an offset.
    pub(super) fn take_expired(&mut self, partition: i32, from: i64) -> Vec<StateRecord> {
        let time_ms = self.time_before(from);
        let over = self.ends.iter().take_while(|(until_ms, _)| *until_ms <= time_ms);
        let over: Vec<_> = over.map(|(_, range)| *range).take(KAFKA_IDS_OVER_AT_ONCE).collect();
        let remove = |range @ (first, last)| {
            self.note(range, None);
            StateRecord::Ids { partition, first, last, ids: None }
        };
        over.into_iter().map(remove).collect()
    }

    /// Drops the ids that are over for whoever goes on at an offset, of the next `most`.
    pub(super) fn tidy(&mut self, from: i64, most: usize) {
        let time_ms = self.time_before(from);
        let begin = self.visited.map_or(Unbounded, Excluded);
        let visited = self.known.range((begin, Unbounded)).take(most);
        let visited: Vec<_> = visited.map(|(place, known)| (*place, known.until_ms <= time_ms)).collect();
        self.visited = visited.last().filter(|_| visited.len() == most).map(|(place, _)| *place);
        visited.iter().filter(|(_, is_over)| *is_over).for_each(|(place, _)| _ = self.known.remove(place));
    }

    /// Forgets all ids that would be over by then. Returns how many are not over yet, as far as is known.
    pub(super) fn forget(&mut self, until_ms: i64) -> usize {
        let time_ms = self.time_ms.max(self.time_before(i64::MAX));
        let mut early = 0;
        self.known.retain(|_, known| {
            let is_kept = known.until_ms > until_ms;
            early += usize::from(!is_kept && known.until_ms > time_ms);
            is_kept
        });
        self.written.retain(|_, written| written.until_ms > until_ms);
        self.ends.retain(|(end_ms, _)| *end_ms > until_ms);
        early
    }

    /// When each id is over.
    pub(super) fn ends_ms(&self) -> impl Iterator<Item = i64> {
        self.known.values().map(|known| known.until_ms)
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Memory of what is held, in bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.known.len() * ID_BYTES + self.written.len() * WRITTEN_BYTES
    }

    /// The time of the partition at an offset, or a little before: at the first id of a record of the state topic.
    fn time_before(&self, offset: i64) -> i64 {
        let last = self.written.range(..(offset, i64::MIN)).next_back();
        last.map_or(i64::MIN, |(_, written)| written.time_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;
    const SPAN_MS: i64 = 60_000;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    fn id(id: &[u8], came_ms: i64) -> HitId {
        let fingerprint = Fingerprint::of(b"k", id);
        HitId { fingerprint, came_ms, span_ms: SPAN_MS, known_ms: SPAN_MS }
    }

    /// Takes a hit whose time is that of its record, this long after the first one.
    fn take(ids: &mut Ids, offset: i64, name: &[u8], after_ms: i64) -> bool {
        let came_ms = NOW_MS + after_ms;
        ids.take(offset, at(came_ms), &id(name, came_ms), at(came_ms))
    }

    /// The state topic has these.
    #[test]
    fn fingerprints_of_ids_never_change() {
        assert_eq!(Fingerprint::of(b"user:42", b"order-1"), Fingerprint(0x2576_cbe5_7198_6e0a));
        assert_ne!(Fingerprint::of(b"user:4", b"2order-1"), Fingerprint::of(b"user:42", b"order-1"));
    }

    #[test]
    fn an_id_counts_once_within_its_span() {
        let mut ids = Ids::default();
        for (offset, (name, after_ms, counts)) in [
            ("a", 0, true),
            ("a", 0, false),
            ("b", 5, true),
            ("a", SPAN_MS - 1, false),
            ("a", SPAN_MS, true),
            // The span is that since the hit that counted.
            ("a", 2 * SPAN_MS - 1, false),
            ("b", 2 * SPAN_MS, true),
        ]
        .into_iter()
        .enumerate()
        {
            let offset = i64::try_from(offset).expect("small");
            assert_eq!(take(&mut ids, offset, name.as_bytes(), after_ms), counts, "{offset}");
        }
        // A record that is read again is no repeat of itself.
        ids.go_to(2, 2);
        assert!(take(&mut ids, 2, b"b", 5) && !take(&mut ids, 3, b"a", SPAN_MS - 1));
        assert!(take(&mut ids, 4, b"a", SPAN_MS));
    }

    #[test]
    fn hits_of_other_times_count_and_a_late_one_is_known_since_it_came() {
        let mut ids = Ids::default();
        let late_ms = NOW_MS - 10 * SPAN_MS;
        assert!(ids.take(0, at(late_ms), &id(b"a", NOW_MS), at(NOW_MS)));
        assert!(take(&mut ids, 1, b"a", 0));
        let again = |ids: &mut Ids, offset, after_ms| {
            let came_ms = NOW_MS + after_ms;
            ids.take(offset, at(late_ms), &id(b"a", came_ms), at(came_ms))
        };
        assert!(!again(&mut ids, 2, SPAN_MS - 1));
        assert!(again(&mut ids, 3, SPAN_MS));
    }

    #[test]
    fn a_clock_that_is_ahead_ends_no_ids() {
        let mut ids = Ids::default();
        assert!(take(&mut ids, 0, b"a", 0));
        let ahead_ms = NOW_MS + 1_000 * SPAN_MS;
        assert!(ids.take(1, at(ahead_ms), &id(b"b", ahead_ms), at(NOW_MS)));
        assert!(!ids.take(2, at(ahead_ms), &id(b"b", ahead_ms), at(NOW_MS)));
        assert!(!take(&mut ids, 3, b"a", 1));
        // Nor do the next records end its own.
        assert!(take(&mut ids, 4, b"c", SPAN_MS));
        assert!(!ids.take(5, at(ahead_ms), &id(b"b", ahead_ms), at(NOW_MS)));
    }

    #[test]
    fn a_clock_that_is_a_little_ahead_ends_no_ids_early() {
        let mut ids = Ids::default();
        let known_ms = SPAN_MS + KAFKA_SLACK_MS;
        let mut take = |offset, name: &[u8], after_ms| {
            let came_ms = NOW_MS + after_ms;
            ids.take(offset, at(came_ms), &HitId { known_ms, ..id(name, came_ms) }, at(NOW_MS))
        };
        assert!(take(0, b"a", 0));
        assert!(take(1, b"b", KAFKA_SLACK_MS - 1));
        assert!(!take(2, b"a", SPAN_MS - 1));
    }

    #[test]
    fn ids_that_are_over_are_not_forgotten_early() {
        let mut ids = Ids::default();
        assert!(take(&mut ids, 0, b"a", 0) && take(&mut ids, 1, b"b", 1) && take(&mut ids, 2, b"c", SPAN_MS));
        assert_eq!((ids.forget(NOW_MS + SPAN_MS + 1), ids.len()), (1, 1));
    }

    #[test]
    fn ids_that_are_over_leave_the_memory_and_the_topic() {
        let mut ids = Ids::default();
        let write = |ids: &mut Ids| {
            let records: Vec<_> = ids.records(7).collect();
            ids.written();
            for record in &records {
                let StateRecord::Ids { first, last, ids: Some(counted), .. } = record else { panic!() };
                ids.note((*first, *last), Some(counted));
            }
            records.len()
        };
        let most = i64::try_from(KAFKA_IDS_OF_A_RECORD).expect("small");
        for offset in 0..=most {
            assert!(take(&mut ids, offset, &offset.to_be_bytes(), 0));
        }
        assert_eq!((write(&mut ids), ids.len()), (2, KAFKA_IDS_OF_A_RECORD + 1));
        assert!(take(&mut ids, most + 1, b"next", SPAN_MS));
        assert_eq!(write(&mut ids), 1);
        // Not before the topic says that the next one is complete.
        assert!(ids.take_expired(7, most + 1).is_empty());
        ids.tidy(most + 1, usize::MAX);
        assert_eq!(ids.len(), KAFKA_IDS_OF_A_RECORD + 2);
        let over = |first, last| StateRecord::Ids { partition: 7, first, last, ids: None };
        assert_eq!(ids.take_expired(7, most + 2), [over(0, most - 1), over(most, most)]);
        assert!(ids.take_expired(7, most + 2).is_empty());
        while ids.len() > 1 {
            ids.tidy(most + 2, 100);
        }
        assert_eq!(ids.bytes(), ID_BYTES + WRITTEN_BYTES);
    }
}
