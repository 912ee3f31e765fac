//! A run: hits and questions that follow each other in a batch. The store is given them together, so
//! that it fetches the memory of all of them at once; the replies are those they would have one by one.
//! They may be of several connections, one after the other.

mod named;

use std::sync::Arc;

use lately::{Decision, HitError, LimitError, Op, Outcome, Request, Retry, Span, Timestamp};
use lately_journal::Refused;
use lately_resp::{Command, Encoder, Protocol};

use super::integer;
use super::written::{Written, refuse};
use crate::engine::{Engine, Stats};
use crate::limits::RUN_OPERATIONS;
use crate::rules::{RuleNumber, Rules};
use named::Named;

/// What was collected and is still to be applied. Keys borrow from the read buffer.
#[derive(Default)]
pub(crate) struct Run<'a> {
    ops: Vec<Op<'a>>,
    replies: Vec<Reply>,
    outcomes: Vec<Outcome>,
    /// Where in the output the replies of each connection end.
    ends: Vec<usize>,
    tally: Tally,
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
}

/// What a request that is to stay within a limit may change.
#[derive(Clone, Copy)]
struct Change {
    /// Hits, if it is allowed.
    hits: u64,
    /// Whether it locks out, if it is denied.
    locks_out: bool,
    /// The limit with a name that counts what it says.
    rule: Option<RuleNumber>,
    /// Whether the limit only watches: it is told to be allowed in any case.
    is_shadow: bool,
}

/// What was done, and is not yet in the engine's counters.
#[derive(Default)]
struct Tally {
    commands: u64,
    hits: u64,
    refused_hits: u64,
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
            rules: self.rules,
            written: self.written,
        }
    }

    /// Adds a command, if it is one that runs are made of. A run that is full is applied first.
    #[inline]
    pub(super) fn add(
        &mut self,
        command: &Command<'a>,
        protocol: Protocol,
        target: Target<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        match *command {
            Command::Hit { key, count: weight, at } => {
                self.push(Op::Hit { key, weight, at }, Reply::Hit(weight), target, out);
            }
            Command::MultiHit { pairs } => {
                self.replies.push(Reply::Array(pairs.len()));
                for (key, weight) in pairs.iter() {
                    self.push(Op::Hit { key, weight, at: None }, Reply::Hit(weight), target, out);
                }
            }
            Command::Hits { key, windows, at } if windows.len() <= 1 => {
                self.push(Op::Hits { key, window: windows.first(), at }, Reply::Estimate, target, out);
            }
            Command::Hits { key, windows, at } => {
                self.replies.push(Reply::Array(windows.len()));
                for window in windows.iter() {
                    let op = Op::Hits { key, window: Some(window), at };
                    self.push(op, Reply::Estimate, target, out);
                }
            }
            Command::HitsBounds { key, window, at } => {
                self.push(Op::Hits { key, window, at }, Reply::Bounds, target, out);
            }
            Command::MultiHits { window, keys } => {
                self.replies.push(Reply::Array(keys.len()));
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
            Command::Limit(request) => {
                self.push(Op::Limit(Box::new(request)), Reply::Limit(Change::of(&request)), target, out);
            }
            Command::LimitByRule { key, name, cost, at, is_peek } => {
                self.add_named(&Named { key, name, cost, at, is_peek }, target, out);
            }
            _ => return false,
        }
        true
    }

    fn push(&mut self, op: Op<'a>, shape: Reply, target: Target<'_>, out: &mut Vec<u8>) {
        if self.ops.len() >= RUN_OPERATIONS {
            self.apply(target, out);
        }
        self.ops.push(op);
        self.replies.push(shape);
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
            self.replies.push(Reply::End);
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
    }

    /// Applies what was collected and appends the replies.
    pub(super) fn apply(&mut self, target: Target<'_>, out: &mut Vec<u8>) {
        if self.replies.is_empty() {
            return;
        }
        let refused = self.give(target);
        self.ops.clear();
        let mut outcomes = self.outcomes.drain(..);
        for shape in self.replies.drain(..) {
            let start = out.len();
            // Of these replies a rate alone differs between the versions.
            let mut reply = Encoder::new(out, Protocol::default());
            let hits = match shape {
                Reply::Array(len) => {
                    reply.array(len);
                    continue;
                }
                Reply::End => {
                    self.ends.push(out.len());
                    continue;
                }
                Reply::Hit(weight) => Some(weight),
                Reply::Limit(change) if change.may_be() => Some(change.hits),
                _ => None,
            };
            if let (Some(hits), Some(refused)) = (hits, &refused) {
                self.tally.refused_hits = self.tally.refused_hits.wrapping_add(hits);
                refuse(out, refused);
                continue;
            }
            match (shape, outcomes.next()) {
                (Reply::Hit(weight), Some(Outcome::Hit(Ok(hits)))) => {
                    // It wraps, as the counter does that it is added to.
                    self.tally.hits = self.tally.hits.wrapping_add(weight);
                    reply.integer(integer(hits));
                    if target.engine.has_journal() {
                        self.written.replied(start, out.len(), weight);
                    }
                }
                (Reply::Hit(weight), Some(Outcome::Hit(Err(error)))) => {
                    self.tally.refused_hits = self.tally.refused_hits.wrapping_add(weight);
                    reply.error(format_args!("{} {error}", code(&error)));
                }
                (Reply::Limit(change), Some(Outcome::Limit(decided))) => {
                    let hits = answer_limit(&decided, change, &mut reply);
                    match hits {
                        Some(hits) => self.tally.hits = self.tally.hits.wrapping_add(hits),
                        None => self.tally.refused_hits = self.tally.refused_hits.wrapping_add(change.hits),
                    }
                    let named = named::count(self.rules.as_ref(), change, &decided);
                    let is_allowed = decided.as_ref().is_ok_and(Decision::is_allowed);
                    let is_changed = hits.is_some_and(|hits| hits > 0) || !is_allowed && change.locks_out;
                    if is_changed && target.engine.has_journal() {
                        self.written.replied(start, out.len(), hits.unwrap_or(0));
                        self.written.said(named);
                    }
                }
                (Reply::Estimate, Some(Outcome::Hits(count))) => reply.integer(integer(count.estimate)),
                (Reply::Bounds, Some(Outcome::Hits(count))) => {
                    reply.array(4);
                    reply.integer(integer(count.estimate));
                    reply.integer(integer(count.lower));
                    reply.integer(count.upper.map_or(-1, integer));
                    reply.integer(count.cell.as_millis());
                }
                #[expect(clippy::cast_precision_loss, reason = "a rate is a fraction")]
                (Reply::Rate(panes, protocol), Some(Outcome::Hits(count))) => {
                    Encoder::new(out, protocol).double(count.estimate as f64 / panes.as_seconds_f64());
                }
                _ => unreachable!("the store gives an outcome for each operation, of its kind"),
            }
        }
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
                Op::Limit(request) => !Change::of(request).may_be(),
                _ => true,
            });
        }
        engine.store.apply_into(&self.ops, now, &mut self.outcomes, &mut self.written.deltas);
        refused
    }
}

