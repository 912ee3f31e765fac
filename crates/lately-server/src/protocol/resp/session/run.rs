//! A run: consecutive requests, of one connection or several, that are executed as a batch, and their replies.

use std::time::Duration;

use lately::{Outcome, Span, Timestamp};
use lately_resp::{Command, CommandError, Encoder, Protocol};

use super::decided::{self, Words};
use super::integer;
use super::written::{Written, refuse};
use crate::limits::{OUTPUT_BYTES, RUN_OPERATIONS, TIME_SLICE};
use crate::service::Service;
use crate::service::{Batch, NamedRequest, Response, code_of, rate};

/// Requests that were collected but not executed. Keys borrow from the read buffer.
#[derive(Default)]
pub(crate) struct Run<'a> {
    batch: Batch<'a>,
    /// The replies to render, each with the number of times it repeats.
    replies: Vec<(Reply, usize)>,
    /// Where in the output the replies of each connection end.
    ends: Vec<usize>,
    /// The reply to the last request, if that was one operation. A repetition with another key has the same.
    last: Option<Reply>,
    /// The changes.
    pub(crate) written: Written,
    /// The time that the requests took.
    worked: Duration,
    /// Where in `worked` the slice of the connection ends.
    slice_ends: Duration,
    /// The requests of this connection take long.
    slowness: Slowness,
    /// The next request of a named limit is allowed in any case.
    pub(super) is_exempt: bool,
}

/// How far the operations that are executed together are halved, because they took long: the time that a run takes is
/// known only when it is over.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Slowness(u32);

impl Slowness {
    /// Whether fewer operations than usual are executed together.
    pub(super) fn is_any(self) -> bool {
        self.0 > 0
    }

    fn most_operations(self) -> usize {
        RUN_OPERATIONS >> self.0
    }

    /// After `operations` took `time`.
    fn after(self, operations: usize, time: Duration) -> Slowness {
        if time < TIME_SLICE {
            return Slowness(self.0.saturating_sub(1));
        }
        let times = time.as_nanos() / TIME_SLICE.as_nanos();
        let fit = (operations as u128 / times).clamp(1, RUN_OPERATIONS as u128);
        Slowness((RUN_OPERATIONS as u128 / fit).ilog2())
    }
}

/// A part of a reply. Each but the first two takes the next response.
#[derive(Clone, Copy)]
enum Reply {
    /// The head of an array of this length.
    Array(usize),
    /// The end of the replies of a connection.
    End,
    /// The result of a hit.
    Hit,
    Estimate,
    Bounds,
    /// Hits per second in a window of this length.
    Rate(Span, Protocol),
    /// The decision of one limit or several.
    Decision(Words),
}

/// The service and the time of a run.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) service: &'a Service,
    pub(super) now: Timestamp,
}

impl<'a> Run<'a> {
    /// Empties the run and keeps its memory, for requests with another lifetime.
    pub(crate) fn reused<'b>(mut self) -> Run<'b> {
        self.ends.clear();
        let Run { batch, replies, ends, written, .. } = self;
        Run { batch: batch.reused(), replies, ends, written, ..Run::default() }
    }

    /// Begins the slice of a connection. A slow one has its operations executed apart from those of others.
    pub(super) fn begin_slice(&mut self, slowness: Slowness, target: Target<'_>, out: &mut Vec<u8>) {
        if slowness.is_any() {
            self.apply(target, out);
        }
        (self.slowness, self.slice_ends) = (slowness, self.worked + TIME_SLICE);
    }

    /// Whether the requests of the slice have taken [`TIME_SLICE`].
    pub(super) fn is_slice_over(&self) -> bool {
        self.worked >= self.slice_ends
    }

    /// Ends the slice. Returns how slow the connection is.
    pub(super) fn end_slice(&mut self, target: Target<'_>, out: &mut Vec<u8>) -> Slowness {
        if self.slowness.is_any() {
            self.apply(target, out);
        }
        std::mem::take(&mut self.slowness)
    }

    /// Adds the time that a request took which is not part of a run.
    pub(super) fn worked(&mut self, time: Duration) {
        self.worked += time;
    }

    /// Operations that still fit.
    #[inline(always)]
    fn room(&self) -> usize {
        let most = self.batch.most_operations().min(self.slowness.most_operations());
        most.saturating_sub(self.batch.len())
    }

