//! Converts JSON of other shapes into an object per line: an array of objects, an object with an array of objects
//! (CloudTrail's `Records`), objects over several lines.

use std::io::{self, Read};

use serde::de::IgnoredAny;

use crate::format::Format;

/// Bytes that are read to detect the shape.
const PEEK_BYTES: usize = 64 * 1024;

/// A reader that passes bytes on. JSON of another shape becomes an object per line.
pub(crate) struct Documents<R> {
    reader: R,
    /// Bytes that were read but not yet returned, from `from` on.
    pending: Vec<u8>,
    from: usize,
    state: State,
    /// The error of the reader while the shape was detected.
    failure: Option<io::Error>,
}

enum State {
    /// Nothing was read yet. The flag is whether to look for JSON.
    Start(bool),
    /// All bytes are passed on unchanged.
    Plain,
    Cut(Cutter),
}

/// Finds the elements at a given depth of brackets.
#[derive(Debug, Default)]
struct Cutter {
    elements: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether the current output line has any content.
    in_line: bool,
}

impl<R: Read> Documents<R> {
    pub(crate) fn new(reader: R, format: Option<&Format>) -> Documents<R> {
        let may_be_json = matches!(format, None | Some(Format::Json));
        Documents { reader, pending: Vec::new(), from: 0, state: State::Start(may_be_json), failure: None }
    }

    /// Reads until the shape is known. True if elements are cut out, one per line.
    pub(crate) fn is_cut(&mut self) -> bool {
        if let State::Start(may_be_json) = self.state {
            self.start(may_be_json);
        }
        matches!(self.state, State::Cut(_))
    }

    /// Reads until the shape is known.
    fn start(&mut self, may_be_json: bool) {
        while may_be_json && self.pending.len() < PEEK_BYTES && starts_as_json(&self.pending) {
            let from = self.pending.len();
            self.pending.resize(PEEK_BYTES, 0);
            let count = read(&mut self.reader, &mut self.pending[from..]).unwrap_or_else(|error| {
                self.failure = Some(error);
                0
            });
            self.pending.truncate(from + count);
            if count == 0 {
                break;
            }
        }
        self.state = match element_depth(&self.pending) {
            Some(elements) if may_be_json => {
                let mut cutter = Cutter { elements, ..Cutter::default() };
                self.pending = cutter.cut(&self.pending);
                State::Cut(cutter)
            }
            _ => State::Plain,
        };
    }
}

impl<R: Read> Read for Documents<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let State::Start(may_be_json) = self.state {
            self.start(may_be_json);
        }
        loop {
            let rest = &self.pending[self.from..];
            if !rest.is_empty() {
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                self.from += count;
                return Ok(count);
            }
            if let Some(error) = self.failure.take() {
                return Err(error);
            }
            let State::Cut(cutter) = &mut self.state else { return self.reader.read(buffer) };
            self.pending.resize(PEEK_BYTES, 0);
            let count = read(&mut self.reader, &mut self.pending);
            let made =
                count.as_ref().map_or_else(|_| Vec::new(), |&count| cutter.cut(&self.pending[..count]));
            (self.pending, self.from) = (made, 0);
            if count? == 0 {
                return Ok(0);
            }
        }
    }
}

