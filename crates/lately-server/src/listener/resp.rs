//! The RESP listener: takes connections while there is room, gives them to the event loops in turn, and
//! tells those to end on a stop.

use std::io::{self, Write};
use std::net::Shutdown;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::pause;
use super::queue::{Arrival, Door, Queue};
use crate::engine::{Engine, Stats};
use crate::limits::{ACCEPT_RETRY, DRAIN_TIMEOUT};
use crate::stopper::Stopper;

const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";

/// A listener and the event loops, each of which serves a part of its clients.
pub(crate) struct Resp {
    listener: TcpListener,
    loops: Loops,
    opened: Vec<(Door, Loop)>,
}

/// What all loops have in common.
struct Loops {
    engine: Arc<Engine>,
    stopper: Stopper,
}

/// An event loop: the first is run by the runtime of the server, each of the others by its own, on its own thread.
struct Loop {
    queue: Queue,
    own: Option<OwnRuntime>,
}

/// A runtime that may be dropped by what another one runs.
struct OwnRuntime(Option<Runtime>);

impl Resp {
    pub(crate) fn new(listener: TcpListener, engine: Arc<Engine>, stopper: Stopper) -> io::Result<Resp> {
        let loops = Loops { engine, stopper };
        let opened =
            (0..loops.engine.config.loops).map(|index| loops.open(index)).collect::<io::Result<_>>()?;
        Ok(Resp { listener, loops, opened })
    }

    /// Serves until the stop, then waits for what had been sent to be answered.
    pub(crate) async fn serve(self) {
        let Resp { listener, loops, opened } = self;
        let Loops { engine, stopper } = &loops;
        let (mut doors, opened): (Vec<Door>, Vec<Loop>) = opened.into_iter().unzip();
        let mut turns = (0..doors.len()).cycle();
        let mut running = JoinSet::new();
        opened.into_iter().for_each(|it| it.start(&mut running));
        let room = Arc::new(Semaphore::new(engine.config.max_clients.min(Semaphore::MAX_PERMITS)));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted.and_then(|(socket, _)| socket.into_std()),
                () = stopper.stopped() => break,
                // A bug that has been reported: the clients of that loop have gone, others come.
                Some(_) = running.join_next() => {
                    for (index, door) in doors.iter_mut().enumerate().filter(|(_, door)| door.is_closed()) {
                        if let Ok((new_door, new)) = loops.open(index) {
                            *door = new_door;
                            new.start(&mut running);
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
            let arrival = Arrival { socket: mio::net::TcpStream::from_std(socket), place };
            if let Some(turn) = turns.next() {
                let _ = doors[turn].send(arrival);
            }
        }
        drop((listener, doors));
        let drained = async { while running.join_next().await.is_some() {} };
        // What is not drained by then belongs to clients that do not take their replies.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
    }
}

impl Loops {
    fn open(&self, index: usize) -> io::Result<(Door, Loop)> {
        let queue = || Queue::new(Arc::clone(&self.engine), self.stopper.clone());
        if index == 0 {
            let (door, queue) = queue()?;
            return Ok((door, Loop { queue, own: None }));
        }
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (door, queue) = {
            let _inside = runtime.enter();
            queue()?
        };
        Ok((door, Loop { queue, own: Some(OwnRuntime(Some(runtime))) }))
    }
}

impl Loop {
    fn start(self, running: &mut JoinSet<()>) {
        let Loop { queue, own } = self;
        match own {
            None => running.spawn(queue.run()),
            Some(own) => running.spawn_blocking(move || own.run(queue)),
        };
    }
}

impl OwnRuntime {
    fn run(&self, queue: Queue) {
        if let Some(runtime) = &self.0 {
            runtime.block_on(queue.run());
        }
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // To wait for its end would not be allowed there; it runs nothing any more.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
