//! One RESP connection: its state between batches, and its next task. Nothing here waits.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lately::Timestamp;
use lately_resp::Args;
use mio::event::Event;
use mio::{Registry, Token};
use tokio::sync::OwnedSemaphorePermit;

use super::pending_replies::PendingReplies;
use super::session::{Flow, Session, Written};
use super::stream::{Stream, Taken};
use crate::limits::{
    CONNECTION_BYTES, DRAIN_BYTES, DRAIN_TIMEOUT, HANDSHAKE_TIMEOUT, LINGER, LOGIN_TIMEOUT, LOGIN_WITHIN,
    READ_BYTES, SHORT_BYTES, TIMEOUT_CHECK_EVERY, WRITE_TIMEOUT,
};
use crate::service::Service;
use crate::service::clients::Client;
use crate::service::cluster::Wait;
use crate::service::commit::Commit;
use crate::stopper::Stopper;

pub(super) struct Connection {
    stream: Stream,
    service: Arc<Service>,
    client: Arc<Client>,
    pub(super) session: Session,
    /// Counts towards `max_clients` until it is dropped.
    _place: OwnedSemaphorePermit,
    /// Input that was not executed: a partial request, or more when the replies reached their bound.
    input: Vec<u8>,
    /// The state of the parser in the partial request.
    pub(super) args: Args,
    /// There may be whole requests in `input`. They are executed before more is read.
    unread: bool,
    /// Its requests take long: the next ones are executed in turn with those of other slow connections.
    yields: bool,
    incoming: Incoming,
    replies: Replies,
    state: State,
    /// It is on a list of connections with work.
    listed: bool,
    /// When the client last sent something.
    heard: Instant,
    /// `heard` as it was at the last check, and how long it has stayed so, counted in checks.
    silent: (Instant, Duration),
    /// How long it has been nobody's, counted in checks.
    nobody: Duration,
    /// Bytes charged for it.
    charged_bytes: usize,
    /// Bytes of requests since they are counted, to know which clients send much.
    pub(super) sent_bytes: usize,
}

/// What happens once the replies are sent.
enum State {
    /// Requests are read and executed.
    Open,
    /// A long command has more slices to run before the next request.
    Running,
    /// The next request waits for counts of other nodes or for a login, until this moment at most.
    Waiting { wait: Arc<Wait>, until: Instant },
    /// Nothing more is executed. The connection closes, and after `SHUTDOWN` the server stops.
    Ending { stops_server: bool },
    /// All replies are sent. Input is discarded until the client closes.
    Closing(Closing),
    /// The client cannot be answered any more. The rest of its transaction is executed, so that none is left half done.
    Abandoned,
}

/// The input that is still read.
enum Incoming {
    /// All of it.
    Open,
    /// Input from before the server stopped: at most this many bytes.
    Last { left_bytes: usize },
    /// None: its end was read.
    Ended,
}

/// Rendered replies. While there are any, nothing is read or executed.
enum Replies {
    /// All are sent.
    Sent,
    /// They wait until the changes that they report are on the disk.
    Pending(Vec<u8>),
    /// The socket has taken the first `sent` bytes, and nothing for the time `stalled`, which is counted in checks.
    Unsent { bytes: Vec<u8>, sent: usize, stalled: Duration },
}

/// The state between the server's end of the connection and the client's. Closing a socket with unread input resets
/// it, and the client would lose replies that it has not read. So input is discarded until no more arrives. A client that
/// sends on beyond the bound is no longer read, but may read its replies until [`DRAIN_TIMEOUT`].
struct Closing {
    since: Instant,
    /// When input came last.
    heard: Instant,
    /// Bytes that may still be discarded.
    left_bytes: usize,
}

/// The next task for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Task {
    /// Read and execute requests.
    Read,
    /// Execute more requests that take long, or a step of a handshake.
    NextSlice,
    /// Send the rest of the replies.
    Send,
    /// Run the next slice of the long command.
    Resume,
    /// Discard input.
    Discard,
}

