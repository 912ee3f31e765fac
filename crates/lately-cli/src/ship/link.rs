//! The connection to the server that lines are sent to. It is made again when it is lost, until the server answers or a signal comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError};

use crate::error::CliError;
use crate::limits::{SHIP_RETRY, SHIP_RETRY_MOST};
use crate::live::event::Event;
use crate::output;
use crate::server::{Server, ServerArgs, reason};

/// A connection that is made again when it is lost.
pub(crate) struct Link<'a> {
    args: &'a ServerArgs,
    server: Option<Server>,
    /// Counted up with each connection.
    connection: u64,
    wait: Duration,
    /// The problem that was reported last, while it lasts.
    reported: Option<String>,
    events: Receiver<Event>,
    stop: Arc<AtomicBool>,
}

/// The outcome of a command.
#[derive(Debug)]
pub(crate) enum Asked<T> {
    Answer(T),
    /// The server refused it.
    Refused(String),
    /// There was no answer, or the command has to be sent again. It is not known whether it was executed.
    Lost,
}

/// Temporary errors: the server is loading, another batch of the source is not committed yet, or there is no room.
const PASSING: [&str; 5] = ["LOADING", "TRYAGAIN", "OOM", "MISCONF", "BUSY"];

/// The error of a server that is full of clients.
const TOO_MANY_CLIENTS: &str = "max number of clients";

impl<'a> Link<'a> {
    pub(crate) fn new(args: &'a ServerArgs, events: Receiver<Event>, stop: Arc<AtomicBool>) -> Link<'a> {
        Link { args, server: None, connection: 0, wait: SHIP_RETRY, reported: None, events, stop }
    }

    /// The number of the last connection; 0 before the first.
    pub(crate) fn connection(&self) -> u64 {
        self.connection
    }

    /// Whether a signal has requested the end.
    pub(crate) fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits, unless the end is requested.
    pub(crate) fn pause(&self, time: Duration) {
        if !self.is_to_stop() {
            // The only events are signals.
            _ = self.events.recv_timeout(time);
        }
    }

    /// Connects, if there is no connection. Returns its number, or `None` if the end is requested and the server does not answer.
    pub(crate) fn connect(&mut self) -> Result<Option<u64>, CliError> {
        while self.server.is_none() {
            match self.args.connect() {
                Ok(server) => {
                    self.check_first(&server)?;
                    self.server = Some(server);
                    self.connection += 1;
                }
                // An invalid address is not a temporary problem.
                Err(error) if self.connection == 0 && self.args.is_invalid() => return Err(error),
                Err(error) => {
                    self.trouble(error.to_string().lines().next().unwrap_or_default());
                    if self.is_to_stop() {
                        return Ok(None);
                    }
                    self.back_off();
                }
            }
        }
        Ok(Some(self.connection))
    }

    /// Refuses a first server that does not speak RESP. This is not a temporary problem, either.
    fn check_first(&self, server: &Server) -> Result<(), CliError> {
        if self.connection > 0 {
            return Ok(());
        }
        match server.wait_for::<redis::Value>(&redis::cmd("PING")) {
            Err(error) if error.kind() == redis::ErrorKind::Parse => Err(server.failed(&error)),
            _ => Ok(()),
        }
    }

    /// Sends a command on the current connection.
    pub(crate) fn ask<T: FromRedisValue + Send + 'static>(&mut self, command: &Cmd) -> Asked<T> {
        let Some(server) = &self.server else { return Asked::Lost };
        match server.wait_for(command) {
            Ok(answer) => {
                if self.reported.take().is_some() {
                    output::message(&format_args!("lately: ship: the server takes lines again"));
                }
                self.wait = SHIP_RETRY;
                Asked::Answer(answer)
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed<T>(&mut self, error: &RedisError) -> Asked<T> {
        let cause = reason(error);
        match error.code() {
            Some(code) if PASSING.contains(&code) => {
                self.trouble(&format!("lately: {}: {cause}", self.args.address()));
                self.back_off();
                Asked::Lost
            }
            // A full server sends this error instead of an answer, and closes the connection.
            Some(_) if !cause.contains(TOO_MANY_CLIENTS) => Asked::Refused(cause),
            _ => {
                // Later bytes on this connection may be the answer to this command, so it is closed.
                self.server = None;
                self.trouble(&format!("lately: {}: {cause}", self.args.address()));
                self.back_off();
                Asked::Lost
            }
        }
    }

    fn back_off(&mut self) {
        self.pause(self.wait);
        self.wait = (2 * self.wait).min(SHIP_RETRY_MOST);
    }

    /// Reports a problem once while it lasts.
    fn trouble(&mut self, what: &str) {
        if self.reported.as_deref() != Some(what) {
            output::message(&format_args!("{what}; it is tried again"));
            self.reported = Some(what.to_owned());
        }
    }
}
