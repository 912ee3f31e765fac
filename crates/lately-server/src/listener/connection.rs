//! One RESP connection. What one read brings is one batch: one look at the clock, one write back.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use lately::Timestamp;
use lately_resp::{Args, Encoder, Limits, Parsed, Protocol, parse_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::pause;
use crate::clients::Client;
use crate::engine::Engine;
use crate::limits::{DRAIN_NOTICE, KEPT_BYTES, OUTPUT_BYTES, READ_BYTES, WRITE_TIMEOUT};
use crate::session::{Flow, Session};
use crate::stopper::Stopper;

pub(super) struct Connection {
    socket: TcpStream,
    engine: Arc<Engine>,
    session: Session,
    stopper: Stopper,
    limits: Limits,
    input: BytesMut,
    args: Args,
    output: Vec<u8>,
}

impl Connection {
    pub(super) fn new(
        socket: TcpStream,
        engine: Arc<Engine>,
        client: Arc<Client>,
        stopper: Stopper,
    ) -> Connection {
        Connection {
            socket,
            session: Session::new(Arc::clone(&engine), client),
            engine,
            stopper,
            limits: Limits::default(),
            input: BytesMut::new(),
            args: Args::new(),
            output: Vec::new(),
        }
    }

    /// Talks until the client leaves, stays silent too long, breaks the protocol, or the server stops.
    pub(super) async fn run(mut self) -> io::Result<()> {
        let idle = self.engine.config.idle_timeout.unwrap_or(Duration::MAX);
        loop {
            make_room(&mut self.input);
            let read = tokio::select! {
                biased;
                read = self.socket.read_buf(&mut self.input) => read?,
                () = self.stopper.stopped() => return self.drain().await,
                () = pause(idle) => return Ok(()),
            };
            if read == 0 || !self.batch().await? {
                return self.socket.shutdown().await;
            }
        }
    }

    /// Answers what had arrived before the stop, and closes.
    async fn drain(&mut self) -> io::Result<()> {
        // A timer ends after the runtime has looked at the sockets: without it, a socket of which it
        // has not yet heard would seem to have nothing to read.
        pause(DRAIN_NOTICE).await;
        loop {
            make_room(&mut self.input);
            match self.socket.try_read_buf(&mut self.input) {
                Ok(0) => break,
                Ok(_) => {
                    if !self.batch().await? {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.socket.shutdown().await
    }

    /// Runs the whole requests of the input and sends the replies; false when the connection ends.
    async fn batch(&mut self) -> io::Result<bool> {
        let now = self.engine.now();
        let flow = self.requests(now).await;
        self.session.end_batch(now);
        let flow = flow?;
        self.send().await?;
        if flow == Flow::Shutdown {
            self.stopper.stop();
        }
        Ok(flow == Flow::Continue)
    }

    async fn requests(&mut self, now: Timestamp) -> io::Result<Flow> {
        loop {
            match parse_request(&self.input, &self.limits, &mut self.args) {
                Ok(Parsed::Incomplete) => return Ok(Flow::Continue),
                Ok(Parsed::Empty { consumed }) => self.input.advance(consumed),
                Ok(Parsed::Complete { consumed }) => {
                    let args = self.args.list(&self.input);
                    let mut flow = self.session.request(args, now, &mut self.output);
                    self.input.advance(consumed);
                    if flow == Flow::More {
                        flow = self.rest_of_exec(now).await?;
                    }
                    if flow != Flow::Continue {
                        return Ok(flow);
                    }
                    if self.output.len() >= OUTPUT_BYTES {
                        self.send().await?;
                    }
                }
                Err(error) => {
                    // The stream has lost its frame: nothing after this can be understood.
                    Encoder::new(&mut self.output, Protocol::default()).error(error);
                    return Ok(Flow::Close);
                }
            }
        }
    }

    /// Goes on with an `EXEC` whose replies are too many to hold. What was queued runs to its end even
    /// when the client has gone: a transaction is not left half done.
    async fn rest_of_exec(&mut self, now: Timestamp) -> io::Result<Flow> {
        let mut sent = Ok(());
        loop {
            sent = if sent.is_ok() { self.send().await } else { sent };
            self.output.clear();
            match self.session.resume(now, &mut self.output) {
                Flow::More => {}
                flow => return sent.map(|()| flow),
            }
        }
    }

    async fn send(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let written = tokio::time::timeout(WRITE_TIMEOUT, self.socket.write_all(&self.output)).await;
        self.output.clear();
        self.output.shrink_to(KEPT_BYTES);
        written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// Makes room for a read. Room that a long request needed is given back.
fn make_room(input: &mut BytesMut) {
    input.reserve(READ_BYTES);
    if input.is_empty() && input.capacity() > KEPT_BYTES {
        *input = BytesMut::with_capacity(READ_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_kept_while_it_is_usual() {
        let room_after = |bytes: usize, left: usize| {
            let mut input = BytesMut::new();
            make_room(&mut input);
            input.resize(bytes, b'x');
            input.advance(bytes - left);
            make_room(&mut input);
            assert_eq!(input.len(), left);
            input.capacity()
        };
        assert_eq!(room_after(0, 0), READ_BYTES);
        assert_eq!(room_after(READ_BYTES, 0), READ_BYTES);
        assert_eq!(room_after(KEPT_BYTES, 0), KEPT_BYTES);
        assert_eq!(room_after(KEPT_BYTES + 1, 0), READ_BYTES);
        assert!(room_after(KEPT_BYTES + 1, 1) > KEPT_BYTES);
    }
}
