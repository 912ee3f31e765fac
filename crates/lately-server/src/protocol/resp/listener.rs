//! The RESP listener: accepts connections while there is room, passes them to the event loops in turn, and ends the
//! loops on a stop.

use std::io::{self, Write};
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::balance::{Arrival, Balance};
use super::event_loop::{Accepted, EventLoop};
use crate::limits::ACCEPT_RETRY;
use crate::pause::pause;
use crate::service::{Service, Stats};
use crate::stopper::Stopper;
use crate::tls::CurrentTls;

const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";

/// A listener and its event loops.
pub(crate) struct Resp {
    listener: TcpListener,
    tls: Option<Arc<CurrentTls>>,
    loops: Loops,
}

/// The event loops, each on a thread of its own.
struct Loops {
    service: Arc<Service>,
    stopper: Stopper,
    balance: Arc<Balance>,
    /// The number of the next connection.
    next: usize,
    /// A loop sends its index here when it has ended.
    ended: UnboundedSender<usize>,
    ends: UnboundedReceiver<usize>,
}

impl Resp {
    /// Starts the event loops.
    pub(crate) fn new(
        listener: TcpListener,
        service: Arc<Service>,
        tls: Option<Arc<CurrentTls>>,
        stopper: Stopper,
    ) -> io::Result<Resp> {
        Ok(Resp { listener, tls, loops: Loops::start(service, stopper)? })
    }

    /// Serves until the stop, then waits until all requests that were sent are answered.
    pub(crate) async fn serve(self) {
        let Resp { listener, tls, mut loops } = self;
        let (service, stopper) = (Arc::clone(&loops.service), loops.stopper.clone());
        let room = Arc::new(Semaphore::new(service.most_clients().min(Semaphore::MAX_PERMITS)));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted.and_then(|(socket, _)| socket.into_std()),
                () = stopper.stopped() => break,
                Some(index) = loops.ends.recv() => {
                    loops.replace(index);
                    continue;
                }
            };
            // The client has closed its connection, or the server has no file descriptors left. The end of a
            // connection frees one.
            let Ok(mut socket) = accepted else {
                pause(ACCEPT_RETRY).await;
                continue;
            };
            Stats::add(&service.stats.connections, 1);
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
                Stats::add(&service.stats.refused_connections, 1);
                // It fits the send buffer of a new socket. With TLS, a client could not read it.
                if tls.is_none() {
                    let _ =
                        socket.write_all(TOO_MANY_CLIENTS).and_then(|()| socket.shutdown(Shutdown::Write));
                }
                continue;
            };
            let tls = tls.as_ref().map(|tls| tls.get());
            loops.send(Accepted { socket: mio::net::TcpStream::from_std(socket), tls, place });
        }
        drop(listener);
        loops.end().await;
    }
}

impl Loops {
    fn start(service: Arc<Service>, stopper: Stopper) -> io::Result<Loops> {
        let (ended, ends) = unbounded_channel();
        let extra = usize::from(service.config.has_extra_loop);
        let balance = Arc::new(Balance::new(service.config.loops, extra));
        let loops = Loops { service, stopper, balance, next: 0, ended, ends };
        (0..loops.balance.loops()).try_for_each(|index| loops.start_one(index))?;
        Ok(loops)
    }

    fn start_one(&self, index: usize) -> io::Result<()> {
        let place = (Arc::clone(&self.balance), index);
        let event_loop = EventLoop::new(Arc::clone(&self.service), self.stopper.clone(), place)?;
        let ended = self.ended.clone();
        let run = move || {
            // A panic has been reported. The connections of this loop have ended.
            let _ = catch_unwind(AssertUnwindSafe(|| event_loop.run()));
            // All receivers may have been dropped at a stop.
            let _ = ended.send(index);
        };
        thread::Builder::new().name(format!("lately-loop-{index}")).spawn(run).map(drop)
    }

    /// Replaces a loop that has panicked.
    fn replace(&self, index: usize) {
        // If that fails, the other loops serve its share of new clients.
        let _ = self.start_one(index);
    }

    /// Passes a connection to the next loop that runs.
    fn send(&mut self, accepted: Accepted) {
        let mut unsent = Some(Arrival::Accepted(accepted));
        for _ in 0..self.balance.loops() {
            let Some(arrival) = unsent else { return };
            unsent = self.balance.send(self.balance.regular(self.next), arrival).err();
            self.next = self.next.wrapping_add(1);
        }
    }

    /// Ends the loops, and waits for them.
    async fn end(self) {
        let Loops { balance, ended, mut ends, .. } = self;
        balance.close();
        drop(ended);
        while ends.recv().await.is_some() {}
    }
}
