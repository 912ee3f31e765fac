//! How old an answer is, and which nodes counted the hits in it.

use std::sync::Arc;
use std::time::Duration;

use lately::{Count, HitsByNode, Span, Store, Timestamp};

use super::Service;
use super::cluster::Wait;

/// The name of the node of a server that counts alone.
const LOCAL_NODE: &str = "local";

/// The hits of a key in a window by the node that counted them.
pub(crate) struct CountByOrigin {
    pub(crate) count: Count,
    /// Names and hits, most first. They add up to the estimate. Nodes without hits are left out.
    pub(crate) origins: Vec<(Box<str>, u64)>,
}

/// A key that somebody asks for: a window (default: that of its class) that ends at a time (default: now).
#[derive(Clone, Copy)]
pub(crate) struct Asked<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) window: Option<Span>,
    pub(crate) at: Option<Timestamp>,
}

impl Asked<'_> {
    /// The window that ends now and has all of it.
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
        // Of an earlier start without a data folder there may be hits that this one has not.
        match origins.iter_mut().find(|(name, _)| **name == *node) {
            Some((_, hits)) => *hits = hits.saturating_add(own),
            None => origins.push((node.into(), own)),
        }
        origins.retain(|(_, hits)| *hits > 0);
        origins.sort_by(|(one, more), (other, less)| less.cmp(more).then(one.cmp(other)));
        CountByOrigin { count, origins }
    }

    /// How old the oldest part of an answer about a key is, in milliseconds: 0 for a server that counts alone, because its own
    /// hits are always current; the time since the hits of other nodes were read; `None` when they never were.
    pub(crate) fn staleness_ms(&self, asked: Asked<'_>, now: Timestamp) -> Option<i64> {
        let Some(cluster) = &self.cluster else { return Some(0) };
        let read = cluster.read_at(asked.key, asked.reach(&self.store, now))?;
        Some((now.as_millis() - read.as_millis()).max(0))
    }

    /// Notes that somebody asks for a window of a key.
    pub(crate) fn note_question(&self, asked: Asked<'_>, now: Timestamp) {
        if let Some(cluster) = &self.cluster {
            cluster.note_read(asked.key, asked.reach(&self.store, now), &self.store, now);
        }
    }

    /// Notes that somebody asks for windows of keys. Returns what to wait for before the answer, and how long at most. `None` if
    /// what other nodes counted of them is known, or waiting would not help.
    pub(crate) fn wait_for<'k>(
        &self,
        asked: impl Iterator<Item = Asked<'k>>,
        now: Timestamp,
    ) -> Option<(Arc<Wait>, Duration)> {
        let cluster = self.cluster.as_ref()?;
        let reads = asked.map(|asked| (asked.key, asked.reach(&self.store, now)));
        cluster.wait_for_keys(reads, &self.store, now)
    }

    /// Waits until what other nodes counted of a key is known, or for `read_timeout`.
    pub(crate) async fn known(&self, asked: Asked<'_>) {
        let Some((wait, timeout)) = self.wait_for([asked].into_iter(), self.now()) else { return };
        let over = async {
            loop {
                let mut woken = std::pin::pin!(self.verdicts.notified());
                // Registered before the check, so that no notification is missed.
                woken.as_mut().enable();
                if wait.is_over() {
                    return;
                }
                woken.await;
            }
        };
        // Too late is no error: the answer is what is known.
        let _ = tokio::time::timeout(timeout, over).await;
    }
}
