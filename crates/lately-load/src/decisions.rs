//! Counts decisions: replies that are an integer, or an array that starts with one. The integer says whether
//! the request was allowed.
//!
//! Most replies equal one of two earlier ones except for digits, which is cheap to recognize. The others are parsed byte
//! by byte, because their lines are short.

use crate::error::LoadError;
use crate::reply_pattern::ReplyPattern;
use crate::tally::Tally;

/// The state of reading a connection's replies.
pub(crate) struct Decisions {
    /// The digit that means allowed.
    allowed: u8,
    /// The values of the current reply that are still missing; 0 between two replies.
    due: usize,
    /// Whether the deciding value is among them.
    is_open: bool,
    /// The start of an incomplete line.
    cut: Vec<u8>,
    /// The patterns of the last two kinds of replies, the newer first.
    last: [ReplyPattern; 2],
}

impl Decisions {
    pub(crate) fn new(allowed: u8) -> Decisions {
        Decisions { allowed, due: 0, is_open: false, cut: Vec::new(), last: <[ReplyPattern; 2]>::default() }
    }

    /// Counts the replies that end in `bytes`.
    pub(crate) fn count(&mut self, bytes: &[u8], tally: &mut Tally) -> Result<usize, LoadError> {
        let (mut replies, mut at) = (0, 0);
        if !self.cut.is_empty() {
            let mut line = std::mem::take(&mut self.cut);
            at = line_end(bytes, 0).unwrap_or(bytes.len());
            line.extend_from_slice(&bytes[..at]);
            if line.last() == Some(&b'\n') {
                replies += usize::from(self.line(&line, tally)?);
            } else {
                self.cut = line;
            }
        }
        // The start of the current reply and the number of errors before it, unless it came in pieces.
        let mut start = None;
        while at < bytes.len() {
            if self.due == 0 {
                if let Some((len, decides)) = self.last.iter().find_map(|kind| kind.find(&bytes[at..])) {
                    tally.decided(decides == Some(self.allowed));
                    replies += 1;
                    at += len;
                    continue;
                }
                start = Some((at, tally.errors));
            }
            let Some(end) = line_end(bytes, at) else {
                self.cut.extend_from_slice(&bytes[at..]);
                break;
            };
            let is_whole = self.line(&bytes[at..end], tally)?;
            at = end;
            if is_whole {
                replies += 1;
                if let Some((start, errors)) = start.take()
                    && !self.is_open
                    && tally.errors == errors
                {
                    self.last.swap(0, 1);
                    self.last[0].learn(&bytes[start..end]);
                }
            }
        }
        Ok(replies)
    }

    /// Reads a complete line. Returns whether it ends a reply.
    #[inline]
    fn line(&mut self, line: &[u8], tally: &mut Tally) -> Result<bool, LoadError> {
        if self.due == 0 {
            (self.due, self.is_open) = (1, true);
        }
        self.due -= 1;
        match line {
            [b':', digits @ ..] => {
                if self.is_open {
                    self.is_open = false;
                    tally.decided(digits == [self.allowed, b'\r', b'\n']);
                }
            }
            [b'*', digits @ ..] => self.due += array_len(digits)?,
            [b'-', ..] => {
                tally.error(line);
                self.is_open = false;
            }
            _ => return Err(LoadError::Reply { first: line[0] }),
        }
        Ok(self.due == 0)
    }
}

/// The end of the line that starts at `start`.
#[inline]
fn line_end(bytes: &[u8], start: usize) -> Option<usize> {
    let end = bytes[start..].iter().position(|&byte| byte == b'\n')?;
    Some(start + end + 1)
}

