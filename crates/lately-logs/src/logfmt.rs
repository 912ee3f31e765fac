//! Lines of `key=value` pairs, as Go programs and Heroku write them.

use std::borrow::Cow;

use crate::wanted::{Found, Wanted};

/// The values of the wanted keys as written, with their quotes. `None` if the line is not logfmt.
pub(crate) fn find<'a>(line: &'a [u8], wanted: &Wanted) -> Option<Found<&'a [u8]>> {
    let mut found = Found::new();
    let mut pairs = 0;
    for pair in Pairs(line) {
        let (key, value) = pair?;
        if let Some(value) = value {
            pairs += 1;
            if let Some(index) = wanted.index(key) {
                found.insert(index, value);
            }
        }
    }
    (pairs > 0).then_some(found)
}

/// Whether a whole line is logfmt.
pub(crate) fn is_whole(line: &[u8]) -> bool {
    let mut pairs = Pairs(line).peekable();
    pairs.peek().is_some() && pairs.all(|pair| pair.is_some())
}

/// Whether a line starts with a key that has a value.
pub(crate) fn starts_with_pair(line: &[u8]) -> bool {
    matches!(pair(line.trim_ascii_start()), Some((_, Some(_), _)))
}

/// The keys of a line that have a value.
pub(crate) fn names(line: &[u8]) -> Vec<String> {
    let pairs = Pairs(line).map_while(|pair| pair).filter(|(_, value)| value.is_some());
    pairs.map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect()
}

/// The text of a value, without quotes and escapes. `None` if it is empty.
pub(crate) fn text(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    match value {
        [] => None,
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => Some(Cow::Borrowed(inner)),
        [b'"', inner @ .., b'"'] => Some(match serde_json::from_slice::<String>(value) {
            Ok(text) => Cow::Owned(text.into_bytes()),
            Err(_) => Cow::Borrowed(inner),
        }),
        value => Some(Cow::Borrowed(value)),
    }
}

/// The pairs of a line. `None` after the first text that is not a pair.
struct Pairs<'a>(&'a [u8]);

impl<'a> Iterator for Pairs<'a> {
    type Item = Option<(&'a [u8], Option<&'a [u8]>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.0.trim_ascii_start();
        if text.is_empty() {
            return None;
        }
        let pair = pair(text);
        self.0 = pair.map_or(&[], |(_, _, rest)| rest);
        Some(pair.map(|(key, value, _)| (key, value)))
    }
}

type Pair<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

/// The pair at the start, and the rest.
fn pair(text: &[u8]) -> Option<Pair<'_>> {
    let is_end = |byte: &u8| *byte == b'=' || *byte == b'"' || byte.is_ascii_whitespace();
    let end = text.iter().position(is_end).unwrap_or(text.len());
    let (key, rest) = text.split_at(end);
    let Some(value) = rest.strip_prefix(b"=") else {
        // A key without a value is a flag.
        return (!key.is_empty() && !rest.starts_with(b"\"")).then_some((key, None, rest));
    };
    if key.is_empty() {
        return None;
    }
    let end = if value.starts_with(b"\"") {
        let mut from = 1;
        loop {
            let at = from + memchr::memchr2(b'"', b'\\', &value[from..])?;
            if value[at] == b'"' {
                break at + 1;
            }
            from = (at + 2).min(value.len());
        }
    } else {
        let end = value.iter().position(u8::is_ascii_whitespace).unwrap_or(value.len());
        if value[..end].contains(&b'"') {
            return None;
        }
        end
    };
    let (value, rest) = value.split_at(end);
    let is_whole = rest.first().is_none_or(u8::is_ascii_whitespace);
    is_whole.then_some((key, Some(value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(line: &str, name: &str) -> Option<String> {
        let found = find(line.as_bytes(), &Wanted::new(&[name.into()]))?;
        Some(String::from_utf8_lossy(&text(found.get(0)?)?).into_owned())
    }

    #[test]
    fn values_are_found() {
        let check = |line: &str, name: &str, expected: Option<&str>| {
            assert_eq!(get(line, name).as_deref(), expected, "{name} in {line}");
        };
        check("at=info ip=192.0.2.1 flag path=/a?b=c", "ip", Some("192.0.2.1"));
        check("at=info path=/a?b=c", "path", Some("/a?b=c"));
        check(r#"msg="a \"b\" c=d ip=x" ip=y"#, "msg", Some(r#"a "b" c=d ip=x"#));
        check(r#"msg="a \"b\" ip=x" ip=y"#, "ip", Some("y"));
        check(r#"msg="\u00e9\n" ip=y"#, "msg", Some("é\n"));
        check(r#"msg="" ip="#, "msg", Some(""));
        check(r#"msg="" ip="#, "ip", None);
        check("ip=a ip=b", "ip", Some("b"));
        check("flag ip=b", "flag", None);
        assert_eq!(names(b"a=1 flag b=\"x y\""), ["a", "b"]);
    }

    #[test]
    fn invalid_logfmt_is_refused() {
        for bad in
            ["", "hello", "hello world", "=a", "a=\"b", "a=\"b\"c", "a=b\"c", "\"a\"=b", "a=1 {\"b\":2}"]
        {
            assert!(find(bad.as_bytes(), &Wanted::new(&[])).is_none(), "{bad}");
        }
    }
}
