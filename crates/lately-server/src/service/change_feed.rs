//! The change feed: changes that are made while dumps are written. Each change is kept until all dumps have taken it.
//!
//! All dumps share one bounded list, and each has a position in it. Records before all positions are dropped. When
//! the list is full, the dump that is furthest behind fails, so a slow reader does not harm others.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lately::{DeltaBatch, Timestamp};
use slab::Slab;

use crate::limits::{FEED_LEAST_BYTES, FEED_MOST_SHARE, FEED_RECORD_BYTES, FEED_SHARE, KEPT_BYTES};

/// The changes of a batch.
#[derive(Clone)]
pub(crate) struct Record {
    /// Its time.
    pub(crate) now: Timestamp,
    /// Its deltas.
    pub(crate) deltas: Arc<[u8]>,
}

/// The list, and the positions of the dumps that read it.
pub(crate) struct ChangeFeed {
    count: AtomicUsize,
    log: Mutex<Log>,
    most_bytes: usize,
    /// Bytes of dumps that were written but not sent.
    pieces_bytes: Arc<AtomicUsize>,
}

/// A dump that reads the feed. Dropping it unsubscribes it.
pub(crate) struct Subscriber<'t> {
    feed: &'t ChangeFeed,
    index: usize,
}

#[derive(Default)]
struct Log {
    records: VecDeque<Record>,
    /// The number of the first record.
    first: u64,
    bytes: usize,
    places: Slab<Place>,
}

#[derive(Clone, Copy)]
enum Place {
    /// The number of the next record it takes.
    At(u64),
    /// Why it missed records, if it did.
    Lost(&'static str),
}

/// Bytes of a dump, counted until they are dropped.
struct Piece {
    bytes: Vec<u8>,
    pieces_bytes: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.pieces_bytes.fetch_sub(self.bytes.capacity(), Relaxed);
    }
}

impl ChangeFeed {
    /// An empty feed. Its bound depends on the memory ceiling.
    pub(crate) fn new(ceiling_bytes: u64) -> ChangeFeed {
        let least_bytes = FEED_LEAST_BYTES.min(ceiling_bytes / FEED_MOST_SHARE);
        let most_bytes = least_bytes.max(ceiling_bytes / FEED_SHARE);
        ChangeFeed::bounded(usize::try_from(most_bytes).unwrap_or(usize::MAX))
    }

    fn bounded(most_bytes: usize) -> ChangeFeed {
        ChangeFeed {
            count: AtomicUsize::new(0),
            log: Mutex::default(),
            most_bytes,
            pieces_bytes: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a dump reads the feed.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        // Relaxed is enough: `open` is followed by `Service::quiesce`, which waits for all changes under way.
        self.count.load(Relaxed) > 0
    }

    /// Subscribes at the end of the list.
    pub(crate) fn open(&self) -> Subscriber<'_> {
        let mut log = self.lock();
        let end = log.end();
        let index = log.places.insert(Place::At(end));
        self.count.fetch_add(1, SeqCst);
        Subscriber { feed: self, index }
    }

    /// Adds changes.
    pub(crate) fn publish(&self, deltas: &DeltaBatch) {
        if self.is_open() && !deltas.is_empty() {
            self.lock().push(deltas.now(), deltas.bytes(), self.most_bytes);
        }
    }

    /// Fails all dumps, because changes that were added were rolled back.
    pub(crate) fn fail(&self, why: &'static str) {
        if self.is_open() {
            let mut log = self.lock();
            log.places.iter_mut().for_each(|(_, place)| *place = Place::Lost(why));
            log.trim();
        }
    }

    /// Counts bytes of a dump until they are sent or dropped.
    pub(crate) fn piece(&self, bytes: Vec<u8>) -> impl AsRef<[u8]> + Send + 'static {
        self.pieces_bytes.fetch_add(bytes.capacity(), Relaxed);
        Piece { bytes, pieces_bytes: Arc::clone(&self.pieces_bytes) }
    }

    /// Bytes held for dumps.
    pub(crate) fn held_bytes(&self) -> usize {
        let log_bytes = if self.is_open() { self.lock().bytes } else { 0 };
        log_bytes + self.pieces_bytes.load(Relaxed)
    }
}

