//! The connections of a thread, and the list of those there is something to do for.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use lately_journal::Refused;
use mio::event::Event;
use mio::{Interest, Registry, Token};
use slab::Slab;
use tokio::time::Instant;

use super::balance::{Arrival, Balance};
use super::connection::{Connection, Look};
use super::held::Held;
use super::spare::Spare;
use crate::commit::Settled;
use crate::engine::Engine;
use crate::process::idle_time;
use crate::stopper::Stopper;

pub(super) struct Roster {
    pub(super) engine: Arc<Engine>,
    pub(super) connections: Slab<Connection>,
    list: VecDeque<usize>,
    /// Replies that wait for a verdict, in the order they were made.
    held: VecDeque<Held>,
    stopper: Stopper,
    /// Which of the loops this is, and who has which clients.
    index: usize,
    balance: Arc<Balance>,
    /// Clients that may be another loop's to serve.
    unsettled: Vec<usize>,
    /// Of the first loop, where the last may be left out.
    pub(super) spare: Option<Spare>,
    /// Whether all loops served deep pipelines when that was asked last.
    takes_all: bool,
}

/// What the event queue reports of a socket. Urgent data too, where there is such: it ends a read early.
fn interest() -> Interest {
    let usual = Interest::READABLE | Interest::WRITABLE;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let usual = usual | Interest::PRIORITY;
    usual
}

impl Roster {
    pub(super) fn new(engine: Arc<Engine>, stopper: Stopper, index: usize, balance: Arc<Balance>) -> Roster {
        Roster {
            engine,
            connections: Slab::new(),
            list: VecDeque::new(),
            held: VecDeque::new(),
            stopper,
            index,
            spare: (index == 0 && balance.may_leave_out()).then(Spare::default),
            takes_all: balance.takes_all(),
            balance,
            unsettled: Vec::new(),
        }
    }

    /// Takes a client. A socket that cannot be set up is closed: the client sees it.
    pub(super) fn admit(&mut self, arrival: Arrival, registry: &Registry) {
        let entry = self.connections.vacant_entry();
        let token = entry.key();
        let register = |socket: &mut _| registry.register(socket, Token(token), interest());
        let admitted = match arrival {
            Arrival::New(mut socket, place) => register(&mut socket)
                .and_then(|()| Connection::new(socket, place, &self.engine, Instant::now())),
            Arrival::Moved(mut connection) => connection.registered(register).map(|()| *connection),
        };
        if let Ok(connection) = admitted {
            entry.insert(connection);
            self.enlist(token);
        }
    }

    /// Gives clients to the loops that are to serve them.
    pub(super) fn place(&mut self, registry: &Registry) {
        for token in std::mem::take(&mut self.unsettled) {
            let Some(connection) = self.connections.get_mut(token).filter(|it| it.is_free()) else {
                continue;
            };
            let to = connection.depth.place(&self.balance, self.index);
            // What cannot be taken out of the event queue has an error, which is found here.
            if to == self.index || connection.registered(|socket| registry.deregister(socket)).is_err() {
                continue;
            }
            let mut connection = self.remove(token);
            connection.unlist();
            if let Err(back) = self.balance.send(to, Arrival::Moved(Box::new(connection))) {
                self.admit(back, registry);
            }
        }
    }

    /// Finds out which loops are to serve deep pipelines from now on, and has their clients placed anew when that changed.
    pub(super) fn share_out(&mut self, moment: Instant) {
        let balance = &self.balance;
        if let Some(spare) = &mut self.spare {
            balance.set_takes_all(spare.serves(moment, balance.clients(), idle_time));
        }
        if self.takes_all != balance.takes_all() {
            self.takes_all = balance.takes_all();
            self.unsettle_deep();
        }
    }

    /// Has those with deep pipelines placed anew.
    fn unsettle_deep(&mut self) {
        let deep = self.connections.iter().filter(|(_, connection)| connection.depth.is_deep());
        self.unsettled.extend(deep.map(|(token, _)| token));
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
            if connection.depth.has_changed() {
                self.unsettled.push(token);
            }
            return self.enlist(token);
        }
        self.remove(token);
    }

    fn remove(&mut self, token: usize) -> Connection {
        self.list.retain(|listed| *listed != token);
        self.connections.remove(token)
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
        self.unsettle_deep();
    }

    /// Ends all connections once what came by now is answered.
    pub(super) fn drain(&mut self) {
        self.connections.iter_mut().for_each(|(_, connection)| connection.drain());
        let tokens: Vec<usize> = self.connections.iter().map(|(token, _)| token).collect();
        tokens.into_iter().for_each(|token| self.enlist(token));
    }
}
