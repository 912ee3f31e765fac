//! One connection: a batch out, its replies in.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::error::LoadError;
use crate::keys::Keys;
use crate::limits::PATIENCE;
use crate::plan::{Plan, Times};
use crate::replies::{Errors, Replies};

pub(crate) struct Connection {
    socket: TcpStream,
    /// A whole pipeline of requests, whose digits change.
    out: Vec<u8>,
    /// What of `out` is still to be written.
    unsent: std::ops::Range<usize>,
    replies: Replies,
    due: usize,
    /// When the batch was due to be sent.
    pub(crate) since_ns: u64,
}

/// What a request is numbered by: all connections draw from it.
pub(crate) struct Numbers {
    keys: Keys,
    count: u64,
    /// How many keys have had their turn at this time.
    turn: u64,
    time: u64,
    times: Times,
}

impl Numbers {
    pub(crate) fn new(plan: &Plan) -> Numbers {
        Numbers {
            keys: Keys::new(plan.order, plan.keys),
            count: plan.keys,
            turn: 0,
            time: plan.times.start,
            times: plan.times,
        }
    }

    /// Key and time of the next request.
    #[inline]
    pub(crate) fn next(&mut self) -> (u64, u64) {
        let time = self.time;
        self.turn += 1;
        if self.turn == self.count {
            self.turn = 0;
            self.time += self.times.step;
        }
        (self.keys.next(), time)
    }
}

impl Connection {
    pub(crate) fn open(plan: &Plan, registry: &Registry, token: Token) -> Result<Connection, LoadError> {
        let mut socket =
            connect(plan.address).map_err(|cause| LoadError::Connect { address: plan.address, cause })?;
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Connection {
            socket,
            out: plan.request.repeat(plan.pipeline),
            unsent: 0..0,
            replies: Replies::default(),
            due: 0,
            since_ns: 0,
        })
    }

    /// Sends the next requests, so many of them.
    pub(crate) fn send(
        &mut self,
        plan: &Plan,
        numbers: &mut Numbers,
        requests: usize,
    ) -> Result<(), LoadError> {
        let length = plan.request.len();
        for request in self.out.chunks_exact_mut(length).take(requests) {
            let (key, time) = numbers.next();
            plan.request.patch(request, key, time);
        }
        self.unsent = 0..requests * length;
        self.due = requests;
        self.write()
    }

    /// Writes what the system takes.
    pub(crate) fn write(&mut self) -> Result<(), LoadError> {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.out[self.unsent.clone()]) {
                Ok(written) => self.unsent.start += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads what has come; true when it was the last reply of the batch. `ended` is whether the server
    /// sends nothing more.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        ended: bool,
        errors: &mut Errors,
    ) -> Result<bool, LoadError> {
        if self.due == 0 {
            return Ok(false);
        }
        loop {
            let count = match self.socket.read(buffer) {
                Ok(0) => return Err(LoadError::Closed { due: self.due }),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let replies = self.replies.count(&buffer[..count], errors)?;
            let due = self.due;
            self.due = due.checked_sub(replies).ok_or_else(|| LoadError::Extra { extra: replies - due })?;
            if self.due == 0 {
                return Ok(true);
            }
            // A short read has emptied the socket: what comes next is announced. An end that came with
            // what was read is not announced again.
            if count < buffer.len() && !ended {
                return Ok(false);
            }
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = std::net::TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(TcpStream::from_std(socket))
}
