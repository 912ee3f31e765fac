//! Alerts: the totals that their rules compare, and their evaluation.
//!
//! The hits of all keys that match the pattern of a rule are counted once more, in a key of the store that clients do not see:
//! its total. It is written with the hits that it counts, so it is in the journal, survives a restart, and goes to
//! other nodes of a cluster, like any key. Evaluating a rule reads one key, however many match its pattern.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use lately::{Cursor, DeltaBatch, HitError, Op, Outcome, Pattern, Settings, SettingsError, Span, Timestamp};
use tokio::sync::{Notify, broadcast};

use super::commit::Changes;
use super::effect::Effect;
use super::{Asked, Service, TopQuestion};
use crate::alerts::{AlertRule, Change, Condition, Reading, State, Watched, total_settings};
use crate::config::Alert;
use crate::limits::{
    ALERT_KEYS, BELOW_LAG_MS, LEAST_ALERT_WINDOW, MAX_ALERT_WEIGHT, MAX_ALERTS, MAX_ENDED_ALERTS,
    MAX_UNREAD_ALERTS, RUN_OPERATIONS, WALK_STEP,
};
use crate::service::notice::{Cause, Notice, Stage};

/// The start of the keys that have totals. The pattern follows.
const TOTAL: &[u8] = b"\0alert:";

/// Why a client cannot change a total.
pub(super) const RESERVED: HitError = HitError::Reserved {
    hint: "those that begin with a zero byte and 'alert:' have the totals of alerts: take another one",
};

/// Whether a key is the total of an alert, which clients do not see.
#[inline]
pub(super) fn is_total(key: &[u8]) -> bool {
    key.starts_with(TOTAL)
}

/// Whether an operation may change a total.
#[inline]
fn is_on_total(op: &Op<'_>) -> bool {
    match op {
        Op::Hit { key, .. } | Op::HitOnce { key, .. } | Op::Limit { key, .. } | Op::Throttle { key, .. } => {
            is_total(key)
        }
        Op::HitOnceAt(hit) => is_total(hit.key),
        Op::HitMember(hit) => is_total(hit.key),
        Op::Decide(request) | Op::Refund(request) => is_total(request.key),
        Op::ThrottleBy(request) => is_total(request.key),
        Op::LimitAll(request) => request.limits.iter().any(|limit| is_total(limit.key)),
        _ => false,
    }
}

/// The class of totals.
pub(super) fn class(max_skew: Span) -> Result<(Pattern, Settings), SettingsError> {
    Ok((Pattern::new(b"\0alert:*"), total_settings(max_skew)?))
}

/// All alerts of a server.
pub(crate) struct Alerts {
    /// Whether there are rules.
    has_any: AtomicBool,
    totals: RwLock<Totals>,
    active: Mutex<Vec<Active>>,
    /// Those that ended last, the newest first.
    ended: Mutex<VecDeque<Arc<Notice>>>,
    notices: broadcast::Sender<Arc<Notice>>,
    /// How many were published.
    published: AtomicU64,
    /// Notified when the rules were replaced.
    pub(crate) replaced: Notify,
}

/// A rule with its state.
struct Active {
    alert: Arc<Alert>,
    watched: Watched,
    /// The keys that contributed when it started.
    keys: Arc<[Cause]>,
    /// How often it started, also under earlier rules of this name.
    starts: u64,
}

/// The figures of an alert.
pub(crate) struct AlertFigures {
    pub(crate) alert: Arc<Alert>,
    pub(crate) stage: Stage,
    /// What was read when it was last evaluated.
    pub(crate) reading: Reading,
    pub(crate) starts: u64,
}

/// The totals to count, each once.
#[derive(Default)]
struct Totals {
    all: Vec<Total>,
    /// By the first byte of a key: a bit for each total that it may count for.
    by_first_byte: Vec<u64>,
}

struct Total {
    /// Its key.
    key: Box<[u8]>,
    pattern: Pattern,
}

const _: () = assert!(MAX_ALERTS <= 64, "a word has a bit for each total");

/// Hits to add to totals.
struct Counted {
    now: [u64; MAX_ALERTS],
    /// Hits that name a time.
    timed: Vec<(usize, Timestamp, u64)>,
}

/// The key of the total of a pattern.
fn total_key(pattern: &Pattern) -> Box<[u8]> {
    [TOTAL, pattern.as_bytes()].concat().into()
}

