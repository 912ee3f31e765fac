//! `HITS … STALENESS` and `HITS … BY ORIGIN`.

use lately::{Span, Timestamp};
use lately_resp::Encoder;

use super::{Session, integer};
use crate::service::Asked;

/// The staleness of a key whose hits on other nodes were never read.
const NEVER_READ: i64 = -1;

impl Session {
    pub(super) fn hits_staleness(
        &self,
        key: &[u8],
        (window, at): (Option<Span>, Option<Timestamp>),
        now: Timestamp,
        out: &mut Vec<u8>,
    ) {
        // First: what is read meanwhile is newer than the answer says.
        let staleness_ms = self.service.staleness_ms(Asked { key, window, at }, now);
        let counts = self.service.counts(key, (window.into_iter().collect(), at), false, now);
        let mut reply = Encoder::new(out, self.protocol);
        reply.array(2);
        reply.integer(counts.first().map_or(0, |it| integer(it.count.estimate)));
        reply.integer(staleness_ms.unwrap_or(NEVER_READ));
    }

    pub(super) fn hits_by_origin(
        &self,
        key: &[u8],
        (window, at): (Option<Span>, Option<Timestamp>),
        now: Timestamp,
        out: &mut Vec<u8>,
    ) {
        let rows = self.service.count_by_origin(key, window, at, now).origins;
        let mut reply = Encoder::new(out, self.protocol);
        reply.array(rows.len());
        for (origin, hits) in rows {
            reply.array(2);
            reply.bulk(origin.as_bytes());
            reply.integer(integer(hits));
        }
    }
}
