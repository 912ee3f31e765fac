//! One RESP connection: its socket, what it holds between batches, and what there is to do for it.
//! Nothing here waits.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lately::Timestamp;
use lately_resp::Args;
use mio::event::Event;
use mio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::pending_replies::PendingReplies;
use crate::clients::Client;
use crate::commit::Commit;
use crate::engine::Engine;
use crate::limits::{
    CONNECTION_BYTES, DRAIN_BYTES, DRAIN_TIMEOUT, LINGER, LOOK_EVERY, READ_BYTES, SHORT_BYTES, WRITE_TIMEOUT,
};
use crate::session::{Flow, Session, Written};

pub(super) struct Connection {
    socket: TcpStream,
    engine: Arc<Engine>,
    client: Arc<Client>,
    pub(super) session: Session,
    /// Its place among the clients there is room for.
    _place: OwnedSemaphorePermit,
    /// What came and was not run: a part of a request; or more, when the replies were too many.
    input: Vec<u8>,
    /// How far the parser came with it.
    pub(super) args: Args,
    /// There may be whole requests in `input`: they are run before more is read.
    unread: bool,
    /// Replies that the socket has not taken. While there are any, nothing is read or run.
    output: Vec<u8>,
    /// They wait for a verdict.
    held: bool,
    /// How much of them the socket did take.
    sent: usize,
    /// What is to be done once they are sent.
    flow: Flow,
    /// The socket may have more to read, and may take more: as long as it did not say otherwise.
    readable: bool,
    writable: bool,
    /// The client has sent urgent data: a read that was not filled may have left something.
    urgent: bool,
    /// What the client sends has come to its end, or what comes from here on does not count.
    ending: bool,
    /// Bytes that may yet be read: what came after a stop is not.
    left_bytes: usize,
    /// Its end has been read.
    ended: bool,
    /// Set once all has been sent that will be.
    closing: Option<Closing>,
    /// The client cannot be answered any more, and its transaction is run to the end.
    gone: bool,
    /// On the list of those there is something to do for.
    listed: bool,
    /// When the client last sent something.
    heard: Instant,
    /// For how long it has taken no replies, counted in looks.
    stuck: Duration,
    /// Bytes the store has been told of.
    charged_bytes: usize,
}

/// The time between our end and the client's. A socket that is closed while something comes is reset,
/// and what the client has not taken yet is lost: so what comes is thrown away until nothing does.
struct Closing {
    since: Instant,
    /// When something came last.
    heard: Instant,
    /// Bytes that may yet be thrown away.
    left_bytes: usize,
}

/// What a look at a connection found.
#[derive(PartialEq, Debug)]
pub(super) enum Look {
    /// Nothing.
    Fine,
    /// Something that the event queue has not told of: there is something to do.
    News,
    /// The client was silent for too long, or takes no replies.
    Late,
}

impl Closing {
    fn is_over(&self, moment: Instant) -> bool {
        moment >= self.heard + LINGER || moment >= self.since + DRAIN_TIMEOUT
    }
}

impl Connection {
    pub(super) fn new(
        socket: TcpStream,
        place: OwnedSemaphorePermit,
        engine: &Arc<Engine>,
        moment: Instant,
    ) -> io::Result<Connection> {
        // Replies are written whole: there is nothing to wait for.
        socket.set_nodelay(true)?;
        let client = engine.clients.connect(socket.peer_addr()?, socket.local_addr()?, engine.now());
        let mut connection = Connection {
            socket,
            engine: Arc::clone(engine),
            session: Session::new(Arc::clone(engine), Arc::clone(&client)),
            client,
            _place: place,
            input: Vec::new(),
            args: Args::new(),
            unread: false,
            output: Vec::new(),
            held: false,
            sent: 0,
            flow: Flow::Continue,
            readable: false,
            writable: true,
            urgent: false,
            ending: false,
            left_bytes: usize::MAX,
            ended: false,
            closing: None,
            gone: false,
            listed: false,
            heard: moment,
            stuck: Duration::ZERO,
            charged_bytes: 0,
        };
        connection.charge()?;
        Ok(connection)
    }

