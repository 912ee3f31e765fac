//! Cuts the bytes of a growing log into lines. The last line is kept until its end arrives.

use memchr::memchr;

use crate::limits::MAX_LINE_BYTES;
use crate::lines::Line;

/// Takes bytes in pieces of any size, and passes on complete lines.
#[derive(Clone, Debug, Default)]
pub struct Cutter {
    /// The start of an incomplete line. Of a line that is too long, only as much as shows that.
    partial: Vec<u8>,
}

/// The most bytes that are kept of a line. The last may be the `\r` of the line end.
const MAX_PARTIAL_BYTES: usize = MAX_LINE_BYTES + 2;

impl Cutter {
    /// Adds bytes, and passes each line that ends in them to `visit`.
    pub fn push(&mut self, mut bytes: &[u8], mut visit: impl FnMut(Line<'_>)) {
        while let Some(at) = memchr(b'\n', bytes) {
            let (end, rest) = (&bytes[..at], &bytes[at + 1..]);
            if self.partial.is_empty() {
                visit(line(end));
            } else {
                self.keep(end);
                visit(line(&self.partial));
                self.partial.clear();
            }
            bytes = rest;
        }
        self.keep(bytes);
    }

    /// Ends the log: passes the last line to `visit`, if it has no line end.
    pub fn finish(&mut self, visit: impl FnOnce(Line<'_>)) {
        if !self.partial.is_empty() {
            visit(line(&self.partial));
        }
        self.partial.clear();
    }

    /// Drops the start of a line whose end will not come.
    pub fn drop_partial(&mut self) {
        self.partial.clear();
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_PARTIAL_BYTES - self.partial.len();
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

fn line(bytes: &[u8]) -> Line<'_> {
    let whole = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    if whole.len() > MAX_LINE_BYTES { Line::TooLong } else { Line::Whole(whole) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lines::LineReader;

    type Lines = Vec<Option<Vec<u8>>>;

    fn owned(line: Line<'_>) -> Option<Vec<u8>> {
        match line {
            Line::Whole(line) => Some(line.to_vec()),
            Line::TooLong => None,
        }
    }

    fn cut(pieces: &[&[u8]]) -> Lines {
        let (mut cutter, mut lines) = (Cutter::default(), Vec::new());
        for piece in pieces {
            cutter.push(piece, |line| lines.push(owned(line)));
        }
        cutter.finish(|line| lines.push(owned(line)));
        lines
    }

    /// The lines that the reader of whole logs gives.
    fn read(bytes: &[u8]) -> Lines {
        let mut reader = LineReader::new(bytes);
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line().expect("memory does not fail") {
            lines.push(owned(line));
        }
        lines
    }

    #[test]
    fn a_line_waits_for_its_end() {
        let mut cutter = Cutter::default();
        let mut lines = |bytes: &[u8]| {
            let mut lines = Vec::new();
            cutter.push(bytes, |line| lines.push(owned(line).expect("short")));
            lines
        };
        assert!(lines(b"ab").is_empty());
        assert!(lines(b"c").is_empty());
        assert_eq!(lines(b"d\nx\r\n\ny"), [&b"abcd"[..], b"x", b""]);
        assert!(lines(b"\r").is_empty());
        assert_eq!(lines(b"\n"), [b"y"]);
        cutter.push(b"gone", |_| {});
        cutter.drop_partial();
        cutter.finish(|_| panic!("nothing is left"));
    }

    #[test]
    fn long_lines_are_skipped() {
        for end in [&b"\n"[..], b"\r\n", b""] {
            for (length, is_whole) in
                [(MAX_LINE_BYTES, true), (MAX_LINE_BYTES + 1, false), (3 * MAX_LINE_BYTES, false)]
            {
                let log = [&vec![b'x'; length], end].concat();
                let lines = cut(&log.chunks(999_983).collect::<Vec<_>>());
                assert_eq!(lines.len(), 1);
                assert_eq!(lines[0].is_some(), is_whole, "{length} bytes and {end:?}");
                assert!(lines == cut(&[&log]) && lines == read(&log));
            }
        }
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_reader_wherever_the_pieces_end(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'a'), any::<u8>()], 0..60),
            size in 1..20_usize,
        ) {
            prop_assert_eq!(cut(&bytes.chunks(size).collect::<Vec<_>>()), read(&bytes));
        }
    }
}
