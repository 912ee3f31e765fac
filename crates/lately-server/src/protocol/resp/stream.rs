//! The stream of a connection: a non-blocking socket that knows whether it may be readable or writable, with or without
//! TLS.
//!
//! Callers ask [`Stream::is_readable`] and conclude nothing from the length of a read, because TLS may hold decrypted bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::ServerConfig;

use super::tls_session::TlsSession;
use crate::limits::TLS_BYTES;

pub(super) struct Stream {
    socket: Socket,
    tls: Option<Box<TlsSession>>,
}

/// The socket, and what is known of it.
pub(super) struct Socket {
    socket: TcpStream,
    /// A read may find something.
    readable: bool,
    /// A write may take something.
    writable: bool,
    /// The client has sent urgent data. A read stops before it, so more may be readable after a short read.
    urgent: bool,
    /// The client has closed its side, or the connection failed.
    hung_up: bool,
}

/// The result of a read.
#[derive(PartialEq, Debug)]
pub(super) enum Taken {
    /// The number of bytes read, at least one.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The client has closed its side.
    End,
}

/// The events to register for. Where the system has an event for urgent data, it is among them, because urgent data
/// ends a read early.
fn interest() -> Interest {
    let interest = Interest::READABLE | Interest::WRITABLE;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let interest = interest | Interest::PRIORITY;
    interest
}

impl Stream {
    /// Wraps a socket and registers it with a token.
    pub(super) fn new(
        mut socket: TcpStream,
        tls: Option<Arc<ServerConfig>>,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Stream> {
        registry.register(&mut socket, token, interest())?;
        // Replies are written whole, so Nagle's algorithm would only delay them.
        socket.set_nodelay(true)?;
        let socket = Socket { socket, readable: false, writable: true, urgent: false, hung_up: false };
        let tls = tls.map(TlsSession::new).transpose()?.map(Box::new);
        Ok(Stream { socket, tls })
    }

    /// The addresses of the client and of the server.
    pub(super) fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.socket.socket.peer_addr()?, self.socket.socket.local_addr()?))
    }

    /// Leaves the event queue of a loop.
    pub(super) fn leave(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut self.socket.socket)
    }

    /// Enters the event queue of another loop. Events between the two are lost, so everything may be ready.
    pub(super) fn enter(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        (self.socket.readable, self.socket.writable) = (true, true);
        registry.register(&mut self.socket.socket, token, interest())
    }

    /// Records an event.
    pub(super) fn notice(&mut self, event: &Event) {
        self.socket.notice(event);
    }

    /// Whether a read may find something.
    pub(super) fn is_readable(&self) -> bool {
        self.socket.readable || self.tls.as_ref().is_some_and(|tls| tls.has_more(&self.socket))
    }

    /// Whether a write may take something.
    pub(super) fn is_writable(&self) -> bool {
        self.socket.writable
    }

    /// Whether the handshake of TLS is not over. A step of it takes long.
    pub(super) fn is_shaking_hands(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_shaking_hands())
    }

    /// Memory that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        if self.tls.is_some() { TLS_BYTES } else { 0 }
    }

    /// Reads into `room`, which is not empty.
    pub(super) fn read(&mut self, room: &mut [u8]) -> io::Result<Taken> {
        match &mut self.tls {
            Some(tls) => tls.read(&mut self.socket, room),
            None => self.socket.read(room),
        }
    }

    /// Checks for unread input, even if no event has reported it yet.
    pub(super) fn poll_readable(&mut self) -> bool {
        self.socket.poll_readable()
    }

    /// Writes what the socket takes at once, and returns how much that was. What was not taken has to be written next.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => tls.write(&mut self.socket, bytes),
            None => self.socket.write(bytes),
        }
    }

    /// Closes our side.
    pub(super) fn end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.end(&mut self.socket);
        }
        // An error means that the client has gone.
        let _ = self.socket.socket.shutdown(Shutdown::Write);
    }

    /// Drops unread output with the stream, by a reset.
    pub(super) fn forget_sent(&self) -> io::Result<()> {
        socket2::SockRef::from(&self.socket.socket).set_linger(Some(Duration::ZERO))
    }

    /// The size of the receive buffer.
    pub(super) fn receive_buffer_bytes(&self) -> usize {
        socket2::SockRef::from(&self.socket.socket).recv_buffer_size().unwrap_or(0)
    }
}

