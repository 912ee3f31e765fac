//! What nodes tell each other through the state topic, as keys and values of records. The topic is compacted: of each key, the last
//! record stays.
//!
//! A record of counts has everything that its writer has ever written of that block and origin. Its key names the writer, which is one
//! start of one node: so no writer can replace what another one has written, not even one that was paused for an hour. The key of a record of ids has
//! the offsets that it is about: who writes it again writes the same.

use lately::{LevelsId, Origin, Tally};

use crate::OwnedBlock;
use crate::layout::CELLS_OF_A_BLOCK;
use crate::numbers::{put, put_bytes, put_signed};

use super::counts::Count;
use super::ids::{CountedId, Fingerprint};
use super::numbers::Reader;

/// A record of the state topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StateRecord {
    /// The hits of a partition of the hits topic in a block, of all records before an offset.
    Hits {
        writer: u64,
        partition: i32,
        block: OwnedBlock,
        /// The offset of the first record that is not counted.
        until: i64,
        keep_until_ms: i64,
        counts: Vec<(u8, u64)>,
    },
    /// The ids of a partition that were counted between two offsets, these included. `None`: they are over.
    Ids { partition: i32, first: i64, last: i64, ids: Option<Vec<CountedId>> },
    /// All counts and ids of the hits of a partition before an offset are in the topic, before this record. So are the members of records before
    /// another offset, which is not greater.
    Complete { writer: u64, partition: i32, until: i64, members_until: i64 },
    /// The counts of a node in a block, or marks of deleted hits of any origin.
    Counts { writer: u64, origin: Origin, block: OwnedBlock, keep_until_ms: i64, counts: Vec<Count> },
    /// Who reads this has read everything before it.
    Nonce { writer: u64, nonce: u64 },
    /// A text of a list, until it is over. `None` removes it.
    Text { list: u8, name: String, text: Option<(i64, String)> },
    /// A text about a key.
    KeyText(KeyTextRecord),
    /// The claim of a server to the name of a node, and how long it lasts, in milliseconds. `None` ends it.
    Claim { node: String, holder: String, lasts_ms: Option<u64> },
}

/// A text of a writer about a key. The one with the greatest version counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeyTextRecord {
    pub(super) writer: u64,
    pub(super) key: Box<[u8]>,
    pub(super) name: String,
    pub(super) version: u64,
    /// It is over then.
    pub(super) until_ms: i64,
    /// `None` removes the ones before.
    pub(super) text: Option<String>,
}

/// The kinds, the first byte of a key.
const HITS: u8 = b'h';
const IDS: u8 = b'i';
const COMPLETE: u8 = b'p';
const COUNTS: u8 = b'c';
const NONCE: u8 = b'n';
const TEXT: u8 = b't';
const KEY_TEXT: u8 = b'k';
const CLAIM: u8 = b'o';

/// The first byte of a value.
const VERSION: u8 = 1;

fn put_block(bytes: &mut Vec<u8>, block: &OwnedBlock) {
    put(bytes, u64::from(block.levels.number()));
    put_signed(bytes, block.width_ms);
    put_signed(bytes, block.number);
    bytes.extend_from_slice(&block.key);
}

/// A block, at the end of what is read.
fn read_block(mut reader: Reader<'_>) -> Option<OwnedBlock> {
    let levels = LevelsId::new(u32::try_from(reader.number()?).ok()?);
    let (width_ms, number) = (reader.signed()?, reader.signed()?);
    OwnedBlock::read(reader.rest(), levels, width_ms, number)
}

fn read_ids(mut value: Reader<'_>, first: i64) -> Option<Vec<CountedId>> {
    let mut ids = Vec::new();
    while !value.is_empty() {
        let fingerprint = Fingerprint(value.word()?);
        let (offset, time_ms) = (first.checked_add(value.signed()?)?, value.signed()?);
        let at_ms = time_ms.checked_add(value.signed()?)?;
        let until_ms = time_ms.checked_add(value.signed()?)?;
        ids.push(CountedId { fingerprint, offset, at_ms, time_ms, until_ms });
    }
    Some(ids)
}

