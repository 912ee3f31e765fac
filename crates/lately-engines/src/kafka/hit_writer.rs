//! Hits of clients that become records of the hits topic.
//!
//! A hit is acknowledged once the brokers have acknowledged its record. So they keep what this node would have to keep, and nothing has to be
//! written again after a start.

use std::collections::HashMap;
use std::fmt::{Debug, Formatter};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
#[cfg(feature = "kafka")]
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lately::Timestamp;
use tokio::sync::Notify;

use crate::limits::KAFKA_MOST_HITS;

/// Hits that are to be written: one record has the hits of a key at a time. Each hit with an id or a member has its own, in their order.
#[derive(Default, Debug)]
pub struct HitRecords {
    hits: HashMap<(Box<[u8]>, Timestamp), u64>,
    alone: Vec<Alone>,
    bytes: usize,
}

/// Hits with an id or a member.
#[derive(Debug)]
struct Alone {
    key: Box<[u8]>,
    at: Timestamp,
    hits: u64,
    id: Option<Box<[u8]>>,
    member: Option<Box<[u8]>>,
}

/// Hits of a key at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HitRecord<'r> {
    /// The key.
    pub key: &'r [u8],
    /// When they happened.
    pub at: Timestamp,
    /// How many.
    pub hits: u64,
    /// Their id.
    pub id: Option<&'r [u8]>,
    /// Whose hits they are.
    pub member: Option<&'r [u8]>,
}

impl HitRecords {
    /// The most hits of a record.
    pub const MOST_HITS: u64 = KAFKA_MOST_HITS;

    /// Adds hits. Those with an id or a member are [`HitRecords::MOST_HITS`] at most.
    pub fn add(&mut self, record: HitRecord<'_>) {
        let HitRecord { key, at, hits, id, member } = record;
        if hits == 0 {
            return;
        }
        if id.is_some() || member.is_some() {
            let texts: usize = id.iter().chain(&member).map(|text| text.len()).sum();
            self.bytes += key.len() + texts + size_of::<Alone>();
            let [id, member] = [id, member].map(|text| text.map(Box::from));
            self.alone.push(Alone { key: key.into(), at, hits, id, member });
            return;
        }
        let bytes = key.len() + size_of::<((Box<[u8]>, Timestamp), u64)>();
        let held = self.hits.entry((key.into(), at)).or_insert_with(|| {
            self.bytes += bytes;
            0
        });
        *held = held.saturating_add(hits);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hits.is_empty() && self.alone.is_empty()
    }

    /// Removes all.
    pub fn clear(&mut self) {
        *self = HitRecords::default();
    }

    /// Memory that they take, in bytes, about.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// All records.
    pub fn iter(&self) -> impl Iterator<Item = HitRecord<'_>> {
        let alone = self.alone.iter().map(|Alone { key, at, hits, id, member }| HitRecord {
            key,
            at: *at,
            hits: *hits,
            id: id.as_deref(),
            member: member.as_deref(),
        });
        let others = self.hits.iter().flat_map(|((key, at), hits)| {
            let whole = hits / HitRecords::MOST_HITS;
            let rest = Some(hits % HitRecords::MOST_HITS).filter(|rest| *rest > 0);
            let each = (0..whole).map(|_| HitRecords::MOST_HITS).chain(rest);
            each.map(|hits| HitRecord { key, at: *at, hits, id: None, member: None })
        });
        alone.chain(others)
    }
}

/// Records that were given to the brokers together.
pub struct Delivery {
    progress: Mutex<Progress>,
    done: Notify,
    /// Called once the result is there.
    on_done: Option<Arc<dyn Fn() + Send + Sync>>,
}

struct Progress {
    waiting: usize,
    failure: Option<String>,
}

/// The result of a delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivered {
    /// It is not known yet.
    Pending,
    /// All brokers that keep the records have them.
    Written,
    /// Some records may be in the topic, and others not.
    Failed(String),
}

impl Default for Delivery {
    fn default() -> Delivery {
        // Until all records are given, it cannot be done.
        let progress = Mutex::new(Progress { waiting: 1, failure: None });
        Delivery { progress, done: Notify::new(), on_done: None }
    }
}

impl Debug for Delivery {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Delivery").field(&self.state()).finish()
    }
}

