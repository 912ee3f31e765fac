//! The pace of an HTTP client. While the server waits for it, it must move bytes at a least rate. Time in which the
//! server works does not count.
//!
//! Time is counted in looks, a fixed time apart, so a stall of the whole process counts as one look.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::limits::{FAIR_BYTES, FAIR_SHARE, HTTP_LEAST_BYTES, HTTP_LOOK_EVERY, HTTP_TIMEOUT, WORK_LOOKS};
use crate::pause::pause;

/// Bytes that a client must move between two looks.
pub(super) const BYTES_A_LOOK: u64 = HTTP_LEAST_BYTES * HTTP_LOOK_EVERY.subsec_millis() as u64 / 1_000;

/// A client that is behind by this much is disconnected: the bytes due in [`HTTP_TIMEOUT`].
const MOST_BEHIND_BYTES: u64 = HTTP_LEAST_BYTES * HTTP_TIMEOUT.as_secs();

/// Looks in [`FAIR_SHARE`].
const FAIR_LOOKS: usize = (FAIR_SHARE.as_millis() / HTTP_LOOK_EVERY.as_millis()) as usize;

/// Bytes that a client must move in [`FAIR_SHARE`] to keep its place.
const FAIR_SHARE_BYTES: u64 = FAIR_BYTES * FAIR_SHARE.as_secs();

/// Why a client is disconnected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TooSlow {
    /// Slower than the least rate.
    Least,
    /// Slower than the fair rate, while another transfer waited for its place.
    Fair,
}

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TooSlow::Least => write!(f, "slower than {HTTP_LEAST_BYTES} B/s"),
            TooSlow::Fair => write!(f, "slower than {FAIR_BYTES} B/s while another waited for its place"),
        }
    }
}

/// What became of the part of an upload that came.
#[derive(Clone, Copy, Debug)]
pub(super) enum Upload {
    Unchanged,
    /// Hits of these lines were counted.
    Counted(u64),
}

impl fmt::Display for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upload::Unchanged => f.write_str("nothing was changed"),
            Upload::Counted(1) => f.write_str("1 line was counted before"),
            Upload::Counted(lines) => write!(f, "{lines} lines were counted before"),
        }
    }
}

/// The pace of one connection.
#[derive(Default)]
pub(in crate::protocol) struct Pace {
    /// The server works, and the client waits for it.
    is_ours: AtomicBool,
    /// The number of looks when that began.
    ours_since: AtomicU64,
    /// While the client uploads and has no answer yet: what became of the part that came, for an error.
    upload: Mutex<Option<Upload>>,
    /// Bytes moved since the last look.
    moved_bytes: AtomicU64,
    behind_bytes: AtomicU64,
    /// Another connection waits for its place: it is closed after the next answer.
    is_wanted: AtomicBool,
    /// Its place is for one request for health or metrics.
    is_probe: AtomicBool,
    /// While it has a place among the few transfers there may be.
    transfer: Mutex<Option<Transfer>>,
    /// The number of looks so far.
    looks: AtomicU64,
    is_ended: AtomicBool,
    ended: Notify,
    /// Of a connection that may be silent, as of gRPC: the number of open requests.
    open_requests: Option<AtomicUsize>,
    /// Transfers over HTTP/2 that it carries, which have paces of their own.
    carried: AtomicUsize,
    /// Of such a transfer: the connection.
    connection: Option<Carrier>,
}

/// The connection of a transfer over HTTP/2.
struct Carrier(Arc<Pace>);

impl Carrier {
    fn of(connection: &Arc<Pace>) -> Carrier {
        connection.carried.fetch_add(1, Relaxed);
        Carrier(Arc::clone(connection))
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.0.carried.fetch_sub(1, Relaxed);
    }
}

/// An open request of a connection that may be silent.
pub(in crate::protocol) struct OpenRequest(Arc<Pace>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open_requests.iter().for_each(|open| _ = open.fetch_sub(1, Relaxed));
    }
}

/// The pace of a dump or restore over the last [`FAIR_SHARE`] in which the server waited for its client.
#[derive(Default)]
struct Transfer {
    /// Bytes moved in each look.
    looks: VecDeque<u64>,
    /// Another transfer takes its place.
    is_cut: bool,
    /// It can no longer be cut.
    is_kept: bool,
    too_slow: Option<TooSlow>,
}

impl Transfer {
    fn note(&mut self, moved_bytes: u64, is_ours: bool) {
        match self.looks.back_mut() {
            Some(last) if is_ours => *last += moved_bytes,
            _ => self.looks.push_back(moved_bytes),
        }
        if self.looks.len() > FAIR_LOOKS {
            self.looks.pop_front();
        }
    }
}

