//! The keys with the most hits: of the busy keys, if they are for sure among these, else of all keys, by a walk. Both are
//! counted in slices, and between two slices other clients are served.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use lately::{BusyKeys, Cursor, Pattern, Span, Timestamp};

use crate::limits::WALK_STEP;
use crate::service::alerts::is_total;
use crate::service::{Asked, Service, rate};

/// What is asked for.
#[derive(Clone, Copy)]
pub(crate) struct TopQuestion<'q> {
    /// The most keys to return.
    pub(crate) count: usize,
    /// `None` is the default window of each key's class.
    pub(crate) window: Option<Span>,
    /// Only keys that begin with this.
    pub(crate) prefix: &'q [u8],
    /// Only keys that match this.
    pub(crate) pattern: Option<&'q Pattern>,
}

/// The search for the most-hit keys of a window that ends when it begins.
pub(crate) struct TopWalk {
    prefix: Box<[u8]>,
    pattern: Option<Pattern>,
    count: usize,
    window: Option<Span>,
    as_of: Timestamp,
    source: Source,
    /// A max-heap by rank: the last of the rows found so far is on top, and is dropped when there are too many.
    rows: BinaryHeap<Found>,
    key_bytes: usize,
    others_upper: Option<u64>,
}

/// Where the keys come from.
enum Source {
    /// Busy keys that are still to be counted. Others have fewer hits than some number.
    Busy(BusyKeys),
    All(Cursor),
}

/// The hits of a key, the key, and the lower and upper bound of its hits.
type Found = (Reverse<u64>, Box<[u8]>, (u64, Option<u64>));

/// The most-hit keys, most first, those with equal hits by key.
pub(crate) struct TopKeys {
    /// The end of the window.
    pub(crate) as_of: Timestamp,
    pub(crate) rows: Vec<TopRow>,
    /// The most hits that any other key can have. `None` in a cluster, and when the window reaches beyond a retention.
    pub(crate) others_upper: Option<u64>,
}

pub(crate) struct TopRow {
    pub(crate) key: Box<[u8]>,
    pub(crate) window: Span,
    pub(crate) hits: u64,
    pub(crate) lower: u64,
    /// `None` when the window reaches beyond the retention.
    pub(crate) upper: Option<u64>,
    /// Hits per second.
    pub(crate) rate: f64,
}

impl TopWalk {
    /// The search for keys with hits in the window.
    pub(crate) fn new(service: &Service, asked: TopQuestion<'_>, now: Timestamp) -> TopWalk {
        let TopQuestion { count, window, prefix, pattern } = asked;
        let as_of = service.time_of(now);
        let is_kept = window.is_none_or(|window| service.store.keeps(window, as_of, now));
        // What other nodes counted may make other keys the most-hit ones.
        let is_alone = service.cluster.is_none() && count > 0;
        let busy = is_alone.then(|| service.store.busy_keys(window, prefix, as_of)).flatten();
        TopWalk {
            prefix: prefix.into(),
            pattern: pattern.cloned(),
            count,
            window,
            as_of,
            source: busy.map_or(Source::All(Cursor::START), Source::Busy),
            rows: BinaryHeap::new(),
            key_bytes: 0,
            // Nor are the keys known that only other nodes have counted.
            others_upper: (is_kept && service.cluster.is_none()).then_some(0),
        }
    }

    /// Runs a slice. True at the end.
    pub(crate) fn step(&mut self, service: &Service, now: Timestamp) -> bool {
        match &mut self.source {
            Source::Busy(busy) => {
                let rest = busy.keys.len().saturating_sub(WALK_STEP);
                let mut keys = busy.keys.split_off(rest);
                keys.retain(|key| self.pattern.as_ref().is_none_or(|pattern| pattern.matches(key)));
                let (is_last, most_of_others) = (busy.keys.is_empty(), busy.most_of_others);
                self.count(keys, service, now);
                if !is_last {
                    return false;
                }
                if self.is_sure(most_of_others) {
                    self.leave_out(Some(most_of_others));
                    return true;
                }
                self.rows.clear();
                self.key_bytes = 0;
                self.others_upper = self.others_upper.map(|_| 0);
                self.source = Source::All(Cursor::START);
                false
            }
            Source::All(cursor) => {
                let mut page = service.store.scan(*cursor, self.pattern.as_ref(), WALK_STEP, now);
                *cursor = page.next;
                page.keys.retain(|key| key.starts_with(&self.prefix) && !is_total(key));
                self.count(page.keys, service, now);
                page.next == Cursor::START
            }
        }
    }

