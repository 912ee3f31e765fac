//! The keys with the most hits: of the busy keys, if they are for sure among these, else of all keys, by a walk. Both are
//! counted in slices, and between two slices other clients are served.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lately::{BusyKeys, Count, Cursor, Pattern, Span, Timestamp};

use crate::limits::WALK_STEP;
use crate::service::alerts::is_total;
use crate::service::cluster::Wait;
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
    window: Option<Span>,
    as_of: Timestamp,
    source: Source,
    /// Keys that may have most of their hits on other nodes. They are counted first.
    candidates: Candidates,
    left: VecDeque<Box<[u8]>>,
    ranking: Ranking,
}

/// Where the keys come from.
enum Source {
    /// Busy keys that are still to be counted. Others have fewer hits than some number.
    Busy(BusyKeys),
    All(Cursor),
}

/// The first keys of those that were ranked.
pub(crate) struct Ranking {
    most: usize,
    /// The memory that the keys may take.
    most_bytes: usize,
    /// A max-heap by rank: the last of the rows so far is on top, and is dropped when there are too many.
    rows: BinaryHeap<Found>,
    key_bytes: usize,
    others_upper: Option<u64>,
}

/// The hits of a key, the key, and the lower and upper bound of its hits.
type Found = (Reverse<u64>, Box<[u8]>, (u64, Option<u64>));

/// Keys with their hits, most first.
pub(crate) type RankedKeys = Vec<(Box<[u8]>, u64)>;

impl Ranking {
    /// None yet. `most` keys and `most_bytes` of them are kept.
    pub(crate) fn new(most: usize, most_bytes: usize) -> Ranking {
        Ranking { most, most_bytes, rows: BinaryHeap::new(), key_bytes: 0, others_upper: Some(0) }
    }

    /// Ranks a key with these hits.
    pub(crate) fn rank(&mut self, key: &[u8], count: &Count) {
        let is_behind =
            |(Reverse(hits), last, _): &Found| (Reverse(*hits), &**last) < (Reverse(count.estimate), key);
        let is_full = self.rows.len() == self.most;
        if count.estimate == 0 || self.most == 0 || is_full && self.rows.peek().is_some_and(is_behind) {
            self.leave_out(count.upper);
            return;
        }
        self.key_bytes += heap_bytes(key);
        self.rows.push((Reverse(count.estimate), key.into(), (count.lower, count.upper)));
        while (self.rows.len() > self.most || self.key_bytes > self.most_bytes)
            && let Some((_, key, (_, upper))) = self.rows.pop()
        {
            self.key_bytes -= heap_bytes(&key);
            self.leave_out(upper);
        }
    }

    fn leave_out(&mut self, upper: Option<u64>) {
        self.others_upper = self.others_upper.zip(upper).map(|(most, upper)| most.max(upper));
    }

    /// Forgets all keys.
    fn clear(&mut self) {
        let knows_others = self.others_upper.is_some();
        *self = Ranking::new(self.most, self.most_bytes);
        self.others_upper = knows_others.then_some(0);
    }

    /// Whether keys with at most this many hits are behind those that are kept.
    fn is_ahead_of(&self, hits: u64) -> bool {
        let is_full = self.rows.len() == self.most;
        hits == 0 || is_full && self.rows.peek().is_some_and(|(Reverse(last), ..)| *last > hits)
    }

    /// The keys and their hits, most first, and the most hits that another key can have.
    pub(crate) fn into_keys(self) -> (RankedKeys, Option<u64>) {
        let rows = self.rows.into_sorted_vec().into_iter();
        (rows.map(|(Reverse(hits), key, _)| (key, hits)).collect(), self.others_upper)
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.key_bytes + self.rows.capacity() * size_of::<Found>()
    }
}

/// Keys that may be among the most-hit ones, because of what other nodes counted of them.
#[derive(Default)]
pub(crate) struct Candidates {
    pub(crate) keys: HashSet<Box<[u8]>>,
    /// The most hits that the other nodes have counted of another key. `None` if that is not known.
    pub(crate) most_of_others: Option<u64>,
}

