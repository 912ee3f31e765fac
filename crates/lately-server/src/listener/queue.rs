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
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::balance::{Arrival, Balance, Door};
use super::group::Group;
use super::roster::Roster;
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
    /// The loop of this index, and the way into it.
    pub(super) fn new(
        engine: Arc<Engine>,
        stopper: Stopper,
        index: usize,
        balance: Arc<Balance>,
    ) -> io::Result<(Door, Queue)> {
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
            roster: Roster::new(engine, stopper, index, balance),
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
        self.roster.place(self.sockets.get_ref().registry());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::super::fixture::{client, engine};
    use super::*;
    use crate::limits::{DEEP_REQUESTS, RUN_OPERATIONS};

    /// A round takes long when clients send much: who comes must not wait for one each.
    #[test]
    fn all_who_come_are_taken_at_once() {
        const CLIENTS: usize = 50;
        run(async {
            let balance = Arc::new(Balance::new(1, 1));
            let (door, mut queue) = Queue::new(engine(), Stopper::new(), 0, balance).expect("a queue");
            let come = |_| {
                let (socket, place, client) = client();
                assert!(door.send(Arrival::New(socket, place)).is_ok());
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

    /// Sends so many requests at once and has a loop answer them.
    async fn ask(client: &mut TcpStream, queue: &mut Queue, requests: usize) {
        client.write_all(&b"PING\r\n".repeat(requests)).expect("the server reads");
        client.set_nonblocking(true).expect("a socket");
        let expected = b"+PONG\r\n".repeat(requests);
        let mut replies = Vec::new();
        while replies.len() < expected.len() {
            poll_fn(|cx| queue.news(cx)).await;
            queue.round();
            // It ends with an error, as more may come.
            _ = client.read_to_end(&mut replies);
        }
        assert_eq!(replies, expected);
    }

    /// Symptom: a client that sent many walks over all keys at once let everybody wait for all of them. Fix: one in a turn.
    #[test]
    fn others_have_their_turn_between_the_walks_of_a_client() {
        run(async {
            let balance = Arc::new(Balance::new(1, 1));
            let (door, mut queue) = Queue::new(engine(), Stopper::new(), 0, balance).expect("a queue");
            let (socket, place, mut client) = client();
            assert!(door.send(Arrival::New(socket, place)).is_ok());
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

    /// Two loops that serve deep pipelines, and two clients of the first of them.
    fn two_loops() -> (Arc<Balance>, [Queue; 2], [TcpStream; 2]) {
        let (engine, balance) = (engine(), Arc::new(Balance::new(2, 2)));
        let open = |index| Queue::new(Arc::clone(&engine), Stopper::new(), index, Arc::clone(&balance));
        let (first_door, mut first) = open(0).expect("a queue");
        let (second_door, second) = open(1).expect("a queue");
        first.roster.spare = None;
        balance.set_takes_all(true);
        balance.open(vec![first_door, second_door]);
        let clients = [(); 2].map(|()| {
            let (socket, place, client) = client();
            assert!(balance.send(balance.usual(), Arrival::New(socket, place)).is_ok());
            client
        });
        (balance, [first, second], clients)
    }

    /// How many clients each has.
    fn served(first: &Queue, second: &Queue) -> [usize; 2] {
        [first, second].map(|it| it.roster.connections.len())
    }

    /// While both have deep pipelines, each loop has one of them.
    #[test]
    fn a_client_moves_with_its_pipelines() {
        run(async {
            let (_, [mut first, mut second], [mut one, mut other]) = two_loops();
            for _ in 0..4 * DEEP_REQUESTS {
                ask(&mut one, &mut first, DEEP_REQUESTS - 1).await;
            }
            ask(&mut other, &mut first, 1).await;
            assert_eq!(served(&first, &second), [2, 0]);
            for _ in 0..2 * DEEP_REQUESTS {
                ask(&mut one, &mut first, RUN_OPERATIONS).await;
            }
            // It is alone with that.
            assert_eq!(served(&first, &second), [2, 0]);
            while served(&first, &second)[0] == 2 {
                ask(&mut other, &mut first, RUN_OPERATIONS).await;
            }
            for _ in 0..2 * DEEP_REQUESTS {
                ask(&mut other, &mut second, DEEP_REQUESTS / 2 + 1).await;
                ask(&mut one, &mut first, RUN_OPERATIONS).await;
            }
            assert_eq!(served(&first, &second), [1, 1]);
            while served(&first, &second)[1] == 1 {
                ask(&mut other, &mut second, 1).await;
            }
            ask(&mut other, &mut first, 1).await;
            ask(&mut one, &mut first, RUN_OPERATIONS).await;
            assert_eq!(served(&first, &second), [2, 0]);
        });
    }

    /// Where there is no core for the last loop, its clients leave it; and come back.
    #[test]
    fn clients_leave_a_loop_that_is_left_out() {
        run(async {
            let (balance, [mut first, mut second], [mut one, mut other]) = two_loops();
            for _ in 0..2 * DEEP_REQUESTS {
                ask(&mut one, &mut first, RUN_OPERATIONS).await;
            }
            while served(&first, &second)[0] == 2 {
                ask(&mut other, &mut first, RUN_OPERATIONS).await;
            }
            ask(&mut other, &mut second, RUN_OPERATIONS).await;
            assert_eq!(served(&first, &second), [1, 1]);
            balance.set_takes_all(false);
            ask(&mut other, &mut second, RUN_OPERATIONS).await;
            ask(&mut one, &mut first, RUN_OPERATIONS).await;
            ask(&mut other, &mut first, RUN_OPERATIONS).await;
            assert_eq!(served(&first, &second), [2, 0]);
            balance.set_takes_all(true);
            ask(&mut one, &mut first, RUN_OPERATIONS).await;
            poll_fn(|cx| second.news(cx)).await;
            assert_eq!(served(&first, &second), [1, 1]);
        });
    }

    /// After the stop nobody moves, and all are answered where they are.
    #[test]
    fn nobody_moves_once_the_server_stops() {
        run(async {
            let balance = Arc::new(Balance::new(2, 2));
            let (door, mut queue) =
                Queue::new(engine(), Stopper::new(), 0, Arc::clone(&balance)).expect("a queue");
            // As if the first had all those with deep pipelines.
            let _counted: Vec<_> = (0..4).map(|_| balance.count(0)).collect();
            let (socket, place, mut client) = client();
            assert!(door.send(Arrival::New(socket, place)).is_ok());
            balance.close();
            for _ in 0..2 * DEEP_REQUESTS {
                ask(&mut client, &mut queue, RUN_OPERATIONS).await;
            }
            assert_eq!(queue.roster.connections.len(), 1);
        });
    }
}
