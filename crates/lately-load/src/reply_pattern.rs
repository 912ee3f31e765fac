//! Recognizes replies that differ from an earlier one only in the digits of integers of the same length.

/// Longer replies are not compared.
const MOST_BYTES: usize = 64;

/// Bytes compared at once.
const AT_ONCE: usize = 16;

/// A parsed reply, to compare later ones with.
pub(crate) struct ReplyPattern {
    len: usize,
    bytes: [u8; MOST_BYTES],
    /// All ones at each byte that must be the same.
    is_fixed: [u8; MOST_BYTES],
    /// All ones at each digit of an integer.
    is_digit: [u8; MOST_BYTES],
    /// The place of the first integer, if it is one digit: whether the hit was allowed.
    decision_at: Option<usize>,
}

impl Default for ReplyPattern {
    fn default() -> ReplyPattern {
        let none = [0; MOST_BYTES];
        ReplyPattern { len: 0, bytes: none, is_fixed: none, is_digit: none, decision_at: None }
    }
}

impl ReplyPattern {
    /// Compares later replies with this one.
    pub(crate) fn learn(&mut self, reply: &[u8]) {
        *self = ReplyPattern::default();
        let Some(bytes) = self.bytes.get_mut(..reply.len()) else { return };
        bytes.copy_from_slice(reply);
        self.len = reply.len();
        let mut in_integer = false;
        for (at, byte) in reply.iter().enumerate() {
            // The length of an array must stay the same.
            in_integer = match byte {
                b':' => true,
                b'*' => false,
                _ => in_integer,
            };
            let is_digit = in_integer && byte.is_ascii_digit();
            *(if is_digit { &mut self.is_digit[at] } else { &mut self.is_fixed[at] }) = u8::MAX;
        }
        let digits = reply.iter().position(|&byte| byte == b':').map(|colon| colon + 1);
        self.decision_at = digits.filter(|&at| reply.get(at + 1) == Some(&b'\r'));
    }

    /// If `bytes` start with a reply of the learned pattern: its length, and its first integer if that is one digit.
    /// Bytes are compared in whole chunks, so a reply near the end of `bytes` is not found.
    #[inline]
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<(usize, Option<u8>)> {
        let chunks = self.len.div_ceil(AT_ONCE);
        if self.len == 0 || bytes.len() < chunks * AT_ONCE {
            return None;
        }
        let of = |all: &[u8], chunk: usize| -> [u8; AT_ONCE] {
            *all[chunk * AT_ONCE..].first_chunk().expect("a whole chunk")
        };
        let is_off = |chunk| {
            let (new, old) = (of(bytes, chunk), of(&self.bytes, chunk));
            let (fixed, digit) = (of(&self.is_fixed, chunk), of(&self.is_digit, chunk));
            let off = |at: usize| {
                let is_no_digit = if new[at].wrapping_sub(b'0') > 9 { u8::MAX } else { 0 };
                (new[at] ^ old[at]) & fixed[at] | is_no_digit & digit[at]
            };
            (0..AT_ONCE).fold(0, |all, at| all | off(at)) != 0
        };
        let matches = !(0..chunks).any(is_off);
        matches.then(|| (self.len, self.decision_at.map(|at| bytes[at])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_may_differ() {
        let mut pattern = ReplyPattern::default();
        assert_eq!(pattern.find(&[b'0'; 64]), None);
        pattern.learn(b"*2\r\n:1\r\n:-1\r\n:60000\r\n");
        let check = |text: &str, expected| {
            let text = format!("{text}{}", "-".repeat(32));
            assert_eq!(pattern.find(text.as_bytes()), expected, "{text}");
        };
        check("*2\r\n:1\r\n:-1\r\n:60000\r\n", Some((21, Some(b'1'))));
        check("*2\r\n:0\r\n:-9\r\n:12345\r\n", Some((21, Some(b'0'))));
        for other in [
            "*3\r\n:1\r\n:-1\r\n:60000\r\n",
            "*2\r\n:1\r\n:-1\r\n:6000:\r\n",
            "*2\r\n:1\r\n:11\r\n:60000\r\n",
            "*2\r\n:1\r\n:-1\r\n:60000\r-",
        ] {
            check(other, None);
        }
        // Too few bytes for the last chunk.
        assert_eq!(pattern.find(b"*2\r\n:1\r\n:-1\r\n:60000\r\n"), None);
    }

    #[test]
    fn the_decision_is_one_digit() {
        let decision = |reply: &[u8]| {
            let mut pattern = ReplyPattern::default();
            pattern.learn(reply);
            pattern.find(&[reply, &[b'x'; 16]].concat()).map(|(_, digit)| digit)
        };
        assert_eq!(decision(b":7\r\n"), Some(Some(b'7')));
        assert_eq!(decision(b":17\r\n"), Some(None));
        assert_eq!(decision(b"-ERR\r\n"), Some(None));
        assert_eq!(decision(&[b'1'; MOST_BYTES + 1]), None);
    }
}