impl Delivery {
    /// A delivery that calls a function when its result is there.
    #[must_use]
    pub fn calling(on_done: Arc<dyn Fn() + Send + Sync>) -> Delivery {
        Delivery { on_done: Some(on_done), ..Delivery::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result so far.
    #[must_use]
    pub fn state(&self) -> Delivered {
        let progress = self.lock();
        match &progress.failure {
            _ if progress.waiting > 0 => Delivered::Pending,
            None => Delivered::Written,
            Some(failure) => Delivered::Failed(failure.clone()),
        }
    }

    /// A record was given, or all are.
    pub fn note(&self, failure: Option<String>) {
        let is_done = {
            let mut progress = self.lock();
            progress.waiting -= 1;
            progress.failure = progress.failure.take().or(failure);
            progress.waiting == 0
        };
        if is_done {
            self.done.notify_waiters();
            self.on_done.iter().for_each(|on_done| on_done());
        }
    }

    /// A record is given: [`Delivery::note`] will be called once more.
    #[cfg(any(test, feature = "kafka"))]
    pub(super) fn add(&self) {
        self.lock().waiting += 1;
    }

    /// It was not.
    #[cfg(feature = "kafka")]
    pub(super) fn remove(&self) {
        self.lock().waiting -= 1;
    }

    #[cfg(feature = "kafka")]
    pub(super) async fn wait(&self) -> Result<(), String> {
        loop {
            let mut done = std::pin::pin!(self.done.notified());
            // Registered before the check, so that no notification is missed.
            done.as_mut().enable();
            match self.state() {
                Delivered::Pending => done.await,
                Delivered::Written => return Ok(()),
                Delivered::Failed(failure) => return Err(failure),
            }
        }
    }
}

/// Writes hits of clients.
pub trait WriteHits: Send + Sync {
    /// Writes records with the time `now`, and does not wait. `delivery` gets the result.
    ///
    /// # Errors
    /// Why nothing is written. `delivery` gets no result.
    fn write(&self, records: &HitRecords, now: Timestamp, delivery: &Arc<Delivery>) -> Result<(), String>;
}

/// Keeps hits back until the topic is found: a topic that is missing must not be made by the first hit.
#[derive(Default, Debug)]
pub struct HitGate(AtomicBool);

impl HitGate {
    #[cfg(feature = "kafka")]
    pub(super) fn open(&self) {
        self.0.store(true, Release);
    }

    /// Whether the topic is found.
    pub fn is_open(&self) -> bool {
        self.0.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    #[test]
    fn hits_of_a_key_at_a_time_are_one_record() {
        let mut records = HitRecords::default();
        let record = |key: &'static str, ms, hits| HitRecord {
            key: key.as_bytes(),
            at: at(ms),
            hits,
            id: None,
            member: None,
        };
        records.add(record("a", 1, 0));
        assert!(records.is_empty() && records.held_bytes() == 0);
        let most = HitRecords::MOST_HITS;
        for (key, ms, hits) in [("a", 1, 2), ("b", 1, 5), ("a", 1, 3), ("a", 2, most), ("a", 2, 7)] {
            records.add(record(key, ms, hits));
        }
        // Hits with an id stay apart, also those that are sent again: these may have other counts.
        let with_id = |hits| HitRecord { id: Some(b"i"), ..record("a", 1, hits) };
        records.add(with_id(2));
        records.add(with_id(1));
        let with_member = HitRecord { member: Some(b"m"), ..record("a", 1, 4) };
        records.add(with_member);
        let mut all: Vec<_> = records.iter().collect();
        assert_eq!(all.drain(..3).collect::<Vec<_>>(), [with_id(2), with_id(1), with_member]);
        all.sort();
        assert_eq!(all, [record("a", 1, 5), record("a", 2, 7), record("a", 2, most), record("b", 1, 5)]);
        assert!(records.held_bytes() > 0);
        records.clear();
        assert!(records.is_empty() && records.held_bytes() == 0);
    }

    #[test]
    fn a_delivery_is_done_when_all_records_are() {
        let calls = Arc::new(AtomicUsize::new(0));
        let delivery = || {
            let calls = Arc::clone(&calls);
            Delivery::calling(Arc::new(move || _ = calls.fetch_add(1, Relaxed)))
        };
        let whole = delivery();
        whole.add();
        whole.note(None);
        assert_eq!((whole.state(), calls.load(Relaxed)), (Delivered::Pending, 0));
        whole.note(None);
        assert_eq!((whole.state(), calls.load(Relaxed)), (Delivered::Written, 1));
        let failed = delivery();
        failed.add();
        failed.note(None);
        failed.add();
        failed.note(Some("no".to_owned()));
        failed.note(None);
        assert_eq!((failed.state(), calls.load(Relaxed)), (Delivered::Failed("no".to_owned()), 2));
    }
}
