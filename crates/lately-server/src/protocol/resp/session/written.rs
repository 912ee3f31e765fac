//! What requests changed, and the replies that report it: these do not leave before it is kept, and when it cannot be, they
//! are replaced.

use std::ops::Range;

use crate::service::Refused;
use lately_resp::{Encoder, Protocol};

use crate::service::DeleteError;
use crate::service::commit::Changes;

/// What requests changed, and where the replies are that report it.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) changes: Changes,
    /// Where in the output those replies are.
    replies: Vec<Range<usize>>,
}

impl Written {
    /// Adds a reply that reports a change.
    #[inline]
    pub(super) fn replied(&mut self, start: usize, end: usize) {
        self.replies.push(start..end);
    }

    /// Whether there are such replies in a part of the output.
    pub(crate) fn is_in(&self, part: &Range<usize>) -> bool {
        self.replies.iter().any(|reply| part.contains(&reply.start))
    }

    /// Bytes of memory it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.changes.held_bytes() + self.replies.capacity() * size_of::<Range<usize>>()
    }

    /// A part of the output with an error in place of each reply that reports a change.
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

    /// Empties it, and keeps the memory up to a bound.
    pub(crate) fn clear(&mut self, kept_bytes: usize) {
        self.changes.clear();
        self.replies.clear();
        if self.held_bytes() > kept_bytes {
            *self = Written::default();
        }
    }
}

/// The reply to what cannot be written down.
pub(super) fn refuse(out: &mut Vec<u8>, refused: &Refused) {
    // Both versions of the protocol have the same errors.
    Encoder::new(out, Protocol::default()).error(format_args!("{} {refused}", refused.code()));
}

/// The reply to a deletion that was not made.
pub(super) fn refuse_deletion(out: &mut Vec<u8>, error: &DeleteError) {
    Encoder::new(out, Protocol::default()).error(format_args!("{} {error}", error.code()));
}
