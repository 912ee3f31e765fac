//! The running total: the sum of all sealed panes of the default window.
//!
//! One thread at a time fills it. The others do not wait: they sum up the panes themselves. A thread that
//! counts a hit in a sealed pane invalidates the total before the hit is acknowledged. Readers read it
//! without writing and then check whether it has changed, as with a sequence lock, but never wait.

use crate::sync::{AtomicU64, Ordering};

/// A thread is filling it.
const FILLING: u64 = 1;
/// A sealed pane was hit since the last filling, or there was none.
const SPOILED: u64 = 2;
/// The increment of each filling.
const VERSION: u64 = 4;

/// The range of a total: the window that ends with pane `at`, without the newest pane, which is before `end`.
/// And the sum of the versions of the own rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Of {
    pub(super) at: u64,
    pub(super) end: u64,
    pub(super) versions: u64,
}

/// The total and its validity.
#[derive(Debug)]
pub(super) struct RunningTotal {
    /// A counter in steps of [`VERSION`], and the flags below it.
    state: AtomicU64,
    at: AtomicU64,
    end: AtomicU64,
    versions: AtomicU64,
    total: AtomicU64,
}

/// The right to fill. It ends with [`RunningTotal::publish`].
pub(super) struct Filling {
    state: u64,
}

impl RunningTotal {
    pub(super) fn new() -> RunningTotal {
        RunningTotal {
            state: AtomicU64::new(SPOILED),
            at: AtomicU64::new(0),
            end: AtomicU64::new(0),
            versions: AtomicU64::new(0),
            total: AtomicU64::new(0),
        }
    }

    /// The total, if it is for `of` and no thread is changing it.
    #[inline]
    pub(super) fn read(&self, of: Of) -> Option<u64> {
        // Acquire: partner of `publish`, whose total this is, and of `spoil`.
        let state = self.state.load(Ordering::Acquire);
        // Acquire: partners of the stores in `publish`. A thread that sees a store of a later filling sees
        // below that it has begun.
        let kept = Of {
            at: self.at.load(Ordering::Acquire),
            end: self.end.load(Ordering::Acquire),
            versions: self.versions.load(Ordering::Acquire),
        };
        let total = self.total.load(Ordering::Acquire);
        let whole = state & (FILLING | SPOILED) == 0 && self.state.load(Ordering::Relaxed) == state;
        (whole && kept == of).then_some(total)
    }

    /// Gets the right to fill the total for `of`. Refused while another thread fills. Also refused for an
    /// earlier time than that of a valid total, unless that is `window` panes ahead: threads with slightly
    /// different clocks do not replace each other's total.
    pub(super) fn begin(&self, of: Of, window: u64) -> Option<Filling> {
        let state = self.state.load(Ordering::Acquire);
        // These values decide only whether filling is worthwhile: Relaxed.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let kept = Of { at: load(&self.at), end: load(&self.end), versions: load(&self.versions) };
        let holds = state & SPOILED == 0 && Of { at: of.at, ..kept } == of;
        let is_ahead = kept.at > of.at && kept.at - of.at < window;
        if state & FILLING != 0 || (holds && is_ahead) {
            return None;
        }
        let filling = (state & !SPOILED) + VERSION + FILLING;
        // AcqRel: acquires from each earlier `spoil`, so that its hit is seen in the slot; released to each
        // later one, like all changes of the state.
        let begun = self.state.compare_exchange(state, filling, Ordering::AcqRel, Ordering::Relaxed);
        begun.is_ok().then_some(Filling { state: filling })
    }

    /// Ends a filling. `total` is dropped if it was invalidated meanwhile.
    pub(super) fn publish(&self, filling: &Filling, of: Of, total: u64) {
        // Release: partners of the loads in `read`.
        self.at.store(of.at, Ordering::Release);
        self.end.store(of.end, Ordering::Release);
        self.versions.store(of.versions, Ordering::Release);
        self.total.store(total, Ordering::Release);
        let done = filling.state - FILLING;
        // AcqRel: partner of `read`, and of the next `begin`, also through changes in between.
        let published = self.state.compare_exchange(filling.state, done, Ordering::AcqRel, Ordering::Relaxed);
        if published.is_err() {
            self.give_up(filling);
        }
    }

    /// Ends a filling without a total.
    pub(super) fn give_up(&self, _filling: &Filling) {
        self.state.fetch_or(SPOILED, Ordering::AcqRel);
        // Not a store: a store would break the release sequence from an earlier `spoil` to the next `begin`.
        self.state.fetch_and(!FILLING, Ordering::AcqRel);
    }

    /// A sealed pane has changed. Always a write: returning early when it is invalid already would not be
    /// seen by the thread that is about to fill it.
    pub(super) fn spoil(&self) {
        // AcqRel: partner of `begin` and `publish`.
        self.state.fetch_or(SPOILED, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: Of = Of { at: 7, end: 6, versions: 4 };

    fn filled(total: u64) -> RunningTotal {
        let running = RunningTotal::new();
        let filling = running.begin(OF, 300).expect("nobody else");
        running.publish(&filling, OF, total);
        running
    }

    #[test]
    fn a_total_is_returned_only_for_its_own_window() {
        assert_eq!(RunningTotal::new().read(Of { at: 0, end: 0, versions: 0 }), None);
        let running = filled(42);
        assert_eq!(running.read(OF), Some(42));
        assert_eq!(running.read(Of { at: 8, ..OF }), None);
        assert_eq!(running.read(Of { end: 7, ..OF }), None);
        assert_eq!(running.read(Of { versions: 6, ..OF }), None);
    }

    #[test]
    fn a_spoiled_total_is_not_returned() {
        let running = filled(42);
        running.spoil();
        assert_eq!(running.read(OF), None);
        let filling = running.begin(OF, 300).expect("nobody else");
        running.spoil();
        running.publish(&filling, OF, 43);
        assert_eq!(running.read(OF), None, "spoiled while it was filled");
        let filling = running.begin(OF, 300).expect("the fill has ended");
        running.publish(&filling, OF, 44);
        assert_eq!(running.read(OF), Some(44));
    }

    #[test]
    fn one_thread_fills_at_a_time_and_later_times_go_first() {
        let running = filled(1);
        assert!(running.begin(Of { at: OF.at - 1, ..OF }, 300).is_none(), "a clock a little behind");
        let filling = running.begin(Of { at: OF.at + 1, ..OF }, 300).expect("a clock ahead");
        assert!(running.begin(Of { at: OF.at + 1, ..OF }, 300).is_none(), "another fills");
        running.give_up(&filling);
        assert!(running.begin(OF, 300).is_some(), "an abandoned fill blocks no other");
        let running = filled(1);
        assert!(running.begin(Of { at: 0, ..OF }, 7).is_some(), "a total far ahead blocks no fill");
        let running = filled(1);
        let later = Of { at: OF.at - 1, versions: OF.versions + 2, ..OF };
        assert!(running.begin(later, 300).is_some(), "an outdated total blocks no fill");
    }
}