fn read(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// The byte order mark that UTF-8 may begin with.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The text without byte order mark and leading blanks.
fn trimmed(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(MARK).unwrap_or(bytes).trim_ascii_start()
}

/// Whether this may be the start of JSON.
fn starts_as_json(bytes: &[u8]) -> bool {
    MARK.starts_with(bytes) || matches!(trimmed(bytes), [] | [b'{' | b'[', ..])
}

/// The depth of the elements in JSON that starts like this. `None` if it has an object per line, or is not JSON.
fn element_depth(bytes: &[u8]) -> Option<usize> {
    let bytes = trimmed(bytes);
    match bytes {
        [b'[', rest @ ..] => matches!(rest.trim_ascii_start(), [] | [b'{' | b']', ..]).then_some(1),
        [b'{', inner @ ..] => {
            let (first, rest) = first_object(bytes);
            let is_alone = rest.trim_ascii_start().is_empty();
            if is_alone && has_array_first(inner) {
                return Some(2);
            }
            (first.contains(&b'\n') && may_be_json(first)).then_some(0)
        }
        _ => None,
    }
}

/// The first object, or the available part of it, and the rest.
fn first_object(bytes: &[u8]) -> (&[u8], &[u8]) {
    let mut cutter = Cutter::default();
    for (at, &byte) in bytes.iter().enumerate() {
        cutter.step(byte);
        if cutter.depth == 0 && !cutter.in_string {
            return bytes.split_at(at + 1);
        }
    }
    (bytes, &[])
}

/// Whether this is JSON, or the start of it. A line that was cut off, with other lines after it, is neither.
fn may_be_json(bytes: &[u8]) -> bool {
    let read = serde_json::from_slice::<IgnoredAny>(bytes);
    read.map_or_else(|error| error.is_eof(), |_| true)
}

/// Whether the first member of an object is an array of objects.
fn has_array_first(inner: &[u8]) -> bool {
    let name = inner.trim_ascii_start().strip_prefix(b"\"");
    let value = name.and_then(|name| {
        let end = memchr::memchr2(b'"', b'\\', name).filter(|&end| name[end] == b'"')?;
        name[end + 1..].trim_ascii_start().strip_prefix(b":")
    });
    let first = value.and_then(|value| value.trim_ascii_start().strip_prefix(b"["));
    first.is_some_and(|first| first.trim_ascii_start().first() == Some(&b'{'))
}

impl Cutter {
    /// The elements in `bytes`, one per line.
    fn cut(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut made = Vec::with_capacity(bytes.len() + 1);
        for &byte in bytes {
            let before = self.depth;
            let was_in_string = self.in_string;
            self.step(byte);
            let is_inside = before.max(self.depth) > self.elements;
            let is_between = before == self.elements && self.depth == self.elements;
            if is_inside {
                // Outside of strings a line end is a blank.
                made.push(if matches!(byte, b'\n' | b'\r') && !was_in_string { b' ' } else { byte });
                self.in_line = true;
                if self.depth == self.elements {
                    self.end_line(&mut made);
                }
            } else if is_between && !was_in_string && (byte == b',' || byte.is_ascii_whitespace()) {
                self.end_line(&mut made);
            } else if is_between {
                made.push(byte);
                self.in_line = true;
            } else {
                self.end_line(&mut made);
            }
        }
        made
    }

    fn end_line(&mut self, made: &mut Vec<u8>) {
        if self.in_line {
            made.push(b'\n');
            self.in_line = false;
        }
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte at a time.
    struct Drip<'a>(&'a [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(1);
            self.0.read(&mut buffer[..most])
        }
    }

    fn check(from: &str, to: &str) {
        let mut whole = String::new();
        Documents::new(from.as_bytes(), None).read_to_string(&mut whole).expect("memory does not fail");
        assert_eq!(whole, to, "{from}");
        let mut dripped = String::new();
        Documents::new(Drip(from.as_bytes()), None)
            .read_to_string(&mut dripped)
            .expect("memory does not fail");
        assert_eq!(dripped, to, "{from} byte by byte");
    }

    #[test]
    fn objects_per_line_stay_as_they_are() {
        for plain in [
            "",
            "hello\n",
            "{\"a\":1}",
            "{\"a\":1}\n{\"a\":2}\n",
            "{\"a\":[{\"b\":1}]}\n{\"a\":[{\"b\":2}]}\n",
            " {\"a\":1}\nhello\n",
            "[12/Mar/2024] \"GET\"\n",
            "{\"a\":1",
            // The first line was cut off.
            "{\"a\":1\n{\"a\":2}\n",
            "{\"a\":\"x\n{\"a\":2}\n",
            "{\"a\":1,\nMar 12 09:00:01 web1 app: hello\n",
        ] {
            check(plain, plain);
        }
    }

    #[test]
    fn other_shapes_become_lines() {
        check("[{\"a\":1},{\"a\":\"]\\\"}\"}]", "{\"a\":1}\n{\"a\":\"]\\\"}\"}\n");
        check("[\n  {\"a\": 1},\n  {\"a\":\n [2]}\n]\n", "{\"a\": 1}\n{\"a\":  [2]}\n");
        check("[]", "");
        check("[{\"a\":1}, 5, \"x y\", {}]", "{\"a\":1}\n5\n\"x y\"\n{}\n");
        check("{\"Records\":[{\"a\":1},{\"a\":{\"b\":[2]}}]}", "{\"a\":1}\n{\"a\":{\"b\":[2]}}\n");
        check("{ \"events\" : [ {\"a\":1} ], \"next\": \"{x\", \"n\": {} }\n", "{\"a\":1}\n");
        check("{\n \"a\": 1\n}\n{\n \"a\": 2\n}\n", "{  \"a\": 1 }\n{  \"a\": 2 }\n");
        check("\u{feff}[{\"a\":1}]", "{\"a\":1}\n");
        // What is cut off is a line that does not parse.
        check("[{\"a\":1},{\"a\":", "{\"a\":1}\n{\"a\":");
    }

    #[test]
    fn long_documents_are_cut_as_they_come() {
        let element = format!("{{\"a\":\"{}\"}}", "x".repeat(1_000));
        let document = format!("{{\"Records\":[{}]}}", vec![element.clone(); 1_000].join(","));
        check(&document, &format!("{element}\n").repeat(1_000));
    }
}
