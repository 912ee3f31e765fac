//! A record of the hits topic: JSON, the compact form, or nothing but a key and a time.

use std::borrow::Cow;

use lately::limits::MAX_KEY_BYTES;
use lately::{HitError, HitOnce, MemberHit, Settings, Timestamp};
use serde::Deserialize;

use crate::limits::{KAFKA_MOST_HITS, KAFKA_SLACK_MS, MAX_KAFKA_VALUE_BYTES};
use crate::numbers::{put, put_bytes};

use super::hit_writer::HitRecord;
use super::ids::{Fingerprint, HitId};
use super::numbers::Reader;

/// A record, as it is in the topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'r> {
    pub(super) key: Option<&'r [u8]>,
    pub(super) value: Option<&'r [u8]>,
    /// The time of the record, in milliseconds.
    pub(super) time_ms: Option<i64>,
}

/// Hits of a key at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hit<'r> {
    pub(super) key: &'r [u8],
    pub(super) hits: u64,
    pub(super) at: Timestamp,
    pub(super) id: Option<Fingerprint>,
    pub(super) member: Option<Cow<'r, [u8]>>,
}

/// The first byte of the compact form. JSON never begins with it.
const COMPACT: u8 = 1;

/// The fields of the compact form that are there.
const HAS_HITS: u8 = 1;
const HAS_TIME: u8 = 2;
const HAS_ID: u8 = 4;
const HAS_MEMBER: u8 = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object such as {\"n\":1,\"at\":1700000000.25}")]
struct Json {
    n: Option<u64>,
    at: Option<f64>,
    id: Option<String>,
    member: Option<String>,
}

/// What a value says. Without a time, it is that of the record.
#[derive(Default)]
struct Value<'v> {
    hits: Option<u64>,
    at_ms: Option<i64>,
    id: Option<Cow<'v, [u8]>>,
    member: Option<Cow<'v, [u8]>>,
}

/// The compact form of the value of one hit at a time.
#[must_use]
pub fn compact_hit(at: Timestamp) -> Vec<u8> {
    compact_hits(&HitRecord { key: &[], at, hits: 1, id: None, member: None })
}

/// The compact form of the value of a record.
pub(super) fn compact_hits(record: &HitRecord<'_>) -> Vec<u8> {
    let HitRecord { key: _, at, hits, id, member } = *record;
    let has = |field, is_there| if is_there { field } else { 0 };
    let fields =
        HAS_TIME | has(HAS_HITS, hits != 1) | has(HAS_ID, id.is_some()) | has(HAS_MEMBER, member.is_some());
    let mut value = vec![COMPACT, fields];
    if hits != 1 {
        put(&mut value, hits);
    }
    put(&mut value, at.as_millis().unsigned_abs());
    id.into_iter().chain(member).for_each(|text| put_bytes(&mut value, text));
    value
}

