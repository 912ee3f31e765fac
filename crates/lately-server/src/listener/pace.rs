//! Whether an HTTP client keeps up. A client has to move bytes at a least rate while the server waits for it;
//! time in which the server is at work does not count.
//!
//! Time is counted in looks, a fixed time apart: however long the whole process stood still, that is one look.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::limits::{HTTP_LEAST_BYTES, HTTP_LOOK_EVERY, HTTP_TIMEOUT};

/// Bytes a client has to move between two looks.
const BYTES_A_LOOK: u64 = HTTP_LEAST_BYTES * HTTP_LOOK_EVERY.subsec_millis() as u64 / 1_000;

/// A client that is behind by as much is disconnected: what it has to move in [`HTTP_TIMEOUT`].
const MOST_BEHIND_BYTES: u64 = HTTP_LEAST_BYTES * HTTP_TIMEOUT.as_secs();

/// One connection's.
#[derive(Default)]
pub(super) struct Pace {
    /// The server is at work: the client cannot go on before it is done.
    is_ours: AtomicBool,
    /// A dump or a restore that has its place among the few there may be.
    is_transfer: AtomicBool,
    /// Bytes moved since the last look.
    moved_bytes: AtomicU64,
    behind_bytes: AtomicU64,
}

impl Pace {
    /// The server is at work from here on.
    pub(super) fn is_at_us(&self) {
        self.is_ours.store(true, Relaxed);
    }

    /// The server waits for the client from here on.
    pub(super) fn is_at_the_client(&self) {
        self.is_ours.store(false, Relaxed);
    }

    /// The client has sent or taken some bytes.
    pub(super) fn moved(&self, bytes: usize) {
        self.moved_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn set_transfer(&self, is_transfer: bool) {
        self.is_transfer.store(is_transfer, Relaxed);
    }

    /// Looks, each [`HTTP_LOOK_EVERY`]; false when the client is too far behind.
    pub(super) fn look(&self) -> bool {
        let due_bytes = if self.is_ours.load(Relaxed) { 0 } else { BYTES_A_LOOK };
        let behind_bytes = self.behind_bytes.load(Relaxed) + due_bytes;
        let behind_bytes = behind_bytes.saturating_sub(self.moved_bytes.swap(0, Relaxed));
        self.behind_bytes.store(behind_bytes, Relaxed);
        behind_bytes < MOST_BEHIND_BYTES
    }

    /// Whether the connection may be closed when another one needs its place: the server has waited for its client at a look.
    pub(super) fn may_go(&self) -> bool {
        self.behind_bytes.load(Relaxed) > 0 && !self.is_transfer.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKS: u64 = MOST_BEHIND_BYTES / BYTES_A_LOOK;

    /// How many looks it lasts, at most twice the usual number.
    fn lasts(pace: &Pace, moved_bytes: u64) -> u64 {
        (1..=2 * LOOKS)
            .find(|_| {
                pace.moved(usize::try_from(moved_bytes).expect("little"));
                !pace.look()
            })
            .unwrap_or(u64::MAX)
    }

    #[test]
    fn a_client_has_a_least_rate() {
        assert_eq!(lasts(&Pace::default(), 0), LOOKS);
        assert_eq!(lasts(&Pace::default(), 1), LOOKS + 1);
        assert_eq!(lasts(&Pace::default(), BYTES_A_LOOK / 2), 2 * LOOKS);
        assert_eq!(lasts(&Pace::default(), BYTES_A_LOOK), u64::MAX);
    }

    /// What it moves early is no store for later.
    #[test]
    fn a_client_that_was_fast_has_no_longer_than_others() {
        let pace = Pace::default();
        pace.moved(1 << 40);
        assert!(pace.look());
        assert_eq!(lasts(&pace, 0), LOOKS);
    }

    #[test]
    fn time_of_the_server_does_not_count() {
        let pace = Pace::default();
        pace.is_at_us();
        assert_eq!(lasts(&pace, 0), u64::MAX);
        assert!(!pace.may_go());
        pace.is_at_the_client();
        assert!(!pace.may_go());
        assert!(pace.look() && pace.may_go());
        pace.set_transfer(true);
        assert!(!pace.may_go());
        assert_eq!(lasts(&pace, 0), LOOKS - 1);
    }
}