    /// Takes note of what the event queue says.
    pub(super) fn notice(&mut self, event: &Event) {
        self.ending |= event.is_read_closed() || event.is_error();
        self.urgent |= event.is_priority();
        self.readable |= event.is_readable() || event.is_priority() || self.ending;
        self.writable |= event.is_writable();
    }

    /// Takes note that what has come by now is all that is read.
    pub(super) fn drain(&mut self) {
        (self.readable, self.ending) = (true, true);
        // Nothing that was sent by now is behind these.
        self.left_bytes = sent_bytes(&self.socket);
    }

    /// Whether there is something to do, and it is not on the list yet: then it is from here on.
    pub(super) fn list(&mut self) -> bool {
        let busy = if self.held {
            false
        } else if self.output.is_empty() {
            self.readable || self.unread || self.flow == Flow::More
        } else {
            self.writable
        };
        let newly = busy && !self.listed;
        self.listed |= newly;
        newly
    }

    pub(super) fn unlist(&mut self) {
        self.listed = false;
    }

    /// Whether what is left of its input is too long to be moved.
    pub(super) fn is_long(&self) -> bool {
        self.input.len() > SHORT_BYTES
    }

    /// Whether something is to be done before more requests are run.
    pub(super) fn is_behind(&self) -> bool {
        !self.output.is_empty() || self.flow == Flow::More
    }

    /// Goes on with an `EXEC` whose replies are too many to hold, if that is what there is to do. Gives what
    /// it changed, if that waits for a verdict; the replies do, too.
    pub(super) fn resume(&mut self, token: usize) -> Option<PendingReplies> {
        if !self.output.is_empty() {
            return None;
        }
        let engine = Arc::clone(&self.engine);
        let _entered = engine.enter();
        let mut written = Written::default();
        self.flow = self.session.resume(self.gone, &mut written, &mut self.output);
        match self.engine.commit(&mut [&mut written.changes]) {
            Commit::Kept => None,
            Commit::Pending(ticket) => {
                let mut held = PendingReplies::new(ticket);
                if !self.gone {
                    self.held = true;
                    held.add(token, self.client.id(), 0..self.output.len());
                }
                Some(held.with(written))
            }
            Commit::Refused(refused) => {
                self.output = written.refused(&self.output, 0, &refused);
                None
            }
        }
    }

    /// Sends what is left to send.
    pub(super) fn catch_up(&mut self) -> io::Result<()> {
        if self.gone {
            self.output = Vec::new();
            return Err(ErrorKind::BrokenPipe.into());
        }
        if self.held {
            return Ok(());
        }
        let output = std::mem::take(&mut self.output);
        let sent = self.write(&output[self.sent..])?;
        self.sent += sent;
        if sent > 0 {
            // It is slow, but it takes them.
            self.stuck = Duration::ZERO;
        }
        if self.sent < output.len() {
            self.output = output;
        } else {
            self.sent = 0;
        }
        Ok(())
    }

