//! Replies that wait until what they say is on the disk.

use std::ops::Range;

use lately_journal::{Hold, Journal, Refused, Verdict};

use crate::engine::Engine;
use crate::session::Written;

/// The replies of a batch that wait for a verdict.
pub(super) struct Held {
    hold: Hold,
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

impl Held {
    pub(super) fn new(hold: Hold) -> Held {
        Held { hold, written: Written::default(), parts: Vec::new() }
    }

    /// Adds the replies of a connection.
    pub(super) fn add(&mut self, token: usize, client: u64, replies: Range<usize>) {
        self.parts.push(Part { token, client, replies });
    }

    /// The same, with what is to be taken back if it comes to that.
    pub(super) fn with(self, written: Written) -> Held {
        Held { written, ..self }
    }

    /// Bytes of memory it holds, beside the replies.
    pub(super) fn held_bytes(&self) -> usize {
        self.written.held_bytes()
    }

    /// What became of it.
    pub(super) fn verdict(&self, engine: &Engine) -> Verdict {
        engine.journal().map_or(Verdict::Kept, |journal| journal.verdict(&self.hold))
    }

    /// Has what it says in the server's counters: it is kept.
    pub(super) fn kept(&mut self, engine: &Engine) {
        self.written.kept(engine);
    }

    /// Takes back what cannot be kept; the replies are to be replaced then.
    pub(super) fn take_back(&mut self, engine: &Engine) {
        self.written.take_back(engine);
    }

    /// Whose replies they are.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The replies of a part, `output`, with errors in place of those that say that something was changed.
    pub(super) fn refused(&self, part: &Part, output: &[u8], engine: &Engine) -> Vec<u8> {
        let refused = engine.journal().and_then(|journal| Journal::check(journal).err());
        // The disk may have recovered since.
        let refused = refused.unwrap_or_else(|| Refused { why: "it failed for a moment".to_owned() });
        self.written.refused(output, part.replies.start, &refused)
    }
}
