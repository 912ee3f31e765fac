//! A batch: requests that are executed together, so that the store prefetches the memory of all of them. Each gets
//! the same response as if it were executed alone. The requests may come from several clients.

use std::ops::Range;
use std::sync::Arc;

use lately::{
    Admission, Count, HitError, HitOnce, JointRequest, MemberHit, Op, Outcome, Question, Request, Span,
    Store, Throttle, Timestamp,
};

use super::cluster::Cluster;
use super::commit::{Changes, Commit};
use super::edge::{self, Plan};
use super::effect::{Applied, Effect};
use super::named_limits::{LimitAnswer, RuleNumber, Rules};
use super::response::WindowCount;
use super::{Asked, Refused, Response, Service, Stats, rate};
use crate::limits::{RUN_JOINT_OPERATIONS, RUN_OPERATIONS, RUN_TIMED_OPERATIONS};

/// Requests and, after execution, their responses. Keys borrow from the read buffer.
#[derive(Default)]
pub(crate) struct Batch<'a> {
    ops: Vec<Op<'a>>,
    outcomes: Vec<Outcome>,
    /// A bit for each operation: whether it changed something.
    changes: u64,
    /// A bit for each operation: whether a limit in shadow would have denied it.
    would_deny: u64,
    /// The reason why no operation may change anything.
    refused: Option<Refused>,
    /// Operations that this node refuses, by their index, and why.
    refusals: Vec<(usize, Refused)>,
    /// Operations of named limits.
    named: Vec<(Range<usize>, RuleNumber)>,
    /// The named limits, taken when the first request names one.
    rules: Option<Arc<Rules>>,
    /// By how many operations fewer than usual are executed together, because some take long.
    fewer: usize,
    /// The last operation without its key, and its named limit. Only for kinds of operations that are often repeated
    /// with other keys.
    last: Option<(Op<'a>, Option<RuleNumber>)>,
}

// `changes` has a bit for each operation.
const _: () = assert!(RUN_OPERATIONS <= 64, "a batch has a word for its operations");

/// A request that names a limit of the config.
pub(crate) struct NamedRequest<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) name: &'a [u8],
    /// Below 0, hits are given back.
    pub(crate) cost: i64,
    pub(crate) at: Option<Timestamp>,
    pub(crate) is_peek: bool,
    /// The address that the key has. `None`: it is looked for in the key.
    pub(crate) address: Option<&'a [u8]>,
    /// A max and a window that replace those of the config.
    pub(crate) instead: Option<(u64, Span)>,
    /// The cost was spent already. A limit with `overdraft` counts it even if there is no room.
    pub(crate) is_spent: bool,
    /// It is allowed in any case, and counts.
    pub(crate) is_exempt: bool,
}

impl<'a> Batch<'a> {
    /// Empties the batch and keeps its memory, for requests with another lifetime.
    pub(crate) fn reused<'b>(mut self) -> Batch<'b> {
        self.ops.clear();
        // Collecting an empty vector into another reuses its memory.
        let ops = self.ops.into_iter().map(|_| unreachable!("it was cleared")).collect();
        let Batch { outcomes, named, rules, .. } = self;
        Batch { ops, outcomes, named, rules, ..Batch::default() }
    }

    /// The number of operations.
    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    /// The most operations that may be executed together with these.
    #[inline(always)]
    pub(crate) fn most_operations(&self) -> usize {
        RUN_OPERATIONS - self.fewer
    }

    #[inline(always)]
    fn times(&mut self, at: Option<Timestamp>) {
        if at.is_some() {
            self.fewer = self.fewer.max(RUN_OPERATIONS - RUN_TIMED_OPERATIONS);
        }
    }

    /// Whether it must be executed before another `MLIMIT` is added. Each of those holds memory, which later ones reuse.
    pub(crate) fn is_full_of_joint(&self) -> bool {
        self.ops.len() >= RUN_JOINT_OPERATIONS
    }

    // Inlined so that an operation is built in place: copying one that was just written in pieces is slow.
    #[inline(always)]
    fn push(&mut self, op: Op<'a>) {
        debug_assert!(self.ops.len() < RUN_OPERATIONS, "the caller looked");
        self.last = of_another_key(&op, b"").map(|op| (op, None));
        self.ops.push(op);
    }

    #[inline(always)]
    pub(crate) fn hit(&mut self, key: &'a [u8], weight: u64, at: Option<Timestamp>) {
        self.times(at);
        self.push(Op::Hit { key, weight, at });
    }

