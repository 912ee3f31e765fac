//! JSON lines: the few fields that are asked for, out of an object of any size.
//!
//! The object is walked once and what is not asked for is skipped, not built. A name with dots is
//! first the name of a member as it stands (`{"user.id": 7}`), then a path into nested objects
//! (`{"user": {"id": 7}}`). Of equal names the last counts.
//!
//! Servers that write JSON by a format of their own put more into strings than JSON has: nginx writes `\xHH` for a quote, or
//! with `escape=json` bytes that are no UTF-8. [`repaired`] makes JSON of such a line, with a character in place of each of
//! these bytes, and [`restored`] puts the bytes back into a value.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::limits::{MAX_FILTERS, MAX_KEY_FIELDS};

/// Where the time is, in this order, when no field is named for it. The first that is a time counts.
pub(crate) const TIME_FIELDS: [&str; 9] = [
    "time",
    "timestamp",
    "ts",
    "@timestamp",
    "time_iso8601",
    "msec",
    "time_local",
    "eventTime",
    JOURNALD_TIME,
];

/// When journald had a line. A JSON object that has it may carry another one.
pub(crate) const JOURNALD_TIME: &str = "__REALTIME_TIMESTAMP";

/// The most fields asked for at once: for the key, the conditions, the time in a template, and journald's.
const MAX_WANTED: usize = 2 * MAX_KEY_FIELDS + MAX_FILTERS + TIME_FIELDS.len() + 1;

/// What journald calls the text, which it writes as an array of bytes when it is no UTF-8.
const MESSAGE: &str = "MESSAGE";

/// The fields asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    names: Vec<String>,
    /// Sets of indices of names, by the low bits of their first bytes: most members are not asked for.
    by_first: [u64; 32],
}

impl Wanted {
    /// At most [`MAX_WANTED`] names.
    pub(crate) fn new(names: &[String]) -> Wanted {
        debug_assert!(names.len() <= MAX_WANTED, "the key, the conditions and the time fields are bounded");
        let mut by_first = [0; 32];
        for (index, name) in names.iter().enumerate() {
            if let Some(first) = name.bytes().next() {
                by_first[usize::from(first & 31)] |= 1 << index;
            } else {
                // The empty name is that of a member without one.
                by_first.iter_mut().for_each(|set| *set |= 1 << index);
            }
        }
        Wanted { names: names.to_vec(), by_first }
    }

    pub(crate) fn name(&self, index: usize) -> &str {
        &self.names[index]
    }
}

/// The values found, as they are written, in the order they were asked for.
pub(crate) type Found<'a> = Vec<Option<&'a str>>;

/// Looks up the fields in the object `json`; `None` when it is no object.
pub(crate) fn find<'a>(json: &'a [u8], wanted: &Wanted) -> Option<Found<'a>> {
    let mut object = serde_json::Deserializer::from_slice(json);
    let found = Object { wanted }.deserialize(&mut object).ok()?;
    object.end().ok()?;
    Some(found)
}

/// The text of a value: strings without their escapes, numbers and booleans as they are written.
/// `None` for null, objects and arrays.
pub(crate) fn scalar(raw: &str) -> Option<Cow<'_, [u8]>> {
    match raw.as_bytes() {
        [b'"', inner @ .., b'"'] if memchr::memchr(b'\\', inner).is_none() => Some(Cow::Borrowed(inner)),
        [b'"', ..] => serde_json::from_str::<String>(raw).ok().map(|text| Cow::Owned(text.into_bytes())),
        [b'{' | b'[' | b'n', ..] => None,
        other => Some(Cow::Borrowed(other)),
    }
}

/// As [`scalar`]; of journald's text also an array of bytes.
pub(crate) fn value<'a>(name: &str, raw: &'a str) -> Option<Cow<'a, [u8]>> {
    if name == MESSAGE && raw.starts_with('[') {
        return serde_json::from_str::<Vec<u8>>(raw).ok().map(Cow::Owned);
    }
    scalar(raw)
}

/// The first of the characters that stand for bytes: private ones, which lines rarely have.
const FIRST_BYTE: u32 = 0x10_f700;