impl Totals {
    fn new(alerts: &[Alert]) -> Totals {
        let mut all: Vec<Total> = Vec::new();
        for alert in alerts {
            let pattern = &alert.rule.pattern;
            if all.iter().all(|total| total.pattern != *pattern) {
                all.push(Total { key: total_key(pattern), pattern: pattern.clone() });
            }
        }
        let may = |byte: u8| {
            let bit = |(index, total): (usize, &Total)| {
                let first = total.pattern.head().0.first();
                u64::from(first.is_none_or(|first| *first == byte)) << index
            };
            all.iter().enumerate().map(bit).fold(0, |bits, bit| bits | bit)
        };
        let by_first_byte = (0..=u8::MAX).map(may).collect();
        Totals { all, by_first_byte }
    }

    /// The totals that count a key.
    #[inline]
    fn of(&self, key: &[u8]) -> impl Iterator<Item = usize> {
        let first = key.first().map_or(0, |first| usize::from(*first));
        let mut bits = self.by_first_byte.get(first).copied().unwrap_or(0);
        std::iter::from_fn(move || {
            while bits != 0 {
                let index = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if self.all[index].counts(key) {
                    return Some(index);
                }
            }
            None
        })
    }
}

impl Total {
    #[inline]
    fn counts(&self, key: &[u8]) -> bool {
        let (head, rest) = self.pattern.head();
        key.starts_with(head)
            && match rest {
                [b'*'] => true,
                [] => key.len() == head.len(),
                _ => self.pattern.matches(key),
            }
    }
}

impl Counted {
    fn new() -> Counted {
        Counted { now: [0; MAX_ALERTS], timed: Vec::new() }
    }

    #[inline]
    fn add(&mut self, totals: &Totals, key: &[u8], hits: u64, at: Option<Timestamp>) {
        let hits = hits.min(MAX_ALERT_WEIGHT);
        for index in totals.of(key) {
            match at {
                None => self.now[index] = self.now[index].saturating_add(hits),
                Some(at) => self.add_timed(index, at, hits),
            }
        }
    }

    fn add_timed(&mut self, index: usize, at: Timestamp, hits: u64) {
        // Hits of one pane are added together.
        let pane = |at: Timestamp| at.as_millis() / LEAST_ALERT_WINDOW.as_millis();
        match self.timed.iter_mut().find(|(of, time, _)| *of == index && pane(*time) == pane(at)) {
            Some((_, time, sum)) => (*time, *sum) = (at.max(*time), sum.saturating_add(hits)),
            None => self.timed.push((index, at, hits)),
        }
    }

    /// Adds the hits of an operation that is no plain hit.
    fn add_other(&mut self, totals: &Totals, op: &Op<'_>, outcome: &Outcome) {
        let hits = Effect::of(op).applied(outcome).counted;
        if hits == 0 {
            return;
        }
        let (key, at): (&[u8], _) = match op {
            Op::HitOnce { key, .. } | Op::Limit { key, .. } | Op::Throttle { key, .. } => (key, None),
            Op::HitOnceAt(hit) => (hit.key, hit.at),
            Op::HitMember(hit) => (hit.key, hit.at),
            Op::Decide(request) => (request.key, request.at),
            Op::ThrottleBy(request) => (request.key, None),
            Op::LimitAll(request) => {
                // Each key is hit once.
                for (index, limit) in request.limits.iter().enumerate() {
                    if request.limits[..index].iter().all(|before| before.key != limit.key) {
                        self.add(totals, limit.key, request.cost, request.at);
                    }
                }
                return;
            }
            _ => return,
        };
        self.add(totals, key, hits, at);
    }

    fn ops<'t>(&self, totals: &'t Totals) -> Vec<Op<'t>> {
        let hit = |index: usize, weight, at| Op::Hit { key: &totals.all[index].key, weight, at };
        let now = self.now.iter().enumerate().filter(|(_, hits)| **hits > 0);
        let now = now.map(|(index, hits)| hit(index, *hits, None));
        now.chain(self.timed.iter().map(|&(index, at, hits)| hit(index, hits, Some(at)))).collect()
    }
}

impl Alerts {
    pub(crate) fn new(alerts: &[Alert], now: Timestamp) -> Alerts {
        let all = Alerts {
            has_any: AtomicBool::new(false),
            totals: RwLock::default(),
            active: Mutex::default(),
            ended: Mutex::default(),
            notices: broadcast::Sender::new(MAX_UNREAD_ALERTS),
            published: AtomicU64::new(0),
            replaced: Notify::new(),
        };
        all.replace(alerts, now);
        all
    }

