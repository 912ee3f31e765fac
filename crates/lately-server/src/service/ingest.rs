//! The hits of a stretch of a source, such as a part of a log. They are counted once, even if they are sent again.
//!
//! The store keeps a position for each source, in the same record of the journal as the hits up to it. A stretch that
//! ends at this position or before it has been counted already.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use lately::{HitError, Op, Outcome, Source, Timestamp};
use lately_journal::Journal;

use super::commit::Changes;
use super::{Refused, Service, Stats};
use crate::limits::RUN_OPERATIONS;

/// The two ends of a stretch of a source.
pub(crate) struct Stretch<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// The result of a stretch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ingested {
    /// The position of the source now.
    pub(crate) position: u64,
    /// The weight of the hits that were counted. 0 if the stretch had been counted before.
    pub(crate) accepted: u64,
    /// The weight of the hits that were refused, because they are too old or too far ahead.
    pub(crate) refused: u64,
    /// Whether anything changed.
    pub(crate) is_change: bool,
}

/// Why a stretch was not counted. Nothing changed.
#[derive(Debug)]
pub(crate) enum IngestError {
    /// It does not begin at the position of the source.
    Elsewhere { position: u64 },
    /// Another stretch of the source waits for its commit.
    Busy,
    /// There is no room for a key.
    Hit(HitError),
    /// The journal has failed.
    Refused(Refused),
}

/// The sources with a stretch that is counted but not committed.
#[derive(Default, Debug)]
pub(crate) struct BusySources(Arc<Names>);

#[derive(Default, Debug)]
struct Names {
    names: Mutex<BTreeSet<Box<[u8]>>>,
    freed: Condvar,
}

/// Marks a source with a stretch that is counted but not committed. Dropped after the commit or the rollback.
#[derive(Debug)]
pub(crate) struct Busy {
    name: Box<[u8]>,
    all: Arc<Names>,
}

impl Names {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<Box<[u8]>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BusySources {
    fn claim(&self, source: Source<'_>) -> Option<Busy> {
        let name: Box<[u8]> = source.name().into();
        let is_free = self.0.lock().insert(name.clone());
        is_free.then(|| Busy { name, all: Arc::clone(&self.0) })
    }

    /// Waits until no stretch of a source waits for its commit, and marks it.
    fn claim_later(&self, name: &[u8]) -> Busy {
        let mut names = self.0.lock();
        while !names.insert(name.into()) {
            names = self.0.freed.wait(names).unwrap_or_else(PoisonError::into_inner);
        }
        Busy { name: name.into(), all: Arc::clone(&self.0) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.all.lock().remove(&self.name);
        self.all.freed.notify_all();
    }
}

impl Service {
    /// The position of a source. `None` if it is not known.
    ///
    /// # Errors
    /// [`IngestError::Busy`]: a stretch waits for its commit.
    pub(crate) fn position(&self, source: Source<'_>) -> Result<Option<u64>, IngestError> {
        let _busy = self.busy_sources.claim(source).ok_or(IngestError::Busy)?;
        Ok(self.store.position(source))
    }

    /// Makes [`Service::ingest`] refuse stretches of these sources as [`IngestError::Busy`] until the result is
    /// dropped.
    pub(super) fn hold_sources(&self, sources: &[(Box<[u8]>, u64)]) -> Vec<Busy> {
        sources.iter().map(|(name, _)| self.busy_sources.claim_later(name)).collect()
    }

    /// Counts the hits of a stretch, unless they were counted before. The caller holds the guard of
    /// [`Service::enter`] from before this call until the commit.
    ///
    /// # Errors
    /// [`IngestError`]: nothing changed.
    pub(crate) fn ingest<'k>(
        &self,
        stretch: &Stretch<'_>,
        hits: impl Iterator<Item = (&'k [u8], u64, Timestamp)>,
        changes: &mut Changes,
        now: Timestamp,
    ) -> Result<Ingested, IngestError> {
        let &Stretch { source, from, to } = stretch;
        let busy = self.busy_sources.claim(source).ok_or(IngestError::Busy)?;
        let known = self.store.position(source);
        let position = known.unwrap_or(from);
        if known.is_some() && to <= position {
            return Ok(Ingested { position, accepted: 0, refused: 0, is_change: false });
        }
        if from != position {
            return Err(IngestError::Elsewhere { position });
        }
        self.journal()
            .map_or(Ok(()), Journal::check)
            .map_err(|refused| IngestError::Refused(refused.into()))?;
        let mark = changes.deltas.mark();
        let (mut accepted, mut refused) = (0_u64, 0_u64);
        let mut hits = hits.peekable();
        let (mut ops, mut outcomes) = (Vec::with_capacity(RUN_OPERATIONS), Vec::new());
        while hits.peek().is_some() {
            ops.clear();
            outcomes.clear();
            let next = hits.by_ref().take(RUN_OPERATIONS);
            ops.extend(next.map(|(key, weight, at)| Op::Hit { key, weight, at: Some(at) }));
            self.apply(&ops, now, &mut outcomes, Some(&mut changes.deltas));
            self.count_totals(&ops, &outcomes, Some(&mut changes.deltas), now);
            self.note_late(&ops, &outcomes);
            for (op, outcome) in ops.iter().zip(outcomes.drain(..)) {
                let (Op::Hit { weight, .. }, Outcome::Hit(outcome)) = (op, outcome) else { continue };
                match outcome {
                    Ok(_) => accepted = accepted.saturating_add(*weight),
                    Err(error @ HitError::OutOfMemory { .. }) => {
                        self.store.roll_back_since(&mut changes.deltas, &mark);
                        return Err(IngestError::Hit(error));
                    }
                    Err(_) => refused = refused.saturating_add(*weight),
                }
            }
        }
        self.store.set_position(source, to, now, Some(&mut changes.deltas));
        if self.has_journal() {
            changes.add_hits(accepted);
        } else {
            Stats::add(&self.stats.hits, accepted);
        }
        changes.add_busy(busy);
        Stats::add(&self.stats.refused_hits, refused);
        Ok(Ingested { position: to, accepted, refused, is_change: true })
    }
}
