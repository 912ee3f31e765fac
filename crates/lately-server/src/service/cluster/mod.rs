//! Counting together with other nodes: each counts its own hits, and an engine carries the counts from node to node.
//!
//! `outgoing.rs` makes absolute counts of committed changes, `worker.rs` sends these to the
//! engine and reads what other nodes counted of the keys in `interest.rs`. The store merges that, so all answers have it.
//! `reconcile.rs` finds what the engine lacks of this node's hits.
//! `nodes.rs` lists the nodes.

mod config;
mod interest;
mod nodes;
mod origins;
mod outgoing;
mod reconcile;
#[cfg(test)]
mod simulation;
mod worker;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use lately::{Delta, DeltaBatch, Span, Store, Timestamp};
use tokio::sync::Notify;

pub use config::ClusterConfig;
use interest::Interest;
pub(crate) use nodes::Node;
use nodes::Nodes;
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
    /// Changes that wait for the disk: they are in the store, and not yet in what is to be sent.
    waiting: Mutex<WaitingChanges>,
    nodes: Nodes,
}

/// The time of the oldest hit of each batch of changes that waits for the disk.
#[derive(Default)]
struct WaitingChanges {
    last: u64,
    oldest_ms: BTreeMap<u64, i64>,
}

/// A batch of changes that waits for the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingId(u64);

/// How the exchange with the engine goes.
#[derive(Clone, Default, Debug)]
pub(crate) struct State {
    /// Why the last attempt failed. `None` when it did not.
    pub(crate) failure: Option<String>,
    /// When the engine was last reached.
    pub(crate) reached: Option<Timestamp>,
    /// Hits that were missing in the engine, and were sent again. A hit is in a cell of each width, and counts for each.
    pub(crate) resent_hits: u64,
    /// Whether all keys were compared with what the engine has, since the start or since it may have lost some.
    pub(crate) is_reconciled: bool,
}

impl Cluster {
    pub(crate) fn new(config: ClusterConfig) -> Cluster {
        Cluster {
            config,
            outgoing: OnceLock::new(),
            interest: Interest::default(),
            wanted: Notify::new(),
            state: Mutex::default(),
            waiting: Mutex::default(),
            nodes: Nodes::default(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingChanges> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes changes that wait for the disk.
    pub(crate) fn wait_for(&self, deltas: &DeltaBatch) -> WaitingId {
        let times = deltas.deltas().flatten().filter_map(|delta| match delta.1 {
            Delta::Hits { at, .. } => Some(at.as_millis()),
            _ => None,
        });
        let oldest_ms = times.min().unwrap_or(i64::MAX);
        let mut waiting = self.waiting();
        waiting.last += 1;
        let id = waiting.last;
        waiting.oldest_ms.insert(id, oldest_ms);
        WaitingId(id)
    }

    /// Changes wait no more.
    pub(crate) fn settled(&self, WaitingId(id): WaitingId) {
        self.waiting().oldest_ms.remove(&id);
    }

    /// The time of the oldest hit that waits for the disk.
    fn oldest_waiting_ms(&self) -> i64 {
        self.waiting().oldest_ms.values().copied().min().unwrap_or(i64::MAX)
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

    /// How the exchange goes.
    pub(crate) fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keys with counts that others do not have.
    pub(crate) fn unsent_keys(&self) -> usize {
        self.outgoing.get().map_or(0, Outgoing::unsent_keys)
    }

    /// How long ago the engine was last reached; `None` when it never was.
    pub(crate) fn staleness_ms(&self, now: Timestamp) -> Option<i64> {
        let reached = self.state.lock().unwrap_or_else(PoisonError::into_inner).reached;
        Some((now.as_millis() - reached?.as_millis()).max(0))
    }

    fn set_state(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