impl<'v> Value<'v> {
    fn read(value: &'v [u8]) -> Result<Value<'v>, String> {
        match value.first() {
            None => Ok(Value::default()),
            Some(&COMPACT) => Value::compact(&value[1..])
                .ok_or_else(|| "the value is not valid in the compact form".to_owned()),
            Some(_) => Value::json(value),
        }
    }

    fn compact(value: &'v [u8]) -> Option<Value<'v>> {
        let mut reader = Reader::new(value);
        let fields = reader.byte()?;
        if fields & !(HAS_HITS | HAS_TIME | HAS_ID | HAS_MEMBER) != 0 {
            return None;
        }
        let hits = if fields & HAS_HITS != 0 { Some(reader.number()?) } else { None };
        let at_ms = if fields & HAS_TIME != 0 { Some(i64::try_from(reader.number()?).ok()?) } else { None };
        let id = if fields & HAS_ID != 0 { Some(reader.bytes()?.into()) } else { None };
        let member = if fields & HAS_MEMBER != 0 { Some(reader.bytes()?.into()) } else { None };
        reader.is_empty().then_some(Value { hits, at_ms, id, member })
    }

    fn json(value: &[u8]) -> Result<Value<'v>, String> {
        let Json { n, at, id, member } =
            serde_json::from_slice(value).map_err(|error| format!("the value is no hit in JSON: {error}"))?;
        let at_ms = at.map(|seconds| {
            let ms = (seconds * 1_000.0).round();
            let is_time = (0.0..=LATEST_MS).contains(&ms);
            #[expect(clippy::cast_possible_truncation, reason = "a whole number in the range of a time")]
            is_time
                .then_some(ms as i64)
                .ok_or_else(|| format!("'at' is {seconds}: give seconds since 1970, such as 1700000000.25"))
        });
        let [id, member] = [id, member].map(|text| text.map(|text| text.into_bytes().into()));
        Ok(Value { hits: n, at_ms: at_ms.transpose()?, id, member })
    }
}

/// See [`Timestamp::MAX`].
#[expect(clippy::cast_precision_loss, reason = "it is less than 2^53")]
const LATEST_MS: f64 = Timestamp::MAX.as_millis() as f64;

impl<'r> Hit<'r> {
    /// Reads a record.
    ///
    /// # Errors
    /// Why it is no hit. The same record always gives the same answer.
    pub(super) fn read(record: &Record<'r>) -> Result<Hit<'r>, String> {
        let Record { key, value, time_ms } = *record;
        let key = key.unwrap_or_default();
        if key.is_empty() {
            return Err("the record has no key: give it the key of the hit".to_owned());
        }
        if key.len() > MAX_KEY_BYTES {
            return Err(format!("the key has {} bytes: give at most {MAX_KEY_BYTES}", key.len()));
        }
        let value = value.unwrap_or_default();
        if value.len() > MAX_KAFKA_VALUE_BYTES {
            let most = MAX_KAFKA_VALUE_BYTES;
            return Err(format!("the value has {} bytes: give at most {most}", value.len()));
        }
        let Value { hits, at_ms, id, member } = Value::read(value)?;
        let hits = hits.unwrap_or(1);
        if !(1..=KAFKA_MOST_HITS).contains(&hits) {
            return Err(format!("'n' is {hits}: give 1 to {KAFKA_MOST_HITS}"));
        }
        let at_ms = at_ms.or(time_ms).ok_or("the record has no time, and the value has no 'at'")?;
        let at = Timestamp::from_millis(at_ms)
            .ok_or_else(|| format!("{at_ms} is no time in milliseconds since 1970"))?;
        let fingerprint = |id: Cow<'_, [u8]>| {
            HitOnce::check_id(&id).map_err(|error| error.to_string())?;
            Ok::<_, String>(Fingerprint::of(key, &id))
        };
        let id = id.map(fingerprint).transpose()?;
        if let Some(member) = &member {
            MemberHit::check_member(member).map_err(|error| error.to_string())?;
        }
        Ok(Hit { key, hits, at, id, member })
    }

