//! Replies that wait until the changes that they report are on the disk.

use std::ops::Range;

use crate::service::Refused;

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
    /// The id of the client. The token may be another client's by now.
    pub(super) client: u64,
    /// Their range in the output of the batch.
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

    /// Adds the changes to roll back if the disk fails.
    pub(super) fn with(self, written: Written) -> PendingReplies {
        PendingReplies { written, ..self }
    }

    /// Memory held, without the replies.
    pub(super) fn held_bytes(&self) -> usize {
        self.written.held_bytes()
    }

    /// Settles the changes, if the disk has answered.
    pub(super) fn settle(&mut self, service: &Service) -> Settled {
        service.settle(&self.ticket, &mut self.written.changes)
    }

    /// The connections that the replies belong to.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The replies of a part, `output`, with those that report a change replaced by errors.
    pub(super) fn refused(&self, part: &Part, output: &[u8], refused: &Refused) -> Vec<u8> {
        self.written.refused(output, part.replies.start, refused)
    }
}
