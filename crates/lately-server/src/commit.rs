//! The one way that changes get into the journal and to dumps, and how they are taken back when they cannot be kept.

use std::sync::Arc;

use lately::DeltaBatch;
use lately_journal::{Hold, Journal, Receipt, Refused, Verdict};

use crate::engine::{Engine, Stats};
use crate::rules::{RuleTally, Said};

/// What requests changed, until it is known whether it is kept.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) deltas: DeltaBatch,
    /// Hits among them, by weight. The server's counters have them when they are kept, and not before: a counter never runs
    /// backward.
    hits: u64,
    /// What named limits said when they changed something. Counted with the hits.
    said: Vec<(Arc<RuleTally>, Said)>,
}

/// What became of changes at once.
pub(crate) enum Commit {
    /// They are kept.
    Kept,
    /// They are kept, or not, when the ticket says so. Replies that report them wait.
    Pending(Ticket),
    /// They cannot be kept, and have been taken back.
    Refused(Refused),
}

/// Says later what became of changes.
#[derive(Clone)]
pub(crate) struct Ticket(Hold);

/// What a ticket says.
pub(crate) enum Settled {
    /// Nothing yet.
    Pending,
    /// The changes are kept.
    Kept,
    /// They were lost, and have been taken back.
    Refused(Refused),
}

impl Changes {
    /// Adds hits that were counted.
    pub(crate) fn add_hits(&mut self, hits: u64) {
        self.hits = self.hits.saturating_add(hits);
    }

    /// Adds what a named limit said when it changed something.
    pub(crate) fn add_said(&mut self, tally: &Arc<RuleTally>, said: Said) {
        self.said.push((Arc::clone(tally), said));
    }

    /// Bytes of memory they hold.
    pub(crate) fn held_bytes(&self) -> usize {
        self.deltas.held_bytes() + self.said.capacity() * size_of::<(Arc<RuleTally>, Said)>()
    }

    /// Empties them, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.deltas.clear();
        self.hits = 0;
        self.said.clear();
    }

    /// Adds them to the server's counters: they are kept.
    fn keep(&mut self, engine: &Engine) {
        Stats::add(&engine.stats.hits, std::mem::take(&mut self.hits));
        self.said.drain(..).for_each(|(tally, said)| tally.count(said));
    }

    /// Takes them back in the store.
    fn take_back(&mut self, engine: &Engine) {
        engine.store.roll_back(&mut self.deltas);
        engine.taps.fail("the journal failed meanwhile");
        Stats::add(&engine.stats.refused_hits, std::mem::take(&mut self.hits));
        self.said.clear();
    }
}

impl Engine {
    /// Commits changes in the order they were made, all of them in one piece. Between the change of the store and this the
    /// caller holds what [`Engine::enter`] gave.
    pub(crate) fn commit(&self, changes: &mut [&mut Changes]) -> Commit {
        let deltas = changes.iter().map(|changes| &changes.deltas);
        match self.write(deltas) {
            Ok(None) => {
                changes.iter_mut().for_each(|changes| changes.keep(self));
                Commit::Kept
            }
            Ok(Some(hold)) => Commit::Pending(Ticket(hold)),
            Err(refused) => {
                changes.iter_mut().rev().for_each(|changes| changes.take_back(self));
                Commit::Refused(refused)
            }
        }
    }

    /// Commits evictions, which nobody waits for. Keys whose eviction cannot be written come back with the next start.
    pub(crate) fn commit_evictions(&self, deltas: &DeltaBatch) {
        if self.write([deltas].into_iter()).is_err() {
            // They have left the store all the same.
            self.taps.tell(deltas);
        }
    }

    /// Commits changes and waits for the disk.
    ///
    /// # Errors
    /// When they cannot be kept. They are still in the store.
    pub(crate) fn commit_through(&self, deltas: &DeltaBatch) -> Result<(), Refused> {
        if let Some(journal) = self.journal().filter(|_| !deltas.is_empty()) {
            journal.write_through(deltas)?;
        }
        self.taps.tell(deltas);
        Ok(())
    }

