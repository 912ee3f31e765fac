//! What a shard needs to apply a change: the hits and the context of the batch. And what the fast path
//! returns.

use std::sync::atomic::AtomicU64;

use super::busy::{Busy, Note};
use super::ids::IdMemory;
use super::memory::Full;
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
    /// The time of the hits; `None` is now.
    pub(super) at: Option<Timestamp>,
    /// The window of the limit that counts the hits; it needs the sum of this window next. `None` for hits
    /// without a limit, whose reply is the sum of the default window.
    pub(super) limit_window: Option<Span>,
}

/// The result of the fast path. Unless it is `Done`, nothing was changed, and the operation must take the
/// general path.
pub(super) enum FastPath<T> {
    /// The outcome.
    Done(T),
    /// The key is at this place, and this much of its heap memory is being fetched. If any is, and `may_wait`
    /// was false, the key at the place was not compared yet.
    At(u32, Fetched),
    /// The key is at another place, or does not exist.
    Elsewhere,
}

impl<T> FastPath<T> {
    /// Passes the outcome to `to`, if there is one.
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

/// What changes need besides the key, made once per batch.
pub(super) struct Context<'a> {
    pub(super) classes: &'a Classes,
    /// The generation of the next new key. Deleting a key raises it.
    pub(super) generation: &'a AtomicU64,
    /// The memory of ids.
    pub(super) ids: &'a IdMemory,
    /// The number of keys that were removed because they had expired.
    pub(super) expired_keys: &'a AtomicU64,
    /// Why there is no room for a new key, if there is none.
    pub(super) full: Option<Full>,
    /// Whether the replayed changes were written by a clock that was ahead. If so, hits of the future count
    /// as of now.
    pub(super) is_clock_repaired: bool,
    /// Whether keys are marked that have hits to be sent to other nodes.
    pub(super) is_tracked: bool,
    /// Whether the last hit with an id was counted before.
    pub(super) is_repeated: bool,
    /// The busy keys, if a class asks for them, and keys to add to them.
    pub(super) busy: Option<&'a Busy>,
    pub(super) noted: Vec<Note>,
    /// The change record, if there is one.
    pub(super) deltas: Option<&'a mut DeltaBatch>,
    /// A cache of the last frame.
    met: Option<(ClassId, Frame, &'a Settings)>,
    /// From how many hits on keys of the last frame are noted as busy.
    busy_from: u64,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        (classes, busy): (&'a Classes, Option<&'a Busy>),
        generation: &'a AtomicU64,
        (expired_keys, ids): (&'a AtomicU64, &'a IdMemory),
        is_tracked: bool,
        deltas: Option<&'a mut DeltaBatch>,
    ) -> Context<'a> {
        let (full, is_clock_repaired, is_repeated, met) = (None, false, false, None);
        Context {
            classes,
            generation,
            ids,
            expired_keys,
            full,
            is_clock_repaired,
            is_tracked,
            is_repeated,
            busy,
            noted: Vec::new(),
            deltas,
            met,
            busy_from: u64::MAX,
        }
    }

    /// The edges of a class at `now`, and its settings.
    #[inline]
    pub(super) fn frame(&mut self, class: ClassId, now: Timestamp) -> (&Frame, &'a Settings) {
        if self.met.is_none_or(|(met, frame, _)| met != class || frame.now != now) {
            let settings = self.classes.settings(class);
            self.met = Some((class, Frame::new(settings, now), settings));
            self.busy_from = self.busy.map_or(u64::MAX, |busy| busy.from(class, now, settings));
        }
        let (_, frame, settings) = self.met.as_ref().expect("it is set above");
        (frame, settings)
    }

    /// Notes the key of a hit of now as busy, if its `hits` in the default window are enough. Its class is that of the last
    /// frame.
    #[inline(always)]
    pub(super) fn note_hits(&mut self, key: &[u8], hash: u64, hits: u64) {
        if hits >= self.busy_from {
            self.note_busy(key, hash);
        }
    }

    #[inline(never)]
    fn note_busy(&mut self, key: &[u8], hash: u64) {
        let (Some(busy), Some((class, Frame { now, .. }, settings))) = (self.busy, self.met) else { return };
        if self.busy_from == 0 || !busy.is_marked(class, hash, now, settings) {
            self.noted.push(Note::new(key, class, now));
        }
    }

    /// From how many hits on keys of this class are noted as busy.
    pub(super) fn busy_from(&mut self, class: ClassId, now: Timestamp) -> u64 {
        self.frame(class, now);
        self.busy_from
    }
}
