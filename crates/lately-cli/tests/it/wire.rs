//! A connection that sends many requests at once and reads the replies one by one, so that a client knows which replies it
//! has received when the server is killed.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;

use crate::running::PATIENCE;

/// A connection.
pub(crate) struct Wire {
    socket: TcpStream,
    replies: BufReader<TcpStream>,
}

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Number(u64),
    Text(String),
    Error(String),
    Array(Vec<Reply>),
}

impl Wire {
    pub(crate) fn connect(address: &str) -> io::Result<Wire> {
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        let replies = BufReader::new(socket.try_clone()?);
        Ok(Wire { socket, replies })
    }

    /// Sends lines of words, each a request.
    pub(crate) fn send(&mut self, lines: &str) -> io::Result<()> {
        self.socket.write_all(lines.as_bytes())
    }

    /// Reads the next reply.
    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.replies.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").ok_or(ErrorKind::UnexpectedEof)?;
        let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
        let number = || rest.parse::<u64>().unwrap_or_else(|_| panic!("no number: {line}"));
        Ok(match kind {
            ":" => Reply::Number(number()),
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            "*" => Reply::Array((0..number()).map(|_| self.reply()).collect::<io::Result<_>>()?),
            _ => panic!("no such reply is expected: {line}"),
        })
    }

    /// Sends one request and reads its reply.
    pub(crate) fn ask(&mut self, line: &str) -> Reply {
        self.send(&format!("{line}\r\n")).and_then(|()| self.reply()).expect(line)
    }
}

impl Reply {
    /// All numbers and errors in the reply, in order.
    pub(crate) fn leaves(&self) -> Vec<&Reply> {
        match self {
            Reply::Array(replies) => replies.iter().flat_map(Reply::leaves).collect(),
            leaf => vec![leaf],
        }
    }
}