/// The most-hit keys, most first, those with equal hits by key.
pub(crate) struct TopKeys {
    /// The end of the window.
    pub(crate) as_of: Timestamp,
    pub(crate) rows: Vec<TopRow>,
    /// The most hits that any other key can have. `None` if that is not known.
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
        let candidates = service.candidates(asked, now);
        let mut ranking = Ranking::new(count, usize::MAX);
        if !is_kept || candidates.most_of_others.is_none() {
            ranking.others_upper = None;
        }
        TopWalk {
            prefix: prefix.into(),
            pattern: pattern.cloned(),
            window,
            as_of,
            source: busy.map_or(Source::All(Cursor::START), Source::Busy),
            left: candidates.keys.iter().cloned().collect(),
            candidates,
            ranking,
        }
    }

    /// Runs a slice. True at the end.
    pub(crate) fn step(&mut self, service: &Service, now: Timestamp) -> bool {
        if !self.left.is_empty() {
            let keys: Vec<_> = self.left.drain(..self.left.len().min(WALK_STEP)).collect();
            self.count(&keys, service, now);
            return false;
        }
        match &mut self.source {
            Source::Busy(busy) => {
                let rest = busy.keys.len().saturating_sub(WALK_STEP);
                let mut keys = busy.keys.split_off(rest);
                keys.retain(|key| self.pattern.as_ref().is_none_or(|pattern| pattern.matches(key)));
                let (is_last, most_of_others) = (busy.keys.is_empty(), busy.most_of_others);
                self.count(&keys, service, now);
                if !is_last {
                    return false;
                }
                if self.ranking.is_ahead_of(most_of_others) {
                    self.ranking.leave_out(Some(most_of_others));
                    return true;
                }
                self.ranking.clear();
                self.source = Source::All(Cursor::START);
                false
            }
            Source::All(cursor) => {
                let mut page = service.store.scan(*cursor, self.pattern.as_ref(), WALK_STEP, now);
                *cursor = page.next;
                page.keys.retain(|key| {
                    key.starts_with(&self.prefix) && !is_total(key) && !self.candidates.keys.contains(key)
                });
                self.count(&page.keys, service, now);
                page.next == Cursor::START
            }
        }
    }

    /// Ranks more keys.
    fn count(&mut self, keys: &[Box<[u8]>], service: &Service, now: Timestamp) {
        let counts = service.counts_of(keys, self.window, self.as_of, now);
        keys.iter().zip(counts).for_each(|(key, count)| self.ranking.rank(key, &count));
    }

    /// The rows. In a cluster, the hits that other nodes counted of these keys are read for the next question.
    pub(crate) fn finish(self, service: &Service, now: Timestamp) -> TopKeys {
        let TopWalk { window, as_of, ranking, candidates, .. } = self;
        let row = |(Reverse(hits), key, (lower, upper)): Found| {
            let window = window.unwrap_or_else(|| service.default_window(&key));
            service.note_question(Asked { key: &key, window: Some(window), at: None }, now);
            let rate = rate(hits, service.panes_of(&key, Some(window)));
            TopRow { key, window, hits, lower, upper, rate }
        };
        let others_upper = ranking.others_upper.zip(candidates.most_of_others);
        TopKeys {
            as_of,
            rows: ranking.rows.into_sorted_vec().into_iter().map(row).collect(),
            others_upper: others_upper.map(|(here, there)| here.saturating_add(there)),
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let busy = match &self.source {
            Source::Busy(busy) => {
                busy.keys.iter().map(|key| heap_bytes(key)).sum::<usize>()
                    + busy.keys.capacity() * size_of::<Box<[u8]>>()
            }
            Source::All(_) => 0,
        };
        // The keys of the candidates are there twice, until they are counted.
        let candidates = self.candidates.keys.iter().chain(&self.left);
        let candidates = candidates.map(|key| heap_bytes(key) + 2 * size_of::<Box<[u8]>>()).sum::<usize>();
        self.prefix.len() + self.ranking.held_bytes() + busy + candidates
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
    /// Keys to be counted first for a question.
    fn candidates(&self, asked: TopQuestion<'_>, now: Timestamp) -> Candidates {
        let alone = || Candidates { most_of_others: Some(0), ..Candidates::default() };
        self.cluster.as_ref().map_or_else(alone, |cluster| cluster.candidates(asked, now))
    }

    /// Notes that keys are asked for which may have hits of other nodes. Returns what to wait for before the search, and the longest wait.
    pub(crate) fn wait_for_top(
        &self,
        asked: TopQuestion<'_>,
        now: Timestamp,
    ) -> Option<(Arc<Wait>, Duration)> {
        let window = asked.window;
        let keys = self.candidates(asked, now).keys;
        self.wait_for(keys.iter().map(|key| Asked { key, window, at: None }), now)
    }

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
        if let Some((wait, timeout)) = self.wait_for_top(asked, self.now()) {
            // A timeout is not an error: the answer uses the counts that are known.
            self.over(&wait, timeout).await;
        }
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