/// The result of a timeout check.
#[derive(PartialEq, Debug)]
pub(super) enum Timeout {
    /// Nothing to do.
    NotDue,
    /// Work that no event reported.
    HasInput,
    /// The client was idle for too long, or reads no replies.
    Over,
}

impl Closing {
    fn is_over(&self, moment: Instant) -> bool {
        moment >= self.heard + LINGER || moment >= self.since + DRAIN_TIMEOUT
    }
}

impl Replies {
    fn of(bytes: Vec<u8>, sent: usize) -> Replies {
        if sent == bytes.len() {
            return Replies::Sent;
        }
        Replies::Unsent { bytes, sent, stalled: Duration::ZERO }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Replies::Sent => 0,
            Replies::Pending(bytes) | Replies::Unsent { bytes, .. } => bytes.capacity(),
        }
    }
}

impl Connection {
    pub(super) fn new(
        stream: Stream,
        place: OwnedSemaphorePermit,
        service: &Arc<Service>,
        moment: Instant,
    ) -> io::Result<Connection> {
        let (address, local_address) = stream.addresses()?;
        let client = service.clients.connect(address, local_address, service.now());
        let mut connection = Connection {
            stream,
            service: Arc::clone(service),
            session: Session::new(Arc::clone(service), Arc::clone(&client)),
            client,
            _place: place,
            input: Vec::new(),
            args: Args::new(),
            unread: false,
            yields: false,
            incoming: Incoming::Open,
            replies: Replies::Sent,
            state: State::Open,
            listed: false,
            heard: moment,
            silent: (moment, Duration::ZERO),
            nobody: Duration::ZERO,
            charged_bytes: 0,
            sent_bytes: 0,
        };
        connection.charge()?;
        Ok(connection)
    }

    /// Records an event of the socket.
    pub(super) fn notice(&mut self, event: &Event) {
        self.stream.notice(event);
        self.notice_end();
    }

    /// While a request waits, nothing is read. So the end of the input is noticed by its event.
    fn notice_end(&self) {
        if matches!(self.state, State::Waiting { .. }) && self.stream.has_hung_up() {
            self.session.client_left();
        }
    }

    /// Whether it can go to another loop: it waits for requests, and for nothing else.
    pub(super) fn may_move(&self) -> bool {
        matches!((&self.state, &self.replies, &self.incoming), (State::Open, Replies::Sent, Incoming::Open))
            && !self.unread
            && !self.listed
            && !self.stream.is_shaking_hands()
            && !self.session.is_subscribed()
    }

    /// Leaves the event queue of its loop.
    pub(super) fn leave(&mut self, registry: &Registry) -> io::Result<()> {
        self.stream.leave(registry)
    }

    /// Enters the event queue of another loop.
    pub(super) fn enter_loop(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.sent_bytes = 0;
        self.stream.enter(registry, token)
    }

    pub(super) fn client_id(&self) -> u64 {
        self.client.id()
    }

    /// Whether the handshake of TLS is not over.
    pub(super) fn is_shaking_hands(&self) -> bool {
        self.stream.is_shaking_hands()
    }

    /// Stops reading after the input that has arrived by now.
    pub(super) fn drain(&mut self) {
        if matches!(self.incoming, Incoming::Open) {
            self.incoming = Incoming::Last { left_bytes: self.most_sent_bytes() };
        }
    }

    /// Its next task.
    pub(super) fn task(&self) -> Option<Task> {
        let (task, is_ready) = match (&self.state, &self.replies) {
            (State::Abandoned, _) => (Task::Resume, true),
            (State::Closing(closing), _) => {
                // Once the client has closed its side, no more than the receive buffer is left.
                let is_read = closing.left_bytes > 0 || self.stream.has_hung_up();
                (Task::Discard, is_read && self.stream.is_readable())
            }
            (_, Replies::Pending(_)) => return None,
            (_, Replies::Unsent { .. }) => (Task::Send, self.stream.is_writable()),
            (State::Running, Replies::Sent) => (Task::Resume, true),
            (State::Waiting { .. }, Replies::Sent) => return None,
            (State::Open, Replies::Sent) => {
                let may_come = self.stream.is_readable() || matches!(self.incoming, Incoming::Last { .. });
                // A step of a handshake takes long, too.
                let takes_long = (self.unread && self.yields) || self.stream.is_shaking_hands();
                let task = if takes_long { Task::NextSlice } else { Task::Read };
                (task, self.unread || may_come)
            }
            // `settle` closes it.
            (State::Ending { .. }, Replies::Sent) => return None,
        };
        is_ready.then_some(task)
    }

