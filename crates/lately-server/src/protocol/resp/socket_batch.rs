//! A batch: requests of several connections, executed together. When all replies are rendered, they are sent, one
//! connection after the other.

use std::io;
use std::ops::Range;
use std::time::Instant;

use crate::service::Refused;
use lately::Timestamp;
use lately_resp::{Encoder, End, Protocol, ProtocolError, Requests};

use super::connection::Connection;
use super::connections::Connections;
use super::pending_replies::PendingReplies;
use super::session::{Flow, Run};
use crate::limits::{BATCH_BYTES, OUTPUT_BYTES, READ_BYTES, SHORT_BYTES};
use crate::service::Stats;
use crate::service::commit::{Changes, Commit};

/// Bytes of a batch, of the held input of its last connection, and of one whole read.
const INPUT_BYTES: usize = BATCH_BYTES + SHORT_BYTES + READ_BYTES;

/// The buffers of a batch, reused for the next one.
pub(super) struct SocketBatch {
    /// The input, one connection after the other.
    input: Vec<u8>,
    /// The input buffer of a connection with a long request, used instead of `input`. Such a batch has one part.
    long: Vec<u8>,
    parts: Vec<Part>,
    /// The parts that have to wait, because the replies of those before them have reached their bound.
    waiting: Vec<Part>,
    requests: Requests,
    run: Run<'static>,
    output: Vec<u8>,
    /// Capacity of a buffer that is kept for the next batch.
    kept_bytes: usize,
}

/// The part of one connection.
struct Part {
    token: usize,
    /// Its range in the input.
    bytes: Range<usize>,
    /// The number of requests of the batch up to the last one of this part, and the reason why this part has no more.
    requests: usize,
    end: End,
    /// The end of its executed requests in the input, and whether whole requests may follow.
    consumed: usize,
    unread: bool,
    /// The client had to log in when its requests were parsed.
    is_tight: bool,
    /// Where in the output its replies end, and what the connection does next.
    replies: usize,
    flow: Flow,
}

impl SocketBatch {
    pub(super) fn new(kept_bytes: usize) -> SocketBatch {
        SocketBatch {
            input: vec![0; INPUT_BYTES],
            long: Vec::new(),
            parts: Vec::new(),
            waiting: Vec::new(),
            requests: Requests::new(),
            run: Run::default(),
            output: Vec::new(),
            kept_bytes,
        }
    }

    /// Bytes of input.
    pub(super) fn filled(&self) -> usize {
        self.parts.last().map_or(0, |part| part.bytes.end)
    }

    fn is_full(&self) -> bool {
        self.filled() >= BATCH_BYTES
    }

    /// Whether the batch must be executed before this connection can be added.
    pub(super) fn is_full_for(&self, connection: &Connection) -> bool {
        self.is_full() || (connection.is_long() && !self.parts.is_empty())
    }

    /// Reads the requests of a connection. False when there are none.
    pub(super) fn take_in(&mut self, token: usize, connection: &mut Connection) -> io::Result<bool> {
        let start = self.filled();
        let Some(count) = connection.read(&mut self.input[start..])? else { return Ok(false) };
        self.long = connection.take_long();
        let bytes = if self.long.is_empty() { start..start + count } else { 0..self.long.len() };
        self.parts.push(Part::new(token, bytes));
        Ok(true)
    }

    /// Reads and discards the input of a connection that is closing.
    pub(super) fn discard(&mut self, connection: &mut Connection, moment: Instant) -> io::Result<()> {
        let start = self.filled();
        connection.discard(&mut self.input[start..], moment)
    }

    /// Whether some parts wait until the replies of the others are sent.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether it has no parts.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes of replies.
    pub(super) fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// The changes of its requests.
    pub(super) fn changes(&mut self) -> &mut Changes {
        &mut self.run.written.changes
    }

    /// Replaces the replies that report a change by errors.
    pub(super) fn replace(&mut self, refused: &Refused) {
        let (mut start, mut output) = (0, Vec::with_capacity(self.output.len()));
        for part in &mut self.parts {
            let replies = &self.output[start..part.replies];
            output.extend(self.run.written.refused(replies, start, refused));
            start = std::mem::replace(&mut part.replies, output.len());
        }
        self.output = output;
    }

    /// Removes the parts that were answered, and keeps the memory up to a bound.
    pub(super) fn clear(&mut self) {
        if self.waiting.is_empty() && self.filled() > self.kept_bytes {
            // Zeroed memory that was never written takes no room in the process.
            self.input = vec![0; INPUT_BYTES];
        }
        self.parts.clear();
        self.parts.append(&mut self.waiting);
        self.run.written.clear(self.kept_bytes);
        self.output.clear();
        self.output.shrink_to(self.kept_bytes);
    }

