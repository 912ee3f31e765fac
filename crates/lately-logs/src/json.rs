//! JSON lines: reads a few fields from an object of any size.
//!
//! The object is walked once. Members that are not requested are checked and skipped, not built. A name with dots is
//! first tried as the name of a member (`{"user.id": 7}`), then as a path into nested objects (`{"user": {"id":
//! 7}}`). Of equal names the last counts. Only the requested values are checked to be UTF-8.
//!
//! Servers that write JSON from a format string put more into strings than JSON allows: nginx writes `\xHH` for a
//! quote, or with `escape=json` bytes that are not UTF-8. [`repaired`] makes JSON of such a line, with a character in
//! place of each of these bytes, and [`restored`] puts the bytes back into a value.

use std::borrow::Cow;

use memchr::memchr;
use serde_json::{Map, Value};

use crate::limits::MAX_LISTED_FIELDS;
use crate::wanted::{Depth, Found, Wanted};

/// The names of the time, if no field is given for it. The first value that is a time counts.
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

/// The time at which journald received a line. A JSON object with this field may carry another one.
pub(crate) const JOURNALD_TIME: &str = "__REALTIME_TIMESTAMP";

/// Journald's name of the text. It is an array of bytes if the text is not UTF-8.
const MESSAGE: &str = "MESSAGE";

/// Looks up the fields in the object `json`. `None` if it is not an object, or if a value that is found is not UTF-8.
pub(crate) fn find<'a>(json: &'a [u8], wanted: &Wanted) -> Option<Found<&'a str>> {
    let mut found = Found::new();
    let mut scanner = Scanner { json, at: 0 };
    scanner.blanks();
    scanner.take(b'{')?;
    scanner.object(wanted, Depth::ROOT, &mut found)?;
    scanner.blanks();
    (scanner.at == json.len()).then_some(found)
}

/// The text of a value: strings without their escapes, numbers and booleans as written. `None` for null, objects and
/// arrays.
pub(crate) fn scalar(raw: &str) -> Option<Cow<'_, [u8]>> {
    match raw.as_bytes() {
        [b'"', inner @ .., b'"'] if memchr(b'\\', inner).is_none() => Some(Cow::Borrowed(inner)),
        [b'"', ..] => serde_json::from_str::<String>(raw).ok().map(|text| Cow::Owned(text.into_bytes())),
        [b'{' | b'[' | b'n', ..] => None,
        other => Some(Cow::Borrowed(other)),
    }
}

/// The text of a value. Journald's text may also be an array of bytes.
pub(crate) fn value<'a>(name: &str, raw: &'a str) -> Option<Cow<'a, [u8]>> {
    if name == MESSAGE && raw.starts_with('[') {
        return serde_json::from_str::<Vec<u8>>(raw).ok().map(Cow::Owned);
    }
    scalar(raw)
}

/// The first of the characters that stand for bytes. They are private ones, which lines rarely have.
const FIRST_BYTE: u32 = 0x10_f700;

