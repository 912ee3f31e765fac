//! Commits the changes of requests to the journal and the change feed, and rolls them back if the journal fails.

use std::sync::Arc;

use lately::DeltaBatch;
use lately_engines::{Delivered, Delivery, HitRecord, HitRecords};
use lately_journal::{Hold, Journal, Receipt, Verdict};

use crate::service::cluster::WaitingId;
use crate::service::ingest::Busy;
use crate::service::named_limits::{LimitAnswer, LimitTally};
use crate::service::rule_tally::{RuleHits, RuleTally};
use crate::service::{Refused, Service, Stats};

/// Changes of requests that are not committed yet.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) deltas: DeltaBatch,
    /// The weight of the hits among them. It is added to the statistics at the commit, so that the counter never
    /// decreases.
    hits: u64,
    /// Answers of named limits that changed something. They are counted at the commit, too.
    answers: Vec<(Arc<LimitTally>, LimitAnswer)>,
    /// Hits by rules of envoyproxy/ratelimit. They are counted at the commit, too.
    rule_hits: Vec<(Arc<RuleTally>, RuleHits)>,
    /// Sources whose positions are among the deltas. They accept no other stretch until the commit is settled.
    busy: Vec<Busy>,
    /// Hits that are written to Kafka at the commit.
    records: HitRecords,
    /// In a cluster: the id of the changes while they wait for the disk.
    waiting: Option<WaitingId>,
}

/// The immediate result of a commit.
pub(crate) enum Commit {
    /// The changes are committed.
    Kept,
    /// The result is not known yet: the ticket gets it. Replies that report the changes wait.
    Pending(Ticket),
    /// The journal failed, and the changes were rolled back.
    Refused(Refused),
}

/// Reports the result of a pending commit.
#[derive(Clone)]
pub(crate) struct Ticket {
    disk: Option<Hold>,
    brokers: Option<Arc<Delivery>>,
}

/// The result of a pending commit.
pub(crate) enum Settled {
    /// The disk, or the brokers of Kafka, have not answered yet.
    Pending,
    /// The changes are committed.
    Kept,
    /// The journal failed, and the changes were rolled back. Or the brokers did not acknowledge hits.
    Refused(Refused),
}

impl Changes {
    /// Adds hits that are written to Kafka at the commit.
    pub(super) fn write_hits(&mut self, record: HitRecord<'_>) {
        self.records.add(record);
        self.add_hits(record.hits);
    }

    /// Adds hits that were counted.
    pub(crate) fn add_hits(&mut self, hits: u64) {
        self.hits = self.hits.saturating_add(hits);
    }

    /// Adds an answer of a named limit that changed something.
    pub(crate) fn add_answer(&mut self, tally: &Arc<LimitTally>, answer: LimitAnswer) {
        self.answers.push((Arc::clone(tally), answer));
    }

    /// Adds hits by a rule of envoyproxy/ratelimit.
    pub(crate) fn add_rule_hits(&mut self, tally: &Arc<RuleTally>, hits: RuleHits) {
        self.rule_hits.push((Arc::clone(tally), hits));
    }

    /// Adds a source whose position is among the deltas.
    pub(super) fn add_busy(&mut self, busy: Busy) {
        self.busy.push(busy);
    }

    /// Bytes of memory they hold.
    pub(crate) fn held_bytes(&self) -> usize {
        self.deltas.held_bytes()
            + self.records.held_bytes()
            + self.answers.capacity() * size_of::<(Arc<LimitTally>, LimitAnswer)>()
            + self.rule_hits.capacity() * size_of::<(Arc<RuleTally>, RuleHits)>()
            + self.busy.capacity() * size_of::<Busy>()
    }

