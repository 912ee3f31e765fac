//! What the store said, as replies.

use std::sync::Arc;

use lately::{HitError, Outcome};
use lately_resp::{Encoder, Protocol};

use super::super::decided::{self, Told};
use super::super::integer;
use super::super::written::Written;
use super::{Reply, Tally, named};
use crate::rules::Rules;

/// Tells a client, and takes note of what is told.
pub(super) struct Telling<'r> {
    pub(super) tally: &'r mut Tally,
    pub(super) written: &'r mut Written,
    pub(super) rules: Option<&'r Arc<Rules>>,
    /// Whether replies that say that something was changed may have to wait.
    pub(super) has_journal: bool,
    pub(super) out: &'r mut Vec<u8>,
}

impl Telling<'_> {
    /// What a hit of this weight gave.
    #[inline]
    pub(super) fn hit(&mut self, weight: u64, outcome: &Outcome) {
        let start = self.out.len();
        // Of these replies a rate alone differs between the versions of the protocol.
        let mut reply = Encoder::new(self.out, Protocol::default());
        let Outcome::Hit(counted) = outcome else { wrong() };
        match counted {
            Ok(hits) => {
                reply.integer(integer(*hits));
                if self.has_journal {
                    self.written.replied(start, self.out.len(), weight);
                } else {
                    self.tally.hits = self.tally.hits.saturating_add(weight);
                }
            }
            Err(error) => {
                self.tally.refused_hits = self.tally.refused_hits.saturating_add(weight);
                reply.error(format_args!("{} {error}", code(error)));
            }
        }
    }

    /// What another operation gave.
    pub(super) fn other(&mut self, part: &Reply, outcome: &Outcome) {
        let start = self.out.len();
        let mut reply = Encoder::new(self.out, Protocol::default());
        match (part, outcome) {
            (&Reply::Limit(change), Outcome::Limit(decided)) => {
                let told = decided::answer(decided, change, &mut reply);
                self.note(start, &told);
                match named::said(self.rules, change, decided) {
                    Some((tally, said)) if told.is_changed && self.has_journal => {
                        self.written.changes.add_said(tally, said);
                    }
                    Some((tally, said)) => tally.count(said),
                    None => {}
                }
            }
            (&Reply::LimitAll(change), Outcome::LimitAll(decided)) => {
                let told = decided::answer_all(decided, change, &mut reply);
                self.note(start, &told);
            }
            (Reply::Estimate, Outcome::Hits(count)) => reply.integer(integer(count.estimate)),
            (Reply::Bounds, Outcome::Hits(count)) => {
                reply.array(4);
                reply.integer(integer(count.estimate));
                reply.integer(integer(count.lower));
                reply.integer(count.upper.map_or(-1, integer));
                reply.integer(count.cell.as_millis());
            }
            #[expect(clippy::cast_precision_loss, reason = "a rate is a fraction")]
            (&Reply::Rate(panes, protocol), Outcome::Hits(count)) => {
                Encoder::new(self.out, protocol).double(count.estimate as f64 / panes.as_seconds_f64());
            }
            _ => wrong(),
        }
    }

    /// Takes note of what became of a request, which the reply from `start` on says.
    fn note(&mut self, start: usize, told: &Told) {
        let is_to_be_written = told.is_changed && self.has_journal;
        if is_to_be_written {
            self.written.replied(start, self.out.len(), told.counted());
        }
        if !is_to_be_written || told.counted() == 0 {
            self.tally.add(told);
        }
    }
}

#[cold]
pub(super) fn wrong() -> ! {
    unreachable!("the store gives an outcome for each operation, of its kind")
}

/// The code of the error reply to a refused hit.
pub(in crate::session) fn code(error: &HitError) -> &'static str {
    match error {
        HitError::Late { .. } => "LATE",
        HitError::Future { .. } => "FUTURE",
        HitError::OutOfMemory { .. } => "OOM",
        _ => "ERR",
    }
}