    /// Its next task, if it is on no list yet. The caller puts it on one.
    pub(super) fn list(&mut self) -> Option<Task> {
        let task = self.task().filter(|_| !self.listed);
        self.listed |= task.is_some();
        task
    }

    /// Records that it left its list. Returns whether it was on one.
    pub(super) fn unlist(&mut self) -> bool {
        std::mem::take(&mut self.listed)
    }

    /// Whether its held input is too long to be copied.
    pub(super) fn is_long(&self) -> bool {
        self.input.len() > SHORT_BYTES
    }

    /// Runs the next slice of its long command. Returns its changes, if they and the replies wait for the disk.
    pub(super) fn resume(&mut self, token: usize) -> (Option<PendingReplies>, io::Result<()>) {
        let is_abandoned = matches!(self.state, State::Abandoned);
        let service = Arc::clone(&self.service);
        let entered = service.enter();
        let (mut written, mut output) = (Written::default(), Vec::new());
        let flow = self.session.resume(is_abandoned, &mut written, &mut output);
        let commit = service.commit(&mut [&mut written.changes]);
        drop(entered);
        if is_abandoned {
            let pending = match commit {
                Commit::Pending(ticket) => Some(PendingReplies::new(ticket).with(written)),
                Commit::Kept | Commit::Refused(_) => None,
            };
            if flow == Flow::More {
                return (pending, Ok(()));
            }
            // That was the last slice.
            self.enter(Flow::Close);
            return (pending, Err(ErrorKind::BrokenPipe.into()));
        }
        self.enter(flow);
        match commit {
            Commit::Kept => (None, self.send_all(output)),
            Commit::Pending(ticket) => {
                let mut pending = PendingReplies::new(ticket);
                pending.add(token, self.client.id(), 0..output.len());
                self.replies = Replies::Pending(output);
                (Some(pending.with(written)), Ok(()))
            }
            Commit::Refused(refused) => (None, self.send_all(written.refused(&output, 0, &refused))),
        }
    }

    /// Enters the state that a command requires.
    fn enter(&mut self, flow: Flow) {
        self.yields = flow == Flow::Yield;
        self.state = match flow {
            Flow::Continue | Flow::Yield => State::Open,
            Flow::More => State::Running,
            Flow::Wait => match self.session.take_wait() {
                Some((wait, timeout)) => State::Waiting { wait, until: self.heard + timeout },
                None => State::Open,
            },
            Flow::Close => State::Ending { stops_server: false },
            Flow::Shutdown => State::Ending { stops_server: true },
        };
        self.notice_end();
    }

    /// Until when the next request waits at most; `None` if it does not.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Ends a wait, if it is over. Returns whether it was.
    pub(super) fn end_wait(&mut self, moment: Instant) -> bool {
        let State::Waiting { wait, until } = &self.state else { return false };
        let is_over = wait.is_over() || *until <= moment;
        if is_over {
            let wait = Arc::clone(wait);
            self.session.end_wait(wait);
            self.state = State::Open;
        }
        is_over
    }

    /// Sends the rest of the replies.
    pub(super) fn send_rest(&mut self) -> io::Result<()> {
        let Replies::Unsent { bytes, sent, stalled } = &mut self.replies else { return Ok(()) };
        let taken = self.stream.write(&bytes[*sent..])?;
        *sent += taken;
        if taken > 0 {
            // The client is slow, but it reads.
            *stalled = Duration::ZERO;
        }
        if *sent == bytes.len() {
            self.replies = Replies::Sent;
        }
        Ok(())
    }

