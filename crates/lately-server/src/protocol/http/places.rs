//! Bounds on dumps and restores: a few dumps and one restore at a time.
//!
//! A transfer keeps its place for [`FAIR_SHARE`], and longer while it is fast. When all places are taken and another
//! transfer comes, the slowest of those that were slower than [`FAIR_BYTES`] for that long is cut.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::pace::Pace;
use crate::limits::{FAIR_SHARE, MAX_DUMPS, MAX_RESTORES};
use crate::service::Service;

/// The places of both kinds.
#[derive(Clone)]
pub(super) struct Transfers {
    pub(super) dumps: Arc<Places>,
    pub(super) restores: Arc<Places>,
}

impl Transfers {
    pub(super) fn new(service: &Arc<Service>) -> Transfers {
        let places = |what, most| {
            Arc::new(Places {
                what,
                most,
                service: Arc::clone(service),
                taken: Mutex::default(),
                freed: Notify::new(),
            })
        };
        Transfers { dumps: places("dump", MAX_DUMPS), restores: places("restore", MAX_RESTORES) }
    }
}

/// The places of one kind.
pub(super) struct Places {
    what: &'static str,
    most: usize,
    service: Arc<Service>,
    taken: Mutex<Vec<Arc<Pace>>>,
    freed: Notify,
}

impl Places {
    /// Takes a place. Cuts a slow transfer if all are taken.
    ///
    /// # Errors
    /// All places are taken by fast transfers. Another attempt may succeed after this many seconds.
    pub(super) async fn take(self: &Arc<Places>, pace: &Arc<Pace>) -> Result<Place, u64> {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // Registered before the check, so that no notification is missed.
            freed.as_mut().enable();
            if let Some(place) = self.try_take(pace)? {
                return Ok(place);
            }
            freed.await;
        }
    }

    /// Takes a free place. `None` while a transfer that was cut still holds one.
    fn try_take(self: &Arc<Places>, pace: &Arc<Pace>) -> Result<Option<Place>, u64> {
        let mut taken = self.taken();
        if taken.len() < self.most {
            pace.begin_transfer();
            taken.push(Arc::clone(pace));
            return Ok(Some(Place { places: Arc::clone(self), pace: Arc::clone(pace) }));
        }
        if taken.iter().any(|pace| pace.is_cut()) {
            return Ok(None);
        }
        let slowest = taken.iter().filter_map(|pace| Some((pace.slow_bytes()?, pace))).min_by_key(|it| it.0);
        if let Some((_, slowest)) = slowest {
            slowest.cut();
            return Ok(None);
        }
        let wait = taken.iter().map(|pace| pace.fair_share_left()).min().unwrap_or(FAIR_SHARE);
        Err(wait.as_secs().max(1))
    }

    /// The client of a transfer has done its part: the transfer is no longer cut for another.
    pub(super) fn keep(&self, pace: &Pace) {
        let _taken = self.taken();
        pace.keep_transfer();
        self.freed.notify_waiters();
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Arc<Pace>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a transfer, until it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    pace: Arc<Pace>,
}

impl Place {
    pub(super) fn pace(&self) -> &Pace {
        &self.pace
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(slow) = self.pace.too_slow() {
            self.places.service.note_slow(format!("the client of a {} was {slow}", self.places.what));
        }
        self.pace.end_transfer();
        self.places.taken().retain(|pace| !Arc::ptr_eq(pace, &self.pace));
        self.places.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{FAIR_BYTES, HTTP_LOOK_EVERY};
    use crate::protocol::fixture::service;

    const FAIR_LOOKS: u128 = FAIR_SHARE.as_millis() / HTTP_LOOK_EVERY.as_millis();
    const FAST_BYTES: u64 = FAIR_BYTES * HTTP_LOOK_EVERY.subsec_millis() as u64 / 1_000;

    /// Lets each transfer move its bytes in each of `looks` looks.
    fn pass(transfers: &[(Arc<Pace>, u64)], looks: u128) {
        for (pace, bytes) in transfers {
            (0..looks).for_each(|_| {
                pace.moved(usize::try_from(*bytes).expect("little"));
                assert_eq!(pace.look(), Ok(()));
            });
        }
    }

    #[test]
    fn the_slowest_transfer_loses_its_place() {
        let service = service();
        let places = Transfers::new(&service).dumps;
        let take = |pace: &Arc<Pace>| places.try_take(pace);
        let rates = [FAST_BYTES, FAST_BYTES / 2, FAST_BYTES / 20, FAST_BYTES / 3];
        let transfers = rates.map(|bytes| (Arc::<Pace>::default(), bytes));
        let mut held = transfers.each_ref().map(|(pace, _)| take(pace).ok().flatten());
        assert!(held.iter().all(Option::is_some));
        let next = Arc::<Pace>::default();
        assert_eq!(take(&next).err(), Some(FAIR_SHARE.as_secs()));
        pass(&transfers, FAIR_LOOKS - 100);
        assert_eq!(take(&next).err(), Some(10));
        pass(&transfers, 100);
        assert!(take(&next).is_ok_and(|place| place.is_none()));
        // Only one transfer has to go for the next one.
        assert!(take(&next).is_ok_and(|place| place.is_none()));
        assert_eq!(transfers.each_ref().map(|(pace, _)| pace.look().is_err()), [false, false, true, false]);
        held[2] = None;
        let (count, text) = service.slow();
        assert_eq!(
            (count, text.as_str()),
            (1, "the client of a dump was slower than 1000000 B/s while another waited for its place")
        );
        held[2] = take(&next).ok().flatten();
        assert!(held[2].is_some());
    }

    #[test]
    fn a_restore_being_applied_keeps_its_place() {
        let places = Transfers::new(&service()).restores;
        let (pace, next) = (Arc::<Pace>::default(), Arc::<Pace>::default());
        let place = places.try_take(&pace).ok().flatten();
        pass(&[(Arc::clone(&pace), FAST_BYTES / 2)], FAIR_LOOKS);
        assert!(places.try_take(&next).is_ok_and(|place| place.is_none()));
        places.keep(&pace);
        assert_eq!(pace.look(), Ok(()));
        assert!(places.try_take(&next).is_err());
        drop(place);
        assert!(places.try_take(&next).is_ok_and(|place| place.is_some()));
    }
}