impl Subscriber<'_> {
    /// The number of the next record that is added.
    pub(crate) fn end(&self) -> u64 {
        self.feed.lock().end()
    }

    /// Takes the next records before number `until`, about `most_bytes` of them. Empty when all were taken.
    ///
    /// # Errors
    /// The reason why records were missed.
    pub(crate) fn take(&self, until: u64, most_bytes: usize) -> Result<Vec<Record>, &'static str> {
        self.feed.lock().take(self.index, until, most_bytes)
    }
}

impl Drop for Subscriber<'_> {
    fn drop(&mut self) {
        let mut log = self.feed.lock();
        log.places.remove(self.index);
        log.trim();
        self.feed.count.fetch_sub(1, SeqCst);
    }
}

/// Memory of a record.
fn cost_bytes(deltas: &[u8]) -> usize {
    deltas.len() + FEED_RECORD_BYTES
}

impl Log {
    fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    fn push(&mut self, now: Timestamp, deltas: &[u8], most_bytes: usize) {
        while self.bytes + cost_bytes(deltas) > most_bytes && self.fail_furthest() {}
        if self.first_place().is_some() {
            self.bytes += cost_bytes(deltas);
            self.records.push_back(Record { now, deltas: deltas.into() });
        }
    }

    /// The position that is furthest behind.
    fn first_place(&self) -> Option<u64> {
        let numbers = self.places.iter().filter_map(|(_, place)| match place {
            Place::At(number) => Some(*number),
            Place::Lost(_) => None,
        });
        numbers.min()
    }

    /// Fails the dumps that are furthest behind. False when there are none.
    fn fail_furthest(&mut self) -> bool {
        let Some(first) = self.first_place() else { return false };
        for (_, place) in &mut self.places {
            if matches!(place, Place::At(number) if *number == first) {
                *place = Place::Lost("hits came faster than the dump was read");
            }
        }
        self.trim();
        true
    }

