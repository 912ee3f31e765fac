//! TLS over the socket of a connection. It waits nowhere, and keeps no plain text once a call returns.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use super::stream::{Socket, Taken};
use crate::limits::{TLS_PIECE_BYTES, TLS_UNSENT_BYTES};

pub(super) struct TlsSession {
    tls: ServerConnection,
    /// Plain bytes that are encrypted, but of which the socket has not taken all. They are not reported as written, and
    /// the caller gives them again.
    owed_bytes: usize,
    /// There may be decrypted bytes.
    has_plain: bool,
}

/// The socket as a reader and a writer, for the library.
struct Wire<'s>(&'s mut Socket);

impl Read for Wire<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.0.read(room)? {
            Taken::Bytes(count) => Ok(count),
            Taken::Nothing => Err(ErrorKind::WouldBlock.into()),
            Taken::End => Ok(0),
        }
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes)? {
            0 if !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Nothing now, or what a call returned.
fn or_nothing(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        // The client has closed its socket without closing TLS first, as many do.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

impl TlsSession {
    pub(super) fn new(config: Arc<ServerConfig>) -> io::Result<TlsSession> {
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(TLS_UNSENT_BYTES));
        Ok(TlsSession { tls, owed_bytes: 0, has_plain: false })
    }

    pub(super) fn is_shaking_hands(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether a read may find or do something although the socket has nothing to read.
    pub(super) fn has_more(&self, socket: &Socket) -> bool {
        self.has_plain || (self.owed_bytes == 0 && self.tls.wants_write() && socket.is_writable())
    }

    /// Reads decrypted bytes into `room`, until it is full or the socket has no more.
    pub(super) fn read(&mut self, socket: &mut Socket, room: &mut [u8]) -> io::Result<Taken> {
        let mut filled = 0;
        loop {
            match or_nothing(self.tls.reader().read(&mut room[filled..]))? {
                // The client has closed its side.
                Some(0) => {
                    self.has_plain = filled > 0;
                    return Ok(if filled > 0 { Taken::Bytes(filled) } else { Taken::End });
                }
                Some(count) => {
                    filled += count;
                    self.has_plain = true;
                    if filled == room.len() {
                        return Ok(Taken::Bytes(filled));
                    }
                    continue;
                }
                None => self.has_plain = false,
            }
            let was_shaking = self.is_shaking_hands();
            let came =
                if socket.is_readable() { or_nothing(self.tls.read_tls(&mut Wire(socket)))? } else { None };
            if came.is_some() {
                // A failed handshake has an alert for the client.
                self.tls.process_new_packets().map_err(|error| {
                    let _ = self.tls.write_tls(&mut Wire(socket));
                    io::Error::new(ErrorKind::InvalidData, error)
                })?;
            }
            if self.owed_bytes == 0 {
                self.flush(socket)?;
            }
            match came {
                Some(0) if filled > 0 => {
                    self.has_plain = true;
                    return Ok(Taken::Bytes(filled));
                }
                Some(0) => return Ok(Taken::End),
                // One step of a handshake in each turn.
                Some(_) if was_shaking && self.is_shaking_hands() => return Ok(Taken::Nothing),
                Some(_) => {}
                None if filled > 0 => return Ok(Taken::Bytes(filled)),
                None => return Ok(Taken::Nothing),
            }
        }
    }

    /// Encrypts and sends `bytes`, as far as the socket takes them. They start with those that are owed.
    pub(super) fn write(&mut self, socket: &mut Socket, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        loop {
            if !self.flush(socket)? {
                return Ok(written);
            }
            written += std::mem::take(&mut self.owed_bytes);
            let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) else { return Ok(written) };
            let piece = &rest[..rest.len().min(TLS_PIECE_BYTES)];
            self.owed_bytes = self.tls.writer().write(piece)?;
        }
    }

    /// Sends what is encrypted. Returns whether the socket took all of it.
    fn flush(&mut self, socket: &mut Socket) -> io::Result<bool> {
        while self.tls.wants_write() {
            if or_nothing(self.tls.write_tls(&mut Wire(socket)))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells the client that nothing more comes, if the socket takes it.
    pub(super) fn end(&mut self, socket: &mut Socket) {
        self.tls.send_close_notify();
        // An error means that the client has gone.
        let _ = self.flush(socket);
    }
}