    /// Counts hits, each with an id and a member or without.
    pub(crate) fn hit_with(
        &mut self,
        (key, weight, at): (&'a [u8], u64, Option<Timestamp>),
        (id, member): (Option<&'a [u8]>, Option<&'a [u8]>),
    ) {
        match (member, id) {
            (Some(member), id) => self.hit_member(MemberHit { key, weight, at, id, member }),
            (None, Some(id)) => self.hit_once(HitOnce { key, weight, at, id }),
            (None, None) => self.hit(key, weight, at),
        }
    }

    /// Counts hits with an id.
    pub(crate) fn hit_once(&mut self, hit: HitOnce<'a>) {
        self.times(hit.at);
        self.push(Op::of_once(hit));
    }

    /// Counts hits with a member.
    pub(crate) fn hit_member(&mut self, hit: MemberHit<'a>) {
        self.times(hit.at);
        self.push(Op::HitMember(Box::new(hit)));
    }

    pub(crate) fn unique(&mut self, key: &'a [u8], window: Option<Span>) {
        self.push(Op::Unique { key, window });
    }

    #[inline(always)]
    pub(crate) fn hits(&mut self, key: &'a [u8], window: Option<Span>, at: Option<Timestamp>) {
        self.times(at);
        self.push(Op::Hits { key, window, at });
    }

    pub(crate) fn denied(&mut self, key: &'a [u8], window: Option<Span>, at: Option<Timestamp>) {
        self.times(at);
        self.push(Op::Denied(Box::new(Question { key, window, at })));
    }

    #[inline(always)]
    pub(crate) fn limit(&mut self, request: Request<'a>) {
        self.times(request.at);
        self.push(Op::of(request));
    }

    /// Gives the hits of a request back. [`Service::check_refund`] was called before.
    pub(crate) fn refund(&mut self, request: Request<'a>) {
        // It writes all hits of the key anew.
        self.fewer = RUN_OPERATIONS - 1;
        self.push(Op::Refund(Box::new(request)));
    }

    pub(crate) fn throttle(&mut self, request: Throttle<'a>) {
        self.push(Op::of_throttle(request));
    }

    pub(crate) fn limit_all(&mut self, request: JointRequest<'a>) {
        self.times(request.at);
        self.push(Op::LimitAll(Box::new(request)));
    }

    /// Has requests of named limits use this set, and not the current one.
    pub(crate) fn use_rules(&mut self, rules: Arc<Rules>) {
        self.rules = Some(rules);
    }

    /// Adds a request of a named limit. All requests of a batch use the same config, even if a reload happens meanwhile.
    ///
    /// # Errors
    /// No limit has that name: the text lists the names. Or a refund is not possible.
    pub(crate) fn limit_by_name(
        &mut self,
        named: &NamedRequest<'a>,
        service: &Service,
    ) -> Result<(), String> {
        let rules = self.rules.get_or_insert_with(|| service.rules.get());
        let &NamedRequest { key, name, cost, at, is_peek, address, instead, is_spent, is_exempt } = named;
        let Some(number) = rules.find(name) else { return Err(rules.unknown(name)) };
        let limit = &rules.rule(number).limit;
        let lockout = limit.lockout.filter(|_| !limit.is_shadow);
        let admission = match limit.admission(key, address) {
            _ if is_exempt => Admission::Exempt,
            Admission::Overdraft if is_spent => Admission::Spent,
            admission => admission,
        };
        let (max, window) = instead.unwrap_or((limit.max, limit.window));
        let request = Request::new(key, max, window, cost.unsigned_abs());
        let request = Request { at, is_peek, is_shadow: limit.is_shadow, lockout, admission, ..request };
        if cost < 0 {
            service.check_refund()?;
            self.refund(request);
            return Ok(());
        }
        // Another key may be exempt, or of another node.
        let is_of_key = !limit.exempt.is_empty() || limit.exact.is_some();
        self.limit(request);
        if is_of_key {
            self.last = None;
        }
        if !is_peek {
            self.named.push((self.ops.len() - 1..self.ops.len(), number));
            self.last.iter_mut().for_each(|(_, rule)| *rule = Some(number));
        }
        Ok(())
    }

    /// Repeats the last operation for at most `room` other keys. Returns the number added.
    pub(crate) fn again(&mut self, keys: &mut impl Iterator<Item = &'a [u8]>, room: usize) -> usize {
        let Some((op, rule)) = &self.last else { return 0 };
        let before = self.ops.len();
        self.ops.extend(keys.take(room).map_while(|key| of_another_key(op, key)));
        self.named.extend(rule.map(|rule| (before..self.ops.len(), rule)));
        self.ops.len() - before
    }

    /// The responses, in the order of the requests.
    #[inline(always)]
    pub(crate) fn responses(&self) -> impl Iterator<Item = Response<'_>> {
        let mut outcomes = self.outcomes.iter();
        let mut refusals = self.refusals.iter().peekable();
        let mut bit = 1_u64;
        self.ops.iter().enumerate().map(move |(number, op)| {
            let is_change = self.changes & bit != 0;
            bit = bit.rotate_left(1);
            let refused = self.refused.as_ref().filter(|_| Effect::may_change(op));
            let refusal = refusals.next_if(|(refused, _)| *refused == number).map(|(_, refused)| refused);
            let refused = refused.or(refusal);
            let outcome = refused.map_or_else(|| Ok(outcomes.next().unwrap_or_else(|| missing())), Err);
            Response { outcome, is_change }
        })
    }