    /// Moves short held input to `room`, reads more behind it, and returns the number of bytes to execute. Long input
    /// stays in the connection's own buffer.
    pub(super) fn read(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let held = if self.is_long() { 0 } else { self.input.len() };
        if held > 0 {
            room[..held].copy_from_slice(&self.input);
        }
        if self.unread {
            return Ok(Some(held));
        }
        // Input that is not executed in this slice has to be held. Where there is no room for it, it stays in the socket.
        let has_room = self.service.has_connection_room(READ_BYTES);
        let most =
            if has_room || held == SHORT_BYTES || self.is_long() { READ_BYTES } else { SHORT_BYTES - held };
        let Some(count) = self.read_behind(&mut room[held..held + most])? else { return Ok(None) };
        if self.is_long() {
            if self.input.capacity() - self.input.len() < count {
                // Does not double, because capacity is charged.
                self.input.reserve_exact(count.max(self.input.len() / 4));
            }
            self.input.extend_from_slice(&room[..count]);
        }
        Ok(Some(held + count))
    }

    /// Reads input, if any is still read. At its end the connection ends.
    fn read_behind(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let most = match self.incoming {
            Incoming::Open => room.len(),
            Incoming::Last { left_bytes } => room.len().min(left_bytes),
            Incoming::Ended => 0,
        };
        let taken = if most == 0 { Taken::Nothing } else { self.stream.read(&mut room[..most])? };
        match (taken, &mut self.incoming) {
            (Taken::Bytes(count), Incoming::Last { left_bytes }) => {
                *left_bytes -= count;
                return Ok(Some(count));
            }
            (Taken::Bytes(count), _) => return Ok(Some(count)),
            (Taken::Nothing, Incoming::Open) => return Ok(None),
            (Taken::Nothing, _) => {}
            (Taken::End, incoming) => *incoming = Incoming::Ended,
        }
        self.state = State::Ending { stops_server: false };
        Ok(None)
    }

    /// Takes the connection's own buffer, which has the bytes to execute.
    pub(super) fn take_long(&mut self) -> Vec<u8> {
        if self.is_long() { std::mem::take(&mut self.input) } else { Vec::new() }
    }

    /// Holds input that was not consumed until more comes.
    pub(super) fn keep(&mut self, left: &[u8]) {
        if left.is_empty() {
            self.input = Vec::new();
        } else {
            self.input.clear();
            self.input.extend_from_slice(left);
        }
    }

    /// Returns its own buffer, of which the first `consumed` bytes were executed.
    pub(super) fn keep_long(&mut self, mut long: Vec<u8>, consumed: usize) {
        if long.len() - consumed > SHORT_BYTES {
            long.drain(..consumed);
            self.input = long;
        } else {
            self.input = long[consumed..].to_vec();
        }
    }

    /// Records the result of a batch: whether whole requests may remain in the input, and the state to enter.
    pub(super) fn ran(&mut self, unread: bool, flow: Flow, now: Timestamp, moment: Instant) {
        self.args.release();
        (self.unread, self.heard) = (unread, moment);
        self.enter(flow);
        self.client.seen(now);
    }

    /// Sends replies. Holds what the socket does not take.
    pub(super) fn send(&mut self, replies: &[u8]) -> io::Result<()> {
        let sent = self.stream.write(replies)?;
        let left = &replies[sent..];
        if left.len() > SHORT_BYTES && !self.may_hold(self.held_bytes() + left.len()) {
            // Refused before it is copied.
            return self.refuse_to_hold();
        }
        self.replies = Replies::of(left.to_vec(), 0);
        Ok(())
    }

    /// Whether the client has subscribed to alerts.
    pub(super) fn is_subscribed(&self) -> bool {
        self.session.is_subscribed()
    }

    /// Sends the messages that have come for a client that has subscribed, if no replies are before them.
    pub(super) fn send_messages(&mut self) -> io::Result<()> {
        if !matches!((&self.state, &self.replies), (State::Open, Replies::Sent)) {
            return Ok(());
        }
        let mut messages = Vec::new();
        self.session.messages(&mut messages).map_err(|_| ErrorKind::ConnectionAborted)?;
        if messages.is_empty() { Ok(()) } else { self.send_all(messages) }
    }

