//! The event loop of a thread: what all its clients sent is read, run as a batch, and answered, again
//! and again. Between rounds the runtime has the thread, and wakes it when the system has news.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use mio::{Events, Token};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::group::Group;
use super::roster::{Arrival, Roster};
use crate::engine::Engine;
use crate::limits::{EVENTS, LOOK_EVERY};
use crate::stopper::Stopper;

/// What the event queue calls a verdict. No connection has so high a number.
const WAKE: Token = Token(usize::MAX);

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
    pub(super) fn new(
        arrivals: UnboundedReceiver<Arrival>,
        engine: Arc<Engine>,
        stopper: Stopper,
    ) -> io::Result<Queue> {
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let poll = mio::Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKE)?;
        // A loop that has ended is woken in vain.
        engine.on_verdict(move || drop(waker.wake()));
        #[expect(deprecated, reason = "its other form is unsafe; a poll keeps its descriptor while it lives")]
        let sockets = AsyncFd::with_interest(poll, Interest::READABLE)?;
        Ok(Queue {
            sockets,
            events: Events::with_capacity(EVENTS),
            arrivals,
            draining: false,
            roster: Roster::new(engine, stopper),
            group: Group::new(),
            look,
            look_is_due: false,
        })
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
    use tokio::sync::mpsc;

    use super::super::fixture::{arrival, engine};
    use super::*;

    /// A round takes long when clients send much: who comes must not wait for one each.
    #[test]
    fn all_who_come_are_taken_at_once() {
        const CLIENTS: usize = 50;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (door, arrivals) = mpsc::unbounded_channel();
            let mut queue = Queue::new(arrivals, engine(), Stopper::new()).expect("a queue");
            let come = |_| {
                let (arrival, client) = arrival();
                door.send(arrival).expect("a queue");
                client
            };
            let clients: Vec<_> = (0..CLIENTS).map(come).collect();
            poll_fn(|cx| queue.news(cx)).await;
            assert_eq!(queue.roster.connections.len(), clients.len());
        });
    }
}
