//! Counts replies of one line each: integers, simple strings and errors.

use memchr::{memchr, memchr_iter, memchr3};

use crate::error::LoadError;
use crate::tally::Tally;

/// The state of reading a connection's replies.
#[derive(Default)]
pub(crate) struct Lines {
    /// Whether the last byte read was inside a line, and whether that line is an error.
    inside: bool,
    in_error: bool,
}

impl Lines {
    /// Counts the replies that end in `bytes`.
    pub(crate) fn count(&mut self, bytes: &[u8], tally: &mut Tally) -> Result<usize, LoadError> {
        let starts_well = self.inside || matches!(bytes.first(), Some(b':' | b'+'));
        if !starts_well || self.in_error || memchr3(b'-', b'$', b'*', bytes).is_some() {
            return self.count_lines(bytes, tally);
        }
        self.inside = bytes.last() != Some(&b'\n');
        Ok(memchr_iter(b'\n', bytes).count())
    }

    /// Line by line, because there is an error among the lines, or an invalid reply.
    #[cold]
    fn count_lines(&mut self, mut bytes: &[u8], tally: &mut Tally) -> Result<usize, LoadError> {
        let mut replies = 0;
        while let Some(&first) = bytes.first() {
            if !self.inside {
                match first {
                    b':' | b'+' => self.in_error = false,
                    b'-' => {
                        self.in_error = true;
                        tally.error(bytes);
                    }
                    first => return Err(LoadError::Reply { first }),
                }
                self.inside = true;
            }
            let Some(end) = memchr(b'\n', bytes) else { return Ok(replies) };
            bytes = &bytes[end + 1..];
            self.inside = false;
            self.in_error = false;
            replies += 1;
        }
        Ok(replies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_counted_however_they_are_cut() {
        let text = b":1\r\n+OK - so\r\n-LATE too - old\r\n:-12\r\n-ERR\r\n:3\r\n";
        for cut in 0..=text.len() {
            let (mut lines, mut tally) = (Lines::default(), Tally::default());
            let first = lines.count(&text[..cut], &mut tally).expect("good replies");
            let second = lines.count(&text[cut..], &mut tally).expect("good replies");
            assert_eq!((first + second, tally.errors), (6, 2), "cut at {cut}");
            assert!(
                tally.first_error.is_some_and(|first| "LATE too - old".starts_with(&first)),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn other_replies_are_refused() {
        for text in ["$1\r\na\r\n", ":1\r\n*0\r\n", "_\r\n"] {
            let error = Lines::default().count(text.as_bytes(), &mut Tally::default()).expect_err(text);
            assert!(error.to_string().ends_with("has no place here"), "{error}");
        }
    }
}
