//! A request as it is sent: rendered once, then only the digits of its key and its time change.

use crate::limits::{KEY_DIGITS, TIME_DIGITS};

/// A word of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// The same in every request.
    Fixed(Vec<u8>),
    /// This prefix and the twelve digits of the key's number.
    Key(Vec<u8>),
    /// The hit's time in Unix seconds, ten digits, see [`crate::Times`].
    Time,
}

/// A request with places for the key and the time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub(crate) prefix: Vec<u8>,
    bytes: Vec<u8>,
    key_at: Option<usize>,
    time_at: Option<usize>,
}

impl Request {
    /// Of these words; of several keys or times only the last changes.
    #[must_use]
    pub fn new(words: &[Word]) -> Request {
        let rendered: Vec<Vec<u8>> = words
            .iter()
            .map(|word| match word {
                Word::Fixed(bytes) => bytes.clone(),
                Word::Key(prefix) => [prefix, &[b'0'; KEY_DIGITS][..]].concat(),
                Word::Time => vec![b'0'; TIME_DIGITS],
            })
            .collect();
        let args: Vec<&[u8]> = rendered.iter().map(Vec::as_slice).collect();
        let mut bytes = Vec::new();
        lately_resp::write_request(&mut bytes, &args);
        let mut request = Request { prefix: Vec::new(), bytes, key_at: None, time_at: None };
        // From the end: what follows a word, its own line end included, has a known length.
        let mut end = request.bytes.len();
        for (word, rendered) in words.iter().zip(&rendered).rev() {
            let line = format!("${}\r\n", rendered.len()).len();
            end -= 2;
            match word {
                Word::Key(prefix) if request.key_at.is_none() => {
                    request.key_at = Some(end - KEY_DIGITS);
                    request.prefix.clone_from(prefix);
                }
                Word::Time if request.time_at.is_none() => request.time_at = Some(end - TIME_DIGITS),
                _ => {}
            }
            end -= rendered.len() + line;
        }
        request
    }

    /// From text, words parted by spaces: `HIT {key} 1 AT {time}`. Keys get this prefix.
    #[must_use]
    pub fn parse(text: &str, prefix: &str) -> Request {
        let word = |word: &str| match word {
            "{key}" => Word::Key(prefix.as_bytes().to_vec()),
            "{time}" => Word::Time,
            fixed => Word::Fixed(fixed.as_bytes().to_vec()),
        };
        Request::new(&text.split(' ').map(word).collect::<Vec<Word>>())
    }

    /// Its length, which never changes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// So many of them, one after the other.
    pub(crate) fn repeat(&self, times: usize) -> Vec<u8> {
        self.bytes.repeat(times)
    }

    /// Sets the key and the time in one of them.
    #[inline]
    pub(crate) fn patch(&self, bytes: &mut [u8], key: u64, time: u64) {
        if let Some(at) = self.key_at {
            write_digits(&mut bytes[at..at + KEY_DIGITS], key);
        }
        if let Some(at) = self.time_at {
            write_digits(&mut bytes[at..at + TIME_DIGITS], time);
        }
    }
}

/// The two digits of every number below a hundred.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number: u8 = 0;
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

/// Writes `number` into digits of an even count, two at a time.
#[inline]
fn write_digits(digits: &mut [u8], mut number: u64) {
    for pair in digits.rchunks_exact_mut(2) {
        let last = (number % 100) as usize;
        pair.copy_from_slice(&PAIRS[last]);
        number /= 100;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_and_the_time_change() {
        let request = Request::parse("HIT {key} 1 AT {time}", "key:");
        let mut bytes = request.repeat(2);
        assert_eq!(bytes.len(), 2 * request.len());
        let check = |bytes: &[u8], key: &str, time: &str| {
            let expected =
                format!("*5\r\n$3\r\nHIT\r\n$16\r\nkey:{key}\r\n$1\r\n1\r\n$2\r\nAT\r\n$10\r\n{time}\r\n");
            assert_eq!(String::from_utf8_lossy(bytes), expected);
        };
        let second = &mut bytes[request.len()..];
        request.patch(second, 999_999_999_999, 1_795_238_302);
        check(second, "999999999999", "1795238302");
        request.patch(second, 42, 7);
        check(second, "000000000042", "0000000007");
        check(&bytes[..request.len()], "000000000000", "0000000000");
        assert_eq!(Request::parse("PING", "key:").repeat(1), b"*1\r\n$4\r\nPING\r\n");
    }
}
