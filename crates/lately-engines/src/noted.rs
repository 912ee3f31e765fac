//! Blocks that were noted as changed, in an engine that has its counts in memory: see [`crate::Engine::take_changed`].

use std::collections::BTreeSet;

use crate::OwnedBlock;
use crate::limits::MAX_PEER_NOTES;

/// The blocks, each once. Past [`MAX_PEER_NOTES`], further ones are left out.
#[derive(Default)]
pub(crate) struct Noted(BTreeSet<OwnedBlock>);

impl Noted {
    pub(crate) fn note(&mut self, block: OwnedBlock) {
        if self.0.len() < MAX_PEER_NOTES {
            self.0.insert(block);
        }
    }

    /// Takes some of them.
    pub(crate) fn take(&mut self, most: usize) -> Vec<OwnedBlock> {
        std::iter::from_fn(|| self.0.pop_first()).take(most).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