    /// Whether no other key than those that were counted can be among the rows.
    fn is_sure(&self, most_of_others: u64) -> bool {
        let is_full = self.rows.len() == self.count;
        most_of_others == 0
            || is_full && self.rows.peek().is_some_and(|(Reverse(hits), ..)| *hits > most_of_others)
    }

    /// Ranks more keys.
    fn count(&mut self, keys: Vec<Box<[u8]>>, service: &Service, now: Timestamp) {
        let counts = service.counts_of(&keys, self.window, self.as_of, now);
        for (key, count) in keys.into_iter().zip(counts) {
            let found = (Reverse(count.estimate), key, (count.lower, count.upper));
            if count.estimate == 0 || self.count == 0 || self.is_behind(&found) {
                self.leave_out(count.upper);
                continue;
            }
            self.key_bytes += heap_bytes(&found.1);
            self.rows.push(found);
            if self.rows.len() > self.count
                && let Some((_, key, (_, upper))) = self.rows.pop()
            {
                self.key_bytes -= heap_bytes(&key);
                self.leave_out(upper);
            }
        }
    }

    /// Whether there are enough rows before this one.
    fn is_behind(&self, found: &Found) -> bool {
        self.rows.len() == self.count && self.rows.peek().is_some_and(|last| last < found)
    }

    fn leave_out(&mut self, upper: Option<u64>) {
        self.others_upper = self.others_upper.zip(upper).map(|(most, upper)| most.max(upper));
    }

    /// The rows. In a cluster, the hits that other nodes counted of these keys are read for the next question.
    pub(crate) fn finish(self, service: &Service, now: Timestamp) -> TopKeys {
        let TopWalk { window, as_of, rows, others_upper, .. } = self;
        let row = |(Reverse(hits), key, (lower, upper)): Found| {
            let window = window.unwrap_or_else(|| service.default_window(&key));
            service.note_question(Asked { key: &key, window: Some(window), at: None }, now);
            let rate = rate(hits, service.panes_of(&key, Some(window)));
            TopRow { key, window, hits, lower, upper, rate }
        };
        TopKeys { as_of, rows: rows.into_sorted_vec().into_iter().map(row).collect(), others_upper }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let busy = match &self.source {
            Source::Busy(busy) => {
                busy.keys.iter().map(|key| heap_bytes(key)).sum::<usize>()
                    + busy.keys.capacity() * size_of::<Box<[u8]>>()
            }
            Source::All(_) => 0,
        };
        self.prefix.len() + self.key_bytes + self.rows.capacity() * size_of::<Found>() + busy
    }
}

/// Memory of a key by itself.
fn heap_bytes(key: &[u8]) -> usize {
    (key.len() + size_of::<usize>()).next_multiple_of(16).max(32)
}

/// There is no memory for the answer.
pub(crate) struct NoRoom;

/// Memory of an answer, charged until this is dropped.
pub(crate) struct Held {
    service: Arc<Service>,
    bytes: usize,
}

impl Held {
    /// More memory is needed while the answer has what it had.
    ///
    /// # Errors
    /// [`NoRoom`]: connections and answers already take their share of the memory ceiling.
    pub(crate) fn hold_more(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.hold(self.bytes + bytes)
    }

    fn hold(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes > self.bytes && !self.service.may_hold(self.bytes, bytes) {
            return Err(NoRoom);
        }
        self.service.charge(self.bytes, bytes);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.service.charge(self.bytes, 0);
    }
}

impl Service {
    /// Has no walk over all keys begin while this is held.
    #[cfg(test)]
    pub(crate) async fn all_walks(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.walks
            .acquire_many(u32::try_from(crate::limits::MAX_WALKS).expect("few"))
            .await
            .expect("it is never closed")
    }

    /// The most-hit keys, and the charge for them. For async callers: other requests have their turns meanwhile.
    ///
    /// # Errors
    /// [`NoRoom`]: connections and answers already take their share of the memory ceiling.
    pub(crate) async fn top(self: &Arc<Service>, asked: TopQuestion<'_>) -> Result<(TopKeys, Held), NoRoom> {
        let _turn = self.walks.acquire().await.expect("it is never closed");
        let mut held = Held { service: Arc::clone(self), bytes: 0 };
        let mut walk = TopWalk::new(self, asked, self.now());
        while !walk.step(self, self.now()) {
            held.hold(walk.held_bytes())?;
            tokio::task::yield_now().await;
        }
        held.hold(walk.held_bytes())?;
        Ok((walk.finish(self, self.now()), held))
    }
}
