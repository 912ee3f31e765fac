//! Dead letters: records that are no hit, with the reason.

use std::sync::Arc;

use crate::limits::KAFKA_DEAD_BYTES;

use super::hit::Record;
use super::producer::Outgoing;

/// What is written for a record that is no hit. `place` is its topic, partition and offset. A long key or value is cut: with its headers
/// it would be longer than a record may be, and nothing behind it would be counted.
pub(super) fn dead_letter(
    topic: Arc<str>,
    record: &Record<'_>,
    reason: String,
    [of, partition, offset]: [&str; 3],
) -> Outgoing {
    let mut headers = vec![
        ("lately-reason", reason),
        ("lately-topic", of.to_owned()),
        ("lately-partition", partition.to_owned()),
        ("lately-offset", offset.to_owned()),
    ];
    let mut cut = |name: &'static str, bytes: &[u8]| {
        if bytes.len() > KAFKA_DEAD_BYTES {
            headers.push((name, bytes.len().to_string()));
        }
        bytes[..bytes.len().min(KAFKA_DEAD_BYTES)].to_vec()
    };
    let key = cut("lately-key-bytes", record.key.unwrap_or_default());
    let value = record.value.map(|value| cut("lately-value-bytes", value));
    Outgoing { topic, partition: None, key, value, time_ms: record.time_ms, headers }
}

/// Leaves out all but the headers of a dead letter that the brokers do not take. They have the place of the record. False if that is all
/// it has.
pub(super) fn shorten(letter: &mut Outgoing) -> bool {
    let Outgoing { key, value, time_ms, .. } = letter;
    let had_more = !key.is_empty() || value.is_some() || time_ms.is_some();
    key.clear();
    (*value, *time_ms) = (None, None);
    had_more
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: after a record of 1 MB that was no hit, no record of any partition was counted. Cause: its dead letter was longer than the
    /// library writes. Fix: it is cut.
    #[test]
    fn a_long_record_is_cut() {
        let (long, short) = (vec![b'x'; 1 << 20], b"short".to_vec());
        let letter = |key, value| {
            let record = Record { key, value, time_ms: Some(7) };
            dead_letter("dead".into(), &record, "why".to_owned(), ["hits", "1", "2"])
        };
        let cut = letter(Some(&long), Some(&long));
        let bytes = |outgoing: &Outgoing| (outgoing.key.len(), outgoing.value.as_ref().map(Vec::len));
        assert_eq!(bytes(&cut), (KAFKA_DEAD_BYTES, Some(KAFKA_DEAD_BYTES)));
        let len = || (1_usize << 20).to_string();
        assert_eq!(cut.headers[4..], [("lately-key-bytes", len()), ("lately-value-bytes", len())]);
        let whole = letter(Some(&short), None);
        assert_eq!((bytes(&whole), whole.headers.len(), whole.time_ms), ((5, None), 4, Some(7)));
    }
}