/// The character that stands for a byte.
fn placeholder(byte: u8) -> char {
    char::from_u32(FIRST_BYTE + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that a character stands for.
fn placed(character: char) -> Option<u8> {
    u32::from(character).checked_sub(FIRST_BYTE).and_then(|byte| u8::try_from(byte).ok())
}

/// The line with a character in place of each `\xHH` and of each byte that is not UTF-8. `None` if it has neither.
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
                // Skip the escaped character.
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

/// A value of a repaired line with its original bytes.
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

/// The names of the members that have a value, with dots for nested objects.
pub(crate) fn names(json: &[u8]) -> Vec<String> {
    let repaired = repaired(json);
    let json = repaired.as_deref().unwrap_or(json);
    let mut names = Vec::new();
    if let Ok(object) = serde_json::from_slice(json) {
        add_names(&object, "", &mut names);
    }
    names
}

fn add_names(object: &Map<String, Value>, prefix: &str, names: &mut Vec<String>) {
    for (name, value) in object {
        match value {
            _ if names.len() == MAX_LISTED_FIELDS => return,
            Value::Object(inner) => add_names(inner, &format!("{prefix}{name}."), names),
            Value::Array(_) if name != MESSAGE => {}
            Value::Null => {}
            _ => names.push(format!("{prefix}{name}")),
        }
    }
}

/// Reads JSON from start to end. Input that passes is valid, except that strings may not be UTF-8.
struct Scanner<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    #[inline]
    fn next(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    #[inline]
    fn take(&mut self, byte: u8) -> Option<()> {
        let is_there = self.next() == Some(byte);
        self.at += usize::from(is_there);
        is_there.then_some(())
    }

    #[inline(always)]
    fn blanks(&mut self) {
        // Mostly there are no blanks.
        while let Some(byte) = self.next().filter(|byte| *byte <= b' ')
            && matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
        {
            self.at += 1;
        }
    }

    /// Finds the requested members of the object whose brace was read, and skips the rest of it.
    fn object(&mut self, wanted: &Wanted, depth: Depth, found: &mut Found<&'a str>) -> Option<()> {
        let mut settled = 0;
        self.blanks();
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            let name = self.name()?.unescaped()?;
            let (is, inside) = wanted.matched(depth, &name);
            let inside = inside & !settled;
            let from = self.at;
            if inside != 0 && self.take(b'{').is_some() {
                // Nested names continue after the name of this member and a dot.
                let prefix_len = depth.prefix_len + name.len() + 1;
                self.object(wanted, Depth { looked_for: inside, prefix_len }, found)?;
            } else {
                self.value()?;
            }
            if is != 0 {
                let raw = str::from_utf8(&self.json[from..self.at]).ok()?;
                found.add(is, raw);
                settled |= is;
            }
            self.blanks();
            if self.take(b'}').is_some() {
                return Some(());
            }
            self.take(b',')?;
        }
    }

    /// Reads the name of a member, and the colon and blanks before its value.
    #[inline(always)]
    fn name(&mut self) -> Option<Text<'a>> {
        self.blanks();
        self.take(b'"')?;
        let name = self.string()?;
        self.blanks();
        self.take(b':')?;
        self.blanks();
        Some(name)
    }

    /// Reads a string whose first quote was read.
    #[inline(always)]
    fn string(&mut self) -> Option<Text<'a>> {
        let from = self.at;
        let mut has_escapes = false;
        loop {
            self.at += plain_len(&self.json[self.at..]);
            match self.next()? {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    self.at += escape_len(&self.json[self.at..])?;
                }
                // A control character.
                _ => return None,
            }
        }
        let text = &self.json[from..self.at];
        self.at += 1;
        Some(Text { text, has_escapes })
    }

    /// Skips a value.
    fn value(&mut self) -> Option<()> {
        // The closing brackets of everything that is open.
        let mut open = Vec::new();
        loop {
            match self.next()? {
                bracket @ (b'{' | b'[') => {
                    self.at += 1;
                    self.blanks();
                    let close = if bracket == b'{' { b'}' } else { b']' };
                    if self.take(close).is_none() {
                        open.push(close);
                        if close == b'}' {
                            self.name()?;
                        }
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            loop {
                let Some(close) = open.last() else { return Some(()) };
                self.blanks();
                if self.take(*close).is_some() {
                    open.pop();
                    continue;
                }
                self.take(b',')?;
                if *close == b'}' {
                    self.name()?;
                } else {
                    self.blanks();
                }
                break;
            }
        }
    }

    /// Skips a string, a number, `true`, `false` or `null`.
    #[inline]
    fn scalar(&mut self) -> Option<()> {
        let word: &[u8] = match self.next()? {
            b'"' => {
                self.at += 1;
                return self.string().map(|_| ());
            }
            b't' => b"true",
            b'f' => b"false",
            b'n' => b"null",
            _ => return self.number(),
        };
        self.json[self.at..].starts_with(word).then_some(())?;
        self.at += word.len();
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        _ = self.take(b'-');
        // No digit may follow a leading zero.
        if self.take(b'0').is_none() {
            self.digits()?;
        }
        if self.take(b'.').is_some() {
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.next() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.next() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// Skips digits, at least one.
    #[inline]
    fn digits(&mut self) -> Option<()> {
        let from = self.at;
        while self.next().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > from).then_some(())
    }
}

/// The content of a string between its quotes.
struct Text<'a> {
    text: &'a [u8],
    has_escapes: bool,
}

impl<'a> Text<'a> {
    #[inline]
    fn unescaped(self) -> Option<Cow<'a, [u8]>> {
        if !self.has_escapes {
            return Some(Cow::Borrowed(self.text));
        }
        let text = serde_json::from_slice::<String>(&[b"\"", self.text, b"\""].concat()).ok()?;
        Some(Cow::Owned(text.into_bytes()))
    }
}

/// The number of bytes of a string before a quote, a backslash or a control character.
#[inline]
fn plain_len(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let marks = marks(u64::from_le_bytes(*word));
        if marks != 0 {
            return 8 * number + marks.trailing_zeros() as usize / 8;
        }
    }
    let is_mark = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\');
    8 * words.len() + rest.iter().position(is_mark).unwrap_or(rest.len())
}