    /// Settles changes that wait for the disk, if their ticket says something. The newest are asked about first: what is taken
    /// back is taken back in reverse.
    pub(crate) fn settle(&self, ticket: &Ticket, changes: &mut Changes) -> Settled {
        match self.journal().map_or(Verdict::Kept, |journal| journal.verdict(&ticket.0)) {
            Verdict::Pending => Settled::Pending,
            Verdict::Kept => {
                changes.keep(self);
                Settled::Kept
            }
            Verdict::Lost => {
                changes.take_back(self);
                let refused = self.journal().and_then(|journal| Journal::check(journal).err());
                // The disk may have recovered since.
                Settled::Refused(
                    refused.unwrap_or_else(|| Refused { why: "it failed for a moment".to_owned() }),
                )
            }
        }
    }

    /// Waits until it is known what became of changes. They are settled even when the caller does not wait any more.
    ///
    /// # Errors
    /// Why they are not kept. They have been taken back.
    pub(crate) async fn settled(self: &Arc<Engine>, commit: Commit, mut changes: Changes) -> Result<(), Refused> {
        let ticket = match commit {
            Commit::Kept => return Ok(()),
            Commit::Refused(refused) => return Err(refused),
            Commit::Pending(ticket) => ticket,
        };
        let engine = Arc::clone(self);
        let settled = tokio::spawn(async move {
            loop {
                let mut verdict = std::pin::pin!(engine.verdicts.notified());
                // A verdict that comes after the look counts, too.
                verdict.as_mut().enable();
                match engine.settle(&ticket, &mut changes) {
                    Settled::Pending => verdict.await,
                    Settled::Kept => return Ok(()),
                    Settled::Refused(refused) => return Err(refused),
                }
            }
        });
        settled.await.expect("a panic is a bug that has been reported")
    }

    /// Writes deltas to the journal, where there is one, and to dumps.
    fn write<'d>(
        &self,
        deltas: impl Iterator<Item = &'d DeltaBatch> + Clone,
    ) -> Result<Option<Hold>, Refused> {
        let deltas = deltas.filter(|deltas| !deltas.is_empty());
        if deltas.clone().next().is_none() {
            return Ok(None);
        }
        let hold = match self.journal().map(|journal| journal.write(deltas.clone())).transpose()? {
            None | Some(Receipt::Kept) => None,
            Some(Receipt::Wait(hold)) => Some(hold),
        };
        deltas.for_each(|deltas| self.taps.tell(deltas));
        Ok(hold)
    }
}

#[cfg(test)]
mod tests {
    use lately::{ManualClock, Timestamp};

    use super::*;
    use crate::config::Config;
    use crate::rules::tests::limit;

    #[test]
    fn what_limits_said_counts_when_it_is_kept() {
        let config = Config { limits: vec![limit("login")], ..Config::default() };
        let engine = Engine::new(config, Arc::new(ManualClock::new(Timestamp::MIN))).expect("valid");
        let rules = engine.rules.get();
        let tally = &rules.rule(rules.find(b"login").expect("there")).tally;
        let changes = || {
            let mut changes = Changes::default();
            for said in [Said::Allowed, Said::Allowed, Said::Denied] {
                changes.add_said(tally, said);
            }
            assert!(changes.held_bytes() > 0);
            changes
        };
        let counts = || [tally.get(Said::Allowed), tally.get(Said::Denied)];
        changes().take_back(&engine);
        assert_eq!(counts(), [0, 0]);
        let mut changes = changes();
        assert_eq!(counts(), [0, 0]);
        changes.keep(&engine);
        assert_eq!(counts(), [2, 1]);
        // Neither counts it a second time.
        changes.keep(&engine);
        changes.take_back(&engine);
        assert_eq!(counts(), [2, 1]);
    }
}
