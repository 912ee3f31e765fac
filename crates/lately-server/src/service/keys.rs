//! Requests about keys as such: existence, time to live, deletion.

use lately::{Span, Timestamp};
use lately_journal::Journal;
use thiserror::Error;

use crate::service::alerts::{RESERVED, is_total};
use crate::service::commit::Changes;
use crate::service::{Refused, Service};

/// Why keys are not deleted.
#[derive(Debug, Error)]
pub(crate) enum DeleteError {
    #[error(transparent)]
    Journal(#[from] Refused),
    /// Deletions that other nodes do not have yet take their share of the memory.
    #[error(
        "deletions that wait for the engine of the cluster take the memory for more: try again when it has taken some"
    )]
    Waiting,
    /// A key is the total of an alert.
    #[error("{}", RESERVED)]
    Reserved,
}

impl DeleteError {
    /// The first word of the error.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            DeleteError::Journal(_) => "MISCONF",
            DeleteError::Waiting => "OOM",
            DeleteError::Reserved => "ERR",
        }
    }
}

impl Service {
    /// Deletes keys and returns how many existed. The caller holds the guard of [`Service::enter`] from before this call
    /// until the commit.
    ///
    /// # Errors
    /// The journal has failed, too many deletions wait for other nodes, or a key is the total of an alert. Nothing is deleted.
    pub(crate) fn delete<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        changes: &mut Changes,
        now: Timestamp,
    ) -> Result<usize, DeleteError> {
        if keys.clone().any(is_total) {
            return Err(DeleteError::Reserved);
        }
        self.delete_any(keys, changes, now)
    }

    /// The same, of totals too.
    pub(super) fn delete_any<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        changes: &mut Changes,
        now: Timestamp,
    ) -> Result<usize, DeleteError> {
        self.journal().map_or(Ok(()), Journal::check).map_err(Refused::from)?;
        if self.cluster.as_ref().is_some_and(|cluster| !cluster.may_delete(keys.clone())) {
            return Err(DeleteError::Waiting);
        }
        if let Some(cluster) = &self.cluster {
            keys.clone().for_each(|key| cluster.note_known(key, &self.store, now));
        }
        // A cluster sends deletions to its other nodes.
        let is_recorded = self.is_recorded() || self.cluster.is_some();
        let mut deltas = is_recorded.then_some(&mut changes.deltas);
        Ok(keys.filter(|key| self.store.forget_into(key, now, deltas.as_deref_mut())).count())
    }

    /// Deletes all keys, after the deletion was written to the journal: it cannot be rolled back.
    ///
    /// # Errors
    /// The journal has failed, and nothing is deleted. Or the keys are deleted, and in a cluster the next start of this node may
    /// leave out hits: the text says so.
    pub(crate) fn delete_all(&self, now: Timestamp) -> Result<(), Refused> {
        let mut written = Ok(());
        self.store.flush_when(now, |deltas| {
            written = self.commit_through(deltas);
            let is_written = written.is_ok();
            if let Some(cluster) = self.cluster.as_ref().filter(|_| is_written) {
                written = cluster.emptied(now).map_err(|error| {
                    Refused::journal(format!(
                        "the keys are deleted, but the list of origins cannot be written: {error}"
                    ))
                });
            }
            is_written
        });
        written
    }

    /// How many of these keys exist. A key named twice counts twice.
    pub(crate) fn existing<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, now: Timestamp) -> usize {
        keys.filter(|key| self.store.contains(key, now)).count()
    }

    /// The length of a window in whole panes, which is what it counts. `None` is the default window of the key's
    /// class.
    pub(crate) fn panes_of(&self, key: &[u8], window: Option<Span>) -> Span {
        let settings = self.store.settings_of(key);
        settings.whole_panes(window.unwrap_or(settings.window()))
    }

    /// A step that divides a window of a key into this many points, about.
    pub(crate) fn step_of(&self, key: &[u8], window: Span, points: u64) -> Span {
        let pane_ms = self.store.settings_of(key).resolution().as_millis().unsigned_abs();
        let step_ms = window.as_millis().unsigned_abs().div_ceil(points.max(1)).next_multiple_of(pane_ms);
        i64::try_from(step_ms).ok().and_then(Span::from_millis).unwrap_or(window)
    }

    /// The default window of a key.
    pub(crate) fn default_window(&self, key: &[u8]) -> Span {
        self.store.settings_of(key).window()
    }

    /// The time until the last hit leaves the retention. `None` if the key does not exist.
    pub(crate) fn time_to_live(&self, key: &[u8], now: Timestamp) -> Option<Span> {
        self.store.time_to_live(key, now)
    }
}
