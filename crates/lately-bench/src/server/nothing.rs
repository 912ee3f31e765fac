//! A server that parses each request and answers `:1`. No server of the same design can be faster.
//!
//! There are two. One reads, parses and writes like ours, on the same runtime. The other uses the bare event
//! queue, in one thread, to measure the cost of the runtime.

use std::io::{self, Read, Write};

use axum::Router;
use bytes::{Buf, BytesMut};
use clap::ValueEnum;
use lately_resp::{Args, Limits, Parsed, ProtocolError, parse_request};
use mio::{Events, Interest, Poll, Token};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::output;

/// The I/O of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Way {
    /// The runtime that our server uses.
    Tokio,
    /// The event queue, one thread.
    Queue,
    /// An axum handler, on the runtime.
    Axum,
}

const READ_BYTES: usize = 64 << 10;
const ANY_PORT: &str = "127.0.0.1:0";
const REPLY: &[u8] = b":1\r\n";

/// Serves until the process is killed.
pub(crate) fn serve(way: Way) -> io::Result<()> {
    match way {
        Way::Tokio => {
            tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve_tokio())
        }
        Way::Queue => serve_queue(),
        Way::Axum => tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve_axum()),
    }
}

/// The bytes that were read, and the replies to the complete requests.
struct Dialogue {
    input: BytesMut,
    output: Vec<u8>,
    args: Args,
    limits: Limits,
}

impl Dialogue {
    fn new() -> Dialogue {
        let limits = Limits::default();
        Dialogue { input: BytesMut::with_capacity(READ_BYTES), output: Vec::new(), args: Args::new(), limits }
    }

    fn answer(&mut self) -> Result<(), ProtocolError> {
        loop {
            match parse_request(&self.input, &self.limits, &mut self.args)? {
                Parsed::Incomplete => return Ok(()),
                Parsed::Empty { consumed } => self.input.advance(consumed),
                Parsed::Complete { consumed } => {
                    self.input.advance(consumed);
                    self.output.extend_from_slice(REPLY);
                }
            }
        }
    }
}

async fn serve_axum() -> io::Result<()> {
    let listener = tokio::net::TcpListener::bind(ANY_PORT).await?;
    output::data(&format!("resp {}\n", listener.local_addr()?))?;
    axum::serve(listener, Router::new().fallback(|| async {})).await
}

async fn serve_tokio() -> io::Result<()> {
    let listener = tokio::net::TcpListener::bind(ANY_PORT).await?;
    output::data(&format!("resp {}\n", listener.local_addr()?))?;
    loop {
        let (mut socket, _) = listener.accept().await?;
        tokio::spawn(async move {
            socket.set_nodelay(true)?;
            let mut dialogue = Dialogue::new();
            loop {
                dialogue.input.reserve(READ_BYTES);
                if socket.read_buf(&mut dialogue.input).await? == 0 || dialogue.answer().is_err() {
                    return io::Result::Ok(());
                }
                socket.write_all(&dialogue.output).await?;
                dialogue.output.clear();
            }
        });
    }
}

fn serve_queue() -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut listener = mio::net::TcpListener::bind(ANY_PORT.parse().map_err(io::Error::other)?)?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    output::data(&format!("resp {}\n", listener.local_addr()?))?;
    let mut clients: Vec<Option<Client>> = Vec::new();
    let mut events = Events::with_capacity(1_024);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() != LISTENER {
                let client = &mut clients[event.token().0];
                if client.as_mut().is_some_and(|client| client.converse(&mut buffer).is_err()) {
                    *client = None;
                }
                continue;
            }
            while let Ok((mut socket, _)) = listener.accept() {
                socket.set_nodelay(true)?;
                let token = Token(clients.len());
                poll.registry().register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
                clients.push(Some(Client { socket, dialogue: Dialogue::new() }));
            }
        }
    }
}

const LISTENER: Token = Token(usize::MAX);

struct Client {
    socket: mio::net::TcpStream,
    dialogue: Dialogue,
}

impl Client {
    /// Reads and answers until the socket blocks. An error if the client has closed the connection.
    fn converse(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.dialogue.input.extend_from_slice(&buffer[..count]);
                    self.dialogue.answer().map_err(|_| io::ErrorKind::InvalidData)?;
                    self.write()?;
                    if count < buffer.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.write(),
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let output = &mut self.dialogue.output;
        while !output.is_empty() {
            match self.socket.write(output) {
                Ok(written) => _ = output.drain(..written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_whole_request_gets_its_reply() {
        let mut dialogue = Dialogue::new();
        dialogue.input.extend_from_slice(b"*2\r\n$3\r\nHIT\r\n$1\r\nk\r\nPING\r\n\r\n*1\r\n$4\r\nPI");
        assert!(dialogue.answer().is_ok());
        assert_eq!(dialogue.output, b":1\r\n:1\r\n");
        dialogue.input.extend_from_slice(b"NG\r\n*x\r\n");
        assert!(dialogue.answer().is_err());
        assert_eq!(dialogue.output, b":1\r\n:1\r\n:1\r\n");
    }
}
