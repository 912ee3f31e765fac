//! The event loop of a thread: what all its clients sent is read, run as a batch, and answered, again
//! and again. Between rounds the runtime has the thread, and wakes it when the system has news.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Token};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::group::Group;
use super::roster::Roster;
use crate::engine::Engine;
use crate::limits::{EVENTS, LOOK_EVERY};
use crate::stopper::Stopper;

/// What the event queue calls a verdict. No connection has so high a number.
const WAKE: Token = Token(usize::MAX);

/// A client that has connected, and its place among those there is room for.
pub(super) struct Arrival {
    pub(super) socket: TcpStream,
    pub(super) place: OwnedSemaphorePermit,
}

/// Where clients go into an event loop. The loop ends once this is dropped and its clients are answered.
pub(super) type Door = UnboundedSender<Arrival>;

pub(super) struct Queue {
    /// The sockets of the thread, which to the runtime are one thing that may have news.
    sockets: AsyncFd<mio::Poll>,
    events: Events,
    /// Who comes; at its end the server stops.
    arrivals: UnboundedReceiver<Arrival>,
    draining: bool,
    roster: Roster,
    group: Group,
    look: Interval,
    /// The next look is due.
    look_is_due: bool,
}

impl Queue {
    /// A loop, and the way into it.
    pub(super) fn new(engine: Arc<Engine>, stopper: Stopper) -> io::Result<(Door, Queue)> {
        let (door, arrivals) = mpsc::unbounded_channel();
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let poll = mio::Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKE)?;
        // A loop that has ended is woken in vain.
        engine.on_verdict(move || drop(waker.wake()));
        #[expect(deprecated, reason = "its other form is unsafe; a poll keeps its descriptor while it lives")]
        let sockets = AsyncFd::with_interest(poll, Interest::READABLE)?;
        let queue = Queue {
            sockets,
            events: Events::with_capacity(EVENTS),
            arrivals,
            draining: false,
            roster: Roster::new(engine, stopper),
            group: Group::new(),
            look,
            look_is_due: false,
        };
        Ok((door, queue))
    }

    /// Serves until no more clients come and those there were are answered.
    pub(super) async fn run(mut self) {
        while !self.draining || !self.roster.connections.is_empty() {
            poll_fn(|cx| self.news(cx)).await;
            self.round();
            if self.roster.listed() > 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes note of what is new, and ends when there is something to do.
    fn news(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut any = self.roster.listed() > 0;
        // All who came: to wait for a round each is long when there are many.
        while !self.draining
            && let Poll::Ready(arrival) = self.arrivals.poll_recv(cx)
        {
            any = true;
            match arrival {
                Some(arrival) => self.roster.admit(arrival, self.sockets.get_ref().registry()),
                None => {
                    self.draining = true;
                    self.roster.drain();
                }
            }
        }
        self.look_is_due |= self.look.poll_tick(cx).is_ready();
        let mut all_noticed = true;
        if let Poll::Ready(Ok(mut ready)) = self.sockets.poll_read_ready_mut(cx) {
            any = true;
            // Nothing is waited for: only a signal can come in between, and then it is tried again.
            if ready.get_inner_mut().poll(&mut self.events, Some(Duration::ZERO)).is_ok() {
                self.events.iter().for_each(|event| self.roster.notice(event));
                all_noticed = self.events.iter().count() < EVENTS;
                if all_noticed {
                    ready.clear_ready();
                }
            }
        }
        // Only now: after a stall, what clients sent meanwhile has been noticed.
        if all_noticed && std::mem::take(&mut self.look_is_due) {
            any = true;
            self.roster.look(Instant::now());
        }
        if any { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Does what there is to do for those on the list.
    fn round(&mut self) {
        self.roster.verdicts();
        for _ in 0..self.roster.listed() {
            let Some(token) = self.roster.next() else { break };
            self.group.make_room(token, &mut self.roster);
            let connection = &mut self.roster.connections[token];
            let taken_in = if connection.is_closing() {
                self.group.discard(connection).map(|()| false)
            } else if connection.is_behind() {
                if let Some(held) = connection.resume(token) {
                    self.roster.hold(held);
                }
                self.roster.connections[token].catch_up().map(|()| false)
            } else {
                self.group.take_in(token, connection)
            };
            match taken_in {
                Ok(true) => {}
                Ok(false) => self.roster.settle(token, Ok(())),
                Err(error) => self.roster.settle(token, Err(error)),
            }
        }
        self.group.run(&mut self.roster);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::super::fixture::{client, engine};
    use super::*;

    /// A round takes long when clients send much: who comes must not wait for one each.
    #[test]
    fn all_who_come_are_taken_at_once() {
        const CLIENTS: usize = 50;
        run(async {
            let (door, mut queue) = Queue::new(engine(), Stopper::new()).expect("a queue");
            let come = |_| {
                let (socket, place, client) = client();
                assert!(door.send(Arrival { socket, place }).is_ok());
                client
            };
            let clients: Vec<_> = (0..CLIENTS).map(come).collect();
            poll_fn(|cx| queue.news(cx)).await;
            assert_eq!(queue.roster.connections.len(), clients.len());
        });
    }

    /// Runs a test that waits for sockets.
    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(test);
    }

    /// Symptom: a client that sent many walks over all keys at once let everybody wait for all of them. Fix: one in a turn.
    #[test]
    fn others_have_their_turn_between_the_walks_of_a_client() {
        run(async {
            let (door, mut queue) = Queue::new(engine(), Stopper::new()).expect("a queue");
            let (socket, place, mut client) = client();
            assert!(door.send(Arrival { socket, place }).is_ok());
            client.write_all(&b"COOLEST 1 PREFIX k\r\n".repeat(3)).expect("the server reads");
            client.set_nonblocking(true).expect("a socket");
            let mut replies = Vec::new();
            for walk in 1..=3 {
                while replies.len() < walk * b"*0\r\n".len() {
                    poll_fn(|cx| queue.news(cx)).await;
                    queue.round();
                    _ = client.read_to_end(&mut replies);
                }
                assert_eq!(replies, b"*0\r\n".repeat(walk));
            }
        });
    }
}
