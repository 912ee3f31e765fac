//! What a change to a shard is given: the hits to count, and the store's context; and what the fast path returns.

use std::sync::atomic::AtomicU64;

use super::eviction::Full;
use crate::class::{ClassId, Classes};
use crate::delta::DeltaBatch;
use crate::entry::Fetched;
use crate::frame::Frame;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

/// Hits to count.
pub(super) struct Hit<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
    pub(super) weight: u64,
    /// When they happened; `None` is now.
    pub(super) at: Option<Timestamp>,
    /// The window of the limit that counts them: it asks for the sum of that window next. `None` for hits by themselves,
    /// whose reply is the sum of the default window.
    pub(super) limit_window: Option<Span>,
}

/// What the fast path returns. Unless it is done it changed nothing, and the general path is taken.
pub(super) enum FastPath<T> {
    /// It is done: this is the outcome.
    Done(T),
    /// The key is at this place, and so much of what it has on the heap is being fetched. When that is more than nothing
    /// and the caller did not want to wait, the place was not compared with the key.
    At(u32, Fetched),
    /// The key may be somewhere else, or nowhere.
    Elsewhere,
}

impl<T> FastPath<T> {
    /// Hands the outcome on, if there is one.
    #[inline(always)]
    pub(super) fn give(self, to: impl FnOnce(T)) -> FastPath<()> {
        match self {
            FastPath::Done(answer) => {
                to(answer);
                FastPath::Done(())
            }
            FastPath::At(place, fetched) => FastPath::At(place, fetched),
            FastPath::Elsewhere => FastPath::Elsewhere,
        }
    }
}

/// What a change to a shard needs besides the key: made once for a batch.
pub(super) struct Context<'a> {
    pub(super) classes: &'a Classes,
    /// The generation of the next new key; forgetting a key raises it.
    pub(super) generation: &'a AtomicU64,
    /// Counts keys that are removed because they have expired.
    pub(super) expired_keys: &'a AtomicU64,
    /// Set when there is no room for a new key.
    pub(super) full: Option<Full>,
    /// Whether what is put back was written by a clock that was ahead: hits that came later count as of now.
    pub(super) is_clock_repaired: bool,
    /// Where what happened is recorded, if anywhere.
    pub(super) deltas: Option<&'a mut DeltaBatch>,
    /// The edges of the class that was met last.
    met: Option<(ClassId, Frame, &'a Settings)>,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        classes: &'a Classes,
        generation: &'a AtomicU64,
        expired_keys: &'a AtomicU64,
        deltas: Option<&'a mut DeltaBatch>,
    ) -> Context<'a> {
        Context { classes, generation, expired_keys, full: None, is_clock_repaired: false, deltas, met: None }
    }

    /// The edges of a class at `now`, and its settings.
    #[inline]
    pub(super) fn frame(&mut self, class: ClassId, now: Timestamp) -> (&Frame, &'a Settings) {
        if self.met.is_none_or(|(met, frame, _)| met != class || frame.now != now) {
            let settings = self.classes.settings(class);
            self.met = Some((class, Frame::new(settings, now), settings));
        }
        let (_, frame, settings) = self.met.as_ref().expect("it is set above");
        (frame, settings)
    }
}
