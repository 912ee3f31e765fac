//! How old an answer is, and which nodes counted the hits in it.

use lately::{Count, HitsByNode, Span, Timestamp};

use super::response::WindowCount;
use super::{Service, rate};

/// The name of the node of a server that counts alone.
const LOCAL_NODE: &str = "local";

/// The hits of a key in a window by the node that counted them.
pub(crate) struct CountByOrigin {
    pub(crate) count: Count,
    /// Names and hits, most first. They add up to the estimate. Nodes without hits are left out.
    pub(crate) origins: Vec<(Box<str>, u64)>,
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
        self.note_question(key, window, now);
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

    /// [`Service::counts`] by origin.
    pub(crate) fn counts_by_origin(
        &self,
        key: &[u8],
        mut windows: Vec<Span>,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> Vec<WindowCount> {
        if windows.is_empty() {
            windows.push(self.store.settings_of(key).window());
        }
        let of = |window| {
            let CountByOrigin { count, origins } = self.count_by_origin(key, Some(window), at, now);
            let rate = rate(&count, self.panes_of(key, Some(window)));
            WindowCount { window, count, rate, origins: Some(origins) }
        };
        windows.into_iter().map(of).collect()
    }

    /// How old the oldest part of an answer about a key is, in milliseconds: 0 for a server that counts alone, because its own
    /// hits are always current; the time since the hits of other nodes were read; `None` when they never were.
    pub(crate) fn staleness_ms(&self, key: &[u8], window: Option<Span>, now: Timestamp) -> Option<i64> {
        let Some(cluster) = &self.cluster else { return Some(0) };
        let read = cluster.read_at(key, window.unwrap_or(self.store.settings_of(key).window()))?;
        Some((now.as_millis() - read.as_millis()).max(0))
    }

    /// Notes that somebody asks for a window of a key.
    fn note_question(&self, key: &[u8], window: Option<Span>, now: Timestamp) {
        if let Some(cluster) = &self.cluster {
            cluster.note_read(key, window.unwrap_or(self.store.settings_of(key).window()), now);
        }
    }
}