    /// Whether the hit fits the class of its key, and its id. It is compared with the time of its record and not with the clock, so that
    /// all nodes answer alike, whenever they read it.
    ///
    /// # Errors
    /// Why it does not fit.
    pub(super) fn check(&self, record: &Record<'_>, class: &Settings) -> Result<Option<HitId>, String> {
        let (levels, max_skew_ms) = (class.levels(), class.max_skew().as_millis());
        let came_ms = record.time_ms.unwrap_or(self.at.as_millis());
        let ahead_ms = self.at.as_millis() - came_ms;
        if ahead_ms > max_skew_ms {
            return Err(format!(
                "'at' is {ahead_ms} ms after the time of the record: at most {max_skew_ms} ms are taken"
            ));
        }
        if -ahead_ms > levels.retain_ms() {
            return Err(format!(
                "'at' is {} ms before the time of the record, and hits are kept for {} ms",
                -ahead_ms,
                levels.retain_ms()
            ));
        }
        if self.member.is_some() && !class.unique() {
            return Err(HitError::NoMembers.to_string());
        }
        let Some(fingerprint) = self.id else { return Ok(None) };
        let span_ms = class.dedupe().ok_or_else(|| HitError::NoDedupe.to_string())?.as_millis();
        Ok(Some(HitId {
            fingerprint,
            came_ms,
            span_ms,
            known_ms: span_ms + ahead_ms.max(0) + KAFKA_SLACK_MS,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"user:42";
    const TIME_MS: i64 = 1_700_000_000_000;

    /// The fingerprint of the id `a`.
    fn has_id_a(value: &[u8]) -> bool {
        let record = Record { key: Some(KEY), value: Some(value), time_ms: Some(TIME_MS) };
        Hit::read(&record).expect("a hit").id == Some(Fingerprint::of(KEY, b"a"))
    }

    fn compact(hits: u64, at: Timestamp, id: Option<&[u8]>, member: Option<&[u8]>) -> Vec<u8> {
        compact_hits(&HitRecord { key: KEY, at, hits, id, member })
    }

    fn member(value: &[u8]) -> Option<Vec<u8>> {
        let record = Record { key: Some(KEY), value: Some(value), time_ms: Some(TIME_MS) };
        Hit::read(&record).expect("a hit").member.map(Cow::into_owned)
    }

    fn read(value: &[u8]) -> Result<(u64, i64), String> {
        let record = Record { key: Some(KEY), value: Some(value), time_ms: Some(TIME_MS) };
        Hit::read(&record).map(|hit| (hit.hits, hit.at.as_millis()))
    }

    #[test]
    fn hits_are_read() {
        let check = |value: &[u8], expected: (u64, i64)| {
            assert_eq!(read(value), Ok(expected), "{}", value.escape_ascii());
        };
        check(b"", (1, TIME_MS));
        check(b"{}", (1, TIME_MS));
        check(b" {\"n\": 3}\n", (3, TIME_MS));
        check(b"{\"n\":1,\"at\":1700000000.25}", (1, 1_700_000_000_250));
        check(b"{\"at\":1600000000}", (1, 1_600_000_000_000));
        check(b"{\"n\":null,\"at\":0}", (1, 0));
        check(b"{\"n\":4294967296}", (1 << 32, TIME_MS));
        // The vectors of docs/reference/kafka.md.
        check(b"\x01\x00", (1, TIME_MS));
        check(b"\x01\x01\x07", (7, TIME_MS));
        check(b"\x01\x02\xfa\xd1\x95\xff\xbc\x31", (1, 1_700_000_000_250));
        let at = Timestamp::from_millis(1_700_000_000_250).expect("a time");
        assert_eq!(compact_hit(at), b"\x01\x02\xfa\xd1\x95\xff\xbc\x31");
        check(b"\x01\x03\xac\x02\xfa\xd1\x95\xff\xbc\x31", (300, 1_700_000_000_250));
        assert_eq!(compact(300, at, None, None), b"\x01\x03\xac\x02\xfa\xd1\x95\xff\xbc\x31");
        assert!(!has_id_a(b"\x01\x00") && !has_id_a(b"{\"id\":\"b\"}") && !has_id_a(b"{\"id\":null}"));
        check(b"{\"n\":2,\"id\":\"a\"}", (2, TIME_MS));
        assert!(has_id_a(b"{\"n\":2,\"id\":\"a\"}") && has_id_a(b"\x01\x04\x01a"));
        let value = b"\x01\x07\xac\x02\xfa\xd1\x95\xff\xbc\x31\x01a";
        check(value, (300, 1_700_000_000_250));
        assert!(has_id_a(value));
        assert_eq!(compact(300, at, Some(b"a"), None), value);
        assert_eq!(member(value), None);
        for value in [&b"{\"n\":2,\"member\":\"m1\"}"[..], b"\x01\x08\x02m1", b"\x01\x0c\x01a\x02m1"] {
            assert_eq!(member(value).as_deref(), Some(&b"m1"[..]), "{}", value.escape_ascii());
        }
        let value = b"\x01\x0f\xac\x02\xfa\xd1\x95\xff\xbc\x31\x01a\x02m1";
        check(value, (300, 1_700_000_000_250));
        assert_eq!(compact(300, at, Some(b"a"), Some(b"m1")), value);
    }

    #[test]
    fn what_is_no_hit_is_named() {
        let check = |value: &[u8], expected: &str| {
            let reason = read(value).expect_err(expected);
            assert!(reason.contains(expected), "{reason}");
        };
        check(b"hello", "the value is no hit in JSON");
        check(b"{\"n\":1", "the value is no hit in JSON");
        check(b"3", "an object such as");
        check(b"{\"count\":1}", "unknown field `count`");
        check(b"{\"n\":0}", "'n' is 0: give 1 to 4294967296");
        check(b"{\"n\":4294967297}", "'n' is 4294967297");
        check(b"{\"n\":-1}", "the value is no hit in JSON");
        check(b"{\"n\":1.5}", "the value is no hit in JSON");
        check(b"{\"at\":-1}", "'at' is -1");
        check(b"{\"at\":1700000000000000}", "'at' is 1700000000000000");
        check(b"{\"id\":7}", "the value is no hit in JSON");
        check(b"{\"id\":\"\"}", "invalid id of 0 bytes: an id has 1 to 256 bytes");
        check(b"\x01\x04\x00", "invalid id of 0 bytes");
        check(&compact(1, Timestamp::MIN, Some(&[0; 257]), None), "invalid id of 257 bytes");
        check(b"{\"member\":7}", "the value is no hit in JSON");
        check(b"{\"member\":\"\"}", "invalid member of 0 bytes: a member has 1 to 256 bytes");
        check(&compact(1, Timestamp::MIN, None, Some(&[0; 257])), "invalid member of 257 bytes");
        for value in [
            &b"\x01"[..],
            b"\x01\x01",
            b"\x01\x04",
            b"\x01\x08",
            b"\x01\x10",
            b"\x01\x00\x00",
            b"\x01\x01\x80",
        ] {
            check(value, "compact form");
        }
        check(b"\x01\x01\x00", "'n' is 0");
        check(&[b' '; MAX_KAFKA_VALUE_BYTES], "JSON");
        check(&[b' '; MAX_KAFKA_VALUE_BYTES + 1], "the value has 4097 bytes: give at most 4096");
    }

    #[test]
    fn a_record_needs_a_key_and_a_time() {
        let check = |key: Option<&[u8]>, time_ms, expected: &str| {
            let reason = Hit::read(&Record { key, value: None, time_ms }).expect_err(expected);
            assert!(reason.contains(expected), "{reason}");
        };
        check(None, Some(1), "the record has no key");
        check(Some(b""), Some(1), "the record has no key");
        check(Some(&[b'k'; MAX_KEY_BYTES + 1]), Some(1), "the key has 1025 bytes: give at most 1024");
        check(Some(b"k"), None, "the record has no time");
        check(Some(b"k"), Some(-1), "-1 is no time");
        check(Some(b"k"), Some(1_700_000_000_000_000), "is no time in milliseconds");
        let longest = [b'k'; MAX_KEY_BYTES];
        assert!(Hit::read(&Record { key: Some(&longest), value: None, time_ms: Some(1) }).is_ok());
    }

    #[test]
    fn a_hit_is_near_the_time_of_its_record() {
        let settings = Settings::default();
        let (retain_ms, skew_ms) = (settings.retain().as_millis(), settings.max_skew().as_millis());
        let check = |at_ms: i64, is_taken: bool| {
            let record = Record { key: Some(KEY), value: None, time_ms: Some(TIME_MS) };
            let at = Timestamp::from_millis(at_ms).expect("a time");
            let hit = Hit { key: KEY, hits: 1, at, id: None, member: None };
            assert_eq!(hit.check(&record, &settings).is_ok(), is_taken, "{at_ms}");
        };
        check(TIME_MS + skew_ms, true);
        check(TIME_MS + skew_ms + 1, false);
        check(TIME_MS - retain_ms, true);
        check(TIME_MS - retain_ms - 1, false);
    }

    #[test]
    fn a_member_needs_a_class_that_counts_members() {
        let record = Record { key: Some(KEY), value: Some(b"{\"member\":\"m\"}"), time_ms: Some(TIME_MS) };
        let hit = Hit::read(&record).expect("a hit");
        let reason = hit.check(&record, &Settings::default()).expect_err("it has no unique");
        assert_eq!(reason, HitError::NoMembers.to_string());
        let class = Settings::builder().unique(true).build().expect("valid");
        assert_eq!(hit.check(&record, &class), Ok(None));
    }

    #[test]
    fn an_id_needs_a_class_that_knows_ids() {
        let record = Record { key: Some(KEY), value: Some(b"\x01\x04\x01a"), time_ms: Some(TIME_MS) };
        let hit = Hit::read(&record).expect("a hit");
        let reason = hit.check(&record, &Settings::default()).expect_err("it has no dedupe");
        assert_eq!(reason, HitError::NoDedupe.to_string());
        let class = Settings::builder().dedupe(lately::minutes(1)).build().expect("valid");
        let id = hit.check(&record, &class).expect("it fits").expect("an id");
        let fingerprint = Fingerprint::of(KEY, b"a");
        assert_eq!(
            id,
            HitId { fingerprint, came_ms: TIME_MS, span_ms: 60_000, known_ms: 60_000 + KAFKA_SLACK_MS }
        );
    }
}
