//! Counting together with other nodes: each counts its own hits, and an engine carries the counts from node to node.
//!
//! `outgoing.rs` makes absolute counts of committed changes, `worker.rs` sends these to the
//! engine and reads what other nodes counted of the keys in `interest.rs`. The store merges that, so all answers have it.

mod config;
mod interest;
mod origins;
mod outgoing;
mod wait;
mod worker;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use lately::{DeltaBatch, Span, Store, Timestamp};

use crate::limits::INTEREST_SHARE;

pub use config::ClusterConfig;
use interest::{Answer, Interest, Question};
use outgoing::Outgoing;
pub(crate) use wait::Wait;
pub use worker::ClusterError;
pub(crate) use worker::{Signals, run, start};

/// What the service knows of the cluster.
pub(crate) struct Cluster {
    pub(crate) config: ClusterConfig,
    /// What this node counted. `None` until the exchange starts, before the first client.
    outgoing: OnceLock<Outgoing>,
    interest: Interest,
    state: Mutex<State>,
}

/// How the exchange with the engine goes.
#[derive(Clone, Default, Debug)]
pub(crate) struct State {
    /// Why the last attempt failed. `None` when it did not.
    pub(crate) failure: Option<String>,
    /// When the engine was last reached.
    pub(crate) reached: Option<Timestamp>,
    /// Keys with counts that others do not have.
    pub(crate) unsent_keys: usize,
}

impl Cluster {
    /// A cluster of which nothing is known yet, on a server with this memory ceiling.
    pub(crate) fn new(config: ClusterConfig, ceiling_bytes: u64) -> Cluster {
        let most_bytes = usize::try_from(ceiling_bytes / INTEREST_SHARE).unwrap_or(usize::MAX);
        Cluster {
            interest: Interest::new(most_bytes, config.flush),
            config,
            outgoing: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Adds committed changes to what is to be sent.
    pub(crate) fn add(&self, deltas: &DeltaBatch, store: &Store) {
        if let Some(outgoing) = self.outgoing.get().filter(|_| !deltas.is_empty()) {
            outgoing.add(deltas.deltas(), store);
        }
    }

    /// Memory of what is to be sent, and of the keys that are read, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.outgoing.get().map_or(0, Outgoing::held_bytes) + self.interest.held_bytes()
    }

    /// Notes that somebody reads a key. What others counted of it is read again.
    pub(crate) fn note_read(&self, key: &[u8], window: Span, store: &Store, now: Timestamp) {
        let question = Question { key, window, is_limit: false };
        let _ = self.interest.note(question, None, now, |key| store.unlearn(key));
    }

    /// Notes that somebody asks for a limit on a key. What others counted of it is kept fresh while the limit may last.
    pub(crate) fn note_limit(&self, key: &[u8], window: Span, store: &Store, now: Timestamp) {
        let question = Question { key, window, is_limit: true };
        let _ = self.interest.note(question, None, now, |key| store.unlearn(key));
    }

    /// Notes that somebody reads keys. Returns what to wait for before the answer, and how long at most. `None` if all are known,
    /// or waiting would not help.
    pub(crate) fn wait_for<'k>(
        &self,
        keys: impl Iterator<Item = (&'k [u8], Span)>,
        store: &Store,
        now: Timestamp,
    ) -> Option<(Arc<Wait>, Duration)> {
        let timeout = self.config.read_timeout?;
        let mut wait: Option<Arc<Wait>> = None;
        for (key, window) in keys {
            let question = Question { key, window, is_limit: false };
            let forget = |key: &[u8]| store.unlearn(key);
            if wait.is_none() && self.interest.note(question, None, now, forget) == Answer::Known {
                continue;
            }
            if wait.is_none() && self.state().failure.is_some() {
                return None;
            }
            let wait = wait.get_or_insert_with(Wait::new);
            let _ = self.interest.note(question, Some((wait, timeout)), now, forget);
        }
        let wait = wait.filter(|wait| !wait.done())?;
        Some((wait, timeout))
    }

    /// Reads all keys that somebody asked for: other nodes have none of them.
    #[cfg(test)]
    pub(crate) fn read_all(&self, now: Timestamp) {
        let due = self.interest.due(usize::MAX, true, now);
        due.iter().for_each(|due| _ = self.interest.note_read(due, 0, |_| {}));
    }

    /// When the hits of other nodes on a key were last read, for a window of this length.
    pub(crate) fn read_at(&self, key: &[u8], window: Span) -> Option<Timestamp> {
        self.interest.read_at(key, window)
    }

    /// How the exchange goes.
    pub(crate) fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How long ago the engine was last reached; `None` when it never was.
    pub(crate) fn staleness_ms(&self, now: Timestamp) -> Option<i64> {
        Some((now.as_millis() - self.state().reached?.as_millis()).max(0))
    }

    fn set_state(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
