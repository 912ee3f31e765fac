//! Keys as such: `DEL EXISTS SCAN TTL`.

use lately::limits::{MAX_KEY_BYTES, MAX_SCAN_SLOTS};
use lately::{Cursor, Pattern, Timestamp};
use lately_journal::{Journal, Refused};
use lately_resp::command::Scan;
use lately_resp::{ArgList, Encoder};

use super::written::{Written, refuse};
use super::{Session, integer};
use crate::engine::Engine;
use crate::limits::{SCAN_BYTES, SCAN_STEP, SCAN_STEP_PATTERN_BYTES, SCAN_WORK};

/// The reply of `TTL` where there is no key, as in Redis.
const NO_KEY: i64 = -2;

impl Session {
    pub(super) fn delete(&self, keys: ArgList<'_>, written: &mut Written, now: Timestamp, out: &mut Vec<u8>) {
        let Engine { store, .. } = &*self.engine;
        let journal = self.engine.journal();
        if let Some(Err(refused)) = journal.map(Journal::check) {
            return refuse(out, &refused);
        }
        let mut deltas = self.engine.is_recorded().then_some(&mut written.changes.deltas);
        let forget = |key: &&[u8]| store.forget_into(key, now, deltas.as_deref_mut());
        let deleted = keys.iter().filter(forget).count();
        let start = out.len();
        Encoder::new(out, self.protocol).integer(integer(deleted as u64));
        if journal.is_some() && deleted > 0 {
            written.replied(start, out.len(), 0);
        }
    }

    /// Forgets all keys, once that is written down: it cannot be taken back.
    pub(super) fn flush(&self, now: Timestamp) -> Result<(), Refused> {
        let mut written = Ok(());
        self.engine.store.flush_when(now, |deltas| {
            written = self.engine.commit_through(deltas);
            written.is_ok()
        });
        written
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
        if scan.pattern.is_some_and(is_too_long) {
            return refuse_pattern(reply);
        }
        let pattern = scan.pattern.map(Pattern::new);
        let wanted = scan.kind.is_none_or(|name| name.eq_ignore_ascii_case(b"hits"));
        let mut places = usize::try_from(scan.count).unwrap_or(usize::MAX).min(MAX_SCAN_SLOTS);
        let pattern_bytes = scan.pattern.map_or(0, <[u8]>::len);
        let most = SCAN_STEP * SCAN_STEP_PATTERN_BYTES / pattern_bytes.max(SCAN_STEP_PATTERN_BYTES);
        let (mut cursor, mut keys) = (Cursor::from_number(scan.cursor), Vec::new());
        let (mut bytes, mut work) = (0, 0);
        while places > 0 && bytes < SCAN_BYTES && work < SCAN_WORK {
            let step = places.min(most);
            let page = self.engine.store.scan(cursor, pattern.as_ref(), step, now);
            work += page.work;
            if wanted {
                bytes += page.keys.iter().map(|key| key.len()).sum::<usize>();
                keys.extend(page.keys);
            }
            (cursor, places) = (page.next, places - step);
            if cursor == Cursor::START {
                break;
            }
        }
        reply.array(2);
        reply.bulk(cursor.number().to_string());
        reply.array(keys.len());
        for key in &keys {
            reply.bulk(key);
        }
    }
}

/// Whether a pattern is longer than any key: nobody means it, and matching takes the product of both lengths.
pub(super) fn is_too_long(pattern: &[u8]) -> bool {
    pattern.len() > MAX_KEY_BYTES
}

pub(super) fn refuse_pattern(reply: &mut Encoder<'_>) {
    reply.error(format_args!("ERR invalid pattern: a pattern has at most {MAX_KEY_BYTES} bytes"));
}
