//! The hits of closed panes, for `[[history]]`: which there are, and what became of them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize};

use lately::{Cursor, Op, Outcome, Pattern, Span, Timestamp};

use super::alerts::is_total;
use super::effect::Effect;
use super::{Service, Stats};
use crate::config::{History, RATELIMIT_PREFIX};
use crate::limits::WALK_STEP;

/// A stretch of time: its first millisecond, and one past its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pane {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

/// What became of the panes of one history.
#[derive(Debug)]
pub(crate) struct HistoryState {
    pub(crate) name: String,
    pattern: Pattern,
    interval: Span,
    delay: Span,
    /// The end of the newest pane whose hits were read, in milliseconds.
    read_to_ms: AtomicI64,
    /// The end of the newest pane that the receiver has, in milliseconds. 0 while it is not known.
    pub(crate) sent_to_ms: AtomicI64,
    /// Samples that the receiver took, and those that it refused.
    pub(crate) samples: AtomicU64,
    pub(crate) refused_samples: AtomicU64,
    /// Requests that are sent again.
    pub(crate) failures: AtomicU64,
    /// Hits in panes that had been read.
    pub(crate) late_hits: AtomicU64,
    /// Hits of keys past the most keys.
    pub(crate) left_out_hits: AtomicU64,
    /// Panes of keys whose hits were not known exactly.
    pub(crate) skipped_panes: AtomicU64,
    /// Time whose panes were merged before they were read.
    pub(crate) skipped_ms: AtomicU64,
    /// Keys that have samples.
    pub(crate) keys: AtomicUsize,
    /// The memory of these keys, and of samples that are not sent yet.
    pub(crate) held_bytes: AtomicUsize,
}

impl HistoryState {
    fn new(history: &History) -> HistoryState {
        HistoryState {
            name: history.name.clone(),
            pattern: history.pattern.clone(),
            interval: history.interval,
            delay: history.delay,
            read_to_ms: AtomicI64::new(0),
            sent_to_ms: AtomicI64::new(0),
            samples: AtomicU64::new(0),
            refused_samples: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            late_hits: AtomicU64::new(0),
            left_out_hits: AtomicU64::new(0),
            skipped_panes: AtomicU64::new(0),
            skipped_ms: AtomicU64::new(0),
            keys: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
        }
    }

    /// Notes that hits before a time are read from here on.
    pub(crate) fn read_to(&self, to: Timestamp) {
        self.read_to_ms.fetch_max(to.as_millis(), Relaxed);
    }

    /// Notes that the receiver has all panes before a time.
    pub(crate) fn sent_to(&self, to: Timestamp) {
        self.read_to(to);
        self.sent_to_ms.store(to.as_millis(), Relaxed);
    }

    /// How long ago the oldest pane was closed that the receiver does not have, 0 if it has all. `None` while that is not known.
    pub(crate) fn lag_ms(&self, now: Timestamp) -> Option<i64> {
        let sent_ms = Some(self.sent_to_ms.load(Relaxed)).filter(|ms| *ms > 0)?;
        let interval_ms = self.interval.as_millis();
        let end_ms = (sent_ms.div_euclid(interval_ms) + 1) * interval_ms;
        Some((now.as_millis() - end_ms - self.delay.as_millis()).max(0))
    }

    fn note_late(&self, key: &[u8], hits: u64, at: Timestamp) {
        if at.as_millis() < self.read_to_ms.load(Relaxed) && self.pattern.matches(key) {
            Stats::add(&self.late_hits, hits);
        }
    }
}

/// The states of all histories, in the order of the config.
pub(super) fn states(histories: &[History]) -> Vec<Arc<HistoryState>> {
    histories.iter().map(|history| Arc::new(HistoryState::new(history))).collect()
}

/// A key and its hits in a pane; `None` if they are not known exactly.
pub(crate) type PaneHits = (Box<[u8]>, Option<u64>);

/// A walk over the keys with hits in a pane, or with hits in the pane of the same width before it.
pub(crate) struct PaneWalk<'p> {
    pattern: &'p Pattern,
    pane: Pane,
    before: Option<Pane>,
    cursor: Cursor,
}

impl<'p> PaneWalk<'p> {
    pub(crate) fn new(pattern: &'p Pattern, pane: Pane) -> PaneWalk<'p> {
        let Pane { from, to } = pane;
        let before_ms = 2 * from.as_millis() - to.as_millis();
        let before = Timestamp::from_millis(before_ms).map(|before| Pane { from: before, to: from });
        PaneWalk { pattern, pane, before, cursor: Cursor::START }
    }

    /// Runs a slice, and adds what it finds. True at the end.
    pub(crate) fn step(&mut self, service: &Service, now: Timestamp, found: &mut Vec<PaneHits>) -> bool {
        let page = service.store.scan(self.cursor, Some(self.pattern), WALK_STEP, now);
        self.cursor = page.next;
        let hits = |key: &[u8], Pane { from, to }| service.store.own_hits_between(key, from, to, now);
        for key in page.keys.into_iter().filter(|key| service.has_history(key)) {
            let of_pane = hits(&key, self.pane);
            // The last sample of a key is a 0, so that a chart ends there.
            if of_pane != Some(0)
                || self.before.is_some_and(|before| hits(&key, before).is_some_and(|hits| hits > 0))
            {
                found.push((key, of_pane));
            }
        }
        self.cursor == Cursor::START
    }
}

impl Service {
    /// Whether a key may have samples. Totals of alerts are no keys of clients, and rules of envoyproxy/ratelimit have panes of their
    /// own widths.
    fn has_history(&self, key: &[u8]) -> bool {
        let is_of_rule = self.config.rule_folder.is_some() && key.starts_with(RATELIMIT_PREFIX.as_bytes());
        !is_total(key) && !is_of_rule
    }

    /// Notes the hits of executed operations that name a time whose pane has been read.
    #[inline]
    pub(super) fn note_late(&self, ops: &[Op<'_>], outcomes: &[Outcome]) {
        if !self.histories.is_empty() {
            self.note_late_hits(ops, outcomes);
        }
    }

    fn note_late_hits(&self, ops: &[Op<'_>], outcomes: &[Outcome]) {
        for (op, outcome) in ops.iter().zip(outcomes) {
            let (key, at): (&[u8], _) = match op {
                Op::Hit { key, at, .. } => (key, *at),
                Op::HitOnceAt(hit) => (hit.key, hit.at),
                Op::HitMember(hit) => (hit.key, hit.at),
                Op::Decide(request) => (request.key, request.at),
                Op::LimitAll(request) if request.at.is_some() => {
                    let is_counted = Effect::of(op).applied(outcome).counted > 0;
                    for limit in request.limits.iter().filter(|_| is_counted) {
                        self.note_late_hit(limit.key, request.cost, request.at);
                    }
                    continue;
                }
                _ => continue,
            };
            if at.is_some() {
                self.note_late_hit(key, Effect::of(op).applied(outcome).counted, at);
            }
        }
    }

    fn note_late_hit(&self, key: &[u8], hits: u64, at: Option<Timestamp>) {
        if let Some(at) = at.filter(|_| hits > 0) {
            self.histories.iter().for_each(|history| history.note_late(key, hits, at));
        }
    }
}
