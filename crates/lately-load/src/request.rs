//! An encoded request. It is encoded once; afterwards only the digits of its keys, its time and its id change.

use crate::limits::{ID_DIGITS, KEY_DIGITS, TIME_DIGITS};
use crate::numbers::Numbers;

/// A word of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// A fixed word.
    Fixed(Vec<u8>),
    /// A key: this prefix, and the twelve digits of its number.
    Key(Vec<u8>),
    /// The time of the hit in Unix seconds, ten digits; see [`crate::Times`].
    Time,
    /// The id of the hit, twelve digits: each request has the next one.
    Id,
}

/// A request with places for its keys, its time and its id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub(crate) prefix: Vec<u8>,
    bytes: Vec<u8>,
    keys_at: Vec<usize>,
    time_at: Option<usize>,
    id_at: Option<usize>,
}

impl Request {
    /// A request of these words. Each key word is a key of its own. They must share a prefix:
    /// [`crate::Counts`] uses that of the last. Of several times or ids only the last changes.
    #[must_use]
    pub fn new(words: &[Word]) -> Request {
        let rendered: Vec<Vec<u8>> = words
            .iter()
            .map(|word| match word {
                Word::Fixed(bytes) => bytes.clone(),
                Word::Key(prefix) => [prefix, &[b'0'; KEY_DIGITS][..]].concat(),
                Word::Time => vec![b'0'; TIME_DIGITS],
                Word::Id => vec![b'0'; ID_DIGITS],
            })
            .collect();
        let args: Vec<&[u8]> = rendered.iter().map(Vec::as_slice).collect();
        let mut bytes = Vec::new();
        lately_resp::write_request(&mut bytes, &args);
        let mut request =
            Request { prefix: Vec::new(), bytes, keys_at: Vec::new(), time_at: None, id_at: None };
        // From the end, because the length of what follows a word, including its line end, is known.
        let mut end = request.bytes.len();
        for (word, rendered) in words.iter().zip(&rendered).rev() {
            let line = format!("${}\r\n", rendered.len()).len();
            end -= 2;
            match word {
                Word::Key(prefix) => {
                    if request.keys_at.is_empty() {
                        request.prefix.clone_from(prefix);
                    }
                    request.keys_at.push(end - KEY_DIGITS);
                }
                Word::Time if request.time_at.is_none() => request.time_at = Some(end - TIME_DIGITS),
                Word::Id if request.id_at.is_none() => request.id_at = Some(end - ID_DIGITS),
                _ => {}
            }
            end -= rendered.len() + line;
        }
        request.keys_at.reverse();
        request
    }

    /// Parses text with words separated by spaces: `HIT {key} 1 AT {time}`, `HIT {key} ID {id}`. Keys get this prefix.
    #[must_use]
    pub fn parse(text: &str, prefix: &str) -> Request {
        let word = |word: &str| match word {
            "{key}" => Word::Key(prefix.as_bytes().to_vec()),
            "{time}" => Word::Time,
            "{id}" => Word::Id,
            fixed => Word::Fixed(fixed.as_bytes().to_vec()),
        };
        Request::new(&text.split(' ').map(word).collect::<Vec<Word>>())
    }

    /// The length, which never changes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// This request `times` times.
    pub(crate) fn repeat(&self, times: usize) -> Vec<u8> {
        self.bytes.repeat(times)
    }

    /// The number of keys.
    pub(crate) fn keys(&self) -> usize {
        self.keys_at.len()
    }

    /// Sets the keys, the time and the id in one of them to the next ones.
    #[inline]
    pub(crate) fn patch(&self, bytes: &mut [u8], numbers: &mut Numbers) {
        if let Some(at) = self.time_at {
            write_digits(&mut bytes[at..at + TIME_DIGITS], numbers.time());
        }
        if let Some(at) = self.id_at {
            write_digits(&mut bytes[at..at + ID_DIGITS], numbers.next_id());
        }
        for &at in &self.keys_at {
            write_digits(&mut bytes[at..at + KEY_DIGITS], numbers.next_key());
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

/// Writes `number` into an even number of digits, two at a time.
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
    use crate::keys::Order;
    use crate::plan::{Plan, Times};

    #[test]
    fn only_the_keys_and_the_time_change() {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let numbers_of = |request: &Request| {
            Numbers::new(&Plan {
                keys: 3,
                order: Order::Sequential,
                times: Times { start: 1_795_238_302, step: 7 },
                first_id: 98,
                ..Plan::new(address, request.clone())
            })
        };
        let check = |text: &str, expected: [&str; 4]| {
            let request = Request::parse(text, "key:");
            let (mut numbers, mut bytes) = (numbers_of(&request), request.repeat(4));
            assert_eq!(bytes.len(), 4 * request.len());
            for (one, expected) in bytes.chunks_exact_mut(request.len()).zip(expected) {
                request.patch(one, &mut numbers);
                let words: Vec<&[u8]> = expected.split(' ').map(str::as_bytes).collect();
                let mut whole = Vec::new();
                lately_resp::write_request(&mut whole, &words);
                assert_eq!(String::from_utf8_lossy(one), String::from_utf8_lossy(&whole));
            }
        };
        check(
            "HIT {key} 1 AT {time}",
            [
                "HIT key:000000000000 1 AT 1795238302",
                "HIT key:000000000001 1 AT 1795238302",
                "HIT key:000000000002 1 AT 1795238302",
                "HIT key:000000000000 1 AT 1795238309",
            ],
        );
        check(
            "MLIMIT {key} 5 1m {key} 9 1h",
            [
                "MLIMIT key:000000000000 5 1m key:000000000001 9 1h",
                "MLIMIT key:000000000002 5 1m key:000000000000 9 1h",
                "MLIMIT key:000000000001 5 1m key:000000000002 9 1h",
                "MLIMIT key:000000000000 5 1m key:000000000001 9 1h",
            ],
        );
        check(
            "HIT {key} ID {id}",
            [
                "HIT key:000000000000 ID 000000000098",
                "HIT key:000000000001 ID 000000000099",
                "HIT key:000000000002 ID 000000000100",
                "HIT key:000000000000 ID 000000000101",
            ],
        );
        check("PING", ["PING"; 4]);
    }

    #[test]
    fn digits_are_filled_up_with_zeroes() {
        let mut digits = [b'9'; 6];
        write_digits(&mut digits, 42);
        assert_eq!(&digits, b"000042");
    }
}