    /// The outcomes, in the order of the requests.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = Result<Outcome, Refused>> {
        self.responses().map(|response| response.outcome.cloned().map_err(Clone::clone))
    }

    /// Whether a limit in shadow would have denied the operation with this index.
    pub(crate) fn would_deny(&self, index: usize) -> bool {
        self.would_deny & (1 << index) != 0
    }

    /// Empties the batch and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.ops.clear();
        self.outcomes.clear();
        self.named.clear();
        self.refusals.clear();
        (self.changes, self.would_deny, self.refused, self.fewer) = (0, 0, None, 0);
    }

    /// Releases the named limits: the next request takes the current ones.
    pub(crate) fn forget_rules(&mut self) {
        self.rules = None;
    }
}

impl Service {
    /// Whether hits can be given back.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_refund(&self) -> Result<(), String> {
        // What others have merged of this node's counts only grows.
        if self.cluster.is_some() {
            return Err("a negative cost is not possible on servers that count together: the others would keep the hits"
                .to_owned());
        }
        Ok(())
    }

    /// Executes a batch: applies it to the store, adds the changes to `changes`, and the responses to the batch.
    ///
    /// The caller holds the guard of [`Service::enter`] from before this call until the commit.
    pub(crate) fn execute(&self, batch: &mut Batch<'_>, changes: &mut Changes, now: Timestamp) {
        if let Some(cluster) = &self.cluster {
            batch.ops.iter().for_each(|op| note_read(cluster, op, &self.store, now));
        }
        if self.edge.is_some() {
            return self.execute_on_edge(batch, changes, now);
        }
        if !self.is_recorded() {
            self.apply(&batch.ops, now, &mut batch.outcomes, None);
            self.count_totals(&batch.ops, &batch.outcomes, None, now);
            self.note_late(&batch.ops, &batch.outcomes);
            return self.settle_batch(batch, None);
        }
        batch.refused = self.journal().and_then(|journal| journal.check().err()).map(Refused::from);
        if batch.refused.is_none() {
            self.apply(&batch.ops, now, &mut batch.outcomes, Some(&mut changes.deltas));
            self.count_totals(&batch.ops, &batch.outcomes, Some(&mut changes.deltas), now);
            self.note_late(&batch.ops, &batch.outcomes);
        } else {
            let questions: Vec<Op<'_>> =
                batch.ops.iter().filter(|op| !Effect::may_change(op)).cloned().collect();
            self.apply(&questions, now, &mut batch.outcomes, Some(&mut changes.deltas));
        }
        self.settle_batch(batch, self.has_journal().then_some(changes));
    }

    /// The same on a node that writes its hits to Kafka: they are added to `changes`, and the store is only asked.
    fn execute_on_edge(&self, batch: &mut Batch<'_>, changes: &mut Changes, now: Timestamp) {
        let plans: Vec<Plan<'_>> = batch.ops.iter().map(|op| Plan::of(op, &self.store, now)).collect();
        let planned = || batch.ops.iter().zip(&plans);
        let questions: Vec<Op<'_>> = planned().filter_map(|(op, plan)| plan.question(op)).collect();
        let mut known = Vec::with_capacity(questions.len());
        self.store.apply(&questions, now, &mut known);
        let mut known = known.into_iter();
        let mut refused = 0_u64;
        for (number, (op, plan)) in planned().enumerate() {
            let outcome = match plan {
                Plan::Write { record, is_in_window } => {
                    let known = known.next().unwrap_or_else(|| missing());
                    if record.hits > 0 {
                        changes.write_hits(*record);
                        batch.changes |= 1 << number;
                    }
                    edge::outcome_of_hit(&known, if *is_in_window { record.hits } else { 0 })
                }
                Plan::Ask => known.next().unwrap_or_else(|| missing()),
                Plan::Fail(error) => {
                    refused = refused.saturating_add(Effect::of(op).hits());
                    Outcome::Hit(Err(error.clone()))
                }
                Plan::Refuse(why) => {
                    refused = refused.saturating_add(Effect::of(op).hits());
                    batch.refusals.push((number, why.clone()));
                    continue;
                }
            };
            batch.outcomes.push(outcome);
        }
        Stats::add(&self.stats.refused_hits, refused);
    }

    /// Executes and commits one operation. A reply that reports a change waits for [`Service::settled`].
    pub(crate) fn execute_alone<'k>(
        &self,
        changes: &mut Changes,
        now: Timestamp,
        add: impl FnOnce(&mut Batch<'k>),
    ) -> (Result<Outcome, Refused>, Commit) {
        let mut batch = Batch::default();
        add(&mut batch);
        let _entered = self.enter();
        self.execute(&mut batch, changes, now);
        let refusal = batch.refusals.pop().map(|(_, refused)| refused);
        let outcome = match batch.refused.or(refusal) {
            Some(refused) => Err(refused),
            None => Ok(batch.outcomes.pop().unwrap_or_else(|| missing())),
        };
        (outcome, self.commit(&mut [changes]))
    }

    /// The hits of a key in each of several windows at one time, with the nodes that counted them if `by_origin`. No
    /// windows mean the default window of the key's class.
    pub(crate) fn counts(
        &self,
        key: &[u8],
        (mut windows, at): (Vec<Span>, Option<Timestamp>),
        by_origin: bool,
        now: Timestamp,
    ) -> Vec<WindowCount> {
        if windows.is_empty() {
            windows.push(self.store.settings_of(key).window());
        }
        let counts: Vec<_> = if by_origin {
            let of = |&window| self.count_by_origin(key, Some(window), at, now);
            windows.iter().map(of).map(|of| (of.count, Some(of.origins))).collect()
        } else {
            let ops = windows.iter().map(|&window| Op::Hits { key, window: Some(window), at });
            self.ask(ops, now).into_iter().map(|count| (count, None)).collect()
        };
        let of = |(window, (count, origins)): (_, (Count, _))| {
            let rate = rate(count.estimate, self.panes_of(key, Some(window)));
            WindowCount { window, count, rate, origins }
        };
        windows.into_iter().zip(counts).map(of).collect()
    }

    /// The distinct members of a key in a window that ends now. No window means the default window of the key's class.
    ///
    /// # Errors
    /// The class of the key does not count them.
    pub(crate) fn unique(
        &self,
        key: &[u8],
        window: Option<Span>,
        now: Timestamp,
    ) -> Result<(Span, Count), HitError> {
        let window = window.unwrap_or_else(|| self.store.settings_of(key).window());
        Ok((window, self.store.unique(key, Some(window), now)?))
    }

    /// The hits of each key in a window that ends now.
    pub(super) fn hits_of(
        &self,
        keys: &[&[u8]],
        window: Option<Span>,
        now: Timestamp,
    ) -> impl Iterator<Item = u64> + use<> {
        let counts: Vec<Count> = self.ask(keys.iter().map(|key| Op::Hits { key, window, at: None }), now);
        counts.into_iter().map(|count| count.estimate)
    }

    /// The hits of each key in a window that ends at `at`. In a cluster, that is not noted as a read of the keys.
    pub(super) fn counts_of(
        &self,
        keys: &[Box<[u8]>],
        window: Option<Span>,
        at: Timestamp,
        now: Timestamp,
    ) -> impl Iterator<Item = Count> + use<> {
        let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::Hits { key, window, at: Some(at) }).collect();
        self.answers(&ops, now).into_iter()
    }

    /// Executes reads, and notes them.
    pub(super) fn ask<'k>(&self, ops: impl Iterator<Item = Op<'k>>, now: Timestamp) -> Vec<Count> {
        let ops: Vec<Op<'_>> = ops.collect();
        if let Some(cluster) = &self.cluster {
            ops.iter().for_each(|op| note_read(cluster, op, &self.store, now));
        }
        self.answers(&ops, now)
    }

    fn answers(&self, ops: &[Op<'_>], now: Timestamp) -> Vec<Count> {
        let mut outcomes = Vec::with_capacity(ops.len());
        self.store.apply(ops, now, &mut outcomes);
        let count = |outcome| match outcome {
            Outcome::Hits(count) => count,
            _ => unreachable!("a question is answered with a count"),
        };
        outcomes.into_iter().map(count).collect()
    }

    /// Adds the outcomes to the statistics: those of changes when they are committed, the others at once.
    fn settle_batch(&self, batch: &mut Batch<'_>, mut changes: Option<&mut Changes>) {
        let (mut counted, mut denied, mut refused, mut repeated) = (0_u64, 0_u64, 0_u64, 0_u64);
        let Batch { ops, outcomes, named, rules, .. } = batch;
        let (mut outcomes, mut named) = (outcomes.iter_mut(), named.iter().peekable());
        for (number, op) in ops.iter().enumerate() {
            if batch.refused.is_some() && Effect::may_change(op) {
                refused = refused.saturating_add(Effect::of(op).hits());
                continue;
            }
            let outcome = outcomes.next().unwrap_or_else(|| missing());
            let applied = match (op, &*outcome) {
                (Op::Hit { weight, .. }, Outcome::Hit(Ok(_))) => Applied::counted(*weight, true),
                (Op::Hits { .. }, _) => continue,
                _ => {
                    while named.next_if(|(range, _)| range.end <= number).is_some() {}
                    let rule =
                        named.peek().filter(|(range, _)| range.contains(&number)).map(|(_, rule)| *rule);
                    let answer = answer_of(outcome, op);
                    if answer == Some(LimitAnswer::WouldDeny) {
                        batch.would_deny |= 1 << number;
                    }
                    let applied = Effect::of(op).settle(outcome);
                    if let (Some(rules), Some(rule), Some(answer)) = (&rules, rule, answer) {
                        let tally = &rules.rule(rule).tally;
                        match &mut changes {
                            Some(changes) if applied.is_change => changes.add_answer(tally, answer),
                            _ => tally.count(answer),
                        }
                    }
                    applied
                }
            };
            denied = denied.saturating_add(applied.denied);
            refused = refused.saturating_add(applied.refused);
            repeated = repeated.saturating_add(applied.repeated);
            match &mut changes {
                Some(changes) if applied.is_change => {
                    batch.changes |= 1 << number;
                    changes.add_hits(applied.counted);
                }
                _ => counted = counted.saturating_add(applied.counted),
            }
        }
        Stats::add(&self.stats.hits, counted);
        Stats::add(&self.stats.denied_hits, denied);
        Stats::add(&self.stats.refused_hits, refused);
        Stats::add(&self.stats.repeated_hits, repeated);
    }
}

