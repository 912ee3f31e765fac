//! The connections of a thread, and the list of those there is something to do for.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use lately_journal::Refused;
use mio::event::Event;
use mio::{Interest, Registry, Token};
use slab::Slab;
use tokio::time::Instant;

use super::connection::{Connection, Look};
use super::held::Held;
use super::queue::Arrival;
use crate::commit::Settled;
use crate::engine::Engine;
use crate::stopper::Stopper;

pub(super) struct Roster {
    pub(super) engine: Arc<Engine>,
    pub(super) connections: Slab<Connection>,
    list: VecDeque<usize>,
    /// Replies that wait for a verdict, in the order they were made.
    held: VecDeque<Held>,
    stopper: Stopper,
}

/// What the event queue reports of a socket. Urgent data too, where there is such: it ends a read early.
fn interest() -> Interest {
    let usual = Interest::READABLE | Interest::WRITABLE;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let usual = usual | Interest::PRIORITY;
    usual
}

impl Roster {
    pub(super) fn new(engine: Arc<Engine>, stopper: Stopper) -> Roster {
        Roster { engine, connections: Slab::new(), list: VecDeque::new(), held: VecDeque::new(), stopper }
    }

    /// Takes a client. A socket that cannot be set up is closed: the client sees it.
    pub(super) fn admit(&mut self, arrival: Arrival, registry: &Registry) {
        let entry = self.connections.vacant_entry();
        let token = entry.key();
        let Arrival { mut socket, place } = arrival;
        let admitted = registry
            .register(&mut socket, Token(token), interest())
            .and_then(|()| Connection::new(socket, place, &self.engine, Instant::now()));
        if let Ok(connection) = admitted {
            entry.insert(connection);
            self.enlist(token);
        }
    }

    /// Takes note of what the event queue says of a socket.
    pub(super) fn notice(&mut self, event: &Event) {
        let token = event.token().0;
        if let Some(connection) = self.connections.get_mut(token) {
            connection.notice(event);
            self.enlist(token);
        }
    }

    fn enlist(&mut self, token: usize) {
        if self.connections[token].list() {
            self.list.push_back(token);
        }
    }

    /// How many are on the list.
    pub(super) fn listed(&self) -> usize {
        self.list.len()
    }

    /// Takes the first off the list.
    pub(super) fn next(&mut self) -> Option<usize> {
        let token = self.list.pop_front()?;
        self.connections[token].unlist();
        Some(token)
    }

    /// Does what is to be done after each step of a connection, of which `result` is how it went.
    pub(super) fn settle(&mut self, token: usize, result: io::Result<()>) {
        let connection = &mut self.connections[token];
        let stays = connection.settle(result);
        if connection.stops_the_server() {
            self.stopper.stop();
        }
        if stays {
            return self.enlist(token);
        }
        self.list.retain(|listed| *listed != token);
        self.connections.remove(token);
    }

    /// Takes replies that wait for a verdict.
    pub(super) fn hold(&mut self, held: Held) {
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

    fn release(&mut self, held: &Held, refused: Option<&Refused>) {
        for part in held.parts() {
            let connection = self.connections.get_mut(part.token);
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
    pub(super) fn look(&mut self, moment: Instant) {
        let idle = self.engine.config.idle_timeout;
        let look = |(token, connection): (usize, &mut Connection)| match connection.look(moment, idle) {
            Look::Fine => None,
            Look::News => Some((token, Ok(()))),
            Look::Late => Some((token, Err(io::ErrorKind::TimedOut.into()))),
        };
        let found: Vec<_> = self.connections.iter_mut().filter_map(look).collect();
        found.into_iter().for_each(|(token, result)| self.settle(token, result));
    }

    /// Ends all connections once what came by now is answered.
    pub(super) fn drain(&mut self) {
        self.connections.iter_mut().for_each(|(_, connection)| connection.drain());
        let tokens: Vec<usize> = self.connections.iter().map(|(token, _)| token).collect();
        tokens.into_iter().for_each(|token| self.enlist(token));
    }
}
