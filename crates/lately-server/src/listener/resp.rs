//! The RESP listener: takes connections while there is room, hands them to the threads in turn, and
//! tells those to end on a stop.

use std::io::{self, Write};
use std::net::Shutdown;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::pause;
use super::queue::Queue;
use super::roster::Arrival;
use crate::engine::{Engine, Stats};
use crate::limits::{ACCEPT_RETRY, DRAIN_TIMEOUT};
use crate::stopper::Stopper;

const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";

/// A listener and, for each thread of the runtime, an event loop that serves a part of its clients.
pub(crate) struct Resp {
    listener: TcpListener,
    engine: Arc<Engine>,
    stopper: Stopper,
    doors: Vec<mpsc::UnboundedSender<Arrival>>,
    queues: Vec<Queue>,
}

impl Resp {
    pub(crate) fn new(listener: TcpListener, engine: Arc<Engine>, stopper: Stopper) -> io::Result<Resp> {
        let (mut doors, mut queues) = (Vec::new(), Vec::new());
        for _ in 0..Handle::current().metrics().num_workers() {
            let (door, arrivals) = mpsc::unbounded_channel();
            queues.push(Queue::new(arrivals, Arc::clone(&engine), stopper.clone())?);
            doors.push(door);
        }
        Ok(Resp { listener, engine, stopper, doors, queues })
    }

    /// Serves until the stop, then waits for what had been sent to be answered.
    pub(crate) async fn serve(self) {
        let Resp { listener, engine, stopper, doors, queues } = self;
        let mut queues: JoinSet<()> = queues.into_iter().map(Queue::run).collect();
        let room = Arc::new(Semaphore::new(engine.config.max_clients.min(Semaphore::MAX_PERMITS)));
        let mut turn = doors.iter().cycle();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted.and_then(|(socket, _)| socket.into_std()),
                () = stopper.stopped() => break,
            };
            // The client has gone already, or there are no file descriptors: then an end frees one.
            let Ok(mut socket) = accepted else {
                pause(ACCEPT_RETRY).await;
                continue;
            };
            Stats::add(&engine.stats.connections, 1);
            let (Ok(place), Some(door)) = (Arc::clone(&room).try_acquire_owned(), turn.next()) else {
                Stats::add(&engine.stats.refused_connections, 1);
                // It fits what a new socket takes at once.
                let _ = socket.write_all(TOO_MANY_CLIENTS).and_then(|()| socket.shutdown(Shutdown::Write));
                continue;
            };
            // It fails when the thread's loop has panicked: then the client sees an end.
            let _ = door.send((mio::net::TcpStream::from_std(socket), place));
        }
        drop((listener, doors));
        let drained = async { while queues.join_next().await.is_some() {} };
        // What is not drained by then belongs to clients that do not take their replies.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
    }
}