    /// Whether there are rules.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Relaxed)
    }

    /// The totals that count hits of a key, each with the hits that it counts.
    #[cfg(feature = "kafka")]
    pub(super) fn totals_of(&self, key: &[u8], hits: u64) -> Vec<(Box<[u8]>, u64)> {
        if !self.has_any() {
            return Vec::new();
        }
        let totals = self.totals.read().unwrap_or_else(PoisonError::into_inner);
        totals.of(key).map(|index| (totals.all[index].key.clone(), hits.min(MAX_ALERT_WEIGHT))).collect()
    }

    /// A feed of the alerts that start or end from now on. A reader that is too far behind gets an error.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.notices.subscribe()
    }

    /// How many alerts were published. Who sees a number finds these in the feed.
    pub(crate) fn published(&self) -> u64 {
        // Pairs with the addition in `publish_alert`.
        self.published.load(Acquire)
    }

    /// The rules, in the order of the config.
    pub(crate) fn rules(&self) -> Vec<Arc<Alert>> {
        self.active().iter().map(|active| Arc::clone(&active.alert)).collect()
    }

    fn active(&self) -> MutexGuard<'_, Vec<Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the rules. One that stays the same keeps its state. Returns the alerts that fired and whose rule is gone or another
    /// one, and the keys of the totals that nothing reads any more.
    fn replace(&self, alerts: &[Alert], now: Timestamp) -> (Vec<Notice>, Vec<Box<[u8]>>) {
        let mut active = self.active();
        let mut counted: BTreeMap<Box<[u8]>, Timestamp> = BTreeMap::new();
        let mut before: BTreeMap<String, Active> = BTreeMap::new();
        for one in active.drain(..) {
            counted.insert(total_key(&one.alert.rule.pattern), one.watched.counted_since());
            before.insert(one.alert.rule.name.clone(), one);
        }
        for alert in alerts {
            let kept = before.remove(&alert.rule.name);
            let next = match kept {
                Some(kept) if kept.alert.rule == alert.rule => {
                    Active { alert: Arc::new(alert.clone()), ..kept }
                }
                other => {
                    let starts = other.as_ref().map_or(0, |other| other.starts);
                    before.extend(other.map(|other| (alert.rule.name.clone(), other)));
                    let since = counted.get(&total_key(&alert.rule.pattern)).copied().unwrap_or(now);
                    let watched = Watched::new(alert.rule.clone(), now).counted_from(since);
                    Active { alert: Arc::new(alert.clone()), watched, keys: Arc::default(), starts }
                }
            };
            active.push(next);
        }
        let ended = before.values().filter_map(|gone| match gone.watched.state() {
            State::Firing { started, .. } => Some(gone.notice(Stage::Ended, started, now)),
            _ => None,
        });
        let ended = ended.collect();
        let totals = Totals::new(alerts);
        for total in &totals.all {
            counted.remove(&total.key);
        }
        *self.totals.write().unwrap_or_else(PoisonError::into_inner) = totals;
        self.has_any.store(!alerts.is_empty(), Relaxed);
        (ended, counted.into_keys().collect())
    }
}

impl Active {
    fn notice(&self, stage: Stage, since: Timestamp, as_of: Timestamp) -> Notice {
        let reading = self.watched.last();
        Notice {
            alert: Arc::clone(&self.alert),
            stage,
            as_of,
            hits: reading.hits,
            baseline: reading.baseline,
            peak: self.watched.peak(),
            since,
            ended: (stage == Stage::Ended).then_some(as_of),
            keys: Arc::clone(&self.keys),
        }
    }

    fn shown(&self, now: Timestamp) -> Option<Notice> {
        match self.watched.state() {
            State::Quiet { .. } => None,
            State::Pending { since, .. } => Some(self.notice(Stage::Pending, since, now)),
            State::Firing { started, .. } => Some(self.notice(Stage::Firing, started, now)),
        }
    }
}

