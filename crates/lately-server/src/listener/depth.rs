//! How deep a client's pipelines are.

use std::sync::Arc;

use super::balance::{Balance, Counted};
use crate::limits::{DEEP_REQUESTS, RUN_OPERATIONS};

/// How many requests a client sends at a time, lately.
#[derive(Default)]
pub(super) struct Depth {
    /// Eight times as many: each time moves it by an eighth of the difference.
    eightfold: usize,
    /// While its pipelines are deep.
    counted: Option<Counted>,
}

impl Depth {
    /// Takes note that so many came at once.
    pub(super) fn note(&mut self, requests: usize) {
        self.eightfold -= self.eightfold / 8;
        self.eightfold += requests.min(RUN_OPERATIONS);
    }

    /// Whether pipelines are deep; they stay so until they are half as deep.
    pub(super) fn is_deep(&self) -> bool {
        let bound = if self.counted.is_some() { DEEP_REQUESTS / 2 } else { DEEP_REQUESTS };
        self.eightfold >= 8 * bound
    }

    /// Whether that has changed since the client was given its place.
    pub(super) fn has_changed(&self) -> bool {
        self.is_deep() != self.counted.is_some()
    }

    /// The loop that is to serve the client, which this one serves.
    pub(super) fn place(&mut self, balance: &Arc<Balance>, current: usize) -> usize {
        let is_deep = self.is_deep();
        // Before it is counted: it is not in its own way.
        self.counted = None;
        self.counted = is_deep.then(|| balance.count(current));
        self.counted.as_ref().map_or_else(|| balance.usual_from(current), |counted| counted.at)
    }
}