/// The highest bit of the first of these bytes, lowest first, that is a quote, a backslash or a control character.
/// Bits of later bytes have no meaning.
#[inline]
fn marks(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // The highest bit of each byte below 128 that is smaller than `bound`.
    let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word;
    let quotes = below(word ^ (ONES * u64::from(b'"')), 1);
    let backslashes = below(word ^ (ONES * u64::from(b'\\')), 1);
    (quotes | backslashes | below(word, b' ')) & (ONES << 7)
}

/// The length of the escape at the start of a text.
fn escape_len(text: &[u8]) -> Option<usize> {
    match text.get(1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => text.get(2..6)?.iter().all(u8::is_ascii_hexdigit).then_some(6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
    use serde_json::value::RawValue;

    use super::*;
    use crate::wanted::MAX_WANTED;

    /// The members of an object in their order, as the library reads them.
    struct Members<'a>(Vec<(String, &'a RawValue)>);

    impl<'de> Deserialize<'de> for Members<'de> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'de>, D::Error> {
            struct Object;
            impl<'de> Visitor<'de> for Object {
                type Value = Members<'de>;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    write!(f, "an object")
                }

                fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members<'de>, M::Error> {
                    let mut members = Vec::new();
                    while let Some(member) = map.next_entry()? {
                        members.push(member);
                    }
                    Ok(Members(members))
                }
            }
            deserializer.deserialize_map(Object)
        }
    }

    /// The value of one field by definition; the outer `None` when it is no object.
    fn by_definition(json: &str, name: &str) -> Option<Option<String>> {
        let (mut found, mut is_settled) = (None, false);
        for (member, value) in serde_json::from_str::<Members<'_>>(json).ok()?.0 {
            let value = value.get();
            match name.strip_prefix(member.as_str()) {
                Some("") => (found, is_settled) = (Some(value.to_owned()), true),
                Some(rest) if rest.starts_with('.') && !is_settled => {
                    found = by_definition(value, &rest[1..]).flatten().or(found);
                }
                _ => {}
            }
        }
        Some(found)
    }

    const NAMES: [&str; 10] = ["a", "b", "a.b", "a.b.c", "b.a", "", ".a", "a.", "é", "a.b.c.a.b"];

    fn check_definition(json: &str) {
        let wanted = Wanted::new(&NAMES.map(String::from));
        let found = find(json.as_bytes(), &wanted);
        for (index, name) in NAMES.iter().enumerate() {
            let found = found.as_ref().map(|found| found.get(index).map(str::to_owned));
            assert_eq!(found, by_definition(json, name), "{name} in {json}");
        }
    }

    /// Values of which objects are made.
    fn value() -> impl Strategy<Value = String> {
        const SCALARS: [&str; 14] = [
            "null",
            "true",
            "false",
            "0",
            "-1.50e+3",
            "12345678901234567890",
            "1e999",
            "\"\"",
            "\"x\"",
            r#""q\"\\\/\b""#,
            r#""\u00e9\ud83d\ude00""#,
            r#""\ud800""#,
            "[]",
            "{}",
        ];
        let name =
            prop::sample::select(vec!["a", "b", "c", "a.b", "b.c", "", "é", r"\u0061", r"a\u002eb", r"\n"]);
        let blank = prop::sample::select(vec!["", "", "", " ", "\t\r\n "]);
        prop::sample::select(&SCALARS[..]).prop_map(String::from).prop_recursive(5, 40, 6, move |inner| {
            let member = (name.clone(), blank.clone(), inner.clone());
            let member = member.prop_map(|(name, blank, value)| format!("{blank}\"{name}\"{blank}:{blank}{value}{blank}"));
            let list = |items: Vec<String>| items.join(",");
            prop_oneof![
                3 => prop::collection::vec(member, 0..6).prop_map(move |items| format!("{{{}}}", list(items))),
                1 => prop::collection::vec(inner, 0..4).prop_map(move |items| format!("[{}]", list(items))),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_048))]

        /// What is valid is what the library takes.
        #[test]
        fn fields_are_found_by_definition(json in value(), at in any::<prop::sample::Index>(), with in "[ -~\t\né]{0,2}", cut in 0..3_usize) {
            check_definition(&json);
            let mut changed: Vec<char> = json.chars().collect();
            let at = at.index(changed.len() + 1);
            let end = (at + cut).min(changed.len());
            changed.splice(at..end, with.chars());
            check_definition(&changed.into_iter().collect::<String>());
        }
    }

    fn get(json: &str, name: &str) -> Option<String> {
        let found = find(json.as_bytes(), &Wanted::new(&["unrelated".into(), name.into()]))?;
        let value = scalar(found.get(1)?)?;
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
                restored(scalar(found.get(0).expect("a")).expect("text")).into_owned()
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
        assert_eq!(names(br#"{"a":{"b":{"c":1,"d":[2],"e":null}},"f":{},"g":true}"#), ["a.b.c", "g"]);
    }

    #[test]
    fn invalid_json_is_refused() {
        for bad in ["", "[]", "1", "\"x\"", "{", "{}x", "{\"a\"}", "{\"a\":}", "{'a':1}", "{\"a\":1,}"] {
            assert!(find(bad.as_bytes(), &Wanted::new(&["a".into()])).is_none(), "{bad}");
        }
        for value in [
            "01",
            "-",
            "+1",
            ".5",
            "1.",
            "1e",
            "1e+",
            "0x1",
            "tru",
            "nul",
            "truex",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\u123",
            "\"\n\"",
            "\"\\",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1}",
            "{\"b\":1]",
            "{\"b\":1,}",
            "{1:2}",
            "{\"b\" 1}",
            "[",
            "{",
        ] {
            check_definition(&format!("{{\"a\":{value}}}"));
            check_definition(&format!("{{\"x\":{value},\"a\":1}}"));
            assert!(find(format!("{{\"x\":{value}}}").as_bytes(), &Wanted::new(&[])).is_none(), "{value}");
        }
        // Deep nesting takes no stack.
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(400_000), "]".repeat(400_000));
        assert!(find(deep.as_bytes(), &Wanted::new(&["a".into()])).is_some());
        assert!(find(b"{\"a\":\"\xff\"}", &Wanted::new(&["a".into()])).is_none(), "a value that is no UTF-8");
    }

    #[test]
    fn as_many_fields_as_a_key_and_the_time_need() {
        let wanted: Vec<String> = (0..MAX_WANTED).map(|index| format!("f{index}")).collect();
        let last = wanted.last().expect("not empty");
        let json = format!("{{\"{last}\":5}}");
        let found = find(json.as_bytes(), &Wanted::new(&wanted)).expect("an object");
        assert_eq!(found.get(MAX_WANTED - 1), Some("5"));
    }
}