impl Pace {
    /// The pace of a connection that may be silent: it has no least rate.
    pub(super) fn silent() -> Pace {
        Pace { open_requests: Some(AtomicUsize::new(0)), ..Pace::default() }
    }

    /// The pace of a dump or restore over HTTP/2, where requests share a connection: other requests do not count for it. The caller
    /// has [`Pace::keep_up`] run.
    pub(super) fn of_transfer(connection: &Arc<Pace>) -> Arc<Pace> {
        Arc::new(Pace { connection: Some(Carrier::of(connection)), ..Pace::default() })
    }

    /// Closes the connection when a transfer on it is too slow. Ends with the transfer.
    pub(super) async fn keep_up(transfer: Weak<Pace>) {
        loop {
            pause(HTTP_LOOK_EVERY).await;
            let Some(pace) = transfer.upgrade() else { return };
            if pace.look().is_err() {
                return pace.connection.iter().for_each(|connection| connection.0.end());
            }
        }
    }

    /// Counts an open request, until the result is dropped.
    pub(in crate::protocol) fn open_request(self: &Arc<Pace>) -> OpenRequest {
        self.open_requests.iter().for_each(|open| _ = open.fetch_add(1, Relaxed));
        OpenRequest(Arc::clone(self))
    }

    /// From here on the server works.
    pub(super) fn is_at_us(&self) {
        self.ours_since.store(self.looks(), Relaxed);
        self.is_ours.store(true, Relaxed);
        self.connection.iter().for_each(|connection| connection.0.is_at_us());
    }

    /// From here on the server waits for the client.
    pub(super) fn is_at_the_client(&self) {
        self.is_ours.store(false, Relaxed);
        self.connection.iter().for_each(|connection| connection.0.is_at_the_client());
    }

    /// The client has sent or received bytes.
    pub(super) fn moved(&self, bytes: usize) {
        self.moved_bytes.fetch_add(bytes as u64, Relaxed);
        self.connection.iter().for_each(|connection| connection.0.moved(bytes));
    }

    /// The client begins anew, unless another wants its place: gives whether it may go on.
    pub(super) fn renew(&self) -> bool {
        self.behind_bytes.store(0, Relaxed);
        !self.is_wanted.load(Relaxed)
    }

    /// Has the connection closed after its next answer, because another wants its place. False when that was said before, or
    /// it carries a transfer.
    pub(super) fn want(&self) -> bool {
        !self.carries() && !self.is_wanted.swap(true, Relaxed)
    }

    /// Has the connection closed after its first answer, which needs no place among the requests.
    pub(super) fn set_probe(&self) {
        self.is_probe.store(true, Relaxed);
        self.is_wanted.store(true, Relaxed);
    }

    pub(super) fn is_probe(&self) -> bool {
        self.is_probe.load(Relaxed)
    }

    /// Begins or ends an upload. While one goes on, the client can get an error with this text.
    pub(super) fn set_upload(&self, became: Option<Upload>) {
        *self.upload.lock().unwrap_or_else(PoisonError::into_inner) = became;
    }