    /// Removes all changes and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.deltas.clear();
        self.hits = 0;
        self.answers.clear();
        self.rule_hits.clear();
        self.busy.clear();
        self.records.clear();
    }

    /// The brokers did not acknowledge the hits. They were no changes of the store.
    fn lose_hits(&mut self, service: &Service) {
        Stats::add(&service.stats.refused_hits, std::mem::take(&mut self.hits));
    }

    /// Applies the effects of a commit: statistics, and the counts for other nodes.
    fn keep(&mut self, service: &Service) {
        if let Some(cluster) = &service.cluster {
            self.waiting.take().into_iter().for_each(|id| cluster.settled(id));
        }
        Stats::add(&service.stats.hits, std::mem::take(&mut self.hits));
        self.answers.drain(..).for_each(|(tally, answer)| tally.count(answer));
        self.rule_hits.drain(..).for_each(|(tally, hits)| tally.add(hits));
        self.busy.clear();
    }

    /// Rolls the changes back in the store.
    fn roll_back(&mut self, service: &Service) {
        if let Some(cluster) = &service.cluster {
            cluster.undo_deletions(&self.deltas);
        }
        let has_changed = !self.deltas.is_empty();
        service.store.roll_back(&mut self.deltas);
        if let (Some(cluster), Some(id)) = (&service.cluster, self.waiting.take()) {
            cluster.settled(id);
        }
        if has_changed {
            service.feed.fail("the journal failed meanwhile");
        }
        Stats::add(&service.stats.refused_hits, std::mem::take(&mut self.hits));
        self.answers.clear();
        self.rule_hits.clear();
        self.busy.clear();
    }
}

impl Service {
    /// Commits changes in the order in which they were made, in one piece. The caller holds the guard of
    /// [`Service::enter`] from before the store changed until this returns.
    pub(crate) fn commit(&self, changes: &mut [&mut Changes]) -> Commit {
        let deltas = changes.iter().map(|changes| &changes.deltas);
        let noted = self.note_deletions(deltas);
        // A hit that the brokers do not take leaves no trace here: so they come first.
        let given = noted.and_then(|()| self.give_to_brokers(changes));
        let deltas = changes.iter().map(|changes| &changes.deltas);
        let written = given.and_then(|brokers| {
            let disk = self.write(deltas).map_err(|refused| refused.after_giving(brokers.is_some()))?;
            Ok((disk, brokers))
        });
        match written {
            Ok((disk, brokers)) => {
                if let Some(cluster) = self.cluster.as_ref().filter(|_| disk.is_some()) {
                    changes.iter_mut().for_each(|changes| {
                        changes.waiting = Some(cluster.note_waiting());
                    });
                }
                if disk.is_some() || brokers.is_some() {
                    return Commit::Pending(Ticket { disk, brokers });
                }
                changes.iter_mut().for_each(|changes| changes.keep(self));
                Commit::Kept
            }
            Err(refused) => {
                changes.iter_mut().rev().for_each(|changes| changes.roll_back(self));
                Commit::Refused(refused)
            }
        }
    }

