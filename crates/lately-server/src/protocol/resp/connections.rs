//! The connections of an event loop, and the lists of those with work.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::service::Refused;
use mio::event::Event;
use mio::{Registry, Token};
use slab::Slab;

use super::connection::{Connection, Task, Timeout};
use super::event_loop::Accepted;
use super::pending_replies::PendingReplies;
use super::stream::Stream;
use crate::limits::MAX_HANDSHAKES;
use crate::service::Service;
use crate::service::commit::Settled;
use crate::stopper::Stopper;

pub(super) struct Connections {
    pub(super) service: Arc<Service>,
    pub(super) by_token: Slab<Connection>,
    /// Connections to read from or write to.
    list: VecDeque<usize>,
    /// Connections whose long commands have more slices, or whose requests take long. A round serves one of them.
    running: VecDeque<usize>,
    /// Connections whose next request waits for counts of other nodes, or for a login.
    waiting: BTreeSet<usize>,
    /// Connections whose clients have subscribed to alerts.
    subscribed: BTreeSet<usize>,
    /// Those of them that may have messages to be sent.
    addressed: BTreeSet<usize>,
    /// How many alerts had been published when all of them were looked at.
    published: u64,
    /// Connections with a handshake of TLS, oldest first, each with its client. For some it may be over.
    shaking: VecDeque<(usize, u64)>,
    /// Replies that wait for the disk, oldest first.
    pending: VecDeque<PendingReplies>,
    stopper: Stopper,
    /// The time of this round.
    pub(super) moment: Instant,
}

impl Connections {
    pub(super) fn new(service: Arc<Service>, stopper: Stopper, moment: Instant) -> Connections {
        Connections {
            service,
            by_token: Slab::new(),
            list: VecDeque::new(),
            running: VecDeque::new(),
            waiting: BTreeSet::new(),
            subscribed: BTreeSet::new(),
            addressed: BTreeSet::new(),
            published: 0,
            shaking: VecDeque::new(),
            pending: VecDeque::new(),
            stopper,
            moment,
        }
    }

    /// Adds a client. A socket that cannot be set up is closed.
    pub(super) fn admit(&mut self, accepted: Accepted, registry: &Registry) {
        let entry = self.by_token.vacant_entry();
        let token = entry.key();
        let Accepted { socket, tls, place } = accepted;
        let has_tls = tls.is_some();
        let admitted = Stream::new(socket, tls, registry, Token(token))
            .and_then(|stream| Connection::new(stream, place, &self.service, self.moment));
        if let Ok(connection) = admitted {
            let client = connection.client_id();
            entry.insert(connection);
            self.enlist(token);
            if has_tls {
                self.shaking.push_back((token, client));
                self.bound_handshakes();
            }
        }
    }

    /// Adds a client of another loop.
    pub(super) fn take_over(&mut self, mut connection: Box<Connection>, registry: &Registry) {
        let entry = self.by_token.vacant_entry();
        let token = entry.key();
        // One that cannot be set up is closed.
        if connection.enter_loop(registry, Token(token)).is_ok() {
            entry.insert(*connection);
            self.enlist(token);
        }
    }

    /// Counts what clients send from now on.
    pub(super) fn count_sent(&mut self) {
        self.by_token.iter_mut().for_each(|(_, connection)| connection.sent_bytes = 0);
    }

    /// Takes out clients that sent up to half of what all have sent since that is counted.
    pub(super) fn take_half(&mut self, registry: &Registry) -> Vec<Connection> {
        let mut left = self.by_token.iter().map(|(_, connection)| connection.sent_bytes).sum::<usize>() / 2;
        self.take_out(registry, |connection| {
            let is_among_them = (1..=left).contains(&connection.sent_bytes);
            left -= if is_among_them { connection.sent_bytes } else { 0 };
            is_among_them
        })
    }

    /// Takes out the clients that can go and are chosen.
    pub(super) fn take_out(
        &mut self,
        registry: &Registry,
        mut is_chosen: impl FnMut(&Connection) -> bool,
    ) -> Vec<Connection> {
        let all = self.by_token.iter();
        let chosen = all.filter(|(_, connection)| connection.may_move() && is_chosen(connection));
        let chosen: Vec<usize> = chosen.map(|(token, _)| token).collect();
        let mut taken = Vec::new();
        for token in chosen {
            // A socket that cannot leave stays.
            if self.by_token[token].leave(registry).is_ok() {
                taken.push(self.by_token.remove(token));
            }
        }
        taken
    }

    /// Ends the oldest handshakes of TLS while there are more than [`MAX_HANDSHAKES`].
    fn bound_handshakes(&mut self) {
        if self.shaking.len() <= MAX_HANDSHAKES {
            return;
        }
        let by_token = &self.by_token;
        self.shaking.retain(|&(token, client)| {
            by_token.get(token).is_some_and(|it| it.client_id() == client && it.is_shaking_hands())
        });
        while self.shaking.len() > MAX_HANDSHAKES {
            let Some((token, _)) = self.shaking.pop_front() else { return };
            self.settle(token, Err(io::ErrorKind::TimedOut.into()));
        }
    }

    /// Passes an event to its connection.
    pub(super) fn notice(&mut self, event: &Event) {
        let token = event.token().0;
        if let Some(connection) = self.by_token.get_mut(token) {
            connection.notice(event);
            self.enlist(token);
        }
    }

