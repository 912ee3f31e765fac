//! The keys that somebody reads on this node: what other nodes counted of them is read from the engine again and again,
//! until nobody asks for them any more.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lately::{Span, Timestamp};

use crate::limits::{INTEREST_KEYS, INTEREST_LASTS};

/// Keys by name.
#[derive(Default)]
pub(super) struct Interest {
    keys: Mutex<HashMap<Box<[u8]>, Reader>>,
}

/// What is read of a key.
#[derive(Clone, Copy)]
struct Reader {
    /// The longest window that was asked for.
    window: Span,
    /// When somebody asked last.
    asked: Timestamp,
    /// Up to when the engine was read, for a window of this length.
    read: Option<(Timestamp, Span)>,
}

/// A key that is to be read, for a window.
pub(super) type Due = (Box<[u8]>, Span);

impl Interest {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Reader>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that somebody asked for a window of a key. True if nothing is known of it.
    pub(super) fn note(&self, key: &[u8], window: Span, now: Timestamp) -> bool {
        let mut keys = self.lock();
        if let Some(reader) = keys.get_mut(key) {
            reader.asked = now;
            reader.window = reader.window.max(window);
            return reader.read.is_none_or(|(_, read)| read < window);
        }
        if keys.len() < INTEREST_KEYS {
            keys.insert(key.into(), Reader { window, asked: now, read: None });
        }
        true
    }

    /// When a key was last read, for a window of this length.
    pub(super) fn read_at(&self, key: &[u8], window: Span) -> Option<Timestamp> {
        let (at, read) = self.lock().get(key)?.read?;
        (read >= window).then_some(at)
    }

    /// The keys whose counts are older than `age`, those that are not known first, at most `most`.
    pub(super) fn due(&self, age: Duration, most: usize, now: Timestamp) -> Vec<Due> {
        let keys = self.lock();
        let is_old = |read: Timestamp| {
            u128::try_from(now.as_millis() - read.as_millis()).is_ok_and(|ms| ms >= age.as_millis())
        };
        let mut due: Vec<_> = keys
            .iter()
            .filter(|(_, reader)| reader.read.is_none_or(|(at, window)| is_old(at) || window < reader.window))
            .map(|(key, reader)| (reader.read.map(|(at, _)| at), key, reader.window))
            .collect();
        if due.len() > most {
            due.select_nth_unstable_by_key(most, |(read, ..)| *read);
            due.truncate(most);
        }
        due.into_iter().map(|(_, key, window)| (key.clone(), window)).collect()
    }

    /// Notes that keys were read.
    pub(super) fn note_read(&self, due: &[Due], now: Timestamp) {
        let mut keys = self.lock();
        for (key, window) in due {
            if let Some(reader) = keys.get_mut(key) {
                reader.read = Some((now, *window));
            }
        }
    }

    /// Removes the keys that nobody asked for lately, and returns them.
    pub(super) fn take_forgotten(&self, now: Timestamp) -> Vec<Box<[u8]>> {
        let lasts_ms = INTEREST_LASTS.as_millis();
        let mut forgotten = Vec::new();
        self.lock().retain(|key, reader| {
            let asked_ms = now.as_millis() - reader.asked.as_millis();
            let is_over = u128::try_from(asked_ms).is_ok_and(|ms| ms > lasts_ms);
            if is_over {
                forgotten.push(key.clone());
            }
            !is_over
        });
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use lately::{hours, minutes};

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    #[test]
    fn keys_are_read_again_while_somebody_asks() {
        let interest = Interest::default();
        let age = Duration::from_millis(50);
        assert!(interest.note(b"a", minutes(5), at(1_000)));
        assert!(interest.note(b"b", minutes(1), at(1_000)));
        let due = |most, now_ms| {
            let mut due = interest.due(age, most, at(now_ms));
            due.sort();
            due.into_iter().map(|(key, _)| key[0]).collect::<Vec<_>>()
        };
        assert_eq!(due(9, 1_000), b"ab");
        interest.note_read(&[(b"a"[..].into(), minutes(5))], at(1_000));
        assert_eq!((due(9, 1_010), due(9, 1_050)), (b"b".to_vec(), b"ab".to_vec()));
        // What is not known comes first.
        assert_eq!(due(1, 1_050), b"b");
        // A shorter window is known, a longer one is not.
        assert!(!interest.note(b"a", minutes(1), at(1_010)) && interest.note(b"a", hours(1), at(1_020)));
        assert_eq!(interest.due(age, 9, at(1_020)).len(), 2);
        let end_ms = 1_000 + i64::try_from(INTEREST_LASTS.as_millis()).expect("small");
        assert_eq!(interest.take_forgotten(at(end_ms)).len(), 0);
        assert_eq!(interest.take_forgotten(at(end_ms + 1)), [b"b"[..].into()]);
        assert_eq!(due(9, end_ms + 1), b"a");
    }
}
