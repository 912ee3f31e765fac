//! An event loop: a thread that reads requests of its clients, executes them in batches and answers them, round after
//! round. It waits in one place only, for events of its sockets.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Poll, Token, Waker};
use rustls::ServerConfig;
use tokio::sync::OwnedSemaphorePermit;

use super::balance::{Arrival, Balance, Handle};
use super::commit_group::CommitGroup;
use super::connection::{Connection, Task};
use super::connections::Connections;
use super::load::{Advice, CoreTime, Load};
use crate::clock;
use crate::limits::{DRAIN_TIMEOUT, EVENTS, TIMEOUT_CHECK_EVERY};
use crate::service::Service;
use crate::stopper::Stopper;

/// The token of the waker, which reports new connections, answers of the disk and counts of other nodes. No connection has this number.
const WAKE: Token = Token(usize::MAX);

/// An accepted connection, and its permit among `max_clients`.
pub(super) struct Accepted {
    pub(super) socket: TcpStream,
    /// TLS, if the listener has it.
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) place: OwnedSemaphorePermit,
}

pub(super) struct EventLoop {
    poll: Poll,
    events: Events,
    /// The last poll returned all events.
    all_noticed: bool,
    arrivals: mpsc::Receiver<Arrival>,
    /// All loops, and which of them this is.
    balance: Arc<Balance>,
    index: usize,
    load: Load,
    connections: Connections,
    /// Whether there are connections. Without any, answers of the disk are not waited for.
    has_clients: Arc<AtomicBool>,
    group: CommitGroup,
    next_check: Instant,
    /// During a stop: when clients that do not read their replies are disconnected.
    cut_off: Option<Instant>,
}

impl EventLoop {
    /// Makes the loop with this index, and opens the way to it.
    pub(super) fn new(
        service: Arc<Service>,
        stopper: Stopper,
        (balance, index): (Arc<Balance>, usize),
    ) -> io::Result<EventLoop> {
        let (sender, arrivals) = mpsc::channel();
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let (moment, has_clients) = (clock::moment(), Arc::new(AtomicBool::new(false)));
        service.on_verdict({
            let (waker, has_clients) = (Arc::clone(&waker), Arc::clone(&has_clients));
            // Waking a loop that has ended fails, and does not matter.
            move || {
                if has_clients.load(Relaxed) {
                    let _ = waker.wake();
                }
            }
        });
        let event_loop = EventLoop {
            poll,
            events: Events::with_capacity(EVENTS),
            all_noticed: true,
            arrivals,
            index,
            load: Load::new(moment),
            connections: Connections::new(service, stopper, moment),
            group: CommitGroup::new(),
            next_check: moment + TIMEOUT_CHECK_EVERY,
            cut_off: None,
            has_clients,
            balance,
        };
        event_loop.balance.open(index, Handle { arrivals: sender, waker });
        Ok(event_loop)
    }

    /// Serves until the listener has closed and all clients are answered.
    pub(super) fn run(mut self) {
        let mut moment = clock::moment();
        while !self.is_over(moment) {
            let patience = self.patience(moment);
            // Without patience it has work, so it does not wait.
            let begun = if patience.is_zero() { None } else { Some(clock::moment()) };
            self.wait(patience);
            moment = clock::moment();
            self.load.waited(begun.map_or(Duration::ZERO, |begun| moment.saturating_duration_since(begun)));
            self.process(moment);
            if self.load.is_due(moment) {
                self.look(moment, CoreTime::now);
            }
        }
    }

    fn is_over(&self, moment: Instant) -> bool {
        self.cut_off.is_some_and(|cut_off| self.connections.is_empty() || moment >= cut_off)
    }

    /// The timeout of the next poll.
    fn patience(&self, moment: Instant) -> Duration {
        if self.connections.has_work() || !self.all_noticed {
            return Duration::ZERO;
        }
        let next = self.connections.next_wait().map_or(self.next_check, |wait| wait.min(self.next_check));
        next.saturating_duration_since(moment)
    }

