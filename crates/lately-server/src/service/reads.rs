//! The age of an answer, and the nodes that counted its hits.

use std::sync::Arc;
use std::time::Duration;

use lately::{Count, HitsByNode, Span, Store, Timestamp};

use super::Service;
use super::cluster::Wait;

/// The name of the node of a server outside of a cluster.
const LOCAL_NODE: &str = "local";

/// The hits of a key in a window by the node that counted them.
pub(crate) struct CountByOrigin {
    pub(crate) count: Count,
    /// Names and hits, most hits first. Their sum is the estimate. Nodes without hits are left out.
    pub(crate) origins: Vec<(Box<str>, u64)>,
}

/// A read of a key in a window (default: that of its class) that ends at a time (default: now).
#[derive(Clone, Copy)]
pub(crate) struct Asked<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) window: Option<Span>,
    pub(crate) at: Option<Timestamp>,
}

impl Asked<'_> {
    /// The window that ends now and covers this one.
    pub(crate) fn reach(&self, store: &Store, now: Timestamp) -> Span {
        let window = self.window.unwrap_or_else(|| store.settings_of(self.key).window());
        let ago_ms = self.at.map_or(0, |at| (now.as_millis() - at.as_millis()).max(0));
        Span::from_millis(window.as_millis().saturating_add(ago_ms)).unwrap_or(Span::MAX)
    }
}

impl Service {
    /// The hits of a key in a window, by the node that counted them.
    pub(crate) fn count_by_origin(
        &self,
        key: &[u8],
        window: Option<Span>,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> CountByOrigin {
        self.note_question(Asked { key, window, at }, now);
        let node = self.cluster.as_ref().map_or(LOCAL_NODE, |cluster| &cluster.config.node);
        let HitsByNode { count, own, others: mut origins } = self.store.hits_by_node(key, window, at, now);
        // An earlier start without a data folder may have counted hits that this one does not have.
        match origins.iter_mut().find(|(name, _)| **name == *node) {
            Some((_, hits)) => *hits = hits.saturating_add(own),
            None => origins.push((node.into(), own)),
        }
        origins.retain(|(_, hits)| *hits > 0);
        origins.sort_by(|(one, more), (other, less)| less.cmp(more).then(one.cmp(other)));
        CountByOrigin { count, origins }
    }

    /// The age of the oldest part of an answer about a key, in milliseconds: 0 outside of a cluster, because a node's
    /// own hits are always current; or else the time since the hits of other nodes were read. `None` if they never
    /// were.
    pub(crate) fn staleness_ms(&self, asked: Asked<'_>, now: Timestamp) -> Option<i64> {
        let Some(cluster) = &self.cluster else { return Some(0) };
        let read = cluster.read_at(asked.key, asked.reach(&self.store, now))?;
        Some((now.as_millis() - read.as_millis()).max(0))
    }

    /// Notes a read of a key.
    pub(crate) fn note_question(&self, asked: Asked<'_>, now: Timestamp) {
        if let Some(cluster) = &self.cluster {
            cluster.note_read(asked.key, asked.reach(&self.store, now), &self.store, now);
        }
    }

    /// Notes reads of keys. Returns what to wait for before the answer, and the longest wait. `None` if the counts of
    /// other nodes are known, or waiting would not help.
    pub(crate) fn wait_for<'k>(
        &self,
        asked: impl Iterator<Item = Asked<'k>> + Clone,
        now: Timestamp,
    ) -> Option<(Arc<Wait>, Duration)> {
        let cluster = self.cluster.as_ref()?;
        let reads = asked.map(|asked| (asked.key, asked.reach(&self.store, now)));
        cluster.wait_for_keys(reads, &self.store, now)
    }

    /// Waits until the counts of other nodes are known for a key, at most for `read_timeout`.
    pub(crate) async fn known(&self, asked: Asked<'_>) {
        let Some((wait, timeout)) = self.wait_for([asked].into_iter(), self.now()) else { return };
        // A timeout is not an error: the answer uses the counts that are known.
        self.over(&wait, timeout).await;
    }
}