    /// Sends replies without copying the rest.
    fn send_all(&mut self, replies: Vec<u8>) -> io::Result<()> {
        let sent = self.stream.write(&replies)?;
        self.replies = Replies::of(replies, sent);
        Ok(())
    }

    /// Holds replies until the changes that they report are on the disk. Returns the id of the client.
    pub(super) fn hold(&mut self, replies: &[u8]) -> u64 {
        self.replies = Replies::Pending(replies.to_vec());
        self.client.id()
    }

    /// Sends the held replies of this client, after `change` was applied to them. False if it holds none.
    pub(super) fn release(&mut self, client: u64, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        match &mut self.replies {
            Replies::Pending(bytes) if self.client.id() == client => {
                change(bytes);
                let bytes = std::mem::take(bytes);
                self.replies = Replies::Unsent { bytes, sent: 0, stalled: Duration::ZERO };
                true
            }
            _ => false,
        }
    }

    /// Finishes a step that ended with `result`. False when the connection ends.
    pub(super) fn settle(&mut self, result: io::Result<()>, moment: Instant, stopper: &Stopper) -> bool {
        let failed = result.and_then(|()| self.charge()).is_err();
        match (&self.state, &self.replies) {
            _ if failed => self.abandon(stopper),
            (State::Ending { stops_server }, Replies::Sent) => {
                if *stops_server {
                    stopper.stop();
                }
                self.close(moment)
            }
            (State::Closing(closing), _) => !closing.is_over(moment),
            _ => true,
        }
    }

    /// Drops the replies of a client that cannot be answered. True while its transaction has more to run.
    fn abandon(&mut self, stopper: &Stopper) -> bool {
        (self.input, self.replies) = (Vec::new(), Replies::Sent);
        let is_executing = self.session.abandon();
        self.report_charge(self.held_bytes());
        match self.state {
            State::Abandoned | State::Running => {
                self.state = State::Abandoned;
                is_executing
            }
            State::Ending { stops_server: true } => {
                stopper.stop();
                false
            }
            State::Open
            | State::Waiting { .. }
            | State::Ending { stops_server: false }
            | State::Closing(_) => false,
        }
    }

    /// Shuts down the server's side. False if the client's side is shut down, too, so that the socket can be closed.
    fn close(&mut self, moment: Instant) -> bool {
        self.stream.end();
        (self.input, self.unread) = (Vec::new(), false);
        let closing = Closing { since: moment, heard: self.heard, left_bytes: self.most_sent_bytes() };
        let stays = !matches!(self.incoming, Incoming::Ended) && !closing.is_over(moment);
        self.state = State::Closing(closing);
        stays
    }