    /// Waits for events of sockets, and records them.
    fn wait(&mut self, patience: Duration) {
        // An error is a signal: the next round waits again.
        if self.poll.poll(&mut self.events, Some(patience)).is_ok() {
            self.events.iter().for_each(|event| self.connections.notice(event));
            self.all_noticed = self.events.iter().count() < EVENTS;
        }
    }

    /// Does all work that is due at this moment.
    fn process(&mut self, moment: Instant) {
        self.connections.moment = moment;
        self.admit();
        // Only after all events were seen: after a stall, clients that sent something are not idle.
        if self.all_noticed && moment >= self.next_check {
            self.next_check = moment + TIMEOUT_CHECK_EVERY;
            self.connections.check_timeouts();
        }
        self.round();
    }

    /// Adds all accepted connections. One per round would be slow when there are many.
    fn admit(&mut self) {
        while self.cut_off.is_none() {
            match self.arrivals.try_recv() {
                Ok(arrival) => self.let_in(arrival),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.cut_off = Some(self.connections.moment + DRAIN_TIMEOUT);
                    self.connections.drain();
                }
            }
        }
    }

    fn let_in(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Accepted(accepted) => self.connections.admit(accepted, self.poll.registry()),
            Arrival::Moved(connection) => self.connections.take_over(connection, self.poll.registry()),
        }
        self.has_clients.store(true, Relaxed);
    }

    /// Looks how busy the loop is. It hands clients over to another loop, if that is of use, or gives those back that it took over.
    fn look(&mut self, moment: Instant, cores: impl FnOnce() -> Option<CoreTime>) {
        self.has_clients.store(!self.connections.is_empty(), Relaxed);
        if self.balance.loops() == 1 || self.cut_off.is_some() {
            return;
        }
        let (busy, advice) = self.load.look(moment, cores);
        self.balance.set_busy(self.index, busy);
        let (registry, connections) = (self.poll.registry(), &mut self.connections);
        match advice {
            Advice::Stay => {}
            Advice::Count => connections.count_sent(),
            Advice::HandOver => {
                if let Some(taker) = self.balance.taker(self.index) {
                    let taken = connections.take_half(registry);
                    // Until its next look, nobody else hands it clients.
                    self.balance.set_busy(taker, u8::MAX);
                    taken.into_iter().for_each(|connection| self.give(taker, connection));
                }
            }
            Advice::GiveBack if self.balance.is_regular(self.index) => {}
            Advice::GiveBack => {
                let taken = connections.take_out(registry, |_| true);
                for (number, connection) in taken.into_iter().enumerate() {
                    self.give(self.balance.regular(number), connection);
                }
            }
        }
    }

    /// Gives a connection to another loop. If that has ended, it stays.
    fn give(&mut self, index: usize, connection: Connection) {
        if let Err(unsent) = self.balance.send(index, Arrival::Moved(Box::new(connection))) {
            self.let_in(unsent);
        }
    }

    /// Serves each connection with work once, and then one of those whose requests take long: one slice of a command, or
    /// one slice of requests.
    fn round(&mut self) {
        self.connections.verdicts();
        self.connections.end_waits();
        self.connections.send_messages();
        for _ in 0..self.connections.listed() {
            let Some(token) = self.connections.next() else { break };
            self.step(token);
        }
        self.group.run(&mut self.connections);
        if let Some(token) = self.connections.next_running() {
            match self.connections.by_token[token].task() {
                Some(Task::Resume) => self.connections.resume(token),
                _ => {
                    self.step(token);
                    self.group.run(&mut self.connections);
                }
            }
        }
    }

    /// Does the next task of a connection, long commands excepted. Its requests join the commit group.
    fn step(&mut self, token: usize) {
        let Some(task) = self.connections.by_token[token].task() else { return };
        if matches!(task, Task::Read | Task::NextSlice | Task::Discard) {
            self.group.make_room(token, &mut self.connections);
        }
        let (connection, moment) = (&mut self.connections.by_token[token], self.connections.moment);
        let result = match task {
            Task::Resume => return self.connections.enlist(token),
            Task::Send => connection.send_rest(),
            Task::Discard => self.group.discard(connection, moment),
            Task::Read | Task::NextSlice => match self.group.take_in(token, connection) {
                // It is settled once the group has run.
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
