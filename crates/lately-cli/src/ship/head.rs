//! The start of a log, up to and including the first line with a time. It distinguishes the log from others: banners and headers, which
//! are the same in many files, have no time. Zeros before it are left out: a writer that continues at its old offset in a truncated
//! file leaves a hole.

use std::io::{self, BufRead, BufReader, Read};

use crate::limits::{SHIP_HEAD_BYTES, SHIP_HEAD_DIGITS};

/// The first bytes of a log after its zeros.
#[derive(Debug)]
pub(crate) struct Head {
    bytes: Vec<u8>,
    end: End,
}

/// The reason why a head ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The end of the first line with a time, or [`SHIP_HEAD_BYTES`] are read.
    Complete,
    /// The end of the file, after the start of a line with a time.
    InTimedLine,
    /// The end of the file.
    OfFile,
}

impl Head {
    /// Reads the head of a log. With `has_own_times`, the user gives the format of times.
    pub(crate) fn read(log: impl Read, has_own_times: bool) -> io::Result<Head> {
        let mut log = BufReader::new(log);
        skip_zeros(&mut log)?;
        let mut bytes = Vec::new();
        let end = loop {
            let start = bytes.len();
            let room = (SHIP_HEAD_BYTES - start) as u64;
            log.by_ref().take(room).read_until(b'\n', &mut bytes)?;
            let line = &bytes[start..];
            let is_timed = line.first() != Some(&b'#') && has_time(line, has_own_times);
            match line.last() {
                _ if bytes.len() == SHIP_HEAD_BYTES => break End::Complete,
                Some(b'\n') if is_timed => break End::Complete,
                Some(b'\n') => {}
                _ if is_timed => break End::InTimedLine,
                _ => break End::OfFile,
            }
        };
        Ok(Head { bytes, end })
    }

    /// The bytes that distinguish the log from others. `None` while they are incomplete; with `is_whole`, no more will come.
    pub(crate) fn bytes(&self, is_whole: bool) -> Option<&[u8]> {
        (self.end == End::Complete || (is_whole && !self.bytes.is_empty())).then_some(&self.bytes)
    }

    /// Whether a log still starts with it.
    pub(crate) fn is_of(&self, log: impl Read) -> io::Result<bool> {
        let mut log = BufReader::new(log);
        skip_zeros(&mut log)?;
        let mut there = Vec::with_capacity(self.bytes.len());
        log.take(self.bytes.len() as u64).read_to_end(&mut there)?;
        Ok(there == self.bytes)
    }

    /// Whether it ends within the first line with a time.
    pub(crate) fn is_cut(&self) -> bool {
        self.end == End::InTimedLine
    }

    /// Whether there are complete lines, and none of them has a time.
    pub(crate) fn has_lines_without_time(&self) -> bool {
        self.end != End::Complete
            && self
                .bytes
                .split_inclusive(|byte| *byte == b'\n')
                .any(|line| line.first() != Some(&b'#') && line.len() > 1 && line.ends_with(b"\n"))
    }
}

fn skip_zeros(log: &mut impl BufRead) -> io::Result<()> {
    loop {
        let rest = match log.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            rest => rest?,
        };
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        let is_done = zeros < rest.len() || rest.is_empty();
        log.consume(zeros);
        if is_done {
            return Ok(());
        }
    }
}

/// Whether a line seems to have a time, by its digits: `9:00:04`, nine digits in a row as in Unix time, or `20240312T0900`. If the user
/// gives the format of times, any [`SHIP_HEAD_DIGITS`] digits are enough.
fn has_time(line: &[u8], has_own_times: bool) -> bool {
    let is_digit = |at: usize| line.get(at).is_some_and(u8::is_ascii_digit);
    let run = |from: usize| (from..).take_while(|at| is_digit(*at)).count();
    let mut at = 0;
    while at < line.len() {
        let len = run(at);
        let end = at + len;
        let is_clock = (1..=2).contains(&len)
            && [end, end + 3].iter().all(|colon| line.get(*colon) == Some(&b':') && run(colon + 1) == 2);
        let is_compact = len == 8 && matches!(line.get(end), Some(b'T' | b't' | b' ')) && run(end + 1) >= 4;
        if is_clock || is_compact || len >= 9 {
            return true;
        }
        at = end + 1;
    }
    has_own_times && line.iter().filter(|byte| byte.is_ascii_digit()).count() >= SHIP_HEAD_DIGITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str, is_whole: bool) -> Option<String> {
        let head = Head::read(text.as_bytes(), false).expect("it is there");
        head.bytes(is_whole).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    #[test]
    fn times_are_known_by_their_digits() {
        let check = |line: &str, expected: [bool; 2]| {
            assert_eq!([false, true].map(|own| has_time(line.as_bytes(), own)), expected, "{line}");
        };
        for line in [
            "10.0.0.1 - - [12/Mar/2024:09:00:04 +0000]",
            "Mar  2 09:00:04 host app: x",
            "240312  9:00:04 [Note]",
            "2024-03-12T09:00:04.123Z",
            "20240312T090004Z",
            "20240312 0900",
            "{\"time\":1710234004.5}",
            "{\"ts\":631152000}",
        ] {
            check(line, [true, true]);
        }
        check("12.03.2024 09.00.04", [false, true]);
        check("listens on 10.0.0.12:8080, process 12345", [false, true]);
        check("JVM option 20240312", [false, true]);
        for line in ["", "started", "ratio 16:9", "of 2024-03-1"] {
            check(line, [false, false]);
        }
    }

    #[test]
    fn a_head_ends_with_the_first_line_with_a_time() {
        let time = "2024-03-12 09:00:04 a\n";
        assert_eq!(head(&format!("{time}more\n"), false).as_deref(), Some(time));
        let banner = format!("#Date: 2024-03-12 09:00:04\n{}", "JVM option 1\n".repeat(500));
        let both = format!("{banner}{time}");
        assert_eq!(head(&format!("{both}{time}"), false), Some(both));
        // Zeros at the start of a log are skipped.
        assert_eq!(head(&format!("{}{time}", "\0".repeat(100_000)), false).as_deref(), Some(time));
        assert_eq!(head(&"\0".repeat(100_000), true), None);
        // The start is too short to distinguish the log from others.
        for short in ["", "2024-03-12 09:00:04 a", "#Version: 1.0\n", &banner] {
            assert_eq!(head(short, false), None, "{short}");
        }
        assert_eq!((head("", true), head("started\n", true)), (None, Some("started\n".to_owned())));
        let is_cut = |text: &str| Head::read(text.as_bytes(), false).expect("it is there").is_cut();
        assert_eq!(["2024-03-12 09:00:04 a", time, "started"].map(is_cut), [true, false, false]);
        let long = "x".repeat(SHIP_HEAD_BYTES);
        assert!(head(&long[1..], false).is_none() && head(&long, false).is_some());
        assert_eq!(head(&format!("{long}more"), false), Some(long));
    }
}
