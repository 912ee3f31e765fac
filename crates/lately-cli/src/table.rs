//! Rows for people: a header, numbers to the right, the key last.

use std::io::{self, Write};
use std::path::Path;

use lately::Timestamp;

/// Writes a table whose last column is as wide as it needs to be; the others are right-aligned.
pub(crate) fn write<const N: usize>(
    out: &mut dyn Write,
    header: [&str; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let width = |column: usize| {
        let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        widest.max(header[column].len())
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut line = |cells: [&str; N]| {
        for (cell, width) in cells.iter().zip(&widths).take(N - 1) {
            write!(out, "{cell:>width$}  ")?;
        }
        writeln!(out, "{}", cells[N - 1])
    };
    line(header)?;
    rows.iter().try_for_each(|row| line(row.each_ref().map(String::as_str)))
}

/// A key as it can be shown on a terminal: control characters, bytes that are no UTF-8 and
/// backslashes are escaped.
pub(crate) fn printable(key: &[u8]) -> String {
    escaped(key, |character| character == '\\' || has_effect(character))
}

/// The name of a file, as keys are shown.
pub(crate) fn printable_path(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}

/// A message that contains texts from outside, escaped like a key, except for backslashes, because keys in it are already
/// escaped.
pub(crate) fn harmless(text: &str) -> String {
    escaped(text.as_bytes(), has_effect)
}

/// JSON without effects on a terminal. serde_json escapes the control characters up to U+001F; this escapes the others and
/// the marks, which in JSON occur in strings only.
pub(crate) fn harmless_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        if has_effect(character) {
            let mut units = [0; 2];
            shown.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            shown.push(character);
        }
    }
    shown
}

fn escaped(bytes: &[u8], is_escaped: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_escaped(character) {
                shown.extend(character.escape_default());
            } else {
                shown.push(character);
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

/// Whether a character has an effect on a terminal besides being shown.
fn has_effect(character: char) -> bool {
    character.is_control() || is_invisible(character)
}

/// `2015-05-17T22:00:00Z`. The last hours of the year 9999, which are beyond the calendar, are
/// Unix seconds.
pub(crate) fn utc(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.as_millis()).map_or_else(|_| at.to_string(), |at| at.to_string())
}

/// Marks that change the direction or the look of what follows them, and characters that show nothing (Unicode: default ignorable). U+FE0F
/// is left out: many emoji end with it.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0e}'
            | '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn keys_are_shown_without_effects() {
        let check = |key: &[u8], expected: &str| assert_eq!(printable(key), expected);
        check(b"66.249.73.135 /a", "66.249.73.135 /a");
        check("Käse 🧀".as_bytes(), "Käse 🧀");
        check(b"a\x1b[31mb\r\n\t", r"a\u{1b}[31mb\r\n\t");
        check(b"\xff\xfea\\", r"\xff\xfea\\");
        check("\u{202e}x\u{85}".as_bytes(), r"\u{202e}x\u{85}");
        check("a\u{3164}\u{e0041}\u{115f}☂\u{fe0f}".as_bytes(), "a\\u{3164}\\u{e0041}\\u{115f}☂\u{fe0f}");
    }

    #[test]
    fn messages_are_shown_without_effects() {
        assert_eq!(
            harmless("ERR \x1b]0;a\x07\r\nhint: b \u{9b}2J \\d"),
            r"ERR \u{1b}]0;a\u{7}\r\nhint: b \u{9b}2J \d"
        );
        let path = std::ffi::OsStr::from_bytes(b"a\x1b[31m/\xff");
        assert_eq!(printable_path(Path::new(path)), r"a\u{1b}[31m/\xff");
    }

    #[test]
    fn json_is_shown_without_effects() {
        let marks = "a\u{7f}\u{80}\u{9b}\u{9f}\u{61c}\u{200e}\u{2028}\u{2029}\u{202e}\u{2066}\u{feff}ä🧀";
        let json = serde_json::Value::from(marks).to_string();
        let shown = harmless_json(&json);
        assert_eq!(shown, r#""a\u007f\u0080\u009b\u009f\u061c\u200e\u2028\u2029\u202e\u2066\ufeffä🧀""#);
        assert_eq!(serde_json::from_str::<String>(&shown).expect("it is JSON"), marks);
    }

    #[test]
    fn times_are_readable_to_the_end_of_time() {
        let check = |time: &str, expected: &str| assert_eq!(utc(time.parse().expect("a time")), expected);
        check("1431900000", "2015-05-17T22:00:00Z");
        check("0.25", "1970-01-01T00:00:00.25Z");
        check("253402300799", "253402300799");
    }

    #[test]
    fn columns_are_aligned() {
        let mut out = Vec::new();
        let rows = [["1".into(), "a".into()], ["12345".into(), "bb".into()]];
        write(&mut out, ["HITS", "KEY"], &rows).expect("memory does not fail");
        assert_eq!(String::from_utf8_lossy(&out), " HITS  KEY\n    1  a\n12345  bb\n");
    }
}
