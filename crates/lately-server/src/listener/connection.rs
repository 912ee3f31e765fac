//! One RESP connection. What one read brings is one batch: one look at the clock, one write back.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use lately_resp::{Args, Encoder, Limits, Parsed, Protocol, parse_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::clients::Client;
use crate::engine::Engine;
use crate::limits::{OUTPUT_BYTES, READ_BYTES, WRITE_TIMEOUT};
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
            self.input.reserve(READ_BYTES);
            let read = tokio::select! {
                biased;
                read = self.socket.read_buf(&mut self.input) => read?,
                () = self.stopper.stopped() => return self.drain().await,
                () = silence(idle) => return Ok(()),
            };
            if read == 0 || !self.batch().await? {
                return self.socket.shutdown().await;
            }
        }
    }

    /// Answers what had arrived before the stop, and closes.
    async fn drain(&mut self) -> io::Result<()> {
        loop {
            self.input.reserve(READ_BYTES);
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
        let flow = loop {
            match parse_request(&self.input, &self.limits, &mut self.args) {
                Ok(Parsed::Incomplete) => break Flow::Continue,
                Ok(Parsed::Empty { consumed }) => self.input.advance(consumed),
                Ok(Parsed::Complete { consumed }) => {
                    let args = self.args.list(&self.input);
                    let flow = self.session.request(args, now, &mut self.output);
                    self.input.advance(consumed);
                    if flow != Flow::Continue {
                        break flow;
                    }
                    if self.output.len() >= OUTPUT_BYTES {
                        self.send().await?;
                    }
                }
                Err(error) => {
                    // The stream has lost its frame: nothing after this can be understood.
                    Encoder::new(&mut self.output, Protocol::default()).error(error);
                    break Flow::Close;
                }
            }
        };
        self.session.end_batch(now);
        self.send().await?;
        if flow == Flow::Shutdown {
            self.stopper.stop();
        }
        Ok(flow == Flow::Continue)
    }

    async fn send(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let written = tokio::time::timeout(WRITE_TIMEOUT, self.socket.write_all(&self.output)).await;
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES);
        written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// Ends after `idle` of silence.
async fn silence(idle: Duration) {
    // A timeout around a future that never ends is the one way to wait that is not a sleep.
    let _ = tokio::time::timeout(idle, std::future::pending::<()>()).await;
}
