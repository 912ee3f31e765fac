//! Replies that wait until what they report is on the disk.

use std::ops::Range;

use lately_journal::Refused;

use super::session::Written;
use crate::service::Service;
use crate::service::commit::{Settled, Ticket};

/// The replies of a batch that wait for the disk.
pub(super) struct PendingReplies {
    ticket: Ticket,
    written: Written,
    parts: Vec<Part>,
}

/// The replies of one connection.
pub(super) struct Part {
    pub(super) token: usize,
    /// Which connection it was: another may have the token by now.
    pub(super) client: u64,
    /// Where in the batch's output they were.
    replies: Range<usize>,
}

impl PendingReplies {
    pub(super) fn new(ticket: Ticket) -> PendingReplies {
        PendingReplies { ticket, written: Written::default(), parts: Vec::new() }
    }

    /// Adds the replies of a connection.
    pub(super) fn add(&mut self, token: usize, client: u64, replies: Range<usize>) {
        self.parts.push(Part { token, client, replies });
    }

    /// The same, with what is to be taken back if it comes to that.
    pub(super) fn with(self, written: Written) -> PendingReplies {
        PendingReplies { written, ..self }
    }

    /// Bytes of memory it holds, beside the replies.
    pub(super) fn held_bytes(&self) -> usize {
        self.written.held_bytes()
    }

    /// What became of it.
    pub(super) fn settle(&mut self, service: &Service) -> Settled {
        service.settle(&self.ticket, &mut self.written.changes)
    }

    /// Whose replies they are.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The replies of a part, `output`, with errors in place of those that report a change.
    pub(super) fn refused(&self, part: &Part, output: &[u8], refused: &Refused) -> Vec<u8> {
        self.written.refused(output, part.replies.start, refused)
    }
}
