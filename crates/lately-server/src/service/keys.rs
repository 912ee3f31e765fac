//! Keys as such: whether they are there, for how long, and forgetting them.

use lately::{Span, Timestamp};
use lately_journal::{Journal, Refused};

use crate::service::Service;
use crate::service::commit::Changes;

impl Service {
    /// Forgets keys; gives how many there were. From before this until the commit the caller holds what
    /// [`Service::enter`] gave.
    ///
    /// # Errors
    /// When nothing can be kept: then nothing is forgotten.
    pub(crate) fn delete<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
        changes: &mut Changes,
        now: Timestamp,
    ) -> Result<usize, Refused> {
        self.journal().map_or(Ok(()), Journal::check)?;
        let mut deltas = self.is_recorded().then_some(&mut changes.deltas);
        Ok(keys.filter(|key| self.store.forget_into(key, now, deltas.as_deref_mut())).count())
    }

    /// Forgets all keys, once that is written down: it cannot be taken back.
    ///
    /// # Errors
    /// When it cannot be: then nothing is forgotten.
    pub(crate) fn delete_all(&self, now: Timestamp) -> Result<(), Refused> {
        let mut written = Ok(());
        self.store.flush_when(now, |deltas| {
            written = self.commit_through(deltas);
            written.is_ok()
        });
        written
    }

    /// How many of these there are. A key that is named twice counts twice.
    pub(crate) fn existing<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, now: Timestamp) -> usize {
        keys.filter(|key| self.store.contains(key, now)).count()
    }

    /// Time until the last hit leaves the retention; `None` without such a key.
    pub(crate) fn time_to_live(&self, key: &[u8], now: Timestamp) -> Option<Span> {
        self.store.time_to_live(key, now)
    }
}