    /// Notes deletions that have to reach other nodes.
    fn note_deletions<'d>(&self, mut deltas: impl Iterator<Item = &'d DeltaBatch>) -> Result<(), Refused> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        deltas.try_for_each(|deltas| cluster.note_deletions(deltas)).map_err(|error| {
            Refused::journal(format!("a deletion cannot be written to the data folder: {error}"))
        })
    }

    /// On a node that writes its hits to Kafka: gives those of these changes to the brokers.
    ///
    /// # Errors
    /// They take nothing.
    fn give_to_brokers(&self, changes: &mut [&mut Changes]) -> Result<Option<Arc<Delivery>>, Refused> {
        let Some(edge) = &self.edge else { return Ok(None) };
        // Hits of a key at a time are one record, whoever sent them, but for those with an id.
        let mut all = HitRecords::default();
        for changes in changes {
            let records = std::mem::take(&mut changes.records);
            if all.is_empty() {
                all = records;
            } else {
                records.iter().for_each(|record| all.add(record));
            }
        }
        if all.is_empty() { Ok(None) } else { edge.write(&all, self.now()).map(Some) }
    }

    /// Commits evictions, without waiting for the disk. If that fails, the evicted keys are back after a restart.
    pub(crate) fn commit_evictions(&self, deltas: &DeltaBatch) {
        if self.write([deltas].into_iter()).is_err() {
            // The keys have left the store in any case, so dumps must get the change.
            self.feed.publish(deltas);
        }
    }

    /// Commits changes and waits for the disk.
    ///
    /// # Errors
    /// The journal failed. The changes are still in the store.
    pub(crate) fn commit_through(&self, deltas: &DeltaBatch) -> Result<(), Refused> {
        if let Some(journal) = self.journal().filter(|_| !deltas.is_empty()) {
            journal.write_through(deltas)?;
        }
        self.feed.publish(deltas);
        Ok(())
    }

    /// Settles changes that wait for the disk or the brokers, if these have answered. Callers settle the newest changes first,
    /// because a rollback runs in reverse order.
    pub(crate) fn settle(&self, ticket: &Ticket, changes: &mut Changes) -> Settled {
        let disk = self.journal().zip(ticket.disk.as_ref());
        match disk.map_or(Verdict::Kept, |(journal, hold)| journal.verdict(hold)) {
            Verdict::Pending => Settled::Pending,
            Verdict::Kept => match ticket.brokers.as_ref().map_or(Delivered::Written, |it| it.state()) {
                Delivered::Pending => Settled::Pending,
                Delivered::Written => {
                    changes.keep(self);
                    Settled::Kept
                }
                Delivered::Failed(why) => {
                    changes.lose_hits(self);
                    changes.keep(self);
                    Settled::Refused(Refused::Unacknowledged(why))
                }
            },
            Verdict::Lost => {
                changes.roll_back(self);
                let refused = self.journal().and_then(|journal| Journal::check(journal).err());
                // The disk may have recovered since.
                let refused = refused
                    .map_or_else(|| Refused::journal("it failed for a moment".to_owned()), Refused::from);
                Settled::Refused(refused.after_giving(ticket.brokers.is_some()))
            }
        }
    }

    /// Waits for the result of a commit. The changes are settled even when the caller stops waiting.
    ///
    /// # Errors
    /// The journal failed, and the changes were rolled back.
    pub(crate) async fn settled(
        self: &Arc<Service>,
        commit: Commit,
        mut changes: Changes,
    ) -> Result<(), Refused> {
        let ticket = match commit {
            Commit::Kept => return Ok(()),
            Commit::Refused(refused) => return Err(refused),
            Commit::Pending(ticket) => ticket,
        };
        let service = Arc::clone(self);
        let settled = tokio::spawn(async move {
            loop {
                let mut verdict = std::pin::pin!(service.verdicts.notified());
                // Registered before the check, so that no notification is missed.
                verdict.as_mut().enable();
                match service.settle(&ticket, &mut changes) {
                    Settled::Pending => verdict.await,
                    Settled::Kept => return Ok(()),
                    Settled::Refused(refused) => return Err(refused),
                }
            }
        });
        settled.await.expect("a panic is a bug that has been reported")
    }

    /// Writes changes to the journal, if there is one, and to the change feed.
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
        deltas.for_each(|deltas| self.feed.publish(deltas));
        Ok(hold)
    }
}

#[cfg(test)]
mod tests {
    use lately::{ManualClock, Timestamp};

    use super::*;
    use crate::config::Config;
    use crate::service::named_limits::tests::limit;

    #[test]
    fn decisions_are_counted_once_committed() {
        let config = Config { limits: vec![limit("login")], ..Config::default() };
        let service = Service::new(config, Arc::new(ManualClock::new(Timestamp::MIN))).expect("valid");
        let rules = service.rules.get();
        let tally = &rules.rule(rules.find(b"login").expect("there")).tally;
        let of_rule = Arc::<RuleTally>::default();
        let changes = || {
            let mut changes = Changes::default();
            for answer in [LimitAnswer::Allowed, LimitAnswer::Allowed, LimitAnswer::Denied] {
                changes.add_answer(tally, answer);
            }
            changes.add_rule_hits(&of_rule, RuleHits::unlimited(5));
            assert!(changes.held_bytes() > 0);
            changes
        };
        let counts = || [tally.get(LimitAnswer::Allowed), tally.get(LimitAnswer::Denied), of_rule.get(0)];
        changes().roll_back(&service);
        assert_eq!(counts(), [0, 0, 0]);
        let mut changes = changes();
        assert_eq!(counts(), [0, 0, 0]);
        changes.keep(&service);
        assert_eq!(counts(), [2, 1, 5]);
        // Neither counts it a second time.
        changes.keep(&service);
        changes.roll_back(&service);
        assert_eq!(counts(), [2, 1, 5]);
    }
}
