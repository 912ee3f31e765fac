//! Which event loop serves which client.
//!
//! Clients that send a few requests at a time are served together: the fewer loops there are, the more requests the
//! store is given at once. Where each core has a loop, the last takes none of these clients: they and the system that
//! carries what they send need that core. To those that send as much at a time as the store takes at once this brings
//! nothing: they are spread over all loops, where the machine has a core to spare for the last.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

use super::connection::Connection;

/// Who comes into an event loop.
pub(super) enum Arrival {
    /// A client that has just connected, and its place among those there is room for.
    New(TcpStream, OwnedSemaphorePermit),
    /// One that another loop served.
    Moved(Box<Connection>),
}

/// Where clients go into an event loop.
pub(super) type Door = UnboundedSender<Arrival>;

pub(super) struct Balance {
    /// One for each loop, and none once the server stops.
    doors: Mutex<Vec<Door>>,
    /// How many clients with deep pipelines each loop has, those on their way to it among them.
    deep: Box<[AtomicUsize]>,
    /// Whether all loops serve these, not only those that serve the others.
    takes_all: AtomicBool,
    /// The other clients are served by the first so many loops.
    usual: usize,
    /// Which of these has the next client, modulo their number.
    next: AtomicUsize,
}

impl Balance {
    /// Of so many loops on so many cores.
    pub(super) fn new(loops: usize, cores: usize) -> Balance {
        let usual = if loops == cores { loops - 1 } else { loops }.max(1);
        Balance {
            doors: Mutex::default(),
            deep: (0..loops).map(|_| AtomicUsize::new(0)).collect(),
            takes_all: AtomicBool::new(usual == loops),
            usual,
            next: AtomicUsize::new(0),
        }
    }

    /// How many loops there are to be.
    pub(super) fn loops(&self) -> usize {
        self.deep.len()
    }

    /// Lets clients in.
    pub(super) fn open(&self, doors: Vec<Door>) {
        *self.doors() = doors;
    }

    /// Lets no more clients in: this tells the loops to end.
    pub(super) fn close(&self) {
        self.doors().clear();
    }

    /// The loops that have ended before they were told to.
    pub(super) fn ended(&self) -> Vec<usize> {
        let doors = self.doors();
        doors.iter().enumerate().filter_map(|(index, door)| door.is_closed().then_some(index)).collect()
    }

    /// A new door for one that had ended.
    pub(super) fn replace(&self, index: usize, new: Door) {
        if let Some(door) = self.doors().get_mut(index) {
            *door = new;
        }
    }

    /// Sends a client to a loop; it comes back when that has ended, or the server stops.
    pub(super) fn send(&self, to: usize, arrival: Arrival) -> Result<(), Arrival> {
        match self.doors().get(to) {
            Some(door) => door.send(arrival).map_err(|unsent| unsent.0),
            None => Err(arrival),
        }
    }

    /// The loop for a new client.
    pub(super) fn usual(&self) -> usize {
        self.next.fetch_add(1, Relaxed) % self.usual
    }

    /// The loop for a client with short pipelines that is served by this one.
    pub(super) fn usual_from(&self, current: usize) -> usize {
        if current < self.usual { current } else { self.usual() }
    }

    /// Whether the last loop may be left out.
    pub(super) fn may_leave_out(&self) -> bool {
        self.usual < self.loops()
    }

    /// Clients with deep pipelines.
    pub(super) fn clients(&self) -> usize {
        self.deep.iter().map(|deep| deep.load(Relaxed)).sum()
    }

    /// Whether all loops serve deep pipelines.
    pub(super) fn takes_all(&self) -> bool {
        self.takes_all.load(Relaxed)
    }

    pub(super) fn set_takes_all(&self, takes_all: bool) {
        // It is read after each batch of each loop, and changes seldom.
        if self.takes_all() != takes_all {
            self.takes_all.store(takes_all, Relaxed);
        }
    }

    /// Counts a client with deep pipelines, which is served by this loop, with the one that has the fewest of them.
    pub(super) fn count(self: &Arc<Self>, current: usize) -> Counted {
        let clients = |index: usize| self.deep[index].load(Relaxed);
        let loops = if self.takes_all() { self.loops() } else { self.usual };
        let fewest = (0..loops).min_by_key(|&index| (clients(index), index != current));
        let at = fewest.unwrap_or(current);
        self.deep[at].fetch_add(1, Relaxed);
        Counted { balance: Arc::clone(self), at }
    }

    fn doors(&self) -> MutexGuard<'_, Vec<Door>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client with deep pipelines, as long as it is one.
pub(super) struct Counted {
    balance: Arc<Balance>,
    /// The loop it is counted with.
    pub(super) at: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.balance.deep[self.at].fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_left_to_those_who_send_little() {
        let usual = |loops, cores| {
            let balance = Balance::new(loops, cores);
            (0..4).map(|_| balance.usual()).collect::<Vec<usize>>()
        };
        assert_eq!(usual(1, 1), [0, 0, 0, 0]);
        assert_eq!(usual(2, 2), [0, 0, 0, 0]);
        assert_eq!(usual(4, 4), [0, 1, 2, 0]);
        // As many as somebody asked for.
        assert_eq!(usual(1, 4), [0, 0, 0, 0]);
        assert_eq!(usual(2, 4), [0, 1, 0, 1]);
        assert_eq!(usual(3, 2), [0, 1, 2, 0]);
    }

    #[test]
    fn deep_pipelines_are_spread_over_all_loops() {
        let balance = Arc::new(Balance::new(2, 2));
        let again = |counted: &mut Vec<Counted>| {
            for _ in 0..counted.len() {
                // First it goes: it is not in its own way.
                let at = counted.remove(0).at;
                counted.push(balance.count(at));
            }
        };
        balance.set_takes_all(true);
        let mut counted: Vec<Counted> = (0..5).map(|_| balance.count(0)).collect();
        assert_eq!(counted.iter().map(|counted| counted.at).collect::<Vec<_>>(), [0, 1, 0, 1, 0]);
        // Those of the first loop go; one of the two others takes their place when it is counted again.
        counted.retain(|counted| counted.at == 1);
        again(&mut counted);
        assert_eq!(counted.iter().map(|counted| counted.at).collect::<Vec<_>>(), [0, 1]);
        // The last is left out, and comes back.
        balance.set_takes_all(false);
        again(&mut counted);
        assert_eq!(counted.iter().map(|counted| counted.at).collect::<Vec<_>>(), [0, 0]);
        balance.set_takes_all(true);
        again(&mut counted);
        assert_eq!(counted.iter().map(|counted| counted.at).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(balance.clients(), 2);
        drop(counted);
        assert_eq!(balance.clients(), 0);
    }

    #[test]
    fn who_sends_less_than_before_leaves_the_last_loop() {
        let balance = Balance::new(3, 3);
        assert_eq!([0, 1].map(|current| balance.usual_from(current)), [0, 1]);
        assert_eq!([2, 2].map(|current| balance.usual_from(current)), [0, 1]);
    }
}
