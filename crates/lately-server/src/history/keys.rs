//! The keys that have samples. A time series database keeps an index of them, so there is a bound.

use std::collections::HashMap;

use crate::limits::HISTORY_KEY_KEPT;

/// Memory of a key beside its bytes.
const KEY_BYTES: usize = 64;

/// The keys with samples of late, and when their last one was.
#[derive(Debug)]
pub(super) struct Keys {
    last_ms: HashMap<Box<[u8]>, i64>,
    most: usize,
    bytes: usize,
    /// Whether old ones were removed since the pane began.
    is_swept: bool,
}

impl Keys {
    pub(super) fn new(most: usize) -> Keys {
        Keys { last_ms: HashMap::new(), most, bytes: 0, is_swept: false }
    }

    /// Begins a pane.
    pub(super) fn begin(&mut self) {
        self.is_swept = false;
    }

    /// Whether a key may have a sample at this time.
    pub(super) fn admit(&mut self, key: &[u8], at_ms: i64) -> bool {
        if let Some(last_ms) = self.last_ms.get_mut(key) {
            *last_ms = at_ms.max(*last_ms);
            return true;
        }
        if self.last_ms.len() >= self.most {
            self.sweep(at_ms);
        }
        if self.last_ms.len() >= self.most {
            return false;
        }
        self.bytes += key.len() + KEY_BYTES;
        self.last_ms.insert(key.into(), at_ms);
        true
    }

    fn sweep(&mut self, now_ms: i64) {
        if std::mem::replace(&mut self.is_swept, true) {
            return;
        }
        let oldest_ms = now_ms - HISTORY_KEY_KEPT.as_millis();
        self.last_ms.retain(|key, last_ms| {
            let is_kept = *last_ms >= oldest_ms;
            self.bytes -= if is_kept { 0 } else { key.len() + KEY_BYTES };
            is_kept
        });
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    pub(super) fn len(&self) -> usize {
        self.last_ms.len()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_samples_for_an_hour_makes_room() {
        let (mut keys, hour_ms) = (Keys::new(2), HISTORY_KEY_KEPT.as_millis());
        assert!(keys.admit(b"a", 1) && keys.admit(b"b", 1) && keys.admit(b"a", hour_ms));
        assert!(!keys.admit(b"c", hour_ms), "b had a sample an hour ago");
        assert!(!keys.admit(b"c", hour_ms + 2), "it is looked for once a pane");
        keys.begin();
        assert!(keys.admit(b"c", hour_ms + 2) && !keys.admit(b"b", hour_ms + 2));
        assert_eq!((keys.len(), keys.held_bytes()), (2, 2 * (1 + KEY_BYTES)));
    }
}
