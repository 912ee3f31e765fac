//! `DEL`, `TTL`, and the patterns of `SCAN`.

use lately::Timestamp;
use lately::limits::MAX_KEY_BYTES;
use lately_resp::{ArgList, Encoder};

use super::written::{Written, refuse_deletion};
use super::{Session, integer};

/// The reply of `TTL` when the key does not exist, as in Redis.
const NO_KEY: i64 = -2;

impl Session {
    pub(super) fn delete(&self, keys: ArgList<'_>, written: &mut Written, now: Timestamp, out: &mut Vec<u8>) {
        let deleted = match self.service.delete(keys.iter(), &mut written.changes, now) {
            Ok(deleted) => deleted,
            Err(error) => return refuse_deletion(out, &error),
        };
        let start = out.len();
        Encoder::new(out, self.protocol).integer(integer(deleted as u64));
        // Also without a key: a deletion before it in the batch may be refused, and then its hits come back.
        if self.service.has_journal() {
            written.replied(start, out.len());
        }
    }

    /// The time until the last hit leaves the retention, in units of `unit_ms`, rounded up.
    pub(super) fn time_to_live_ms(&self, key: &[u8], now: Timestamp, unit_ms: i64) -> i64 {
        match self.service.time_to_live(key, now) {
            Some(left) => (left.as_millis() + unit_ms - 1) / unit_ms,
            None => NO_KEY,
        }
    }
}

/// Whether a pattern is too long: matching may take time proportional to the product of the lengths.
pub(super) fn is_too_long(pattern: &[u8]) -> bool {
    pattern.len() > MAX_KEY_BYTES
}

pub(super) fn refuse_pattern(reply: &mut Encoder<'_>) {
    reply.error(format_args!("ERR invalid pattern: a pattern has at most {MAX_KEY_BYTES} bytes"));
}