impl Service {
    /// Applies the operations of clients to the store. Those that may change a total are refused.
    #[inline]
    pub(super) fn apply(
        &self,
        ops: &[Op<'_>],
        now: Timestamp,
        outcomes: &mut Vec<Outcome>,
        mut deltas: Option<&mut DeltaBatch>,
    ) {
        if !ops.iter().any(is_on_total) {
            return self.apply_all(ops, now, outcomes, deltas);
        }
        for op in ops {
            match op {
                op if !is_on_total(op) => {
                    self.apply_all(std::slice::from_ref(op), now, outcomes, deltas.as_deref_mut());
                }
                Op::LimitAll(_) => outcomes.push(Outcome::LimitAll(Err(RESERVED.into()))),
                Op::Hit { .. } | Op::HitOnce { .. } | Op::HitOnceAt(_) | Op::HitMember(_) => {
                    outcomes.push(Outcome::Hit(Err(RESERVED)));
                }
                _ => outcomes.push(Outcome::Limit(Err(RESERVED.into()))),
            }
        }
    }

    #[inline]
    fn apply_all(
        &self,
        ops: &[Op<'_>],
        now: Timestamp,
        outcomes: &mut Vec<Outcome>,
        deltas: Option<&mut DeltaBatch>,
    ) {
        match deltas {
            Some(deltas) => self.store.apply_into(ops, now, outcomes, deltas),
            None => self.store.apply(ops, now, outcomes),
        }
    }

    /// Adds the hits of executed operations to the totals of the alerts. The changes go to `deltas`, with those of the hits.
    #[inline]
    pub(super) fn count_totals(
        &self,
        ops: &[Op<'_>],
        outcomes: &[Outcome],
        deltas: Option<&mut DeltaBatch>,
        now: Timestamp,
    ) {
        if self.alerts.has_any() {
            self.count_into_totals(ops, outcomes, deltas, now);
        }
    }

    fn count_into_totals(
        &self,
        ops: &[Op<'_>],
        outcomes: &[Outcome],
        mut deltas: Option<&mut DeltaBatch>,
        now: Timestamp,
    ) {
        let totals = self.alerts.totals.read().unwrap_or_else(PoisonError::into_inner);
        let mut counted = Counted::new();
        for (op, outcome) in ops.iter().zip(outcomes) {
            match (op, outcome) {
                (Op::Hit { key, weight, at }, Outcome::Hit(Ok(_))) => counted.add(&totals, key, *weight, *at),
                (Op::Hit { .. } | Op::Hits { .. }, _) => {}
                _ => counted.add_other(&totals, op, outcome),
            }
        }
        let hits = counted.ops(&totals);
        let mut outcomes = Vec::with_capacity(hits.len());
        for part in hits.chunks(RUN_OPERATIONS) {
            self.apply_all(part, now, &mut outcomes, deltas.as_deref_mut());
        }
        for (op, outcome) in hits.iter().zip(&outcomes) {
            if let (Op::Hit { key, .. }, Outcome::Hit(Err(HitError::Overflow { .. }))) = (op, outcome) {
                // A total that is full would be blind for days. It begins anew.
                self.store.forget_into(key, now, deltas.as_deref_mut());
                self.apply_all(std::slice::from_ref(op), now, &mut Vec::new(), deltas.as_deref_mut());
            }
        }
    }

    /// The number of totals that exist: keys that clients do not see.
    pub(super) fn total_count(&self, now: Timestamp) -> usize {
        if !self.alerts.has_any() {
            return 0;
        }
        let totals = self.alerts.totals.read().unwrap_or_else(PoisonError::into_inner);
        totals.all.iter().filter(|total| self.store.contains(&total.key, now)).count()
    }

    /// Has the rules begin: their hits are counted from now on. Called when the store is loaded.
    pub(crate) fn begin_alerts(&self) {
        let now = self.time_of(self.now());
        for active in self.alerts.active().iter_mut() {
            active.watched = active.watched.clone().counted_from(now);
        }
    }

    /// Replaces the rules, and ends the alerts whose rule is gone.
    pub(crate) fn replace_alerts(&self, alerts: &[Alert]) {
        let now = self.time_of(self.now());
        let (ended, unread) = self.alerts.replace(alerts, now);
        if !self.is_loading() {
            self.forget_totals(&unread, now);
        }
        self.alerts.replaced.notify_one();
        ended.into_iter().for_each(|ended| self.publish_alert(ended));
    }

    /// Deletes totals of rules that were taken out of the config while the server was stopped. A step of a walk over all keys: returns where the
    /// next one begins.
    pub(crate) fn forget_old_totals(&self, from: Cursor) -> Cursor {
        let now = self.time_of(self.now());
        let page = self.store.scan(from, Some(&Pattern::new(b"\0alert:*")), WALK_STEP, now);
        let used = self.alert_totals();
        let old: Vec<_> = page.keys.into_iter().filter(|key| !used.contains(key)).collect();
        self.forget_totals(&old, now);
        page.next
    }

    fn forget_totals(&self, keys: &[Box<[u8]>], now: Timestamp) {
        if keys.is_empty() {
            return;
        }
        let mut changes = Changes::default();
        let _entered = self.enter();
        // If the journal has failed they stay until they expire.
        if self.delete_any(keys.iter().map(|key| &**key), &mut changes, now).is_ok() {
            self.commit(&mut [&mut changes]);
        }
    }

    /// The keys of the totals.
    pub(crate) fn alert_totals(&self) -> Vec<Box<[u8]>> {
        self.alerts.active().iter().map(|active| total_key(&active.alert.rule.pattern)).collect()
    }

    /// Evaluates all rules. Returns the alerts that started or ended.
    pub(crate) fn evaluate_alerts(&self) -> Vec<Notice> {
        let now = self.time_of(self.now());
        let all_known = self.cluster.as_ref().is_none_or(|cluster| !cluster.may_lack_hits(now));
        let mut changed = Vec::new();
        for active in self.alerts.active().iter_mut() {
            let key = total_key(&active.alert.rule.pattern);
            let hits = |window: Span, at: Timestamp| {
                let op = Op::Hits { key: &key, window: Some(window), at: Some(at) };
                self.ask(std::iter::once(op), now).first().map_or(0, |count| count.estimate)
            };
            let Some(judged) = self.judged_at(&active.alert.rule, &key, now) else { continue };
            match active.watched.step(judged, all_known, hits) {
                None => {}
                Some(Change::Started) => {
                    active.keys = Arc::default();
                    active.starts += 1;
                    changed.push(active.notice(Stage::Firing, now, now));
                }
                Some(Change::Ended { started }) => changed.push(active.notice(Stage::Ended, started, now)),
            }
        }
        changed
    }

    /// The time as of which a rule is evaluated: now. A rule that fires below a number needs all hits, so in a cluster that is a little before
    /// the total was read: what others had counted by then is known. `None` if it was not read lately.
    fn judged_at(&self, rule: &AlertRule, key: &[u8], now: Timestamp) -> Option<Timestamp> {
        let is_below = matches!(rule.condition, Condition::Below(_));
        let Some(cluster) = self.cluster.as_ref().filter(|_| is_below) else { return Some(now) };
        let asked = Asked { key, window: Some(rule.window), at: None };
        self.note_question(asked, now);
        let read = cluster.read_at(key, asked.reach(&self.store, now))?;
        // As of an older reading it was evaluated before.
        let is_new = now.as_millis() - read.as_millis() <= BELOW_LAG_MS;
        Timestamp::from_millis(read.as_millis() - BELOW_LAG_MS).filter(|_| is_new)
    }

    /// The keys that contributed most to the total of an alert, and their share of it.
    pub(crate) async fn causes(self: &Arc<Service>, notice: &Notice) -> Arc<[Cause]> {
        let (pattern, window) = (&notice.rule().pattern, notice.rule().window);
        let asked = TopQuestion {
            count: ALERT_KEYS,
            window: Some(window),
            prefix: pattern.head().0,
            pattern: Some(pattern),
        };
        let Ok((top, _held)) = self.top(asked).await else { return Arc::default() };
        #[expect(clippy::cast_precision_loss, reason = "a share is an estimate")]
        let share = |hits: u64| hits as f64 / notice.hits.max(hits).max(1) as f64;
        top.rows
            .into_iter()
            .map(|row| Cause { hits: row.hits, share: share(row.hits), key: row.key })
            .collect()
    }

    /// Publishes an alert that started or ended.
    pub(crate) fn publish_alert(&self, notice: Notice) {
        if notice.stage == Stage::Firing {
            let mut active = self.alerts.active();
            let of = active.iter_mut().find(|active| active.alert.rule == *notice.rule());
            if let Some(active) = of {
                active.keys = Arc::clone(&notice.keys);
            }
        }
        let notice = Arc::new(notice);
        if notice.stage == Stage::Ended {
            let mut ended = self.alerts.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.truncate(MAX_ENDED_ALERTS - 1);
            ended.push_front(Arc::clone(&notice));
        }
        // Without a subscriber nobody gets it.
        let _ = self.alerts.notices.send(notice);
        self.alerts.published.fetch_add(1, Release);
        self.wake();
    }

    /// The figures of all alerts, in the order of the config.
    pub(crate) fn alert_figures(&self) -> Vec<AlertFigures> {
        let figures = |active: &Active| AlertFigures {
            alert: Arc::clone(&active.alert),
            stage: match active.watched.state() {
                State::Quiet { .. } => Stage::Quiet,
                State::Pending { .. } => Stage::Pending,
                State::Firing { .. } => Stage::Firing,
            },
            reading: active.watched.last(),
            starts: active.starts,
        };
        self.alerts.active().iter().map(figures).collect()
    }

    /// The alerts that ended last, the newest first.
    pub(crate) fn ended_alerts(&self) -> Vec<Arc<Notice>> {
        self.alerts.ended.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// The alerts that are pending or firing, in the order of the config.
    pub(crate) fn active_alerts(&self) -> Vec<Notice> {
        let now = self.time_of(self.now());
        self.alerts.active().iter().filter_map(|active| active.shown(now)).collect()
    }
}

#[cfg(test)]
mod tests;