    /// Puts a connection on the list for its next task.
    pub(super) fn enlist(&mut self, token: usize) {
        match self.by_token[token].list() {
            Some(Task::Resume | Task::NextSlice) => self.running.push_back(token),
            Some(Task::Read | Task::Send | Task::Discard) => self.list.push_back(token),
            None => {}
        }
    }

    /// Whether there are no connections.
    pub(super) fn is_empty(&self) -> bool {
        self.by_token.is_empty()
    }

    /// Whether a connection has work.
    pub(super) fn has_work(&self) -> bool {
        !self.list.is_empty() || !self.running.is_empty()
    }

    /// The number of connections to read from or write to.
    pub(super) fn listed(&self) -> usize {
        self.list.len()
    }

    /// Takes the first connection to read from or write to.
    pub(super) fn next(&mut self) -> Option<usize> {
        let token = self.list.pop_front()?;
        self.by_token[token].unlist();
        Some(token)
    }

    /// Takes the next slow connection in turn.
    pub(super) fn next_running(&mut self) -> Option<usize> {
        let token = self.running.pop_front()?;
        self.by_token[token].unlist();
        Some(token)
    }

    /// Runs one slice of a long command.
    pub(super) fn resume(&mut self, token: usize) {
        let (pending, result) = self.by_token[token].resume(token);
        if let Some(pending) = pending {
            self.hold(pending);
        }
        self.settle(token, result);
    }

    /// Finishes a step of a connection that ended with `result`.
    pub(super) fn settle(&mut self, token: usize, result: io::Result<()>) {
        let connection = &mut self.by_token[token];
        if connection.settle(result, self.moment, &self.stopper) {
            if connection.waits_until().is_some() {
                self.waiting.insert(token);
            }
            if connection.is_subscribed() {
                self.subscribed.insert(token);
                self.addressed.insert(token);
            }
            return self.enlist(token);
        }
        if connection.unlist() {
            self.list.retain(|listed| *listed != token);
            self.running.retain(|listed| *listed != token);
        }
        self.by_token.remove(token);
    }

    /// The earliest time at which a wait for other nodes ends.
    pub(super) fn next_wait(&self) -> Option<Instant> {
        self.waiting.iter().filter_map(|token| self.by_token.get(*token)?.waits_until()).min()
    }

    /// Ends the waits for other nodes that are over.
    pub(super) fn end_waits(&mut self) {
        let mut over = Vec::new();
        let (by_token, moment) = (&mut self.by_token, self.moment);
        self.waiting.retain(|token| {
            let Some(connection) = by_token.get_mut(*token) else { return false };
            if connection.end_wait(moment) {
                over.push(*token);
            }
            connection.waits_until().is_some()
        });
        over.into_iter().for_each(|token| self.enlist(token));
    }

    /// Sends the alerts that have come to the clients that have subscribed.
    pub(super) fn send_messages(&mut self) {
        let published = self.service.alerts.published();
        if std::mem::replace(&mut self.published, published) != published {
            self.addressed.clone_from(&self.subscribed);
        }
        while let Some(token) = self.addressed.pop_first() {
            match self.by_token.get_mut(token).filter(|connection| connection.is_subscribed()) {
                Some(connection) => {
                    let result = connection.send_messages();
                    self.settle(token, result);
                    self.addressed.remove(&token);
                }
                None => _ = self.subscribed.remove(&token),
            }
        }
    }

    /// Adds replies that wait for the disk.
    pub(super) fn hold(&mut self, held: PendingReplies) {
        self.service.charge(0, held.held_bytes());
        self.pending.push_back(held);
    }

    /// Sends the replies whose changes the disk has confirmed or refused.
    pub(super) fn verdicts(&mut self) {
        let mut waiting = VecDeque::new();
        // Newest first: a rollback runs in reverse.
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
            // Another client may have the token by now.
            let connection = self.by_token.get_mut(part.token);
            if connection.is_some_and(|it| it.release(part.client, change)) {
                self.enlist(part.token);
            }
        }
    }

    /// Disconnects clients that were idle for too long or read no replies, and those that hold too much.
    pub(super) fn check_timeouts(&mut self) {
        let tokens: Vec<usize> = self.by_token.iter().map(|(token, _)| token).collect();
        for token in tokens {
            // One connection at a time: each one that is closed frees memory for the others.
            let shed = self.by_token[token].shed();
            if shed.is_err() {
                self.settle(token, shed);
            }
        }
        let (moment, idle) = (self.moment, self.service.config.idle_timeout);
        let check =
            |(token, connection): (usize, &mut Connection)| match connection.check_timeout(moment, idle) {
                Timeout::NotDue => None,
                Timeout::HasInput => Some((token, Ok(()))),
                Timeout::Over => Some((token, Err(io::ErrorKind::TimedOut.into()))),
            };
        let found: Vec<_> = self.by_token.iter_mut().filter_map(check).collect();
        found.into_iter().for_each(|(token, result)| self.settle(token, result));
    }

    /// Ends all connections once the input that has arrived is answered.
    pub(super) fn drain(&mut self) {
        self.by_token.iter_mut().for_each(|(_, connection)| connection.drain());
        let tokens: Vec<usize> = self.by_token.iter().map(|(token, _)| token).collect();
        tokens.into_iter().for_each(|token| self.enlist(token));
    }
}