    /// Executes the requests and renders the replies. Once the replies reach their bound, the remaining parts wait until
    /// [`SocketBatch::clear`], so that each connection has its turn in each round.
    pub(super) fn answer(&mut self, connections: &mut Connections, now: Timestamp) {
        let Connections { by_token, service, .. } = connections;
        let SocketBatch { input, long, parts, waiting, requests, run: memory, output, .. } = self;
        let input = if long.is_empty() { &input[..] } else { &long[..] };
        requests.clear();
        for part in parts.iter_mut() {
            part.find(input, requests, &mut by_token[part.token]);
        }
        let mut run = std::mem::take(memory).reused();
        let (mut first, mut answered) = (0, 0);
        for part in parts.iter_mut() {
            if output.len() >= OUTPUT_BYTES {
                break;
            }
            answered += 1;
            let mine = first..part.requests;
            first = mine.end;
            let connection = &mut by_token[part.token];
            let args = requests.range(mine.clone(), input);
            let (done, flow) = connection.session.batch(args, &mut run, now, output);
            part.flow = flow;
            if done < mine.len() {
                connection.args.reset();
                part.unread = true;
                part.consumed =
                    if done == 0 { part.bytes.start } else { requests.bytes_of_first(mine.start + done) };
            } else if part.is_tight && !connection.session.is_nobody() {
                // It has logged in: what follows is parsed with other bounds.
                connection.args.reset();
            } else if let End::Broken(error) = &part.end
                && flow == Flow::Continue
                && output.len() < OUTPUT_BYTES
            {
                // A framing error: nothing after it can be parsed.
                run.finish(service, now, output);
                Stats::add(&service.stats.http_connections, u64::from(*error == ProtocolError::Http));
                let error = if part.is_tight { before_login(error) } else { *error };
                Encoder::new(output, Protocol::default()).error(error);
                part.flow = Flow::Close;
            }
            run.end_connection(output);
        }
        run.finish(service, now, output);
        for mut part in parts.drain(answered..) {
            by_token[part.token].args.reset();
            part.consumed = part.bytes.start;
            waiting.push(part);
        }
        parts.iter_mut().zip(run.ends()).for_each(|(part, &end)| part.replies = end);
        *memory = run.reused();
    }

    /// Sends the replies. Those that report a pending change are held.
    pub(super) fn send(&mut self, connections: &mut Connections, now: Timestamp, commit: &Commit) {
        let mut start = 0;
        let mut held = match commit {
            Commit::Pending(ticket) => Some(PendingReplies::new(ticket.clone())),
            Commit::Kept | Commit::Refused(_) => None,
        };
        for part in &self.parts {
            let moment = connections.moment;
            let connection = &mut connections.by_token[part.token];
            if self.long.is_empty() {
                connection.keep(&self.input[part.consumed..part.bytes.end]);
            } else {
                connection.keep_long(std::mem::take(&mut self.long), part.consumed);
            }
            connection.sent_bytes += part.consumed.saturating_sub(part.bytes.start);
            connection.ran(part.unread, part.flow, now, moment);
            let replies = start..part.replies;
            start = part.replies;
            let sent = match &mut held {
                Some(held) if self.run.written.is_in(&replies) => {
                    held.add(part.token, connection.hold(&self.output[replies.clone()]), replies);
                    Ok(())
                }
                _ => connection.send(&self.output[replies]),
            };
            connections.settle(part.token, sent);
        }
        if let Some(held) = held {
            connections.hold(held.with(std::mem::take(&mut self.run.written)));
        }
    }
}

impl Part {
    fn new(token: usize, bytes: Range<usize>) -> Part {
        Part {
            token,
            consumed: bytes.start,
            bytes,
            requests: 0,
            end: End::Incomplete,
            unread: false,
            is_tight: false,
            replies: 0,
            flow: Flow::Continue,
        }
    }

    /// Parses its requests. They follow those of the parts before it.
    fn find(&mut self, input: &[u8], requests: &mut Requests, connection: &mut Connection) {
        let input = &input[..self.bytes.end];
        self.is_tight = connection.session.is_nobody();
        let limits = connection.session.limits();
        let progress = requests.parse_more(input, self.bytes.start, &limits, &mut connection.args);
        self.requests = requests.len();
        self.consumed = progress.consumed;
        self.unread = progress.end != End::Incomplete;
        self.end = progress.end;
    }
}

/// The error in the words of Redis for clients that have to log in.
fn before_login(error: &ProtocolError) -> ProtocolError {
    match error {
        ProtocolError::Count => ProtocolError::Unauthenticated { what: "multibulk" },
        ProtocolError::BulkTooLong { .. } => ProtocolError::Unauthenticated { what: "bulk" },
        other => *other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::commit_group::CommitGroup;
    use super::*;
    use crate::limits::{GROUP_BATCHES, GROUP_BYTES, KEPT_BYTES, KEPT_OF_FURTHER_BATCHES};

    #[test]
    fn connections_fill_a_batch() {
        let mut batch = SocketBatch::new(0);
        assert!(!batch.is_full());
        batch.parts.push(Part::new(0, 0..BATCH_BYTES - 1));
        assert!(!batch.is_full());
        batch.parts.push(Part::new(1, BATCH_BYTES - 1..BATCH_BYTES));
        assert!(batch.is_full());
        // Room for the held input of the last connection and one whole read.
        assert_eq!(batch.input.len() - (BATCH_BYTES - 1), SHORT_BYTES + READ_BYTES + 1);
    }

    #[test]
    fn a_thread_keeps_only_small_buffers() {
        let mut batch = SocketBatch::new(KEPT_BYTES);
        for bytes in [KEPT_BYTES, KEPT_BYTES + 1] {
            batch.output.resize(bytes, b'x');
            batch.clear();
            assert!(batch.output.is_empty());
            assert_eq!(batch.output.capacity(), KEPT_BYTES);
        }
        let mut group = CommitGroup::new();
        let kept: usize = (0..GROUP_BYTES / BATCH_BYTES).map(|_| group.begin_batch().kept_bytes).sum();
        assert!(kept <= GROUP_BATCHES * KEPT_BYTES + 4 * GROUP_BYTES, "{kept}");
    }

    #[test]
    fn a_long_read_leaves_no_memory_behind() {
        let mut batch = SocketBatch::new(KEPT_OF_FURTHER_BATCHES);
        let mut is_kept = |bytes: usize| {
            batch.input[0] = 1;
            batch.parts.push(Part::new(0, 0..bytes));
            batch.clear();
            batch.input[0] == 1
        };
        assert!(is_kept(KEPT_OF_FURTHER_BATCHES));
        assert!(!is_kept(KEPT_OF_FURTHER_BATCHES + 1));
    }
}
