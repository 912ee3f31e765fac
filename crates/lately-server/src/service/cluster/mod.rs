//! Counting together with other nodes: each counts its own hits, and an engine carries the counts from node to node.
//!
//! `outgoing.rs` makes absolute counts of committed changes, `worker.rs` sends these to the
//! engine and reads what other nodes counted of the keys in `interest.rs`. The store merges that, so all answers have it.

mod config;
mod interest;
mod origins;
mod outgoing;
mod worker;

use std::sync::{Mutex, OnceLock, PoisonError};

use lately::{DeltaBatch, Span, Store, Timestamp};
use tokio::sync::Notify;

pub use config::ClusterConfig;
use interest::Interest;
use outgoing::Outgoing;
pub use worker::ClusterError;
pub(crate) use worker::{Signals, run, start};

/// What the service knows of the cluster.
pub(crate) struct Cluster {
    pub(crate) config: ClusterConfig,
    /// What this node counted. `None` until the exchange starts, before the first client.
    outgoing: OnceLock<Outgoing>,
    interest: Interest,
    /// Wakes the worker: a client waits for a key that is not known.
    wanted: Notify,
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
    pub(crate) fn new(config: ClusterConfig) -> Cluster {
        Cluster {
            config,
            outgoing: OnceLock::new(),
            interest: Interest::default(),
            wanted: Notify::new(),
            state: Mutex::default(),
        }
    }

    /// Adds committed changes to what is to be sent.
    pub(crate) fn add(&self, deltas: &DeltaBatch, store: &Store) {
        if let Some(outgoing) = self.outgoing.get().filter(|_| !deltas.is_empty()) {
            outgoing.add(deltas.deltas(), store);
        }
    }

    /// Memory of what is to be sent, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.outgoing.get().map_or(0, Outgoing::held_bytes)
    }

    /// Notes that somebody reads a key. What others counted of it is kept fresh for a while.
    pub(crate) fn note_read(&self, key: &[u8], window: Span, now: Timestamp) {
        if self.interest.note(key, window, now) {
            self.wanted.notify_one();
        }
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
