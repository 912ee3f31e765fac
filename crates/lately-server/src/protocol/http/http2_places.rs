//! The places of a listener for connections of HTTP/2. They may send bodies ahead, so there are fewer places than for HTTP/1.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::yield_now;

use super::pace::Pace;
use crate::limits::HTTP_LOOK_EVERY;
use crate::pause::pause;

pub(super) struct Http2Places {
    most: usize,
    /// The connections that have a place, oldest first.
    taken: Mutex<VecDeque<Arc<Pace>>>,
    freed: Notify,
}

/// A place. It is free again when this is dropped.
pub(super) struct Http2Place {
    places: Arc<Http2Places>,
    pace: Arc<Pace>,
}

impl Http2Places {
    pub(super) fn new(most: usize) -> Arc<Http2Places> {
        Arc::new(Http2Places { most, taken: Mutex::default(), freed: Notify::new() })
    }

    /// Waits for a place for a connection. Closes the oldest that the server is waiting for.
    pub(super) async fn take(self: &Arc<Http2Places>, pace: &Arc<Pace>) -> Http2Place {
        loop {
            let oldest = {
                let mut taken = self.taken();
                if taken.len() < self.most {
                    taken.push_back(Arc::clone(pace));
                    return Http2Place { places: Arc::clone(self), pace: Arc::clone(pace) };
                }
                taken.iter().find(|pace| pace.may_go() && !pace.is_ended()).map(Arc::clone)
            };
            if let Some(oldest) = oldest {
                // A stall of the process may have left requests in the sockets: whoever has sent one has its turn first.
                yield_now().await;
                if oldest.may_go() {
                    oldest.end();
                }
            }
            tokio::select! {
                () = self.freed.notified() => {}
                () = pause(HTTP_LOOK_EVERY) => {}
            }
        }
    }

    fn taken(&self) -> MutexGuard<'_, VecDeque<Arc<Pace>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Http2Place {
    fn drop(&mut self) {
        self.places.taken().retain(|pace| !Arc::ptr_eq(pace, &self.pace));
        self.places.freed.notify_one();
    }
}
