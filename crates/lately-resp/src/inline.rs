//! Inline commands: words on a line, as typed into telnet or sent by a health check.
//!
//! Words are separated by whitespace. Inside `"…"` the escapes are `\n \r \t \b \a`, `\xHH`, and `\` before
//! any other byte, which stands for itself; inside `'…'` only `\'`. A closing quote ends the word.

use crate::error::ProtocolError;

/// Splits `line` into words. Their bytes are appended to `unquoted`, their places to `ranges`.
pub(crate) fn split_inline(
    line: &[u8],
    unquoted: &mut Vec<u8>,
    ranges: &mut Vec<(usize, usize)>,
) -> Result<(), ProtocolError> {
    let mut rest = line;
    loop {
        while let [byte, tail @ ..] = rest
            && is_space(*byte)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let start = unquoted.len();
        rest = take_word(rest, unquoted)?;
        ranges.push((start, unquoted.len()));
    }
}

/// Parses a word from the front and returns the rest.
fn take_word<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            [] | [b' ' | b'\t' | b'\r', ..] => return Ok(rest),
            [quote @ (b'"' | b'\''), tail @ ..] => {
                let after = if *quote == b'"' {
                    take_double_quoted(tail, out)?
                } else {
                    take_single_quoted(tail, out)?
                };
                return match after {
                    [byte, ..] if !is_space(*byte) => Err(ProtocolError::UnbalancedQuotes),
                    _ => Ok(after),
                };
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

fn take_double_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, tail) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex_digit(*high) << 4 | hex_digit(*low), tail)
            }
            [b'\\', escaped, tail @ ..] => (unescape(*escaped), tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        out.push(byte);
        rest = tail;
    }
}

fn take_single_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, tail) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'\'', tail @ ..] => (b'\'', tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        out.push(byte);
        rest = tail;
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex_digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}

/// Whitespace as in C.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Option<Vec<String>> {
        let (mut unquoted, mut ranges) = (Vec::new(), Vec::new());
        split_inline(line.as_bytes(), &mut unquoted, &mut ranges).ok()?;
        Some(ranges.iter().map(|&(start, end)| unquoted[start..end].escape_ascii().to_string()).collect())
    }

    #[test]
    fn words_and_quotes() {
        let check = |line: &str, expected: &[&str]| {
            let words = split(line).expect(line);
            assert_eq!(words.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{line}");
        };
        check("", &[]);
        check(" \t\r\x0b\x0c", &[]);
        check("PING", &["PING"]);
        check("  HIT  a\tb \r", &["HIT", "a", "b"]);
        check("ECHO a\x0bb", &["ECHO", r"a\x0bb"]);
        check(r#"ECHO """#, &["ECHO", ""]);
        check(r#"ECHO "a b""#, &["ECHO", "a b"]);
        check(r#"ECHO a"b c""#, &["ECHO", "ab c"]);
        check(r#"ECHO "\x41\x0A\n\r\t\b\a\q\"\\""#, &["ECHO", r#"A\n\n\r\t\x08\x07q\"\\"#]);
        check(r#"ECHO "\x4g""#, &["ECHO", "x4g"]);
        check(r"ECHO 'a\'b' 'c\nd'", &["ECHO", r"a\'b", r"c\\nd"]);
        check(r#"ECHO "it's" 'say "x"'"#, &["ECHO", r"it\'s", r#"say \"x\""#]);
        check(r#""PING"	x"#, &["PING", "x"]);
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in ["\"", "'", "PING \"abc", "PING 'abc", "PING \"abc\"d", "PING 'abc'd", r#"PING "abc\""#] {
            assert_eq!(split(line), None, "{line}");
        }
    }
}
