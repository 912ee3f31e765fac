//! An event loop: a thread that reads what its clients sent, runs it in batches and answers it, round after round. It
//! waits in one place only, for news of its sockets.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Poll, Token, Waker};
use tokio::sync::OwnedSemaphorePermit;

use super::commit_group::CommitGroup;
use super::connection::Task;
use super::connections::Connections;
use crate::clock;
use crate::limits::{DRAIN_TIMEOUT, EVENTS, LOOK_EVERY};
use crate::service::Service;
use crate::stopper::Stopper;

/// The token of what wakes a loop: new connections, and verdicts on what waits for the disk. No connection has so high a
/// number.
const WAKE: Token = Token(usize::MAX);

/// A connection that was accepted, and its place among the clients there is room for.
pub(super) struct Accepted {
    pub(super) socket: TcpStream,
    pub(super) place: OwnedSemaphorePermit,
}

/// What gives connections to an event loop.
pub(super) struct Handle {
    accepted: mpsc::Sender<Accepted>,
    waker: Arc<Waker>,
}

impl Handle {
    /// Gives it a connection, which comes back when the loop has ended.
    pub(super) fn send(&self, accepted: Accepted) -> Result<(), Accepted> {
        self.accepted.send(accepted).map_err(|unsent| unsent.0)?;
        // A loop that cannot be woken sees it at its next look.
        let _ = self.waker.wake();
        Ok(())
    }

    /// Tells the loop to end once its clients are answered.
    pub(super) fn close(self) {
        drop(self.accepted);
        let _ = self.waker.wake();
    }
}

pub(super) struct EventLoop {
    poll: Poll,
    events: Events,
    /// The last poll gave all there was.
    all_noticed: bool,
    accepted: mpsc::Receiver<Accepted>,
    connections: Connections,
    group: CommitGroup,
    next_look: Instant,
    /// Once the server stops: when clients that do not take their replies are cut off.
    cut_off: Option<Instant>,
}

impl EventLoop {
    pub(super) fn new(service: Arc<Service>, stopper: Stopper) -> io::Result<(Handle, EventLoop)> {
        let (sender, accepted) = mpsc::channel();
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let moment = clock::moment();
        service.on_verdict({
            let waker = Arc::clone(&waker);
            // A loop that has ended is woken in vain.
            move || drop(waker.wake())
        });
        let event_loop = EventLoop {
            poll,
            events: Events::with_capacity(EVENTS),
            all_noticed: true,
            accepted,
            connections: Connections::new(service, stopper, moment),
            group: CommitGroup::new(),
            next_look: moment + LOOK_EVERY,
            cut_off: None,
        };
        Ok((Handle { accepted: sender, waker }, event_loop))
    }

    /// Serves until no more clients come and those there were are answered.
    pub(super) fn run(mut self) {
        let mut moment = clock::moment();
        while !self.is_over(moment) {
            self.wait(self.patience(moment));
            moment = clock::moment();
            self.turn(moment);
        }
    }

    fn is_over(&self, moment: Instant) -> bool {
        self.cut_off.is_some_and(|cut_off| self.connections.is_empty() || moment >= cut_off)
    }

    /// How long the next wait may take.
    fn patience(&self, moment: Instant) -> Duration {
        if self.connections.has_work() || !self.all_noticed {
            return Duration::ZERO;
        }
        self.next_look.saturating_duration_since(moment)
    }

    /// Waits for news of sockets, and takes note of it.
    fn wait(&mut self, patience: Duration) {
        // An error is a signal that came in between: the next round waits again.
        if self.poll.poll(&mut self.events, Some(patience)).is_ok() {
            self.events.iter().for_each(|event| self.connections.notice(event));
            self.all_noticed = self.events.iter().count() < EVENTS;
        }
    }

    /// Does what there is to do at this moment.
    fn turn(&mut self, moment: Instant) {
        self.connections.moment = moment;
        self.admit();
        // Only now: after a stall, what clients sent meanwhile has been noticed.
        if self.all_noticed && moment >= self.next_look {
            self.next_look = moment + LOOK_EVERY;
            self.connections.look();
        }
        self.round();
    }

    /// Takes all connections that were accepted: to wait for a round each is long when there are many.
    fn admit(&mut self) {
        while self.cut_off.is_none() {
            match self.accepted.try_recv() {
                Ok(accepted) => self.connections.admit(accepted, self.poll.registry()),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.cut_off = Some(self.connections.moment + DRAIN_TIMEOUT);
                    self.connections.drain();
                }
            }
        }
    }

    /// Goes through the connections with work, each once, and then runs one piece of one long command: nobody waits for more
    /// than that.
    fn round(&mut self) {
        self.connections.verdicts();
        for _ in 0..self.connections.listed() {
            let Some(token) = self.connections.next() else { break };
            self.step(token);
        }
        self.group.run(&mut self.connections);
        self.connections.resume_one();
    }

    /// Does what there is to do for a connection, but for its long commands. Requests are run with those of others.
    fn step(&mut self, token: usize) {
        let Some(task) = self.connections.by_token[token].task() else { return };
        if matches!(task, Task::Read | Task::Discard) {
            self.group.make_room(token, &mut self.connections);
        }
        let (connection, moment) = (&mut self.connections.by_token[token], self.connections.moment);
        let result = match task {
            Task::Resume => return self.connections.enlist(token),
            Task::Send => connection.send_rest(),
            Task::Discard => self.group.discard(connection, moment),
            Task::Read => match self.group.take_in(token, connection) {
                // It is settled when it has been run.
                Ok(true) => return,
                Ok(false) => Ok(()),
                Err(error) => Err(error),
            },
        };
        self.connections.settle(token, result);
    }
}

#[cfg(test)]
mod tests;
