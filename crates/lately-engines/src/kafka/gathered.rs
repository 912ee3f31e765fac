//! The hits of a batch of records, by key. So each cell is changed once for a batch, however many hits it has.

use std::collections::HashMap;

use lately::Timestamp;

/// Hits of records that are not counted yet.
#[derive(Default)]
pub(super) struct Gathered {
    keys: HashMap<Box<[u8]>, Vec<Gather>>,
}

/// The hits of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gather {
    pub(super) offset: i64,
    pub(super) at: Timestamp,
    pub(super) hits: u64,
}

impl Gathered {
    pub(super) fn add(&mut self, key: &[u8], gather: Gather) {
        match self.keys.get_mut(key) {
            Some(hits) => hits.push(gather),
            None => _ = self.keys.insert(key.into(), vec![gather]),
        }
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
    }

    /// Takes keys out as long as this succeeds. Returns those that were taken, and the failure.
    pub(super) fn take<E>(
        &mut self,
        mut take: impl FnMut(&[u8], &[Gather]) -> Result<(), E>,
    ) -> (Vec<Box<[u8]>>, Result<(), E>) {
        let mut done = Ok(());
        let taken = self.keys.extract_if(|key, hits| {
            if done.is_ok() {
                done = take(key, hits);
                return done.is_ok();
            }
            false
        });
        (taken.map(|(key, _)| key).collect(), done)
    }
}