    /// Discards input after the server's side was shut down. An error if the input ends, too.
    pub(super) fn discard(&mut self, room: &mut [u8], moment: Instant) -> io::Result<()> {
        let State::Closing(closing) = &mut self.state else { return Ok(()) };
        match self.stream.read(room)? {
            Taken::Bytes(count) => {
                closing.heard = moment;
                closing.left_bytes = closing.left_bytes.saturating_sub(count);
                Ok(())
            }
            Taken::Nothing => Ok(()),
            Taken::End => Err(ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Checks for timeouts, every [`TIMEOUT_CHECK_EVERY`]. A stall of the process counts as one look. Then events may still be due: so the
    /// socket of a client that seems idle is checked directly.
    pub(super) fn check_timeout(&mut self, moment: Instant, idle: Option<Duration>) -> Timeout {
        self.nobody =
            if self.session.is_nobody() { self.nobody + TIMEOUT_CHECK_EVERY } else { Duration::ZERO };
        // What is read in a round during which the process stalled has the time of before. So times are not subtracted.
        let (heard, silent) = self.silent;
        let silent = if heard == self.heard { silent + TIMEOUT_CHECK_EVERY } else { Duration::ZERO };
        self.silent = (self.heard, silent);
        match (&mut self.state, &mut self.replies) {
            (State::Closing(closing), _) => {
                if !closing.is_over(moment) {
                    return Timeout::NotDue;
                }
                if moment >= closing.since + DRAIN_TIMEOUT || !self.stream.poll_readable() {
                    return Timeout::Over;
                }
                closing.heard = moment;
                Timeout::HasInput
            }
            // They wait for the disk, not for the client.
            (_, Replies::Pending(_)) => Timeout::NotDue,
            // It waits for other nodes or for the verification of a login, not for the client. Who tries one login after the other waits
            // most of the time.
            (State::Waiting { .. }, Replies::Sent) if self.nobody < LOGIN_WITHIN + LOGIN_TIMEOUT => {
                Timeout::NotDue
            }
            _ if self.nobody >= LOGIN_WITHIN => Timeout::Over,
            (_, Replies::Unsent { stalled, .. }) => {
                *stalled += TIMEOUT_CHECK_EVERY;
                if *stalled <= WRITE_TIMEOUT { Timeout::NotDue } else { Timeout::Over }
            }
            _ if self.stream.is_shaking_hands() && moment >= self.heard + HANDSHAKE_TIMEOUT => Timeout::Over,
            // It waits for alerts.
            _ if self.session.is_subscribed() => Timeout::NotDue,
            // It has input that was not executed yet.
            _ if self.listed => Timeout::NotDue,
            _ if idle.is_none_or(|idle| silent < idle) => Timeout::NotDue,
            _ if self.stream.poll_readable() => Timeout::HasInput,
            _ => Timeout::Over,
        }
    }

    /// The most that the client can have sent by now: the receive buffer, and what its own system holds.
    fn most_sent_bytes(&self) -> usize {
        self.stream.receive_buffer_bytes() + DRAIN_BYTES
    }

    fn held_bytes(&self) -> usize {
        CONNECTION_BYTES
            + self.stream.held_bytes()
            + self.input.capacity()
            + self.args.held_bytes()
            + self.replies.held_bytes()
            + self.session.held_bytes()
    }

    /// Charges the memory that the connection holds. An error, without a charge, when that is more than it may hold.
    fn charge(&mut self) -> io::Result<()> {
        let held_bytes = self.held_bytes();
        if !self.may_hold(held_bytes) {
            return self.refuse_to_hold();
        }
        self.report_charge(held_bytes);
        Ok(())
    }

    /// Whether the connection may hold this much memory.
    fn may_hold(&self, held_bytes: usize) -> bool {
        let asked_bytes = held_bytes - self.unread_bytes();
        asked_bytes <= self.charged_bytes || self.service.may_hold(self.charged_bytes, asked_bytes)
    }

    /// Ends the connection, if it holds too much while all together hold too much.
    pub(super) fn shed(&self) -> io::Result<()> {
        let asked_bytes = self.charged_bytes.saturating_sub(self.unread_bytes());
        if self.service.holds_too_much(asked_bytes) { self.refuse_to_hold() } else { Ok(()) }
    }

    /// The bytes of one read that the server has not executed yet, though they may be whole requests. There was room for them, so
    /// the client is not closed for them.
    fn unread_bytes(&self) -> usize {
        if self.unread { self.input.capacity().min(SHORT_BYTES + READ_BYTES) } else { 0 }
    }

    /// Ends the connection and drops the send buffer, because the client does not read.
    fn refuse_to_hold(&self) -> io::Result<()> {
        self.stream.forget_sent()?;
        Err(ErrorKind::OutOfMemory.into())
    }

    fn report_charge(&mut self, held_bytes: usize) {
        if held_bytes != self.charged_bytes {
            let before_bytes = std::mem::replace(&mut self.charged_bytes, held_bytes);
            self.service.charge(before_bytes, held_bytes);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.service.charge(self.charged_bytes, 0);
        self.service.clients.disconnect(&self.client);
    }
}

#[cfg(test)]
mod tests;
