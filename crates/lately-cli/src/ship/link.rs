//! The server that lines are sent to, over lost connections: it is tried again until it answers, or until the end is asked for.

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
    /// The last trouble that was reported.
    told: Option<String>,
    events: Receiver<Event>,
    stop: Arc<AtomicBool>,
}

/// What became of a command.
#[derive(Debug)]
pub(crate) enum Asked<T> {
    Answer(T),
    /// The server refused it.
    Refused(String),
    /// There was no answer, or it is to be sent again: whether it was run is not known.
    Lost,
}

/// Errors that pass: the server loads, another batch of the source is not written yet, or there is no room.
const PASSING: [&str; 5] = ["LOADING", "TRYAGAIN", "OOM", "MISCONF", "BUSY"];

/// What a server that has as many clients as it takes says to one more.
const TOO_MANY_CLIENTS: &str = "max number of clients";

impl<'a> Link<'a> {
    pub(crate) fn new(args: &'a ServerArgs, events: Receiver<Event>, stop: Arc<AtomicBool>) -> Link<'a> {
        Link { args, server: None, connection: 0, wait: SHIP_RETRY, told: None, events, stop }
    }

    /// The number of the last connection; 0 before the first.
    pub(crate) fn connection(&self) -> u64 {
        self.connection
    }

    /// Whether the end was asked for.
    pub(crate) fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits, unless the end is asked for.
    pub(crate) fn pause(&self, time: Duration) {
        if !self.is_to_stop() {
            // Only signals come.
            _ = self.events.recv_timeout(time);
        }
    }

    /// Connects, if there is no connection; gives its number. `None` when the end is asked for and the server does not answer.
    pub(crate) fn connect(&mut self) -> Result<Option<u64>, CliError> {
        while self.server.is_none() {
            match self.args.connect() {
                Ok(server) => {
                    self.server = Some(server);
                    self.connection += 1;
                }
                // An address that is none is no trouble that passes.
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

    /// Sends a command on the connection there is.
    pub(crate) fn ask<T: FromRedisValue + Send + 'static>(&mut self, command: &Cmd) -> Asked<T> {
        let Some(server) = &self.server else { return Asked::Lost };
        match server.wait_for(command) {
            Ok(answer) => {
                if self.told.take().is_some() {
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
            // The server says so in place of an answer and closes the connection.
            Some(_) if !cause.contains(TOO_MANY_CLIENTS) => Asked::Refused(cause),
            _ => {
                // What comes on it now may be the answer to this command.
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

    /// Reports what is wrong, once until it is over.
    fn trouble(&mut self, what: &str) {
        if self.told.as_deref() != Some(what) {
            output::message(&format_args!("{what}; it is tried again"));
            self.told = Some(what.to_owned());
        }
    }
}
