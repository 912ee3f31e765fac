//! A connection: sends a batch, and reads its replies.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::decisions::Decisions;
use crate::error::LoadError;
use crate::limits::PATIENCE;
use crate::lines::Lines;
use crate::numbers::Numbers;
use crate::plan::{Answer, Login, Plan};
use crate::tally::Tally;

pub(crate) struct Connection {
    socket: TcpStream,
    /// The requests of a whole pipeline, whose digits are patched.
    out: Vec<u8>,
    /// The part of `out` that is not written yet.
    unsent: std::ops::Range<usize>,
    reader: Reader,
    due: usize,
    /// The time at which the batch was due.
    pub(crate) since_ns: u64,
}

/// How replies are parsed.
enum Reader {
    Lines(Lines),
    Decisions(Box<Decisions>),
}

impl Connection {
    pub(crate) fn open(plan: &Plan, registry: &Registry, token: Token) -> Result<Connection, LoadError> {
        let socket =
            connect(plan.address).map_err(|cause| LoadError::Connect { address: plan.address, cause })?;
        if let Some(login) = &plan.login {
            log_in(&socket, login)?;
        }
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket);
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Connection {
            socket,
            out: plan.request.repeat(plan.pipeline),
            unsent: 0..0,
            reader: match plan.answer {
                Answer::Line => Reader::Lines(Lines::default()),
                Answer::Decision { allowed } => Reader::Decisions(Box::new(Decisions::new(allowed))),
            },
            due: 0,
            since_ns: 0,
        })
    }

    /// Sends the next `requests` requests.
    pub(crate) fn send(
        &mut self,
        plan: &Plan,
        numbers: &mut Numbers,
        requests: usize,
    ) -> Result<(), LoadError> {
        let length = plan.request.len();
        for request in self.out.chunks_exact_mut(length).take(requests) {
            plan.request.patch(request, numbers);
        }
        self.unsent = 0..requests * length;
        self.due = requests;
        self.write()
    }

    /// Writes as much as the socket takes.
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

    /// Reads replies. Returns true after the last reply of the batch. `ended` is whether the server has
    /// closed the connection.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        ended: bool,
        tally: &mut Tally,
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
            let read = &buffer[..count];
            let replies = match &mut self.reader {
                Reader::Lines(lines) => lines.count(read, tally)?,
                Reader::Decisions(decisions) => decisions.count(read, tally)?,
            };
            let due = self.due;
            self.due = due.checked_sub(replies).ok_or_else(|| LoadError::Extra { extra: replies - due })?;
            if self.due == 0 {
                return Ok(true);
            }
            // A short read has emptied the socket, so the next bytes cause an event. An end that came with
            // these bytes causes no further event.
            if count < buffer.len() && !ended {
                return Ok(false);
            }
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<std::net::TcpStream> {
    let socket = std::net::TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Sends `AUTH`, and waits for its answer.
fn log_in(mut socket: &std::net::TcpStream, Login { user, password }: &Login) -> Result<(), LoadError> {
    let mut request = b"*3\r\n$4\r\nAUTH\r\n".to_vec();
    for word in [user, password] {
        request.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    socket.write_all(&request)?;
    let mut answer = String::new();
    // Nothing follows the line: nothing else was asked.
    BufReader::new(socket).read_line(&mut answer)?;
    match answer.trim_end() {
        "+OK" => Ok(()),
        "" => Err(LoadError::Login { answer: "the server closed the connection".to_owned() }),
        answer => Err(LoadError::Login { answer: answer.trim_start_matches('-').to_owned() }),
    }
}
