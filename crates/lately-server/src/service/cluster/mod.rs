//! Counting together with other nodes: each counts its own hits, and an engine carries the counts from node to node.
//!
//! Committed changes come in by a change feed. `outgoing.rs` makes absolute counts of them, `worker.rs` sends these to the
//! engine and reads what other nodes counted of the keys in `interest.rs`. The store merges that, so all answers have it.

mod config;
mod interest;
mod outgoing;
mod worker;

use std::sync::{Mutex, PoisonError};

use lately::{Span, Timestamp};
use tokio::sync::Notify;

pub use config::ClusterConfig;
use interest::Interest;
pub(crate) use worker::run;

use crate::service::change_feed::ChangeFeed;

/// What the service knows of the cluster.
pub(crate) struct Cluster {
    pub(crate) config: ClusterConfig,
    /// Committed changes, for the worker.
    pub(crate) committed: ChangeFeed,
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
    /// Cells that were not sent yet, or not confirmed.
    pub(crate) unsent_cells: usize,
}

impl Cluster {
    pub(crate) fn new(config: ClusterConfig, ceiling_bytes: u64) -> Cluster {
        Cluster {
            config,
            committed: ChangeFeed::new(ceiling_bytes),
            interest: Interest::default(),
            wanted: Notify::new(),
            state: Mutex::default(),
        }
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

    fn set_state(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
