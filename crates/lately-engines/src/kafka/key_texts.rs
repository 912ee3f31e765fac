//! The texts about keys that nodes have written to the state topic, each with a version. Pure.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use lately::Timestamp;

use crate::NamedTexts;

use super::state_record::KeyTextRecord;

/// The last text of each name, by key.
#[derive(Default)]
pub(super) struct KeyTexts {
    texts: BTreeMap<(Box<[u8]>, String), Held>,
    bytes: usize,
    /// The text up to which those that are over were looked for.
    swept: Option<(Box<[u8]>, String)>,
}

struct Held {
    version: u64,
    until_ms: i64,
    /// `None`: it is removed. It is kept so that an older one does not come back.
    text: Option<String>,
}

/// What a text takes beside its bytes.
const TEXT_BYTES: usize = 160;

fn bytes_of(key: &[u8], name: &str, text: Option<&String>) -> usize {
    TEXT_BYTES + key.len() + name.len() + text.map_or(0, String::len)
}

impl KeyTexts {
    /// Memory of all texts, in bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The version of the next text of a name.
    pub(super) fn next_version(&self, key: &[u8], name: &str, now: Timestamp) -> u64 {
        let held = self.texts.get(&(key.into(), name.to_owned())).map_or(0, |held| held.version);
        now.as_millis().unsigned_abs().max(held.saturating_add(1))
    }

    /// Whether there is a text of this name.
    pub(super) fn has(&self, KeyTextRecord { key, name, .. }: &KeyTextRecord) -> bool {
        self.texts.contains_key(&(key.clone(), name.clone()))
    }

    /// The bytes that a text takes more than the one before. `None`: that one is as new.
    pub(super) fn growth(&self, record: &KeyTextRecord) -> Option<isize> {
        let KeyTextRecord { key, name, version, text, .. } = record;
        let held = self.texts.get(&(key.clone(), name.clone()));
        let is_newer = held.is_none_or(|held| (*version, text) > (held.version, &held.text));
        let before = held.map_or(0, |held| bytes_of(key, name, held.text.as_ref()));
        is_newer.then(|| bytes_of(key, name, text.as_ref()).cast_signed() - before.cast_signed())
    }

    /// Takes a text, if it is newer than the one before.
    pub(super) fn merge(&mut self, record: KeyTextRecord) {
        let Some(growth) = self.growth(&record) else { return };
        let KeyTextRecord { key, name, version, until_ms, text, .. } = record;
        self.bytes = self.bytes.wrapping_add_signed(growth);
        self.texts.insert((key, name), Held { version, until_ms, text });
    }

    /// The names and texts of a key.
    pub(super) fn of_key(&self, key: &[u8], now: Timestamp) -> NamedTexts {
        let from = (Box::from(key), String::new());
        let of_key = self.texts.range((Included(from), Unbounded)).take_while(|((of, _), _)| **of == *key);
        let live = of_key.filter(|(_, held)| held.until_ms > now.as_millis());
        live.filter_map(|((_, name), held)| Some((name.clone(), held.text.clone()?))).collect()
    }

    /// The text of a name about a key.
    pub(super) fn get(&self, key: &[u8], name: &str) -> Option<&str> {
        self.texts.get(&(key.into(), name.to_owned()))?.text.as_deref()
    }

    /// Drops all texts of a name.
    pub(super) fn drop_name(&mut self, name: &str) {
        let bytes = &mut self.bytes;
        self.texts.retain(|(key, of), held| {
            let is_kept = of != name;
            *bytes -= if is_kept { 0 } else { bytes_of(key, of, held.text.as_ref()) };
            is_kept
        });
    }

    /// Drops what is over of the next `most` texts.
    pub(super) fn tidy(&mut self, most: usize, now: Timestamp) {
        let from = self.swept.take().map_or(Unbounded, Excluded);
        let mut over = Vec::new();
        for (place, held) in self.texts.range((from, Unbounded)).take(most) {
            if held.until_ms <= now.as_millis() {
                over.push(place.clone());
            }
            self.swept = Some(place.clone());
        }
        if self.texts.last_key_value().map(|(last, _)| last) == self.swept.as_ref() {
            self.swept = None;
        }
        for place in over {
            if let Some(held) = self.texts.remove(&place) {
                self.bytes -= bytes_of(&place.0, &place.1, held.text.as_ref());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &[u8], name: &str, version: u64, text: Option<&str>) -> KeyTextRecord {
        let (name, text) = (name.to_owned(), text.map(str::to_owned));
        KeyTextRecord { writer: 1, key: key.into(), name, version, until_ms: 1_000, text }
    }

    #[test]
    fn the_newest_text_of_a_name_stays_until_it_is_over() {
        let at = |ms| Timestamp::from_millis(ms).expect("a time");
        let mut texts = KeyTexts::default();
        for record in [
            record(b"k", "b.1", 7, Some("new")),
            record(b"k", "b.1", 6, Some("old")),
            record(b"k", "a.1", 5, Some("other")),
            record(b"k", "c.1", 9, None),
            record(b"k", "c.1", 8, Some("removed")),
            record(b"k\0", "a.1", 1, Some("of another key")),
        ] {
            texts.merge(record);
        }
        let named = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(texts.of_key(b"k", at(999)), [named("a.1", "other"), named("b.1", "new")]);
        assert_eq!(texts.of_key(b"", at(999)), []);
        assert_eq!(texts.of_key(b"k", at(1_000)), []);
        assert_eq!(texts.next_version(b"k", "b.1", at(3)), 8);
        assert_eq!(texts.next_version(b"k", "b.1", at(100)), 100);
        assert_eq!(texts.growth(&record(b"k", "b.1", 7, Some("new"))), None);
        assert_eq!(texts.growth(&record(b"k", "b.1", 8, Some("n"))), Some(-2));
        texts.tidy(3, at(999));
        assert_eq!(texts.texts.len(), 4);
        // Three in each round.
        texts.tidy(3, at(1_000));
        assert_eq!(texts.texts.len(), 3);
        texts.tidy(3, at(1_000));
        assert_eq!((texts.texts.len(), texts.bytes()), (0, 0));
    }
}