/// The character that stands for a byte.
fn placeholder(byte: u8) -> char {
    char::from_u32(FIRST_BYTE + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that a character stands for.
fn placed(character: char) -> Option<u8> {
    u32::from(character).checked_sub(FIRST_BYTE).and_then(|byte| u8::try_from(byte).ok())
}

/// A line with a character in place of each `\xHH` and of each byte that is no UTF-8; `None` when it has neither.
pub(crate) fn repaired(line: &[u8]) -> Option<Vec<u8>> {
    if std::str::from_utf8(line).is_ok() && memchr::memmem::find(line, b"\\x").is_none() {
        return None;
    }
    let mut made = String::with_capacity(2 * line.len());
    for chunk in line.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(character) = rest.chars().next() {
            let byte = rest.strip_prefix("\\x").and_then(|rest| hex_byte(rest.as_bytes()));
            let len = match (character, byte) {
                (_, Some(byte)) => {
                    made.push(placeholder(byte));
                    4
                }
                // Whatever is escaped by it is not looked at.
                ('\\', None) => {
                    let len = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
                    made.push_str(&rest[..len]);
                    len
                }
                _ => {
                    let len = character.len_utf8();
                    match placed(character) {
                        Some(_) => made.extend(rest.bytes().take(len).map(placeholder)),
                        None => made.push(character),
                    }
                    len
                }
            };
            rest = &rest[len..];
        }
        made.extend(chunk.invalid().iter().copied().map(placeholder));
    }
    Some(made.into_bytes())
}

/// A byte as two hexadecimal digits.
fn hex_byte(text: &[u8]) -> Option<u8> {
    let digit = |at: usize| (*text.get(at)? as char).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// A value of a repaired line with its bytes.
pub(crate) fn restored(value: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(&value) else { return value };
    if !text.chars().any(|character| placed(character).is_some()) {
        return value;
    }
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match placed(character) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// The names of the members of an object.
pub(crate) fn names(json: &[u8]) -> Vec<String> {
    let repaired = repaired(json);
    let json = repaired.as_deref().unwrap_or(json);
    let object: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_slice(json);
    object.map(|object| object.into_iter().map(|(name, _)| name).collect()).unwrap_or_default()
}

struct Object<'w> {
    wanted: &'w Wanted,
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = Found<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Found<'de>, M::Error> {
        let mut found: Found<'de> = vec![None; self.wanted.names.len()];
        let mut exact = 0_u64;
        while let Some(matched) = members.next_key_seed(Name { wanted: self.wanted })? {
            if matched.exact | matched.inside == 0 {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            let raw = members.next_value::<&'de RawValue>()?.get();
            for (index, name) in self.wanted.names.iter().enumerate() {
                if matched.exact & (1 << index) != 0 {
                    found[index] = Some(raw);
                } else if (matched.inside & !exact) & (1 << index) != 0 {
                    // The name starts with this member's, and a dot follows.
                    let rest = &name[matched.name_len + 1..];
                    found[index] = inside(raw, rest).or(found[index]);
                }
            }
            exact |= matched.exact;
        }
        Ok(found)
    }
}

/// The value at `path` in the object `raw`, if it is one.
fn inside<'a>(raw: &'a str, path: &str) -> Option<&'a str> {
    if !raw.starts_with('{') {
        return None;
    }
    find(raw.as_bytes(), &Wanted::new(&[path.to_owned()]))?[0]
}

/// The wanted names a member's name answers, as sets of indices.
struct Matched {
    exact: u64,
    inside: u64,
    name_len: usize,
}

