//! The event loops of a listener: which one gets a new client, and which one takes clients over from a busy one.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use mio::Waker;

use super::connection::Connection;
use super::event_loop::Accepted;
use crate::limits::MOST_BUSY_TAKER;

/// What comes to an event loop.
pub(super) enum Arrival {
    /// A client that has just connected.
    Accepted(Accepted),
    /// A client of another loop.
    Moved(Box<Connection>),
}

/// The way to an event loop.
pub(super) struct Handle {
    pub(super) arrivals: mpsc::Sender<Arrival>,
    pub(super) waker: Arc<Waker>,
}

/// The event loops of a listener.
pub(super) struct Balance {
    /// None once the server stops.
    handles: Mutex<Vec<Handle>>,
    /// How busy each loop was when it looked last, in percent.
    busy: Box<[AtomicU8]>,
    /// New clients go to the first loops, this many. The others have those that they take over.
    regular: usize,
}

impl Balance {
    pub(super) fn new(regular: usize, extra: usize) -> Balance {
        let busy = (0..regular + extra).map(|_| AtomicU8::new(0)).collect();
        Balance { handles: Mutex::default(), busy, regular }
    }

    /// The number of loops.
    pub(super) fn loops(&self) -> usize {
        self.busy.len()
    }

    /// Opens the way to the loop with this index: one more, or one in place of a loop that has ended.
    pub(super) fn open(&self, index: usize, handle: Handle) {
        let mut handles = self.handles();
        if index < handles.len() {
            handles[index] = handle;
        } else {
            handles.push(handle);
        }
    }

    /// Tells all loops to end once their clients are answered.
    pub(super) fn close(&self) {
        for Handle { arrivals, waker } in std::mem::take(&mut *self.handles()) {
            drop(arrivals);
            let _ = waker.wake();
        }
    }

    /// Sends something to a loop. Returns it when that has ended, or the server stops.
    pub(super) fn send(&self, index: usize, arrival: Arrival) -> Result<(), Arrival> {
        let handles = self.handles();
        let Some(Handle { arrivals, waker }) = handles.get(index) else { return Err(arrival) };
        arrivals.send(arrival).map_err(|unsent| unsent.0)?;
        // A loop that cannot be woken finds it at its next look.
        let _ = waker.wake();
        Ok(())
    }

    /// The loop for the client with this number, in turn.
    pub(super) fn regular(&self, number: usize) -> usize {
        number % self.regular
    }

    /// Whether new clients go to this loop.
    pub(super) fn is_regular(&self, index: usize) -> bool {
        index < self.regular
    }

    /// Records how busy a loop is, in percent.
    pub(super) fn set_busy(&self, index: usize, percent: u8) {
        self.busy[index].store(percent, Relaxed);
    }

    /// The loop that can take clients over from another one: the least busy, if it has much time left.
    pub(super) fn taker(&self, from: usize) -> Option<usize> {
        let others = (0..self.busy.len()).filter(|&index| index != from);
        let (busy, index) = others.map(|index| (self.busy[index].load(Relaxed), index)).min()?;
        (busy <= MOST_BUSY_TAKER).then_some(index)
    }

    fn handles(&self) -> MutexGuard<'_, Vec<Handle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_clients_go_to_the_regular_loops_in_turn() {
        let balance = Balance::new(3, 1);
        assert_eq!([0, 1, 2, 3, 4].map(|number| balance.regular(number)), [0, 1, 2, 0, 1]);
        assert_eq!((balance.loops(), balance.is_regular(2), balance.is_regular(3)), (4, true, false));
    }

    #[test]
    fn the_least_busy_loop_takes_over() {
        let balance = Balance::new(3, 1);
        [90, 40, 30, 50].into_iter().enumerate().for_each(|(index, busy)| balance.set_busy(index, busy));
        assert_eq!((balance.taker(0), balance.taker(2)), (Some(2), Some(1)));
        (0..4).for_each(|index| balance.set_busy(index, MOST_BUSY_TAKER + 1));
        assert_eq!(balance.taker(0), None);
        assert_eq!(Balance::new(1, 0).taker(0), None);
    }
}
