//! Keys as such: `DEL EXISTS SCAN TTL`.

use lately::{Cursor, Pattern, Timestamp};
use lately_resp::command::Scan;
use lately_resp::{ArgList, Encoder};

use super::{Session, integer};

/// The reply of `TTL` where there is no key, as in Redis.
const NO_KEY: i64 = -2;

impl Session {
    pub(super) fn delete(&self, keys: ArgList<'_>, now: Timestamp) -> i64 {
        let deleted = keys.iter().filter(|key| self.engine.store.forget(key, now)).count();
        integer(deleted as u64)
    }

    pub(super) fn existing(&self, keys: ArgList<'_>, now: Timestamp) -> i64 {
        let existing = keys.iter().filter(|key| self.engine.store.contains(key, now)).count();
        integer(existing as u64)
    }

    /// Time until the last hit leaves the retention, in units of `unit_ms`, rounded up.
    pub(super) fn time_to_live_ms(&self, key: &[u8], now: Timestamp, unit_ms: i64) -> i64 {
        match self.engine.store.time_to_live(key, now) {
            Some(left) => (left.as_millis() + unit_ms - 1) / unit_ms,
            None => NO_KEY,
        }
    }

    pub(super) fn scan(&self, scan: &Scan<'_>, now: Timestamp, reply: &mut Encoder<'_>) {
        let longest = lately::limits::MAX_KEY_BYTES;
        if scan.pattern.is_some_and(|pattern| pattern.len() > longest) {
            // Longer than any key: nobody means it, and matching takes the product of both lengths.
            return reply.error(format_args!("ERR invalid pattern: a pattern has at most {longest} bytes"));
        }
        let pattern = scan.pattern.map(Pattern::new);
        let wanted = scan.kind.is_none_or(|name| name.eq_ignore_ascii_case(b"hits"));
        let page = self.engine.store.scan(
            Cursor::from_number(scan.cursor),
            pattern.as_ref(),
            usize::try_from(scan.count).unwrap_or(usize::MAX),
            now,
        );
        let keys = if wanted { page.keys } else { Vec::new() };
        reply.array(2);
        reply.bulk(page.next.number().to_string());
        reply.array(keys.len());
        for key in &keys {
            reply.bulk(key);
        }
    }
}