impl Change {
    fn of(request: &Request<'_>) -> Change {
        let Request { cost, is_peek, lockout, .. } = *request;
        let hits = if is_peek { 0 } else { cost };
        Change { hits, locks_out: !is_peek && lockout.is_some(), rule: None, is_shadow: false }
    }

    fn may_be(self) -> bool {
        self.hits > 0 || self.locks_out
    }
}

/// Answers a request that is to stay within a limit; gives the hits that were counted, none if it was refused.
#[inline(never)]
fn answer_limit(
    decided: &Result<Decision, LimitError>,
    change: Change,
    reply: &mut Encoder<'_>,
) -> Option<u64> {
    match decided {
        Ok(decision) => {
            decided_as(decision, change.is_shadow, reply);
            Some(if decision.is_allowed() { change.hits } else { 0 })
        }
        Err(error) => {
            match error {
                LimitError::Hit(hit) => reply.error(format_args!("{} {error}", code(hit))),
                _ => reply.error(format_args!("ERR {error}")),
            }
            None
        }
    }
}

/// Five integers: whether it is allowed, the limit, what is left, and the milliseconds until it would be
/// allowed (-1: never) and until all is left. A limit that only watches says that it is allowed.
fn decided_as(decision: &Decision, is_shadow: bool, reply: &mut Encoder<'_>) {
    let millis = |span: Option<Span>| span.map_or(0, Span::as_millis);
    reply.array(5);
    reply.integer(i64::from(decision.is_allowed() || is_shadow));
    reply.integer(integer(decision.max));
    reply.integer(integer(decision.remaining));
    reply.integer(match decision.retry {
        _ if is_shadow => 0,
        Retry::Now => 0,
        Retry::After(wait) => wait.as_millis(),
        Retry::Never => -1,
    });
    reply.integer(millis(decision.reset_after));
}

/// The code of the error reply to a refused hit.
fn code(error: &HitError) -> &'static str {
    match error {
        HitError::Late { .. } => "LATE",
        HitError::Future { .. } => "FUTURE",
        HitError::OutOfMemory { .. } => "OOM",
        _ => "ERR",
    }
}