    fn take(&mut self, index: usize, until: u64, most_bytes: usize) -> Result<Vec<Record>, &'static str> {
        let next = match self.places[index] {
            Place::At(number) => number,
            Place::Lost(why) => return Err(why),
        };
        let start = usize::try_from(next - self.first).unwrap_or(usize::MAX);
        let count = usize::try_from(until.saturating_sub(next)).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let fits = |record: &&Record| {
            let is_room = bytes < most_bytes;
            bytes += cost_bytes(&record.deltas);
            is_room
        };
        let taken: Vec<Record> =
            self.records.iter().skip(start).take(count).take_while(fits).cloned().collect();
        self.places[index] = Place::At(next + taken.len() as u64);
        self.trim();
        Ok(taken)
    }

    /// Drops the records that all dumps have taken.
    fn trim(&mut self) {
        let first = self.first_place().unwrap_or(self.end());
        while self.first < first
            && let Some(record) = self.records.pop_front()
        {
            self.bytes -= cost_bytes(&record.deltas);
            self.first += 1;
        }
        if self.records.is_empty() {
            self.records.shrink_to(KEPT_BYTES / FEED_RECORD_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use lately::Op;

    use super::*;

    /// The changes of one hit of a key of this length.
    fn deltas(key_bytes: usize) -> DeltaBatch {
        let store = lately::Store::builder().build().expect("the defaults are valid");
        let mut deltas = DeltaBatch::default();
        let key = vec![b'k'; key_bytes];
        let op = Op::Hit { key: &key, weight: 1, at: None };
        store.apply_into(&[op], Timestamp::MIN, &mut Vec::new(), &mut deltas);
        deltas
    }

    fn all(subscriber: &Subscriber<'_>) -> Result<usize, &'static str> {
        subscriber.take(subscriber.end(), usize::MAX).map(|records| records.len())
    }

    #[test]
    fn each_reader_gets_the_changes_since_it_opened() {
        let (feed, hit) = (ChangeFeed::new(1 << 30), deltas(1));
        feed.publish(&hit);
        assert_eq!((feed.is_open(), feed.held_bytes()), (false, 0));
        let first = feed.open();
        assert_eq!(all(&first), Ok(0));
        feed.publish(&hit);
        let second = feed.open();
        (0..3).for_each(|_| feed.publish(&hit));
        let one_bytes = cost_bytes(hit.bytes());
        assert_eq!(feed.held_bytes(), 4 * one_bytes);
        assert_eq!(all(&second), Ok(3));
        assert_eq!(first.take(first.end(), one_bytes + 1).map(|records| records.len()), Ok(2));
        assert_eq!(feed.held_bytes(), 2 * one_bytes);
        let until = first.end();
        feed.publish(&hit);
        assert_eq!(first.take(until, usize::MAX).map(|records| records.len()), Ok(2));
        assert_eq!(first.take(until, usize::MAX).map(|records| records.len()), Ok(0));
        drop(second);
        assert_eq!(all(&first), Ok(1));
        assert_eq!(feed.held_bytes(), 0);
        feed.fail("it was rolled back");
        assert_eq!(all(&first), Err("it was rolled back"));
        drop(first);
        assert!(!feed.is_open());
    }

    /// Symptom: four readers of 500 B/s made the server hold 64 MiB each, at a ceiling of 32 MiB. Cause: each dump had its
    /// own list, with a bound that did not depend on the ceiling. Fix: one list with a share of the ceiling, and the slowest
    /// reader is dropped.
    #[test]
    fn the_slowest_reader_is_dropped() {
        let hit = deltas(1_000);
        let most = 10 * cost_bytes(hit.bytes());
        let feed = ChangeFeed::bounded(most);
        let [slow, quick, late] = [(); 3].map(|()| feed.open());
        for _ in 0..10 {
            feed.publish(&hit);
            assert_eq!(all(&quick), Ok(1));
        }
        assert_eq!(late.take(5, usize::MAX).map(|records| records.len()), Ok(5));
        assert_eq!(feed.held_bytes(), most);
        feed.publish(&hit);
        assert_eq!(all(&slow), Err("hits came faster than the dump was read"));
        assert_eq!(feed.held_bytes(), most - 4 * cost_bytes(hit.bytes()));
        assert_eq!((all(&late), all(&quick)), (Ok(6), Ok(1)));
        // A record longer than the whole list fails all dumps.
        feed.publish(&deltas(1));
        let longest = ChangeFeed::bounded(64);
        let subscriber = longest.open();
        longest.publish(&hit);
        assert!(all(&subscriber).is_err());
        assert_eq!(longest.held_bytes(), 0);
        assert_eq!((all(&late), all(&quick)), (Ok(1), Ok(1)));
    }

    #[test]
    fn the_change_list_takes_a_share_of_the_ceiling() {
        let most = |ceiling_mib: u64| ChangeFeed::new(ceiling_mib << 20).most_bytes;
        assert_eq!([1, 8, 16, 32, 64].map(most), [1 << 17, 512 << 10, 512 << 10, 1 << 20, 2 << 20]);
        assert_eq!([128, 1_024].map(most), [4 << 20, 32 << 20]);
    }

    #[test]
    fn pieces_count_towards_the_ceiling_until_dropped() {
        let feed = ChangeFeed::new(1 << 30);
        let piece = feed.piece(vec![0; 1_000]);
        assert_eq!(feed.held_bytes(), 1_000);
        assert_eq!(piece.as_ref().len(), 1_000);
        drop(piece);
        assert_eq!(feed.held_bytes(), 0);
    }
}
