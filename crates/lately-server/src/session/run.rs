//! A run: hits and questions that follow each other in a batch. The store is given them together, so
//! that it fetches the memory of all of them at once; the replies are those they would have one by one.
//! They may be of several connections, one after the other.

mod named;
mod telling;

use std::sync::Arc;

use lately::{JointRequest, Op, Outcome, Question, Span, Timestamp};
use lately_journal::Refused;
use lately_resp::{Command, Encoder, Protocol};

use super::decided::{Change, Fate, Told};
use super::written::{Written, refuse};
use crate::engine::{Engine, Stats};
use crate::limits::{OUTPUT_BYTES, RUN_JOINT_OPERATIONS, RUN_OPERATIONS};
use crate::rules::Rules;
use named::Named;
pub(super) use telling::code;
use telling::{Telling, wrong};

/// What was collected and is still to be applied. Keys borrow from the read buffer.
#[derive(Default)]
pub(crate) struct Run<'a> {
    ops: Vec<Op<'a>>,
    /// What is to be replied, each so many times one after the other.
    replies: Vec<(Reply, usize)>,
    outcomes: Vec<Outcome>,
    /// Where in the output the replies of each connection end.
    ends: Vec<usize>,
    tally: Tally,
    /// What the request before asked, if that was one operation that is often asked of one key after the other; its key
    /// aside.
    last: Option<(Op<'a>, Reply)>,
    /// The limits with names, from the first that was asked for to the end of the batch.
    rules: Option<Arc<Rules>>,
    /// What was changed.
    pub(crate) written: Written,
}

/// A part of a reply; each but the first two takes the next outcome.
#[derive(Clone, Copy)]
enum Reply {
    /// The head of an array of so many.
    Array(usize),
    /// The replies of a connection are over.
    End,
    /// What a hit of this weight gave.
    Hit(u64),
    Estimate,
    Bounds,
    /// Hits per second of a window of so many.
    Rate(Span, Protocol),
    /// What a limit said to a request.
    Limit(Change),
    /// What several limits said to a request.
    LimitAll(Change),
}

impl Reply {
    /// Hits that are counted if what it answers is allowed; `None` when nothing is changed then.
    fn hits_to_change(&self) -> Option<u64> {
        match *self {
            Reply::Hit(weight) => Some(weight),
            Reply::Limit(change) | Reply::LimitAll(change) if change.may_be() => Some(change.hits),
            _ => None,
        }
    }
}

/// What was done, and is not yet in the engine's counters.
#[derive(Default)]
struct Tally {
    commands: u64,
    hits: u64,
    refused_hits: u64,
    denied_hits: u64,
}

impl Tally {
    /// Takes note of what became of a request.
    fn add(&mut self, told: &Told) {
        let counter = match told.fate {
            Fate::Counted => &mut self.hits,
            Fate::Denied => &mut self.denied_hits,
            Fate::Refused => &mut self.refused_hits,
        };
        *counter = counter.saturating_add(told.hits);
    }
}

/// Where a run goes.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) engine: &'a Engine,
    pub(super) now: Timestamp,
}

impl<'a> Run<'a> {
    /// The same run, empty, with its memory, for another batch.
    pub(crate) fn reused<'b>(mut self) -> Run<'b> {
        self.ops.clear();
        self.ends.clear();
        // Nothing is made: a vector of no elements is collected into the memory it had.
        let ops = self.ops.into_iter().map(|_| unreachable!("it was cleared")).collect();
        Run {
            ops,
            replies: self.replies,
            outcomes: self.outcomes,
            ends: self.ends,
            tally: self.tally,
            last: None,
            rules: self.rules,
            written: self.written,
        }
    }

    /// Adds what the request before asked, of other keys, if that is often asked of one key after the other; gives of how
    /// many. Others are left when there are as many replies as may be held.
    pub(super) fn add_again(
        &mut self,
        mut keys: impl Iterator<Item = &'a [u8]>,
        target: Target<'_>,
        out: &mut Vec<u8>,
    ) -> usize {
        let Some((op, reply)) = self.last.take() else { return 0 };
        let mut added = 0;
        while out.len() < OUTPUT_BYTES {
            if self.ops.len() >= RUN_OPERATIONS {
                self.apply(target, out);
            }
            let before = self.ops.len();
            let room = RUN_OPERATIONS - before;
            self.ops.extend(keys.by_ref().take(room).map_while(|key| of_another_key(&op, key)));
            let more = self.ops.len() - before;
            if more == 0 {
                break;
            }
            self.replies.push((reply, more));
            added += more;
        }
        added
    }

    /// Adds all that a request asks.
    fn push_whole(&mut self, op: Op<'a>, reply: Reply, target: Target<'_>, out: &mut Vec<u8>) {
        self.last = of_another_key(&op, b"").map(|op| (op, reply));
        self.push(op, reply, target, out);
    }