    /// Repeats the last request for other keys, if it is of a kind that is often repeated. Stops when the replies reach
    /// their bound or the slice is over. Returns the number added.
    pub(super) fn add_again(
        &mut self,
        mut keys: impl Iterator<Item = &'a [u8]>,
        target: Target<'_>,
        out: &mut Vec<u8>,
    ) -> usize {
        let Some(reply) = self.last.take() else { return 0 };
        let mut added = 0;
        loop {
            self.make_room(target, out);
            if out.len() >= OUTPUT_BYTES || self.is_slice_over() {
                break;
            }
            let room = self.room();
            let more = self.batch.again(&mut keys, room);
            if more == 0 {
                break;
            }
            self.replies.push((reply, more));
            added += more;
        }
        added
    }

    /// Adds a command, if it can be part of a batch. Executes a full run first.
    #[inline]
    pub(super) fn add(
        &mut self,
        command: &mut Command<'a>,
        protocol: Protocol,
        target: Target<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        self.last = None;
        self.make_room(target, out);
        let (reply, is_alone) = match *command {
            Command::Hit { key, count, at } => {
                self.batch.hit(key, count, at);
                (Reply::Hit, true)
            }
            Command::HitOnce(hit) => {
                self.batch.hit_once(hit);
                (Reply::Hit, false)
            }
            Command::HitMember(hit) => {
                self.batch.hit_member(hit);
                (Reply::Hit, false)
            }
            Command::Unique { key, window, has_bounds } => {
                self.batch.unique(key, window);
                (if has_bounds { Reply::Bounds } else { Reply::Estimate }, false)
            }
            Command::MultiHit { pairs } => {
                self.replies.push((Reply::Array(pairs.len()), 1));
                self.add_elements(command, target, out);
                return true;
            }
            Command::Hits { key, windows, at } if windows.len() <= 1 => {
                self.batch.hits(key, windows.first(), at);
                (Reply::Estimate, true)
            }
            Command::Hits { key, windows, at } => {
                self.replies.push((Reply::Array(windows.len()), 1));
                for window in windows.iter() {
                    self.make_room(target, out);
                    self.batch.hits(key, Some(window), at);
                    self.replies.push((Reply::Estimate, 1));
                }
                return true;
            }
            Command::HitsBounds { key, window, at } => {
                self.batch.hits(key, window, at);
                (Reply::Bounds, false)
            }
            Command::MultiHits { keys, .. } => {
                self.replies.push((Reply::Array(keys.len()), 1));
                self.add_elements(command, target, out);
                return true;
            }
            Command::Rate { key, window, at } => {
                let panes = target.service.panes_of(key, window);
                self.batch.hits(key, window, at);
                (Reply::Rate(panes, protocol), false)
            }
            Command::HitsDenied { key, window, at } => {
                self.batch.denied(key, window, at);
                (Reply::Estimate, false)
            }
            Command::Limit(request) => {
                self.batch.limit(request);
                (Reply::Decision(Words::Limit), true)
            }
            Command::Refund(request) => {
                if let Err(refused) = target.service.check_refund() {
                    self.apply(target, out);
                    let error = CommandError::about_argument(refused, Words::Limit.command());
                    Encoder::new(out, Protocol::default()).error(error);
                    return true;
                }
                self.batch.refund(request);
                (Reply::Decision(Words::Limit), true)
            }
            Command::Throttle(request) => {
                self.batch.throttle(request);
                (Reply::Decision(Words::Throttle), true)
            }
            Command::LimitAll(ref mut request) => {
                let limits = std::mem::take(&mut request.limits);
                self.batch.limit_all(lately::JointRequest { limits, ..*request });
                self.replies.push((Reply::Decision(Words::LimitAll), 1));
                if self.batch.is_full_of_joint() {
                    self.apply(target, out);
                }
                return true;
            }
            Command::LimitByRule { key, name, cost, at, is_peek } => {
                let named = NamedRequest {
                    key,
                    name,
                    cost,
                    at,
                    is_peek,
                    address: None,
                    instead: None,
                    is_spent: false,
                    is_exempt: std::mem::take(&mut self.is_exempt),
                };
                if let Err(unknown) = self.batch.limit_by_name(&named, target.service) {
                    self.apply(target, out);
                    let begun = (target.service.moment)();
                    let error = CommandError::about_argument(unknown, Words::Limit.command());
                    Encoder::new(out, Protocol::default()).error(error);
                    self.worked((target.service.moment)().saturating_duration_since(begun));
                    return true;
                }
                (Reply::Decision(Words::Limit), true)
            }
            _ => return false,
        };
        self.replies.push((reply, 1));
        self.last = is_alone.then_some(reply);
        true
    }

