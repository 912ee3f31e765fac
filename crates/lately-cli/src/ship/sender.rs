//! Sends batches, each until the server has it. After a lost connection, the position on the server is read first: the server may have
//! a batch whose reply was lost, and a restarted server may not know the file.

use std::path::Path;

use lately::limits::MAX_KEY_BYTES;

use crate::error::CliError;
use crate::log_args::{scan_error, setup_hint};
use crate::log_file;
use crate::ship::link::{Asked, Link};
use crate::ship::part::{Part, PartError};
use crate::ship::state::State;

pub(crate) struct Sender<'a> {
    pub(crate) link: Link<'a>,
    pub(crate) state: State,
    pub(crate) prefix: &'a str,
    /// The number of hits that were counted, that the server refused, and that were not sent because their keys are too long.
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) too_long: u64,
}

/// The position of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// `None` if the source is unknown.
    pub(crate) at: Option<u64>,
    /// Whether the position is from the state file, because the server does not know the source.
    pub(crate) is_of_state: bool,
    /// The connection on which the position was read.
    connection: u64,
}

/// The outcome of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    /// The server has it.
    Done,
    /// The server has another position, from which the file is read again.
    Restarted,
    /// The end was requested, and the server does not answer.
    Stopped,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(link: Link<'a>, state: State, prefix: &'a str) -> Sender<'a> {
        Sender { link, state, prefix, accepted: 0, refused: 0, too_long: 0 }
    }

    /// Reads the position of a source from the server, or else from the state file. `None` if the end was requested.
    pub(crate) fn position(&mut self, source: &str) -> Result<Option<Position>, CliError> {
        loop {
            let Some(connection) = self.link.connect()? else { return Ok(None) };
            match self.link.ask::<Option<u64>>(redis::cmd("INGEST").arg(source)) {
                Asked::Answer(at) => {
                    let of_state = if at.is_none() { self.state.get(source) } else { None };
                    let is_of_state = of_state.is_some();
                    return Ok(Some(Position { at: at.or(of_state), is_of_state, connection }));
                }
                Asked::Refused(cause) => return Err(refused(&cause)),
                Asked::Lost if self.link.is_to_stop() => return Ok(None),
                Asked::Lost => {}
            }
        }
    }

    /// Moves the position of a source without hits. Returns its position afterwards, or `None` if the end was requested.
    pub(crate) fn advance(&mut self, source: &str, from: u64, to: u64) -> Result<Option<u64>, CliError> {
        let mut command = redis::cmd("INGEST");
        command.arg(source).arg(from).arg(to);
        loop {
            let Some(_) = self.link.connect()? else { return Ok(None) };
            match self.link.ask::<[u64; 3]>(&command) {
                Asked::Answer([position, ..]) => {
                    self.state.set(source, position);
                    return Ok(Some(position));
                }
                // The server has another position.
                Asked::Refused(_) => {
                    return Ok(self.position(source)?.map(|position| position.at.unwrap_or(0)));
                }
                Asked::Lost if self.link.is_to_stop() => return Ok(None),
                Asked::Lost => {}
            }
        }
    }

    /// Sends the batch of a file, if it has one. On a new connection, the position on the server is read first, because a restarted server
    /// may have an earlier one.
    pub(crate) fn send(&mut self, part: &mut Part<'_>) -> Result<Sent, CliError> {
        let batch_end = part.batch_end();
        if batch_end.is_none() && part.connection == self.link.connection() {
            return Ok(Sent::Done);
        }
        let to = batch_end.unwrap_or(part.sent);
        let mut command = redis::cmd("INGEST");
        command.arg(&part.source).arg(part.sent).arg(to);
        let mut too_long = 0;
        for (key, at_ms, count) in part.hits() {
            if self.prefix.len() + key.len() > MAX_KEY_BYTES {
                too_long += count;
                continue;
            }
            let (seconds, millis) = (at_ms.div_euclid(1_000), at_ms.rem_euclid(1_000));
            command.arg([self.prefix.as_bytes(), key].concat()).arg(count);
            command.arg(format!("{seconds}.{millis:03}"));
        }
        loop {
            let Some(connection) = self.link.connect()? else { return Ok(Sent::Stopped) };
            if part.connection != connection {
                let Some(Position { at, connection, .. }) = self.position(&part.source)? else {
                    return Ok(Sent::Stopped);
                };
                part.connection = connection;
                let position = at.unwrap_or(0);
                if position == to {
                    // The reply was lost, so the number of refused hits is unknown.
                    return Ok(self.done(part, to));
                }
                if position != part.sent {
                    return self.restart(part, position);
                }
                continue;
            }
            if batch_end.is_none() {
                return Ok(Sent::Done);
            }
            match self.link.ask::<[u64; 3]>(&command) {
                Asked::Answer([position, accepted, refused]) if position == to => {
                    self.accepted += accepted;
                    self.refused += refused;
                    self.too_long += too_long;
                    return Ok(self.done(part, to));
                }
                Asked::Answer([position, ..]) => return self.restart(part, position),
                Asked::Refused(cause) => {
                    let Some(Position { at, .. }) = self.position(&part.source)? else {
                        return Ok(Sent::Stopped);
                    };
                    return match at.unwrap_or(0) {
                        position if position == part.sent => Err(refused(&cause)),
                        position => self.restart(part, position),
                    };
                }
                Asked::Lost if self.link.is_to_stop() => return Ok(Sent::Stopped),
                Asked::Lost => {}
            }
        }
    }

    fn done(&mut self, part: &mut Part<'_>, to: u64) -> Sent {
        part.is_sent(to);
        self.state.set(&part.source, to);
        Sent::Done
    }

    fn restart(&mut self, part: &mut Part<'_>, position: u64) -> Result<Sent, CliError> {
        part.restart(position).map_err(|error| unreadable(&part.path, error))?;
        Ok(Sent::Restarted)
    }
}

fn refused(cause: &str) -> CliError {
    CliError::new(
        "ship",
        cause,
        "the server refused a batch and changed nothing; is it a lately server of this version?",
    )
}

/// The error of a file that cannot be read further.
pub(crate) fn unreadable(path: &Path, error: PartError) -> CliError {
    match error {
        PartError::Read(error) => CliError::new(log_file::name(path), error, "its lines so far were sent"),
        PartError::Scan(error) => scan_error("ship", path, &error),
        PartError::Setup(error) => CliError::new("ship", error, setup_hint("ship")),
    }
}