/// Notes that an operation reads keys, so that the counts of other nodes are fetched for them. A hit does not fetch
/// them: its answer uses the counts that are known.
fn note_read(cluster: &Cluster, op: &Op<'_>, store: &Store, now: Timestamp) {
    match op {
        &Op::Hits { key, window, at } => {
            cluster.note_read(key, Asked { key, window, at }.reach(store, now), store, now);
        }
        &Op::Unique { key, window } => {
            cluster.note_read(key, Asked { key, window, at: None }.reach(store, now), store, now);
        }
        Op::Limit { key, window, .. } => cluster.note_limit(key, *window, store, now),
        Op::Decide(request) | Op::Refund(request) => {
            cluster.note_limit(request.key, request.window, store, now);
        }
        Op::LimitAll(request) => {
            request.limits.iter().for_each(|limit| cluster.note_limit(limit.key, limit.window, store, now));
        }
        _ => {}
    }
}

/// The answer of a named limit, from the outcome.
fn answer_of(outcome: &Outcome, op: &Op<'_>) -> Option<LimitAnswer> {
    let Outcome::Limit(Ok(decision)) = outcome else { return None };
    let is_shadow = matches!(op, Op::Decide(request) if request.is_shadow);
    Some(match (decision.is_allowed(), is_shadow) {
        (true, _) => LimitAnswer::Allowed,
        (false, false) => LimitAnswer::Denied,
        (false, true) => LimitAnswer::WouldDeny,
    })
}

/// The operation with another key, if it is of a kind that is often repeated with other keys.
#[inline(always)]
fn of_another_key<'a>(op: &Op<'a>, key: &'a [u8]) -> Option<Op<'a>> {
    match *op {
        Op::Hit { weight, at, .. } => Some(Op::Hit { key, weight, at }),
        Op::Hits { window, at, .. } => Some(Op::Hits { key, window, at }),
        Op::Limit { max, window, cost, .. } => Some(Op::Limit { key, max, window, cost }),
        Op::Throttle { rate, .. } => Some(Op::Throttle { key, rate }),
        _ => None,
    }
}

#[cold]
fn missing() -> ! {
    unreachable!("the store gives an outcome for each operation")
}