    /// Adds a command, if it is one that runs are made of: what it has is taken. A run that is full is applied first.
    #[inline]
    pub(super) fn add(
        &mut self,
        command: &mut Command<'a>,
        protocol: Protocol,
        target: Target<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        self.last = None;
        match *command {
            Command::Hit { key, count: weight, at } => {
                self.push_whole(Op::Hit { key, weight, at }, Reply::Hit(weight), target, out);
            }
            Command::MultiHit { pairs } => {
                self.replies.push((Reply::Array(pairs.len()), 1));
                for (key, weight) in pairs.iter() {
                    self.push(Op::Hit { key, weight, at: None }, Reply::Hit(weight), target, out);
                }
            }
            Command::Hits { key, windows, at } if windows.len() <= 1 => {
                self.push_whole(Op::Hits { key, window: windows.first(), at }, Reply::Estimate, target, out);
            }
            Command::Hits { key, windows, at } => {
                self.replies.push((Reply::Array(windows.len()), 1));
                for window in windows.iter() {
                    let op = Op::Hits { key, window: Some(window), at };
                    self.push(op, Reply::Estimate, target, out);
                }
            }
            Command::HitsBounds { key, window, at } => {
                self.push(Op::Hits { key, window, at }, Reply::Bounds, target, out);
            }
            Command::MultiHits { window, keys } => {
                self.replies.push((Reply::Array(keys.len()), 1));
                for key in keys.iter() {
                    let op = Op::Hits { key, window: Some(window), at: None };
                    self.push(op, Reply::Estimate, target, out);
                }
            }
            Command::Rate { key, window, at } => {
                let settings = target.engine.store.settings_of(key);
                // A window is whole panes.
                let panes = settings.whole_panes(window.unwrap_or(settings.window()));
                self.push(Op::Hits { key, window, at }, Reply::Rate(panes, protocol), target, out);
            }
            Command::HitsDenied { key, window, at } => {
                let question = Question { key, window, at };
                self.push(Op::Denied(Box::new(question)), Reply::Estimate, target, out);
            }
            Command::Limit(request) => {
                let reply = Reply::Limit(Change::of(&request));
                self.push_whole(Op::of(request), reply, target, out);
            }
            Command::Throttle(request) => {
                let reply = Reply::Limit(Change::of_throttle(&request));
                self.push_whole(Op::of_throttle(request), reply, target, out);
            }
            Command::LimitAll(ref mut request) => {
                let reply = Reply::LimitAll(Change::of_joint(request));
                let limits = std::mem::take(&mut request.limits);
                self.push(Op::LimitAll(Box::new(JointRequest { limits, ..*request })), reply, target, out);
                if self.ops.len() >= RUN_JOINT_OPERATIONS {
                    self.apply(target, out);
                }
            }
            Command::LimitByRule { key, name, cost, at, is_peek } => {
                self.add_named(&Named { key, name, cost, at, is_peek }, target, out);
            }
            _ => return false,
        }
        true
    }

    // An operation is made where it goes: what was just written in pieces is slow to copy.
    #[inline(always)]
    fn push(&mut self, op: Op<'a>, shape: Reply, target: Target<'_>, out: &mut Vec<u8>) {
        if self.ops.len() >= RUN_OPERATIONS {
            self.apply(target, out);
        }
        self.ops.push(op);
        self.replies.push((shape, 1));
    }

    /// Takes note that so many commands were run.
    pub(super) fn ran(&mut self, commands: usize) {
        self.tally.commands += commands as u64;
    }

    /// What is added from here on is of another connection.
    pub(crate) fn end_connection(&mut self, out: &[u8]) {
        if self.replies.is_empty() {
            self.ends.push(out.len());
        } else {
            self.replies.push((Reply::End, 1));
        }
    }

    /// Where in the output the replies of each connection end, those still to come left out.
    pub(crate) fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// Ends the run: all is applied, and shows in the server's counters from here on.
    pub(crate) fn finish(&mut self, engine: &Engine, now: Timestamp, out: &mut Vec<u8>) {
        self.apply(Target { engine, now }, out);
        self.rules = None;
        let tally = std::mem::take(&mut self.tally);
        Stats::add(&engine.stats.commands, tally.commands);
        Stats::add(&engine.stats.hits, tally.hits);
        Stats::add(&engine.stats.refused_hits, tally.refused_hits);
        Stats::add(&engine.stats.denied_hits, tally.denied_hits);
    }

    /// Applies what was collected and appends the replies.
    pub(super) fn apply(&mut self, target: Target<'_>, out: &mut Vec<u8>) {
        if self.replies.is_empty() {
            return;
        }
        let refused = self.give(target);
        self.ops.clear();
        let Run { replies, outcomes, ends, tally, rules, written, .. } = self;
        let has_journal = target.engine.has_journal();
        let mut telling = Telling { tally, written, rules: rules.as_ref(), has_journal, out };
        // Neither is moved: most of what they have room for is not there.
        let mut outcomes_left = outcomes.iter();
        for (part, times) in &*replies {
            if let Some(refused) = &refused
                && let Some(hits) = part.hits_to_change()
            {
                for _ in 0..*times {
                    telling.tally.refused_hits = telling.tally.refused_hits.saturating_add(hits);
                    refuse(telling.out, refused);
                }
                continue;
            }
            let next = || outcomes_left.next().unwrap_or_else(|| wrong());
            let outcomes = std::iter::repeat_with(next).take(*times);
            match *part {
                Reply::Array(len) => Encoder::new(telling.out, Protocol::default()).array(len),
                Reply::End => ends.push(telling.out.len()),
                Reply::Hit(weight) => outcomes.for_each(|outcome| telling.hit(weight, outcome)),
                _ => outcomes.for_each(|outcome| telling.other(part, outcome)),
            }
        }
        replies.clear();
        outcomes.clear();
    }
}

impl Run<'_> {
    /// Gives the store what was collected. When nothing can be written down the hits are left out, and why
    /// is the answer.
    fn give(&mut self, target: Target<'_>) -> Option<Refused> {
        let Target { engine, now } = target;
        if !engine.is_recorded() {
            engine.store.apply(&self.ops, now, &mut self.outcomes);
            return None;
        }
        let refused = engine.journal().and_then(|journal| journal.check().err());
        if refused.is_some() {
            self.ops.retain(|op| match op {
                Op::Hit { .. } => false,
                _ => Change::of_operation(op).is_none_or(|change| !change.may_be()),
            });
        }
        engine.store.apply_into(&self.ops, now, &mut self.outcomes, &mut self.written.changes.deltas);
        refused
    }
}

/// The same of another key, if it is an operation that is often asked of one key after the other.
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
