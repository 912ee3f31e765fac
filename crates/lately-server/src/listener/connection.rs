//! One RESP connection. What one read brings is one batch: one look at the clock, one write back.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lately::Timestamp;
use lately_resp::{Args, Encoder, End, Limits, Protocol};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::pause;
use super::workbench::Workbench;
use crate::clients::Client;
use crate::engine::Engine;
use crate::limits::{CONNECTION_BYTES, DRAIN_NOTICE, OUTPUT_BYTES, READ_BYTES, SHORT_BYTES, WRITE_TIMEOUT};
use crate::session::{Flow, Session};
use crate::stopper::Stopper;

pub(super) struct Connection {
    socket: TcpStream,
    engine: Arc<Engine>,
    client: Arc<Client>,
    session: Session,
    stopper: Stopper,
    /// What came and was not run: a part of a request; or more, when the replies were too many.
    input: Vec<u8>,
    /// How far the parser came with it.
    args: Args,
    /// There may be whole requests in `input`: they are run before more is read.
    unread: bool,
    /// Replies that the socket has not taken.
    output: Vec<u8>,
    /// Bytes the store has been told of.
    charged_bytes: usize,
}

/// What a connection does after a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// As the session says.
    Flow(Flow),
    /// End: the client has gone.
    Leave,
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
            session: Session::new(Arc::clone(&engine), Arc::clone(&client)),
            engine,
            client,
            stopper,
            input: Vec::new(),
            args: Args::new(),
            unread: false,
            output: Vec::new(),
            charged_bytes: 0,
        }
    }

    /// Talks until the client leaves, is told to leave, breaks the protocol, or the server stops.
    pub(super) async fn run(mut self) -> io::Result<()> {
        self.charge()?;
        loop {
            let turn = poll_fn(|cx| match self.turn(cx) {
                Poll::Pending if self.client.is_called(cx.waker()) => Poll::Ready(None),
                turn => turn.map(Some),
            });
            let Some(next) = turn.await else { break };
            if !self.finish(next?).await? {
                return self.socket.shutdown().await;
            }
        }
        if !self.stopper.is_stopped() {
            return Ok(());
        }
        self.drain().await?;
        self.socket.shutdown().await
    }

    /// Answers what had arrived before the stop.
    async fn drain(&mut self) -> io::Result<()> {
        // A timer ends after the runtime has looked at the sockets: without it, a socket of which it
        // has not yet heard would seem to have nothing to read.
        pause(DRAIN_NOTICE).await;
        loop {
            let turn = poll_fn(|cx| match self.turn(cx) {
                Poll::Pending => Poll::Ready(None),
                turn => turn.map(Some),
            });
            let Some(next) = turn.await else { return Ok(()) };
            if !self.finish(next?).await? {
                return Ok(());
            }
        }
    }

    /// Reads, runs what came, and writes the replies, all without waiting. Pending when nothing came.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Next>> {
        Workbench::with(|bench| {
            // What is short is gone on with in the buffer all connections share.
            let long = self.input.len() > SHORT_BYTES;
            let mut input = std::mem::take(if long { &mut self.input } else { &mut bench.input });
            if !long {
                input.extend_from_slice(&self.input);
            }
            let read = if self.unread { Poll::Ready(Ok(1)) } else { self.read(cx, &mut input) };
            let next = match read {
                Poll::Ready(Ok(0)) => Poll::Ready(Ok(Next::Leave)),
                Poll::Ready(Ok(_)) => {
                    let now = self.engine.now();
                    let (consumed, flow) = self.run_requests(bench, &input, now);
                    self.session.end_batch(now);
                    self.keep(&mut input, consumed, long);
                    Poll::Ready(self.write(cx, &bench.output).map(|()| Next::Flow(flow)))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
            *(if long { &mut self.input } else { &mut bench.input }) = input;
            next
        })
    }

    fn read(&mut self, cx: &mut Context<'_>, input: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        input.reserve(READ_BYTES);
        pin!(self.socket.read_buf(input)).poll(cx)
    }

    /// Runs whole requests of the input until there are none, or as many replies as may be held.
    fn run_requests(&mut self, bench: &mut Workbench, input: &[u8], now: Timestamp) -> (usize, Flow) {
        let Workbench { requests, run: memory, output, .. } = bench;
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let progress = requests.parse(rest, &Limits::default(), &mut self.args);
            let mut run = std::mem::take(memory).reused();
            let (done, flow) = self.session.batch(requests.iter(rest), &mut run, now, output);
            *memory = run.reused();
            if done < requests.len() {
                self.args.reset();
                self.unread = true;
                return (consumed + requests.bytes_of_first(done), flow);
            }
            consumed += progress.consumed;
            self.unread = progress.end != End::Incomplete;
            if !self.unread || flow != Flow::Continue || output.len() >= OUTPUT_BYTES {
                return (consumed, flow);
            }
            if let End::Broken(error) = progress.end {
                // The stream has lost its frame: nothing after this can be understood.
                Encoder::new(output, Protocol::default()).error(error);
                return (consumed, Flow::Close);
            }
        }
    }

    /// Keeps what was not consumed until more comes.
    fn keep(&mut self, input: &mut Vec<u8>, consumed: usize, long: bool) {
        self.args.release();
        let left = input.len() - consumed;
        if !long {
            self.input.clear();
            self.input.extend_from_slice(&input[consumed..]);
        } else if left > SHORT_BYTES {
            input.drain(..consumed);
        } else {
            *input = input[consumed..].to_vec();
        }
        if left == 0 {
            self.input = Vec::new();
        }
    }

    fn write(&mut self, cx: &mut Context<'_>, replies: &[u8]) -> io::Result<()> {
        if replies.is_empty() {
            return Ok(());
        }
        let written = match pin!(self.socket.write(replies)).poll(cx) {
            Poll::Ready(written) => written?,
            Poll::Pending => 0,
        };
        self.output.extend_from_slice(&replies[written..]);
        Ok(())
    }

    /// Does what a turn left to do; false when the connection ends.
    async fn finish(&mut self, next: Next) -> io::Result<bool> {
        self.charge()?;
        if !self.output.is_empty() {
            self.send().await?;
        }
        let flow = match next {
            Next::Leave => return Ok(false),
            Next::Flow(Flow::More) => self.rest_of_exec().await?,
            Next::Flow(flow) => flow,
        };
        if flow == Flow::Shutdown {
            self.stopper.stop();
        }
        Ok(flow == Flow::Continue)
    }

    /// Goes on with an `EXEC` whose replies are too many to hold. What was queued runs to its end even
    /// when the client has gone: a transaction is not left half done.
    async fn rest_of_exec(&mut self) -> io::Result<Flow> {
        let mut sent = Ok(());
        loop {
            let flow = self.session.resume(&mut self.output);
            sent = match sent.and_then(|()| self.charge()) {
                Ok(()) => self.send().await,
                error => error,
            };
            self.output.clear();
            if flow != Flow::More {
                self.session.end_batch(self.engine.now());
                return sent.map(|()| flow);
            }
        }
    }

    async fn send(&mut self) -> io::Result<()> {
        let written = tokio::time::timeout(WRITE_TIMEOUT, self.socket.write_all(&self.output)).await;
        self.output = Vec::new();
        self.charge()?;
        written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Tells the store how much memory the connection holds. An error when it may not hold so much.
    fn charge(&mut self) -> io::Result<()> {
        let held_bytes = CONNECTION_BYTES
            + self.input.capacity()
            + self.args.held_bytes()
            + self.output.capacity()
            + self.session.held_bytes();
        if held_bytes != self.charged_bytes {
            let before_bytes = std::mem::replace(&mut self.charged_bytes, held_bytes);
            self.engine.charge(before_bytes, held_bytes);
            if held_bytes > before_bytes && !self.engine.may_hold(held_bytes) {
                // It does not read: the system need not keep for it what was sent, either.
                self.socket.set_zero_linger()?;
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.engine.charge(self.charged_bytes, 0);
    }
}
