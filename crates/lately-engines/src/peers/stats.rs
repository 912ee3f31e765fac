//! What a node has exchanged with each of its neighbours.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lately::Timestamp;

use crate::limits::{MAX_PEER_FOLLOWERS, PEER_SILENT_MS};

/// What a neighbour is to this node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PeerRole {
    /// A node beside it.
    Peer,
    /// A node above it.
    Parent,
    /// A node below it.
    Child,
}

impl PeerRole {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PeerRole::Peer => "peer",
            PeerRole::Parent => "parent",
            PeerRole::Child => "child",
        }
    }
}

/// A node that this one exchanges changes with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerNeighbour {
    /// Its name, or its address before it was reached.
    pub name: String,
    /// What it is to this node.
    pub role: PeerRole,
    /// Whether something was exchanged with it lately.
    pub is_connected: bool,
    /// What was exchanged.
    pub traffic: PeerTraffic,
}

/// What was exchanged with a node since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct PeerTraffic {
    /// Cells and texts that it was sent.
    pub changes_sent: u64,
    /// Those that came from it.
    pub changes_received: u64,
    /// Bytes of the messages with them.
    pub bytes_sent: u64,
    /// The same of those that came.
    pub bytes_received: u64,
    /// How often all that it has was read from the beginning: at the first contact, and after each start of it.
    pub resyncs: u64,
}

/// What is known of the neighbours of a node, by name.
#[derive(Default, Debug)]
pub struct PeerStats(Mutex<BTreeMap<String, Held>>);

#[derive(Debug)]
struct Held {
    role: PeerRole,
    seen_ms: Option<i64>,
    traffic: PeerTraffic,
}

impl PeerStats {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The neighbours at this time.
    #[must_use]
    pub fn neighbours(&self, now: Timestamp) -> Vec<PeerNeighbour> {
        let is_connected = |held: &Held| {
            held.seen_ms.is_some_and(|seen_ms| now.as_millis().saturating_sub(seen_ms) < PEER_SILENT_MS)
        };
        let neighbour = |(name, held): (&String, &Held)| PeerNeighbour {
            name: name.clone(),
            role: held.role,
            is_connected: is_connected(held),
            traffic: held.traffic,
        };
        self.lock().iter().map(neighbour).collect()
    }

    /// A node is to be reached. It has this address, and no name yet.
    pub(super) fn expect(&self, address: &str, role: PeerRole) {
        let held = Held { role, seen_ms: None, traffic: PeerTraffic::default() };
        self.lock().entry(address.to_owned()).or_insert(held);
    }

    /// Nothing is at this address any more, or it has a name by now.
    pub(super) fn drop_address(&self, address: &str) {
        self.lock().remove(address);
    }

    /// Something was exchanged with a node.
    pub(super) fn note(
        &self,
        name: &str,
        role: Option<PeerRole>,
        now: Timestamp,
        count: impl FnOnce(&mut PeerTraffic),
    ) {
        let now_ms = now.as_millis();
        let mut all = self.lock();
        if !all.contains_key(name) && all.len() >= MAX_PEER_FOLLOWERS {
            all.retain(|_, held| held.seen_ms.is_none_or(|seen_ms| now_ms - seen_ms < PEER_SILENT_MS));
            if all.len() >= MAX_PEER_FOLLOWERS {
                return;
            }
        }
        let held = all.entry(name.to_owned()).or_insert_with(|| Held {
            role: PeerRole::Peer,
            seen_ms: None,
            traffic: PeerTraffic::default(),
        });
        held.role = role.unwrap_or(held.role);
        held.seen_ms = Some(now_ms);
        count(&mut held.traffic);
    }
}
