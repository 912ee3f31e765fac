//! What requests changed, and the replies that say so: these are not to leave before it is written, and when
//! it cannot be, they are replaced.

use std::ops::Range;
use std::sync::Arc;

use lately::DeltaBatch;
use lately_journal::{Hold, Receipt, Refused};
use lately_resp::{Encoder, Protocol};

use crate::engine::{Engine, Stats};
use crate::rules::{RuleTally, Said};

/// What requests changed.
#[derive(Default)]
pub(crate) struct Written {
    pub(super) deltas: DeltaBatch,
    /// Where in the output the replies are that say what was changed.
    replies: Vec<Range<usize>>,
    /// Hits among the changes, by weight. The server's counters have them when they are kept, and not before: a
    /// counter never runs backward.
    hits: u64,
    /// What limits with names said when they changed something. Counted with the hits.
    said: Vec<(Arc<RuleTally>, Said)>,
}

/// What becomes of replies that say what was changed.
pub(crate) enum Leave {
    /// They may leave.
    Now,
    /// They may leave when there is a verdict.
    Later(Hold),
    /// They must not.
    Never(Refused),
}

impl Written {
    /// Takes note of a reply that says that so many hits were counted, or something else was changed.
    #[inline]
    pub(super) fn replied(&mut self, start: usize, end: usize, hits: u64) {
        self.replies.push(start..end);
        self.hits = self.hits.saturating_add(hits);
    }

    /// Takes note of what a limit with a name said and counted.
    pub(super) fn said(&mut self, tally: &Arc<RuleTally>, said: Said) {
        self.said.push((Arc::clone(tally), said));
    }

    /// Whether there are such replies in a part of the output.
    pub(crate) fn is_in(&self, part: &Range<usize>) -> bool {
        self.replies.iter().any(|reply| part.contains(&reply.start))
    }

    /// Bytes of memory it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.deltas.held_bytes()
            + self.replies.capacity() * size_of::<Range<usize>>()
            + self.said.capacity() * size_of::<(Arc<RuleTally>, Said)>()
    }

    /// Writes changes down, where that is done: all of them in one piece.
    pub(crate) fn commit<'w>(engine: &Engine, written: impl Iterator<Item = &'w Written> + Clone) -> Leave {
        let changed = written.map(|written| &written.deltas).filter(|deltas| !deltas.is_empty());
        if changed.clone().next().is_none() {
            return Leave::Now;
        }
        let leave = match engine.journal().map(|journal| journal.write(changed.clone())) {
            None | Some(Ok(Receipt::Kept)) => Leave::Now,
            Some(Ok(Receipt::Wait(hold))) => Leave::Later(hold),
            Some(Err(refused)) => return Leave::Never(refused),
        };
        changed.for_each(|deltas| engine.taps.tell(deltas));
        leave
    }

    /// Has the changes in the server's counters: they are kept.
    pub(crate) fn kept(&mut self, engine: &Engine) {
        Stats::add(&engine.stats.hits, std::mem::take(&mut self.hits));
        self.said.drain(..).for_each(|(tally, said)| tally.count(said));
    }

    /// Takes the changes back. The replies are to be replaced then.
    pub(crate) fn take_back(&mut self, engine: &Engine) {
        engine.store.take_back(&mut self.deltas);
        engine.taps.fail("the journal failed meanwhile");
        Stats::add(&engine.stats.refused_hits, std::mem::take(&mut self.hits));
        self.said.clear();
    }

    /// A part of the output with an error in place of each reply that says that something was changed.
    /// `start` is where the part was when the replies were made.
    pub(crate) fn refused(&self, part: &[u8], start: usize, refused: &Refused) -> Vec<u8> {
        let mut out = Vec::with_capacity(part.len());
        let mut done = 0;
        for reply in self.replies.iter().filter(|reply| (start..start + part.len()).contains(&reply.start)) {
            out.extend_from_slice(&part[done..reply.start - start]);
            refuse(&mut out, refused);
            done = reply.end - start;
        }
        out.extend_from_slice(&part[done..]);
        out
    }

    /// Forgets it all, and keeps the memory up to so many bytes.
    pub(crate) fn clear(&mut self, kept_bytes: usize) {
        self.deltas.clear();
        self.replies.clear();
        self.hits = 0;
        self.said.clear();
        if self.held_bytes() > kept_bytes {
            *self = Written::default();
        }
    }
}

/// The reply to what cannot be written down.
pub(super) fn refuse(out: &mut Vec<u8>, refused: &Refused) {
    // Both versions of the protocol have the same errors.
    Encoder::new(out, Protocol::default()).error(format_args!("MISCONF {refused}"));
}