impl Stream {
    /// Whether the client has closed its side, or the connection failed. What it sent before may be unread.
    pub(super) fn has_hung_up(&self) -> bool {
        self.socket.hung_up
    }
}

impl Socket {
    fn notice(&mut self, event: &Event) {
        self.hung_up |= event.is_read_closed() || event.is_error();
        self.urgent |= event.is_priority();
        self.readable |= event.is_readable() || event.is_priority() || self.hung_up;
        self.writable |= event.is_writable();
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Reads into `room`, which is not empty.
    pub(super) fn read(&mut self, room: &mut [u8]) -> io::Result<Taken> {
        loop {
            match self.socket.read(room) {
                Ok(0) => return Ok(Taken::End),
                Ok(count) => {
                    // A short read has emptied the socket, except for the end of the stream and data after urgent
                    // data.
                    self.readable = count == room.len() || self.urgent || self.hung_up;
                    return Ok(Taken::Bytes(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(if self.hung_up { Taken::End } else { Taken::Nothing });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn poll_readable(&mut self) -> bool {
        let has_more = self.socket.peek(&mut [0]).is_ok_and(|bytes| bytes > 0);
        self.readable |= has_more;
        has_more
    }

    /// Writes what it takes at once, and returns how much that was.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
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
}

#[cfg(test)]
impl Stream {
    /// Marks the stream as writable.
    pub(super) fn set_writable(&mut self) {
        self.socket.writable = true;
    }
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll};

    use super::*;
    use crate::protocol::fixture::client;

    /// A stream and the socket of its client.
    fn stream() -> (Poll, Stream, std::net::TcpStream) {
        let poll = Poll::new().expect("an event queue");
        let (socket, _, client) = client();
        let stream = Stream::new(socket, None, poll.registry(), Token(0)).expect("a socket");
        (poll, stream, client)
    }

    /// Handles events until the stream is readable.
    fn wait_readable(poll: &mut Poll, stream: &mut Stream) {
        let mut events = Events::with_capacity(8);
        while !stream.is_readable() {
            poll.poll(&mut events, None).expect("an event");
            events.iter().for_each(|event| stream.notice(event));
        }
    }

    #[test]
    fn a_read_reports_whether_there_may_be_more() {
        let (mut poll, mut stream, mut client) = stream();
        assert!(!stream.is_readable());
        client.write_all(b"12345").expect("the system takes it");
        wait_readable(&mut poll, &mut stream);
        let mut room = [0; 4];
        assert_eq!(stream.read(&mut room).expect("a socket"), Taken::Bytes(4));
        assert!(stream.is_readable(), "the buffer was filled");
        assert_eq!(stream.read(&mut room).expect("a socket"), Taken::Bytes(1));
        assert!(!stream.is_readable(), "the buffer was not filled");
        assert_eq!(stream.read(&mut room).expect("a socket"), Taken::Nothing);
        assert!(!stream.is_readable());
    }

    #[test]
    fn the_end_is_read_after_the_bytes_before_it() {
        let (mut poll, mut stream, mut client) = stream();
        client.write_all(b"1").expect("the system takes it");
        client.shutdown(Shutdown::Write).expect("a socket");
        while !stream.socket.hung_up {
            stream.socket.readable = false;
            wait_readable(&mut poll, &mut stream);
        }
        let mut room = [0; 4];
        assert_eq!(stream.read(&mut room).expect("a socket"), Taken::Bytes(1));
        assert!(stream.is_readable(), "the end is still unread");
        assert_eq!(stream.read(&mut room).expect("a socket"), Taken::End);
    }

    #[test]
    fn polling_finds_input_without_an_event() {
        let (_poll, mut stream, mut client) = stream();
        assert!(!stream.poll_readable());
        client.write_all(b"1").expect("the system takes it");
        // The byte has arrived over loopback when the loop ends.
        while !stream.poll_readable() {}
        assert!(stream.is_readable());
    }

    #[test]
    fn a_write_fills_the_socket() {
        let (_poll, mut stream, mut client) = stream();
        let bytes = vec![b'x'; 64 << 20];
        let written = stream.write(&bytes).expect("the client is there");
        assert!(written < bytes.len() && !stream.is_writable());
        assert_eq!(stream.write(&bytes).expect("the client is there"), 0);
        client.read_exact(&mut vec![0; written]).expect("what was written");
    }
}