struct Name<'w> {
    wanted: &'w Wanted,
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Matched;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Matched, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Matched;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Matched, E> {
        let mut matched = Matched { exact: 0, inside: 0, name_len: name.len() };
        let mut candidates = match name.bytes().next() {
            Some(first) => self.wanted.by_first[usize::from(first & 31)],
            None => u64::MAX,
        };
        while candidates != 0 {
            let index = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            let Some(wanted) = self.wanted.names.get(index) else { break };
            match wanted.strip_prefix(name) {
                Some("") => matched.exact |= 1 << index,
                Some(rest) if rest.starts_with('.') => matched.inside |= 1 << index,
                _ => {}
            }
        }
        Ok(matched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(json: &str, name: &str) -> Option<String> {
        let found = find(json.as_bytes(), &Wanted::new(&["unrelated".into(), name.into()]))?;
        let value = scalar(found[1]?)?;
        Some(String::from_utf8_lossy(&value).into_owned())
    }

    #[test]
    fn values_are_found() {
        let check = |json: &str, name: &str, expected: Option<&str>| {
            assert_eq!(get(json, name).as_deref(), expected, "{name} in {json}");
        };
        check(r#"{"ip":"1.2.3.4","x":[{"ip":1}]}"#, "ip", Some("1.2.3.4"));
        check(r#" { "n" : 1.50e3 , "b" : true } "#, "n", Some("1.50e3"));
        check(r#"{"b":false}"#, "b", Some("false"));
        check(r#"{"a":"q\"\u00e9\n"}"#, "a", Some("q\"é\n"));
        check(r#"{"\u0069p":"x"}"#, "ip", Some("x"));
        check(r#"{"ip":""}"#, "ip", Some(""));
        check(r#"{"ip":null}"#, "ip", None);
        check(r#"{"ip":{}}"#, "ip", None);
        check(r#"{"ip":[1]}"#, "ip", None);
        check(r#"{"ip":1,"ip":2}"#, "ip", Some("2"));
        check(r#"{"a":{"b":{"c":7}}}"#, "a.b.c", Some("7"));
        check(r#"{"a":{"b.c":7}}"#, "a.b.c", Some("7"));
        check(r#"{"a.b.c":1,"a":{"b":{"c":7}}}"#, "a.b.c", Some("1"));
        check(r#"{"a":{"b":{"c":7}},"a.b.c":1}"#, "a.b.c", Some("1"));
        check(r#"{"a":3}"#, "a.b", None);
        check(r#"{"ab":{"c":3}}"#, "a.c", None);
        check(r#"{"":5,"a":1}"#, "", Some("5"));
        check(r#"{"":{"a":5}}"#, ".a", Some("5"));
        check(r#"{"A":5,"!":2}"#, "a", None);
    }

    #[test]
    fn bytes_that_are_no_json_are_put_back() {
        let check = |json: &[u8], expected: Option<&[u8]>| {
            let repaired = repaired(json);
            let found = repaired.as_ref().map(|line| {
                let found = find(line, &Wanted::new(&["a".into()])).expect("an object");
                restored(scalar(found[0].expect("a")).expect("text")).into_owned()
            });
            assert_eq!(found.as_deref(), expected, "{}", json.escape_ascii());
        };
        check(br#"{"a":"x"}"#, None);
        check("{\"a\":\"\u{10f722}é\"}".as_bytes(), None);
        check(br#"{"a":"x\x22\x5C\xff\xC3\xa9\x00y"}"#, Some(b"x\"\\\xff\xc3\xa9\0y"));
        check(b"{\"a\":\"x\xff\xc3\\n\"}", Some(b"x\xff\xc3\n"));
        check("{\"a\":\"\\x22\u{10f722}é\"}".as_bytes(), Some("\"\u{10f722}é".as_bytes()));
        // An escaped backslash before an x is that.
        check(br#"{"b":"\xff","a":"\\x22"}"#, Some(br"\x22"));
        for bad in [
            &br#"{"a":"\x2"}"#[..],
            br#"{"a":"\x2g"}"#,
            br#"{"a":\x22}"#,
            br#"{\x22a":1}"#,
            br#"{"a":"\x22}"#,
        ] {
            let line = repaired(bad).expect("it has one");
            assert!(find(&line, &Wanted::new(&["a".into()])).is_none(), "{}", bad.escape_ascii());
        }
        assert_eq!(names(br#"{"a":"\x22","b":1}"#), ["a", "b"]);
    }

    #[test]
    fn invalid_json_is_refused() {
        for bad in ["", "[]", "1", "\"x\"", "{", "{}x", "{\"a\"}", "{\"a\":}", "{'a':1}", "{\"a\":1,}"] {
            assert!(find(bad.as_bytes(), &Wanted::new(&["a".into()])).is_none(), "{bad}");
        }
        assert!(find(b"{\"a\":\"\xff\"}", &Wanted::new(&["a".into()])).is_none(), "a value that is no UTF-8");
    }

    #[test]
    fn as_many_fields_as_a_key_and_the_time_need() {
        let wanted: Vec<String> = (0..MAX_WANTED).map(|index| format!("f{index}")).collect();
        let last = wanted.last().expect("not empty");
        let json = format!("{{\"{last}\":5}}");
        let found = find(json.as_bytes(), &Wanted::new(&wanted)).expect("an object");
        assert_eq!(found[MAX_WANTED - 1], Some("5"));
    }
}