    /// Adds a command of several keys without the head of its reply.
    pub(super) fn add_elements(&mut self, command: &Command<'a>, target: Target<'_>, out: &mut Vec<u8>) {
        match *command {
            Command::MultiHit { pairs } => {
                for (key, count) in pairs.iter() {
                    self.make_room(target, out);
                    self.batch.hit(key, count, None);
                    self.replies.push((Reply::Hit, 1));
                }
            }
            Command::MultiHits { window, keys } => {
                for key in keys.iter() {
                    self.make_room(target, out);
                    self.batch.hits(key, Some(window), None);
                    self.replies.push((Reply::Estimate, 1));
                }
            }
            _ => unreachable!("the others have one reply"),
        }
    }

    #[inline(always)]
    fn make_room(&mut self, target: Target<'_>, out: &mut Vec<u8>) {
        if self.room() == 0 {
            self.apply(target, out);
        }
    }

    /// Ends the requests of a connection.
    pub(crate) fn end_connection(&mut self, out: &[u8]) {
        if self.replies.is_empty() {
            self.ends.push(out.len());
        } else {
            self.replies.push((Reply::End, 1));
        }
    }

    /// Where in the output the replies of each connection end, as far as they were rendered.
    pub(crate) fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// Ends the run: executes the rest.
    pub(crate) fn finish(&mut self, service: &Service, now: Timestamp, out: &mut Vec<u8>) {
        self.apply(Target { service, now }, out);
        self.batch.forget_rules();
    }

    /// Executes the collected requests and appends their replies.
    pub(super) fn apply(&mut self, target: Target<'_>, out: &mut Vec<u8>) {
        if self.replies.is_empty() {
            return;
        }
        let begun = (target.service.moment)();
        target.service.execute(&mut self.batch, &mut self.written.changes, target.now);
        let time = (target.service.moment)().saturating_duration_since(begun);
        self.worked += time;
        self.slowness = self.slowness.after(self.batch.len(), time);
        let Run { batch, replies, ends, written, .. } = self;
        let mut responses = batch.responses();
        for &(reply, times) in &*replies {
            match reply {
                Reply::Array(len) => Encoder::new(out, Protocol::default()).array(len),
                Reply::End => ends.push(out.len()),
                _ => responses.by_ref().take(times).for_each(|response| {
                    let start = out.len();
                    reply.write(&response, out);
                    if response.is_change {
                        written.replied(start, out.len());
                    }
                }),
            }
        }
        drop(responses);
        replies.clear();
        batch.clear();
    }
}

impl Reply {
    /// Writes a response.
    #[inline(always)]
    fn write(self, response: &Response<'_>, out: &mut Vec<u8>) {
        match (self, response.outcome) {
            (Reply::Hit, Ok(Outcome::Hit(Ok(hits)))) => {
                Encoder::new(out, Protocol::default()).integer(integer(*hits));
            }
            (_, Ok(outcome)) => self.write_other(outcome, out),
            (_, Err(refused)) => refuse(out, refused),
        }
    }

    #[inline(never)]
    fn write_other(self, outcome: &Outcome, out: &mut Vec<u8>) {
        let mut reply = Encoder::new(out, Protocol::default());
        match (self, outcome) {
            (Reply::Hit, Outcome::Repeated(hits)) => reply.integer(integer(*hits)),
            (Reply::Hit, Outcome::Hit(Err(error)))
            | (Reply::Estimate | Reply::Bounds, Outcome::Unique(Err(error))) => {
                reply.error(format_args!("{} {error}", code_of(error)));
            }
            (Reply::Estimate, Outcome::Hits(count) | Outcome::Unique(Ok(count))) => {
                reply.integer(integer(count.estimate));
            }
            (Reply::Bounds, Outcome::Hits(count) | Outcome::Unique(Ok(count))) => {
                reply.array(4);
                reply.integer(integer(count.estimate));
                reply.integer(integer(count.lower));
                reply.integer(count.upper.map_or(-1, integer));
                reply.integer(count.cell.as_millis());
            }
            (Reply::Rate(panes, protocol), Outcome::Hits(count)) => {
                Encoder::new(out, protocol).double(rate(count.estimate, panes));
            }
            (Reply::Decision(words), Outcome::Limit(decided)) => decided::write(decided, words, &mut reply),
            (Reply::Decision(words), Outcome::LimitAll(decided)) => {
                decided::write_all(decided, words, &mut reply);
            }
            _ => unreachable!("the outcome is of the kind that was asked for"),
        }
    }
}
