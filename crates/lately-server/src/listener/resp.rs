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
    doors: Vec<Door>,
    queues: Vec<Queue>,
}

/// Where clients go into an event loop.
type Door = mpsc::UnboundedSender<Arrival>;

impl Resp {
    pub(crate) fn new(listener: TcpListener, engine: Arc<Engine>, stopper: Stopper) -> io::Result<Resp> {
        let threads = Handle::current().metrics().num_workers();
        let opened: io::Result<Vec<_>> = (0..threads).map(|_| open(&engine, &stopper)).collect();
        let (doors, queues) = opened?.into_iter().unzip();
        Ok(Resp { listener, engine, stopper, doors, queues })
    }

    /// Serves until the stop, then waits for what had been sent to be answered.
    pub(crate) async fn serve(self) {
        let Resp { listener, engine, stopper, mut doors, queues } = self;
        let mut queues: JoinSet<()> = queues.into_iter().map(Queue::run).collect();
        let room = Arc::new(Semaphore::new(engine.config.max_clients.min(Semaphore::MAX_PERMITS)));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted.and_then(|(socket, _)| socket.into_std()),
                () = stopper.stopped() => break,
                // A bug that has been reported: the clients of that loop have gone, others come.
                Some(_) = queues.join_next() => {
                    for door in doors.iter_mut().filter(|door| door.is_closed()) {
                        if let Ok((new, queue)) = open(&engine, &stopper) {
                            *door = new;
                            queues.spawn(queue.run());
                        }
                    }
                    continue;
                }
            };
            // The client has gone already, or there are no file descriptors: then an end frees one.
            let Ok(mut socket) = accepted else {
                pause(ACCEPT_RETRY).await;
                continue;
            };
            Stats::add(&engine.stats.connections, 1);
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
                Stats::add(&engine.stats.refused_connections, 1);
                // It fits what a new socket takes at once.
                let _ = socket.write_all(TOO_MANY_CLIENTS).and_then(|()| socket.shutdown(Shutdown::Write));
                continue;
            };
            // A door is closed for a moment, when its loop has ended: then the client sees an end.
            let _ = doors[0].send((mio::net::TcpStream::from_std(socket), place));
            doors.rotate_left(1);
        }
        drop((listener, doors));
        let drained = async { while queues.join_next().await.is_some() {} };
        // What is not drained by then belongs to clients that do not take their replies.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
    }
}

fn open(engine: &Arc<Engine>, stopper: &Stopper) -> io::Result<(Door, Queue)> {
    let (door, arrivals) = mpsc::unbounded_channel();
    Ok((door, Queue::new(arrivals, Arc::clone(engine), stopper.clone())?))
}
