//! The connections of an event loop, and the lists of those there is something to do for.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use lately_journal::Refused;
use mio::event::Event;
use mio::{Registry, Token};
use slab::Slab;

use super::connection::{Connection, Look, Task};
use super::event_loop::Accepted;
use super::pending_replies::PendingReplies;
use super::stream::Stream;
use crate::service::Service;
use crate::service::commit::Settled;
use crate::stopper::Stopper;

pub(super) struct Connections {
    pub(super) service: Arc<Service>,
    pub(super) by_token: Slab<Connection>,
    /// Those to read from or to write to.
    list: VecDeque<usize>,
    /// Those whose long commands have more pieces to run. One piece is run in a round.
    running: VecDeque<usize>,
    /// Replies that wait for a verdict, in the order they were made.
    pending: VecDeque<PendingReplies>,
    stopper: Stopper,
    /// The moment of this round.
    pub(super) moment: Instant,
}

impl Connections {
    pub(super) fn new(service: Arc<Service>, stopper: Stopper, moment: Instant) -> Connections {
        Connections {
            service,
            by_token: Slab::new(),
            list: VecDeque::new(),
            running: VecDeque::new(),
            pending: VecDeque::new(),
            stopper,
            moment,
        }
    }

    /// Takes a client. A socket that cannot be set up is closed: the client sees it.
    pub(super) fn admit(&mut self, accepted: Accepted, registry: &Registry) {
        let entry = self.by_token.vacant_entry();
        let token = entry.key();
        let Accepted { socket, place } = accepted;
        let admitted = Stream::new(socket, registry, Token(token))
            .and_then(|stream| Connection::new(stream, place, &self.service, self.moment));
        if let Ok(connection) = admitted {
            entry.insert(connection);
            self.enlist(token);
        }
    }

    /// Takes note of what the event queue says of a socket.
    pub(super) fn notice(&mut self, event: &Event) {
        let token = event.token().0;
        if let Some(connection) = self.by_token.get_mut(token) {
            connection.notice(event);
            self.enlist(token);
        }
    }

    /// Puts a connection on the list that what there is to do for it belongs to.
    pub(super) fn enlist(&mut self, token: usize) {
        match self.by_token[token].list() {
            Some(Task::Resume) => self.running.push_back(token),
            Some(Task::Read | Task::Send | Task::Discard) => self.list.push_back(token),
            None => {}
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_token.is_empty()
    }

    /// Whether there is something to do for one of them.
    pub(super) fn has_work(&self) -> bool {
        !self.list.is_empty() || !self.running.is_empty()
    }

    /// How many are on the list, long commands aside.
    pub(super) fn listed(&self) -> usize {
        self.list.len()
    }

    /// Takes the first off the list.
    pub(super) fn next(&mut self) -> Option<usize> {
        let token = self.list.pop_front()?;
        self.by_token[token].unlist();
        Some(token)
    }

    /// Runs a piece of a long command: of the connection that has waited longest for it.
    pub(super) fn resume_one(&mut self) {
        let Some(token) = self.running.pop_front() else { return };
        let connection = &mut self.by_token[token];
        connection.unlist();
        let (pending, result) = connection.resume(token);
        if let Some(pending) = pending {
            self.hold(pending);
        }
        self.settle(token, result);
    }

    /// Does what is to be done after each step of a connection, of which `result` is how it went.
    pub(super) fn settle(&mut self, token: usize, result: io::Result<()>) {
        let connection = &mut self.by_token[token];
        if connection.settle(result, self.moment, &self.stopper) {
            return self.enlist(token);
        }
        if connection.unlist() {
            self.list.retain(|listed| *listed != token);
            self.running.retain(|listed| *listed != token);
        }
        self.by_token.remove(token);
    }

    /// Takes replies that wait for a verdict.
    pub(super) fn hold(&mut self, held: PendingReplies) {
        self.service.charge(0, held.held_bytes());
        self.pending.push_back(held);
    }

    /// Sends what has a verdict.
    pub(super) fn verdicts(&mut self) {
        let mut waiting = VecDeque::new();
        // What is taken back is taken back in reverse.
        for mut held in std::mem::take(&mut self.pending).into_iter().rev() {
            let held_bytes = held.held_bytes();
            let refused = match held.settle(&self.service) {
                Settled::Pending => {
                    waiting.push_front(held);
                    continue;
                }
                Settled::Kept => None,
                Settled::Refused(refused) => Some(refused),
            };
            self.service.charge(held_bytes, 0);
            self.release(&held, refused.as_ref());
        }
        self.pending = waiting;
    }

    fn release(&mut self, held: &PendingReplies, refused: Option<&Refused>) {
        for part in held.parts() {
            let change = |output: &mut Vec<u8>| {
                if let Some(refused) = refused {
                    *output = held.refused(part, output, refused);
                }
            };
            // The client may have gone, and another have come.
            let connection = self.by_token.get_mut(part.token);
            if connection.is_some_and(|it| it.release(part.client, change)) {
                self.enlist(part.token);
            }
        }
    }

    /// Looks at the time: who was silent for too long, or takes no replies, has to go.
    pub(super) fn look(&mut self) {
        let (moment, idle) = (self.moment, self.service.config.idle_timeout);
        let look = |(token, connection): (usize, &mut Connection)| match connection.look(moment, idle) {
            Look::Fine => None,
            Look::News => Some((token, Ok(()))),
            Look::Late => Some((token, Err(io::ErrorKind::TimedOut.into()))),
        };
        let found: Vec<_> = self.by_token.iter_mut().filter_map(look).collect();
        found.into_iter().for_each(|(token, result)| self.settle(token, result));
    }

    /// Ends all connections once what came by now is answered.
    pub(super) fn drain(&mut self) {
        self.by_token.iter_mut().for_each(|(_, connection)| connection.drain());
        let tokens: Vec<usize> = self.by_token.iter().map(|(token, _)| token).collect();
        tokens.into_iter().for_each(|token| self.enlist(token));
    }
}
