//! The connections of an event loop, and the list of those there is something to do for.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use lately_journal::Refused;
use mio::event::Event;
use mio::{Interest, Registry, Token};
use slab::Slab;

use super::connection::{Connection, Look};
use super::event_loop::Accepted;
use super::pending_replies::PendingReplies;
use crate::commit::Settled;
use crate::engine::Engine;
use crate::stopper::Stopper;

pub(super) struct Connections {
    pub(super) engine: Arc<Engine>,
    pub(super) by_token: Slab<Connection>,
    list: VecDeque<usize>,
    /// Replies that wait for a verdict, in the order they were made.
    held: VecDeque<PendingReplies>,
    stopper: Stopper,
    /// The moment of this round.
    pub(super) moment: Instant,
}

/// What the event queue reports of a socket. Urgent data too, where there is such: it ends a read early.
fn interest() -> Interest {
    let usual = Interest::READABLE | Interest::WRITABLE;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let usual = usual | Interest::PRIORITY;
    usual
}

impl Connections {
    pub(super) fn new(engine: Arc<Engine>, stopper: Stopper, moment: Instant) -> Connections {
        Connections {
            engine,
            by_token: Slab::new(),
            list: VecDeque::new(),
            held: VecDeque::new(),
            stopper,
            moment,
        }
    }

    /// Takes a client. A socket that cannot be set up is closed: the client sees it.
    pub(super) fn admit(&mut self, accepted: Accepted, registry: &Registry) {
        let entry = self.by_token.vacant_entry();
        let token = entry.key();
        let Accepted { mut socket, place } = accepted;
        let admitted = registry
            .register(&mut socket, Token(token), interest())
            .and_then(|()| Connection::new(socket, place, &self.engine, self.moment));
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

    fn enlist(&mut self, token: usize) {
        if self.by_token[token].list() {
            self.list.push_back(token);
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_token.is_empty()
    }

    /// Whether there is something to do for one of them.
    pub(super) fn has_work(&self) -> bool {
        !self.list.is_empty()
    }

    /// How many are on the list.
    pub(super) fn listed(&self) -> usize {
        self.list.len()
    }

    /// Takes the first off the list.
    pub(super) fn next(&mut self) -> Option<usize> {
        let token = self.list.pop_front()?;
        self.by_token[token].unlist();
        Some(token)
    }

    /// Does what is to be done after each step of a connection, of which `result` is how it went.
    pub(super) fn settle(&mut self, token: usize, result: io::Result<()>) {
        let connection = &mut self.by_token[token];
        let stays = connection.settle(result, self.moment);
        if connection.stops_the_server() {
            self.stopper.stop();
        }
        if stays {
            return self.enlist(token);
        }
        self.list.retain(|listed| *listed != token);
        self.by_token.remove(token);
    }

    /// Takes replies that wait for a verdict.
    pub(super) fn hold(&mut self, held: PendingReplies) {
        self.engine.charge(0, held.held_bytes());
        self.held.push_back(held);
    }

    /// Sends what has a verdict.
    pub(super) fn verdicts(&mut self) {
        let mut waiting = VecDeque::new();
        // What is taken back is taken back in reverse.
        for mut held in std::mem::take(&mut self.held).into_iter().rev() {
            let held_bytes = held.held_bytes();
            let refused = match held.settle(&self.engine) {
                Settled::Pending => {
                    waiting.push_front(held);
                    continue;
                }
                Settled::Kept => None,
                Settled::Refused(refused) => Some(refused),
            };
            self.engine.charge(held_bytes, 0);
            self.release(&held, refused.as_ref());
        }
        self.held = waiting;
    }

    fn release(&mut self, held: &PendingReplies, refused: Option<&Refused>) {
        for part in held.parts() {
            let connection = self.by_token.get_mut(part.token);
            // The client may have gone, and another have come.
            let Some(connection) = connection.filter(|it| it.is_held_by(part.client)) else { continue };
            connection.release(|output| {
                if let Some(refused) = refused {
                    *output = held.refused(part, output, refused);
                }
            });
            self.enlist(part.token);
        }
    }

    /// Looks at the time: who was silent for too long, or takes no replies, has to go.
    pub(super) fn look(&mut self) {
        let (moment, idle) = (self.moment, self.engine.config.idle_timeout);
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
