//! Files of the data folder that are lists of lines, each with a checksum: the text, a space, and its CRC-32 in 8 hexadecimal digits.

use std::io;
use std::path::Path;

/// A line with its checksum and its end.
pub(crate) fn line(text: &str) -> String {
    format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// What the lines of a file say, and the bytes that they take. A last line without its end was being written at a crash, and is left
/// out. Lines without a space have no checksum, as earlier versions wrote them. `without` says what is wrong without the file.
///
/// # Errors
/// A line is damaged.
pub(crate) fn read<T>(
    path: &Path,
    bytes: &[u8],
    without: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> io::Result<(Vec<T>, u64)> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut parsed = Vec::new();
    for (index, line) in bytes[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
        let text = str::from_utf8(&line[..line.len() - 1]).ok().and_then(unchecked);
        parsed.push(text.and_then(&parse).ok_or_else(|| {
            let (path, number) = (path.display(), index + 1);
            io::Error::other(format!(
                "{path}:{number}: this line is damaged: restore the file from a copy, or remove it; without it, {without}"
            ))
        })?);
    }
    Ok((parsed, whole as u64))
}

/// The text of a line whose checksum is right.
fn unchecked(line: &str) -> Option<&str> {
    let Some((text, checksum)) = line.rsplit_once(' ') else { return Some(line) };
    (checksum == format!("{:08x}", crc32fast::hash(text.as_bytes()))).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bit_that_flips_is_seen() {
        let bytes = (line("a 1") + &line("b 22")).into_bytes();
        let read =
            |bytes: &[u8]| read(Path::new("list"), bytes, "less is there", |text| Some(text.to_owned()));
        assert_eq!(read(&bytes).expect("whole"), (vec!["a 1".to_owned(), "b 22".to_owned()], 27));
        // A line that was being written.
        assert_eq!(read(&bytes[..bytes.len() - 1]).expect("a whole one").1, 13);
        for bit in 0..8 * (bytes.len() - 1) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped).is_err(), "{bit}");
        }
        let error = read(b"a 1 00000000\n").expect_err("wrong").to_string();
        assert_eq!(
            error,
            "list:1: this line is damaged: restore the file from a copy, or remove it; without it, less is there"
        );
        assert_eq!(read(b"a.17\n").expect("of an earlier version").0, ["a.17"]);
    }
}