    /// What became of the part of an upload that came.
    pub(super) fn upload(&self) -> Option<Upload> {
        *self.upload.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin_transfer(&self) {
        *self.transfer() = Some(Transfer::default());
    }

    /// The client has done its part: the transfer is no longer cut for another.
    pub(super) fn keep_transfer(&self) {
        if let Some(transfer) = self.transfer().as_mut() {
            (transfer.is_cut, transfer.is_kept) = (false, true);
        }
    }

    pub(super) fn end_transfer(&self) {
        *self.transfer() = None;
    }

    /// Checks the pace. Called every [`HTTP_LOOK_EVERY`].
    ///
    /// # Errors
    /// The client is too slow.
    pub(super) fn look(&self) -> Result<(), TooSlow> {
        self.looks.fetch_add(1, Relaxed);
        if self.open_requests.is_some() {
            return Ok(());
        }
        let is_ours = self.is_ours.load(Relaxed);
        let moved_bytes = self.moved_bytes.swap(0, Relaxed);
        let due_bytes = if is_ours { 0 } else { BYTES_A_LOOK };
        let behind_bytes = (self.behind_bytes.load(Relaxed) + due_bytes).saturating_sub(moved_bytes);
        self.behind_bytes.store(behind_bytes, Relaxed);
        let mut transfer = self.transfer();
        let is_cut = transfer.as_mut().is_some_and(|transfer| {
            transfer.note(moved_bytes, is_ours);
            transfer.is_cut
        });
        let too_slow = match (behind_bytes >= MOST_BEHIND_BYTES, is_cut) {
            (true, _) => TooSlow::Least,
            (false, true) => TooSlow::Fair,
            (false, false) => return Ok(()),
        };
        if let Some(transfer) = transfer.as_mut() {
            transfer.too_slow = Some(too_slow);
        }
        Err(too_slow)
    }

    /// The number of looks so far: the time of the connection.
    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Relaxed)
    }

    /// Closes the connection.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Relaxed);
        self.ended.notify_one();
    }

    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Relaxed)
    }

    /// Waits until the connection is to be closed.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Whether it is of a transfer, or of a connection that carries some.
    fn carries(&self) -> bool {
        self.has_transfer() || self.carried.load(Relaxed) > 0
    }

    pub(super) fn has_transfer(&self) -> bool {
        self.transfer().is_some()
    }

    /// Why the transfer was disconnected, if it was.
    pub(super) fn too_slow(&self) -> Option<TooSlow> {
        self.transfer().as_ref()?.too_slow
    }

    /// Bytes that the transfer moved in the last [`FAIR_SHARE`], if it has had that much time and is slow.
    pub(super) fn slow_bytes(&self) -> Option<u64> {
        let transfer = self.transfer();
        let looks = &transfer.as_ref().filter(|transfer| !transfer.is_kept)?.looks;
        let bytes = looks.iter().sum();
        (looks.len() == FAIR_LOOKS && bytes < FAIR_SHARE_BYTES).then_some(bytes)
    }

    /// How long the transfer keeps its place at least. All of [`FAIR_SHARE`] for a fast one.
    pub(super) fn fair_share_left(&self) -> Duration {
        let looks = self.transfer().as_ref().map_or(0, |transfer| transfer.looks.len()) % FAIR_LOOKS;
        HTTP_LOOK_EVERY * u32::try_from(FAIR_LOOKS - looks).unwrap_or(u32::MAX)
    }

    /// Ends the transfer at the next look.
    pub(super) fn cut(&self) {
        if let Some(transfer) = self.transfer().as_mut() {
            transfer.is_cut = true;
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.transfer().as_ref().is_some_and(|transfer| transfer.is_cut)
    }

    /// Whether the connection may be closed to make room for another: the server is waiting for its client, or has worked for
    /// it for long.
    pub(super) fn may_go(&self) -> bool {
        if let Some(open) = &self.open_requests {
            return open.load(Relaxed) == 0;
        }
        let is_due = if self.is_ours.load(Relaxed) {
            self.looks() - self.ours_since.load(Relaxed) >= WORK_LOOKS
        } else {
            self.behind_bytes.load(Relaxed) > 0
        };
        is_due && !self.carries()
    }

    fn transfer(&self) -> MutexGuard<'_, Option<Transfer>> {
        self.transfer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKS: u64 = MOST_BEHIND_BYTES / BYTES_A_LOOK;

    /// The number of looks until the client is too slow, up to twice [`LOOKS`].
    fn lasts(pace: &Pace, moved_bytes: u64) -> u64 {
        (1..=2 * LOOKS)
            .find(|_| {
                pace.moved(usize::try_from(moved_bytes).expect("little"));
                pace.look().is_err()
            })
            .unwrap_or(u64::MAX)
    }

    #[test]
    fn clients_have_a_minimum_rate() {
        assert_eq!(lasts(&Pace::default(), 0), LOOKS);
        assert_eq!(lasts(&Pace::default(), 1), LOOKS + 1);
        assert_eq!(lasts(&Pace::default(), BYTES_A_LOOK / 2), 2 * LOOKS);
        assert_eq!(lasts(&Pace::default(), BYTES_A_LOOK), u64::MAX);
    }

    /// Symptom: after a stall, clients whose requests were read but not answered yet were cut. Cause: their connections counted as
    /// waiting for the client until the answer. Fix: they do not while the server works on a request. And: walks over all keys
    /// kept all places of connections, so that `/healthz` had no answer for 5 s. Fix: that holds for a few looks.
    #[test]
    fn a_connection_keeps_its_place_while_its_request_is_answered_soon() {
        for is_kept in [true, false] {
            let pace = Pace::default();
            assert!(!pace.may_go(), "it has just come");
            if is_kept {
                assert_eq!(pace.look(), Ok(()));
                assert!(pace.may_go(), "the server waits for its client");
            }
            for _ in 0..2 {
                pace.is_at_us();
                for _ in 0..WORK_LOOKS {
                    assert!(!pace.may_go());
                    assert_eq!(pace.look(), Ok(()));
                }
                assert!(pace.may_go(), "the server has worked for it for long");
            }
            pace.is_at_the_client();
            assert_eq!(pace.may_go(), is_kept);
        }
    }

    /// A client cannot keep a dump that it does not read by what else it does on the connection.
    #[test]
    fn a_transfer_over_http_2_has_a_rate_of_its_own() {
        let connection = Arc::<Pace>::default();
        let transfer = Pace::of_transfer(&connection);
        transfer.begin_transfer();
        let looks = (1..).find(|_| {
            connection.moved(1 << 20);
            connection.renew();
            assert_eq!(connection.look(), Ok(()));
            transfer.look().is_err()
        });
        assert_eq!((looks, transfer.too_slow()), (Some(LOOKS), Some(TooSlow::Least)));
        assert!(!connection.has_transfer(), "other requests on the connection have their own rates");
        drop(transfer);
        // The bytes of the transfer are bytes of the connection, which is not closed for another one.
        let transfer = Pace::of_transfer(&connection);
        for _ in 0..2 * LOOKS {
            transfer.moved(usize::try_from(BYTES_A_LOOK).expect("little") - 1);
            assert_eq!((connection.look(), transfer.look()), (Ok(()), Ok(())));
        }
        assert!(connection.behind_bytes.load(Relaxed) > 0 && !connection.may_go() && !connection.want());
        drop(transfer);
        assert!(connection.may_go() && connection.want());
    }

    #[test]
    fn a_transfer_over_http_2_that_is_too_slow_closes_its_connection() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let connection = Arc::<Pace>::default();
            let transfer = Pace::of_transfer(&connection);
            Pace::keep_up(Arc::downgrade(&transfer)).await;
            assert!(connection.is_ended());
            // It ends with the transfer.
            let connection = Arc::<Pace>::default();
            let gone = Arc::downgrade(&Pace::of_transfer(&connection));
            Pace::keep_up(gone).await;
            assert!(!connection.is_ended());
        });
    }

    /// Bytes that were moved early do not count later.
    #[test]
    fn early_bytes_do_not_extend_the_time_of_a_client() {
        let pace = Pace::default();
        pace.moved(1 << 40);
        assert_eq!(pace.look(), Ok(()));
        assert_eq!(lasts(&pace, 0), LOOKS);
    }

    #[test]
    fn time_of_the_server_does_not_count() {
        let pace = Pace::default();
        pace.is_at_us();
        assert_eq!(lasts(&pace, 0), u64::MAX);
        pace.is_at_the_client();
        assert!(!pace.may_go());
        assert!(pace.look().is_ok() && pace.may_go());
        pace.begin_transfer();
        assert!(!pace.may_go());
        assert_eq!(lasts(&pace, 0), LOOKS - 1);
    }

    #[test]
    fn a_silent_connection_may_go_while_it_has_no_open_request() {
        let pace = Arc::new(Pace::silent());
        assert_eq!(lasts(&pace, 0), u64::MAX);
        assert!(pace.may_go());
        let open = [pace.open_request(), pace.open_request()];
        assert!(!pace.may_go());
        drop(open);
        assert!(pace.may_go());
    }

    #[test]
    fn the_rate_of_a_transfer_covers_its_last_fair_share() {
        let pace = Pace::default();
        pace.begin_transfer();
        let fast_bytes = usize::try_from(FAIR_SHARE_BYTES).expect("little") / FAIR_LOOKS;
        let looks = |moved_bytes: usize, looks: usize| {
            for _ in 0..looks {
                pace.moved(moved_bytes);
                assert_eq!(pace.look(), Ok(()));
            }
            pace.slow_bytes().is_some()
        };
        // A slow transfer still has its share of time.
        assert!(!looks(fast_bytes / 10, FAIR_LOOKS - 1));
        assert_eq!(pace.fair_share_left(), HTTP_LOOK_EVERY);
        assert!(looks(fast_bytes / 10, 1));
        assert!(!looks(fast_bytes, FAIR_LOOKS));
        // Speed in the past does not count later.
        assert!(!looks(fast_bytes * 1_000, 1));
        assert!(!looks(fast_bytes / 10, FAIR_LOOKS - 1));
        assert!(looks(fast_bytes / 10, 1));
        pace.cut();
        assert_eq!(pace.look(), Err(TooSlow::Fair));
        assert_eq!(pace.too_slow(), Some(TooSlow::Fair));
        pace.end_transfer();
        assert_eq!(pace.look(), Ok(()));
    }
}
