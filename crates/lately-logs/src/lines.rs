//! Cuts bytes into lines, in one bounded buffer.

use std::io::{self, Read};

use memchr::memchr;

use crate::limits::MAX_LINE_BYTES;

/// Bytes that are read at once. The rest of an incomplete line is moved before them.
const READ_BYTES: usize = 256 * 1024;

/// The number of first bytes that are kept.
pub(crate) const HEAD_BYTES: usize = 64;

/// Cuts the bytes of a reader into lines.
pub(crate) struct LineReader<R> {
    reader: R,
    /// The first bytes.
    head: Vec<u8>,
    buffer: Vec<u8>,
    /// Bytes that were read but not yet returned.
    from: usize,
    to: usize,
    ended: bool,
}

/// A line without its line end, which is `\n` or `\r\n` or the end of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line<'a> {
    /// A line without its line end.
    Whole(&'a [u8]),
    /// Longer than [`MAX_LINE_BYTES`]: its bytes are skipped.
    TooLong,
}

impl<R: Read> LineReader<R> {
    pub(crate) fn new(reader: R) -> LineReader<R> {
        LineReader { reader, head: Vec::new(), buffer: Vec::new(), from: 0, to: 0, ended: false }
    }

    pub(crate) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let Some(len) = self.find_end()? else { return Ok(None) };
        let start = self.from;
        let line = &self.buffer[start..start + len];
        self.from = (start + len + 1).min(self.to);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_LINE_BYTES {
            return self.skip_rest(start + len);
        }
        Ok(Some(Line::Whole(&self.buffer[start..start + line.len()])))
    }

    /// The first bytes that were read.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// The length of the next line, or of enough of it to show that it is too long.
    fn find_end(&mut self) -> io::Result<Option<usize>> {
        let mut searched = 0;
        loop {
            let pending = &self.buffer[self.from..self.to];
            if let Some(at) = memchr(b'\n', &pending[searched..]) {
                return Ok(Some(searched + at));
            }
            searched = pending.len();
            // One byte more, which may be the `\r` of the line end.
            if searched > MAX_LINE_BYTES + 1 || (self.ended && searched > 0) {
                return Ok(Some(searched));
            }
            if self.ended {
                return Ok(None);
            }
            self.fill()?;
        }
    }

    /// Skips the rest of a line that is too long, after `end`.
    fn skip_rest(&mut self, end: usize) -> io::Result<Option<Line<'_>>> {
        let mut seen_end = self.buffer[..self.to].get(end) == Some(&b'\n');
        while !seen_end && !self.ended {
            self.from = self.to;
            self.fill()?;
            if let Some(at) = memchr(b'\n', &self.buffer[self.from..self.to]) {
                self.from += at + 1;
                seen_end = true;
            }
        }
        if !seen_end {
            self.from = self.to;
        }
        Ok(Some(Line::TooLong))
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        if self.buffer.len() < self.to + READ_BYTES {
            self.buffer.resize(self.to + READ_BYTES, 0);
        }
        loop {
            match self.reader.read(&mut self.buffer[self.to..]) {
                Ok(count) => {
                    let head = count.min(HEAD_BYTES - self.head.len());
                    self.head.extend_from_slice(&self.buffer[self.to..self.to + head]);
                    self.to += count;
                    self.ended = count == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives at most `step` bytes at a time.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let step = self.1.min(buffer.len());
            self.0.read(&mut buffer[..step])
        }
    }

    fn lines(bytes: &[u8], step: usize) -> Vec<Option<Vec<u8>>> {
        let mut reader = LineReader::new(Drip(bytes, step));
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line().expect("memory does not fail") {
            lines.push(match line {
                Line::Whole(line) => Some(line.to_vec()),
                Line::TooLong => None,
            });
        }
        lines
    }

    #[test]
    fn lines_are_cut_wherever_the_reads_fall() {
        let check = |bytes: &[u8], expected: &[&str]| {
            let expected: Vec<_> = expected.iter().map(|line| Some(line.as_bytes().to_vec())).collect();
            for step in [1, 2, 3, 1_000] {
                assert_eq!(lines(bytes, step), expected, "{} by {step}", bytes.escape_ascii());
            }
        };
        check(b"", &[]);
        check(b"\n", &[""]);
        check(b"a", &["a"]);
        check(b"a\nbc\r\n\r\n\nd", &["a", "bc", "", "", "d"]);
        check(b"a\rb\n\r", &["a\rb", ""]);
    }

    #[test]
    fn long_lines_are_skipped() {
        let most = vec![b'x'; MAX_LINE_BYTES];
        let more = vec![b'x'; MAX_LINE_BYTES + 1];
        let far_more = vec![b'x'; 3 * MAX_LINE_BYTES];
        let (short, most_line) = (Some(b"s".to_vec()), Some(most.clone()));
        for (end, step) in [("\n", 999_983), ("\r\n", 4_096), ("\r\n", usize::MAX)] {
            let end = end.as_bytes();
            let log = [&most, end, &more, end, b"s", end, &far_more, end, b"s", end, &more].concat();
            let expected = [most_line.clone(), None, short.clone(), None, short.clone(), None].to_vec();
            assert!(lines(&log, step) == expected, "line end {end:?}, {step} bytes at a time");
        }
    }
}