fn read_place(reader: &mut Reader<'_>) -> Option<u8> {
    reader.byte().filter(|place| i64::from(*place) < CELLS_OF_A_BLOCK)
}

impl StateRecord {
    /// The key of the record.
    pub(super) fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(48);
        match self {
            StateRecord::Hits { writer, partition, block, .. } => {
                key.push(HITS);
                key.extend_from_slice(&writer.to_be_bytes());
                put_signed(&mut key, (*partition).into());
                put_block(&mut key, block);
            }
            StateRecord::Ids { partition, first, last, .. } => {
                key.push(IDS);
                put_signed(&mut key, (*partition).into());
                put_signed(&mut key, *first);
                put_signed(&mut key, *last);
            }
            StateRecord::Complete { writer, partition, .. } => {
                key.push(COMPLETE);
                key.extend_from_slice(&writer.to_be_bytes());
                put_signed(&mut key, (*partition).into());
            }
            StateRecord::Counts { writer, origin, block, .. } => {
                key.push(COUNTS);
                key.extend_from_slice(&writer.to_be_bytes());
                put_bytes(&mut key, origin.to_string().as_bytes());
                put_block(&mut key, block);
            }
            StateRecord::Nonce { writer, .. } => {
                key.push(NONCE);
                key.extend_from_slice(&writer.to_be_bytes());
            }
            StateRecord::Text { list, name, .. } => {
                key.extend_from_slice(&[TEXT, *list]);
                key.extend_from_slice(name.as_bytes());
            }
            StateRecord::KeyText(KeyTextRecord { writer, key: of, name, .. }) => {
                key.push(KEY_TEXT);
                key.extend_from_slice(&writer.to_be_bytes());
                put_bytes(&mut key, of);
                key.extend_from_slice(name.as_bytes());
            }
            StateRecord::Claim { node, holder, .. } => {
                key.push(CLAIM);
                put_bytes(&mut key, node.as_bytes());
                key.extend_from_slice(holder.as_bytes());
            }
        }
        key
    }

    /// Its value. `None` removes the record.
    pub(super) fn value(&self) -> Option<Vec<u8>> {
        let mut value = vec![VERSION];
        match self {
            StateRecord::Hits { until, keep_until_ms, counts, .. } => {
                put_signed(&mut value, *until);
                put_signed(&mut value, *keep_until_ms);
                for (place, counted) in counts {
                    value.push(*place);
                    put(&mut value, *counted);
                }
            }
            StateRecord::Ids { first, ids, .. } => {
                for id in ids.as_ref()? {
                    value.extend_from_slice(&id.fingerprint.0.to_be_bytes());
                    put_signed(&mut value, id.offset - first);
                    put_signed(&mut value, id.time_ms);
                    put_signed(&mut value, id.at_ms.saturating_sub(id.time_ms));
                    put_signed(&mut value, id.until_ms.saturating_sub(id.time_ms));
                }
            }
            StateRecord::Complete { until, members_until, .. } => {
                put_signed(&mut value, *until);
                if members_until < until {
                    put_signed(&mut value, *members_until);
                }
            }
            StateRecord::Counts { keep_until_ms, counts, .. } => {
                put_signed(&mut value, *keep_until_ms);
                for Count { place, tally, removed } in counts {
                    value.push(*place);
                    [tally.counted, tally.deleted, *removed]
                        .iter()
                        .for_each(|number| put(&mut value, *number));
                }
            }
            StateRecord::Nonce { nonce, .. } => put(&mut value, *nonce),
            StateRecord::Text { text, .. } => {
                let (until_ms, text) = text.as_ref()?;
                put_signed(&mut value, *until_ms);
                value.extend_from_slice(text.as_bytes());
            }
            StateRecord::KeyText(KeyTextRecord { version, until_ms, text, .. }) => {
                put(&mut value, *version);
                put_signed(&mut value, *until_ms);
                value.push(u8::from(text.is_some()));
                value.extend_from_slice(text.as_deref().unwrap_or_default().as_bytes());
            }
            StateRecord::Claim { lasts_ms, .. } => put(&mut value, (*lasts_ms)?),
        }
        Some(value)
    }

    /// Reads a record. `None` for one that no node of this version has written.
    pub(super) fn read(key: &[u8], value: Option<&[u8]>) -> Option<StateRecord> {
        let mut reader = Reader::new(key);
        let kind = reader.byte()?;
        let mut value = value.map(Reader::new);
        if let Some(value) = &mut value
            && value.byte() != Some(VERSION)
        {
            return None;
        }
        let partition =
            |reader: &mut Reader<'_>| i32::try_from(reader.signed()?).ok().filter(|number| *number >= 0);
        match kind {
            HITS => {
                let (writer, partition) = (reader.word()?, partition(&mut reader)?);
                let (block, mut value) = (read_block(reader)?, value?);
                let (until, keep_until_ms) = (value.signed()?, value.signed()?);
                let mut counts = Vec::new();
                while !value.is_empty() {
                    counts.push((read_place(&mut value)?, value.number()?));
                }
                Some(StateRecord::Hits { writer, partition, block, until, keep_until_ms, counts })
            }
            IDS => {
                let partition = partition(&mut reader)?;
                let (first, last) = (reader.signed()?, reader.signed()?);
                let ids = match value {
                    Some(value) => Some(read_ids(value, first)?),
                    None => None,
                };
                reader.is_empty().then_some(StateRecord::Ids { partition, first, last, ids })
            }
            COMPLETE => {
                let (writer, partition) = (reader.word()?, partition(&mut reader)?);
                let mut value = value?;
                let until = value.signed()?;
                let members_until = if value.is_empty() { until } else { value.signed()? };
                let is_whole = reader.is_empty() && value.is_empty() && members_until <= until;
                is_whole.then_some(StateRecord::Complete { writer, partition, until, members_until })
            }
            COUNTS => {
                let (writer, origin) = (reader.word()?, reader.text()?.parse().ok()?);
                let (block, mut value) = (read_block(reader)?, value?);
                let keep_until_ms = value.signed()?;
                let mut counts = Vec::new();
                while !value.is_empty() {
                    let place = read_place(&mut value)?;
                    let tally = Tally { counted: value.number()?, deleted: value.number()? };
                    counts.push(Count { place, tally, removed: value.number()? });
                }
                Some(StateRecord::Counts { writer, origin, block, keep_until_ms, counts })
            }
            NONCE => {
                let writer = reader.word()?;
                let mut value = value?;
                let nonce = value.number()?;
                (reader.is_empty() && value.is_empty()).then_some(StateRecord::Nonce { writer, nonce })
            }
            TEXT => {
                let list = reader.byte()?;
                let name = std::str::from_utf8(reader.rest()).ok()?.to_owned();
                let text = match value {
                    Some(mut value) => {
                        let until_ms = value.signed()?;
                        Some((until_ms, std::str::from_utf8(value.rest()).ok()?.to_owned()))
                    }
                    None => None,
                };
                Some(StateRecord::Text { list, name, text })
            }
            KEY_TEXT => {
                let writer = reader.word()?;
                let key = reader.bytes().filter(|key| !key.is_empty())?.into();
                let name = std::str::from_utf8(reader.rest()).ok()?.to_owned();
                let mut value = value?;
                let (version, until_ms) = (value.number()?, value.signed()?);
                let text = match (value.byte()?, value.rest()) {
                    (0, []) => None,
                    (1, text) => Some(std::str::from_utf8(text).ok()?.to_owned()),
                    _ => return None,
                };
                Some(StateRecord::KeyText(KeyTextRecord { writer, key, name, version, until_ms, text }))
            }
            CLAIM => {
                let node = reader.text()?.to_owned();
                let holder = std::str::from_utf8(reader.rest()).ok()?.to_owned();
                let lasts_ms = match value {
                    Some(mut value) => Some(value.number()?),
                    None => None,
                };
                Some(StateRecord::Claim { node, holder, lasts_ms })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let block = |key: &[u8]| OwnedBlock {
            key: key.into(),
            levels: LevelsId::new(0xdead_beef),
            width_ms: 60_000,
            number: 440_000,
        };
        let origin = Origin::new("eu-1", 1_700_000_000_000).expect("a name");
        let count = |place| Count { place, tally: Tally { counted: u64::MAX, deleted: 300 }, removed: 1 };
        let (writer, keep_until_ms) = (u64::MAX - 7, 1_800_000_000_000);
        let id = |offset| CountedId {
            fingerprint: Fingerprint(u64::MAX - 1),
            offset,
            at_ms: 0,
            time_ms: keep_until_ms,
            until_ms: i64::MAX,
        };
        for record in [
            StateRecord::Hits {
                writer,
                partition: 300,
                block: block(b"\x00\xff"),
                until: i64::MAX,
                keep_until_ms,
                counts: vec![(0, 1), (63, u64::MAX)],
            },
            StateRecord::Ids { partition: 3, first: 1, last: i64::MAX, ids: Some(vec![id(1), id(i64::MAX)]) },
            StateRecord::Ids { partition: 3, first: 70, last: 70, ids: None },
            StateRecord::Complete { writer, partition: 0, until: 0, members_until: 0 },
            StateRecord::Complete { writer, partition: 3, until: 900, members_until: 70 },
            StateRecord::Counts {
                writer,
                origin,
                block: block(b"user:42"),
                keep_until_ms,
                counts: vec![count(0), count(63)],
            },
            StateRecord::Nonce { writer, nonce: 12 },
            StateRecord::Text { list: 1, name: "a.1".to_owned(), text: Some((5, "{}".to_owned())) },
            StateRecord::Text { list: 0, name: String::new(), text: None },
            StateRecord::KeyText(KeyTextRecord {
                writer,
                key: b"\x00\xff".as_slice().into(),
                name: "a.1@2".to_owned(),
                version: u64::MAX,
                until_ms: keep_until_ms,
                text: Some("{}".to_owned()),
            }),
            StateRecord::KeyText(KeyTextRecord {
                writer,
                key: b"k".as_slice().into(),
                name: String::new(),
                version: 0,
                until_ms: 0,
                text: None,
            }),
            StateRecord::Claim { node: "a".to_owned(), holder: "a.1".to_owned(), lasts_ms: Some(5_000) },
            StateRecord::Claim { node: "a".to_owned(), holder: "a.1".to_owned(), lasts_ms: None },
        ] {
            let (key, value) = (record.key(), record.value());
            assert_eq!(StateRecord::read(&key, value.as_deref()), Some(record.clone()));
            // Nothing shorter is taken for it.
            for length in 0..key.len() {
                assert_ne!(StateRecord::read(&key[..length], value.as_deref()), Some(record.clone()));
            }
            assert_eq!(StateRecord::read(&key, Some(b"\x02")), None);
        }
        for key in [&b""[..], b"x", b"h", b"n1234567", b"p12345678\x01"] {
            assert_eq!(StateRecord::read(key, Some(b"\x01\x00")), None);
        }
        // A place beyond the block.
        let hits = StateRecord::Hits {
            writer,
            partition: 0,
            block: block(b"k"),
            until: 1,
            keep_until_ms,
            counts: vec![(64, 1)],
        };
        assert_eq!(StateRecord::read(&hits.key(), hits.value().as_deref()), None);
    }
}
