//! Room on the disk that is kept for the next checkpoint: a log that has filled the disk can be cut then.

use std::sync::atomic::Ordering::Relaxed;

use super::Journal;
use crate::disk::Disk;
use crate::names::RESERVE;

impl<D: Disk> Journal<D> {
    /// Takes up room for the next checkpoint, unless less than as much would be left: then there is none, and
    /// false is returned.
    pub(crate) fn keep_reserve(&self) -> bool {
        let checkpoint_bytes = self.checkpoint_bytes.load(Relaxed);
        let bytes = self.bounds.reserve_bytes + checkpoint_bytes + checkpoint_bytes / 8;
        let is_roomy = self.disk.room().is_ok_and(|room| room >= 2 * bytes);
        if is_roomy {
            // Where that cannot be done it is gone on without.
            let _ = self.disk.reserve(RESERVE, bytes);
        }
        is_roomy
    }

    /// Gives the room back, for a checkpoint that begins.
    pub(crate) fn spend_reserve(&self) {
        // There is none, or it is there the next time.
        let _ = self.disk.remove(RESERVE);
    }
}