    /// Moves what came before to `room` and reads more behind it, when it is short; gives the bytes
    /// that are there to be run. When it is long, they are in the connection's own buffer.
    pub(super) fn bring(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let held = if self.is_long() { 0 } else { self.input.len() };
        if held > 0 {
            room[..held].copy_from_slice(&self.input);
        }
        let mut bytes = held;
        if !self.unread {
            let most = READ_BYTES.min(self.left_bytes);
            match self.socket.read(&mut room[held..held + most]) {
                Ok(0) => {
                    self.ended = most > 0;
                    self.flow = Flow::Close;
                }
                Ok(count) => {
                    // A read that was not filled took all there was; but the end is read, too, and what is behind urgent data.
                    self.readable = count == READ_BYTES || self.ending || self.urgent;
                    self.left_bytes -= count;
                    bytes += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    if self.ending {
                        self.flow = Flow::Close;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if bytes == held {
                return Ok(None);
            }
        }
        if self.is_long() {
            if self.input.capacity() - self.input.len() < bytes {
                // Not twice as much: it counts towards the memory of connections.
                self.input.reserve_exact(bytes.max(self.input.len() / 4));
            }
            self.input.extend_from_slice(&room[..bytes]);
        }
        Ok(Some(bytes))
    }

    /// The connection's own buffer, when that is where the bytes to be run are.
    pub(super) fn take_long(&mut self) -> Vec<u8> {
        if self.is_long() { std::mem::take(&mut self.input) } else { Vec::new() }
    }

    /// Keeps what was not consumed until more comes.
    pub(super) fn keep(&mut self, left: &[u8]) {
        if left.is_empty() {
            self.input = Vec::new();
        } else {
            self.input.clear();
            self.input.extend_from_slice(left);
        }
    }

    /// Has its own buffer back, of which so much was consumed.
    pub(super) fn keep_long(&mut self, mut long: Vec<u8>, consumed: usize) {
        if long.len() - consumed > SHORT_BYTES {
            long.drain(..consumed);
            self.input = long;
        } else {
            self.input = long[consumed..].to_vec();
        }
    }

    /// Takes note of a batch: whether there may be whole requests in what is left of the input, and
    /// what is to be done now.
    pub(super) fn ran(&mut self, unread: bool, flow: Flow, now: Timestamp, moment: Instant) {
        self.args.release();
        (self.unread, self.flow, self.heard) = (unread, flow, moment);
        self.client.seen(now);
    }

    /// Sends replies, and keeps what the socket does not take.
    pub(super) fn send(&mut self, replies: &[u8]) -> io::Result<()> {
        let sent = self.write(replies)?;
        let left = &replies[sent..];
        if left.len() > SHORT_BYTES && !self.may_hold(self.held_bytes() + left.len()) {
            // It is not copied first.
            return self.refuse_to_hold();
        }
        self.output.extend_from_slice(left);
        Ok(())
    }

    /// Keeps replies until there is a verdict on what they say; gives whose they are.
    pub(super) fn hold(&mut self, replies: &[u8]) -> u64 {
        self.output.extend_from_slice(replies);
        self.held = true;
        self.client.id()
    }

    /// Whether replies to this client wait for a verdict.
    pub(super) fn is_held_by(&self, client: u64) -> bool {
        self.held && self.client.id() == client
    }

    /// The replies may leave, once `change` has been made.
    pub(super) fn release(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.output);
        self.held = false;
    }

    /// Gives how much the socket takes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while self.writable && written < bytes.len() {
            match self.socket.write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Does what is to be done after each step; false when the connection ends.
    pub(super) fn settle(&mut self, result: io::Result<()>, moment: Instant) -> bool {
        if result.and_then(|()| self.charge()).is_err() {
            // What changes something and was queued is run to its end: a transaction is not left half done.
            self.gone = true;
            (self.input, self.output) = (Vec::new(), Vec::new());
            self.tell_charge(self.held_bytes());
            return self.flow == Flow::More;
        }
        if self.output.is_empty() && !matches!(self.flow, Flow::Continue | Flow::More) {
            return self.close(moment);
        }
        true
    }

    /// Ends what is sent; false when nothing can come any more that would reset the connection.
    fn close(&mut self, moment: Instant) -> bool {
        let (socket, heard) = (&self.socket, self.heard);
        let closing = self.closing.get_or_insert_with(|| {
            // An error here means that the client has gone already.
            let _ = socket.shutdown(std::net::Shutdown::Write);
            Closing { since: moment, heard, left_bytes: sent_bytes(socket) }
        });
        (self.input, self.unread) = (Vec::new(), false);
        !self.ended && !closing.is_over(moment)
    }

    /// Whether all has been sent that will be.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Throws away what came after the end. An error when that is at its end, too, or is too much.
    pub(super) fn discard(&mut self, room: &mut [u8], moment: Instant) -> io::Result<()> {
        match self.socket.read(room) {
            Ok(0) => Err(ErrorKind::ConnectionAborted.into()),
            Ok(count) => {
                let Some(closing) = &mut self.closing else { return Ok(()) };
                closing.heard = moment;
                let left_bytes = closing.left_bytes.checked_sub(count);
                closing.left_bytes = left_bytes.ok_or(ErrorKind::ConnectionAborted)?;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether its client told the server to stop, and has its reply.
    pub(super) fn stops_the_server(&self) -> bool {
        self.flow == Flow::Shutdown && (self.is_closing() || self.gone)
    }

    /// Looks at the time, each [`LOOK_EVERY`]. After a stall of the process the event queue may not have told yet what became
    /// of the socket meanwhile: so a client that seems silent is looked at, and for one that takes no replies a stall is one look.
    pub(super) fn look(&mut self, moment: Instant, idle: Option<Duration>) -> Look {
        if let Some(closing) = &mut self.closing {
            if !closing.is_over(moment) {
                return Look::Fine;
            }
            if moment >= closing.since + DRAIN_TIMEOUT || !has_more(&self.socket) {
                return Look::Late;
            }
            (closing.heard, self.readable) = (moment, true);
            return Look::News;
        }
        if self.held {
            // It is not the client that makes them wait.
            return Look::Fine;
        }
        if !self.output.is_empty() {
            self.stuck += LOOK_EVERY;
            return if self.stuck <= WRITE_TIMEOUT { Look::Fine } else { Look::Late };
        }
        // What it has sent and was not run yet has been heard, too.
        if self.listed || idle.is_none_or(|idle| moment.saturating_duration_since(self.heard) < idle) {
            return Look::Fine;
        }
        if !has_more(&self.socket) {
            return Look::Late;
        }
        self.readable = true;
        Look::News
    }

    fn held_bytes(&self) -> usize {
        CONNECTION_BYTES
            + self.input.capacity()
            + self.args.held_bytes()
            + self.output.capacity()
            + self.session.held_bytes()
    }

    /// Tells the store how much memory the connection holds. An error, and nothing is told, when it may not hold so much.
    fn charge(&mut self) -> io::Result<()> {
        let held_bytes = self.held_bytes();
        if !self.may_hold(held_bytes) {
            return self.refuse_to_hold();
        }
        self.tell_charge(held_bytes);
        Ok(())
    }

    /// Whether the connection may hold this much memory.
    fn may_hold(&self, held_bytes: usize) -> bool {
        held_bytes <= self.charged_bytes || self.engine.may_hold(self.charged_bytes, held_bytes)
    }

    /// Ends the connection. Its client does not read: the system need not keep for it what was sent, either.
    fn refuse_to_hold(&self) -> io::Result<()> {
        socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO))?;
        Err(ErrorKind::OutOfMemory.into())
    }

    fn tell_charge(&mut self, held_bytes: usize) {
        if held_bytes != self.charged_bytes {
            let before_bytes = std::mem::replace(&mut self.charged_bytes, held_bytes);
            self.engine.charge(before_bytes, held_bytes);
        }
    }
}

/// Whether something has come that was not read.
fn has_more(socket: &TcpStream) -> bool {
    socket.peek(&mut [0]).is_ok_and(|bytes| bytes > 0)
}

/// What a client can have sent by now: what has been received and what its own system holds.
fn sent_bytes(socket: &TcpStream) -> usize {
    socket2::SockRef::from(socket).recv_buffer_size().unwrap_or(0) + DRAIN_BYTES
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.engine.charge(self.charged_bytes, 0);
        self.engine.clients.disconnect(&self.client);
    }
}

#[cfg(test)]
mod tests;