/// The length of an array, from the digits behind its marker.
fn array_len(digits: &[u8]) -> Result<usize, LoadError> {
    let digits = std::str::from_utf8(digits).ok().map(str::trim_end);
    digits.and_then(|digits| digits.parse().ok()).ok_or(LoadError::Reply { first: b'*' })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_counted_however_they_are_cut() {
        let limits = "*5\r\n:1\r\n:100\r\n:99\r\n:0\r\n:60000\r\n*5\r\n:0\r\n:100\r\n:0\r\n:-1\r\n:1\r\n";
        let joint = "*3\r\n:1\r\n*2\r\n:0\r\n:7\r\n*2\r\n:0\r\n:0\r\n*3\r\n:0\r\n*2\r\n:1\r\n:7\r\n*2\r\n:1\r\n:0\r\n";
        let text =
            format!("{limits}:1\r\n-ERR no - 1\r\n{joint}:0\r\n:12\r\n*5\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
        let text = text.as_bytes();
        for cut in 0..=text.len() {
            for second_cut in cut..=text.len() {
                let (mut decisions, mut tally) = (Decisions::new(b'1'), Tally::default());
                let mut count = |bytes: &[u8]| decisions.count(bytes, &mut tally).expect("good replies");
                let replies =
                    count(&text[..cut]) + count(&text[cut..second_cut]) + count(&text[second_cut..]);
                let expected = (replies, tally.allowed, tally.denied, tally.errors);
                assert_eq!(expected, (9, 4, 4, 1), "cut at {cut} and {second_cut}");
                assert_eq!(tally.first_error.as_deref(), Some("ERR no - 1"));
            }
        }
    }

    #[test]
    fn repeated_replies_are_counted_the_same() {
        let kinds = [
            ("*5\r\n:1\r\n:100\r\n:99\r\n:0\r\n:60000\r\n", [1, 0, 0]),
            ("*5\r\n:1\r\n:100\r\n:17\r\n:0\r\n:59998\r\n", [1, 0, 0]),
            ("*5\r\n:0\r\n:100\r\n:12\r\n:7\r\n:10000\r\n", [0, 1, 0]),
            ("*5\r\n:0\r\n:100\r\n:0\r\n:-1\r\n:1\r\n", [0, 1, 0]),
            ("*4\r\n:1\r\n:100\r\n:12\r\n:7\r\n", [1, 0, 0]),
            ("*2\r\n:1\r\n-ERR 1\r\n", [1, 0, 1]),
            ("*2\r\n-ERR 2\r\n:1\r\n", [0, 0, 1]),
            ("-ERR 3\r\n", [0, 0, 1]),
            ("-ERR 4\r\n", [0, 0, 1]),
            (":1\r\n", [1, 0, 0]),
            (":0\r\n", [0, 1, 0]),
            (":11\r\n", [0, 1, 0]),
        ];
        // Each kind behind each other, and twice.
        let pairs = kinds.iter().flat_map(|one| kinds.iter().flat_map(move |other| [one, other, other]));
        let (mut text, mut expected, mut replies) = (String::new(), [0, 0, 0], 0);
        for (reply, of_reply) in pairs {
            text.push_str(reply);
            replies += 1;
            expected = [0, 1, 2].map(|at| expected[at] + of_reply[at]);
        }
        for piece in [1, 7, 15, 16, 17, 40, 64, 333, text.len()] {
            let (mut decisions, mut tally) = (Decisions::new(b'1'), Tally::default());
            let counted: usize = text
                .as_bytes()
                .chunks(piece)
                .map(|bytes| decisions.count(bytes, &mut tally).expect("good replies"))
                .sum();
            assert_eq!(counted, replies, "pieces of {piece}");
            assert_eq!([tally.allowed, tally.denied, tally.errors], expected, "pieces of {piece}");
        }
    }

    #[test]
    fn the_digit_that_means_allowed_is_chosen() {
        let mut tally = Tally::default();
        let replies = Decisions::new(b'0').count(b"*2\r\n:0\r\n:-1\r\n*2\r\n:1\r\n:3\r\n:0\r\n", &mut tally);
        assert_eq!((replies.ok(), tally.allowed, tally.denied), (Some(3), 2, 1));
    }

    #[test]
    fn other_replies_are_refused() {
        for text in ["$1\r\na\r\n", "+OK\r\n", ":1\r\n*-1\r\n", "*5\r\n_\r\n", "\r\n", "*x\r\n"] {
            let error = Decisions::new(b'1').count(text.as_bytes(), &mut Tally::default()).expect_err(text);
            assert!(error.to_string().ends_with("has no place here"), "{error}");
        }
    }
}
