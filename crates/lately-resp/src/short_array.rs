//! The fast path for the usual requests of clients: a complete array of few short arguments. It gives the
//! same result as [`parse_request`](crate::parse_request), or none.

use crate::limits::{Limits, SHORT_ARGUMENTS, SHORT_BYTES};

/// Whether all short requests are within these bounds.
pub(crate) fn are_within(limits: &Limits) -> bool {
    // A length has at most two digits, which count as a line.
    limits.bulk_bytes >= SHORT_BYTES
        && limits.arguments >= SHORT_ARGUMENTS
        && limits.line_bytes >= 3
        && limits.request_bytes >= (SHORT_ARGUMENTS + 1) * (SHORT_BYTES + 7)
}

/// Parses the short array at the start of `buffer`. Appends the places of its arguments and returns its end.
/// If there is none, nothing is appended.
pub(crate) fn read_array(buffer: &[u8], ranges: &mut Vec<(usize, usize)>) -> Option<usize> {
    let (count, mut position) = read_length(buffer, 0, b'*').filter(|&(count, _)| count > 0)?;
    let before = ranges.len();
    for _ in 0..count {
        let Some((first, end)) = read_bulk(buffer, position) else {
            ranges.truncate(before);
            return None;
        };
        ranges.push((first, end));
        position = end + 2;
    }
    Some(position)
}

/// The start and the end of the content of the short bulk string at `position`.
#[inline]
pub(crate) fn read_bulk(buffer: &[u8], position: usize) -> Option<(usize, usize)> {
    let (bytes, start) = read_length(buffer, position, b'$')?;
    let end = start + usize::from(bytes);
    (buffer.get(end..end + 2)? == b"\r\n").then_some((start, end))
}

/// A length of one or two digits, and the end of its line.
#[inline(always)]
fn read_length(buffer: &[u8], position: usize, marker: u8) -> Option<(u8, usize)> {
    match *buffer.get(position..)? {
        [first, ones @ b'0'..=b'9', b'\r', b'\n', ..] if first == marker => Some((ones - b'0', position + 4)),
        [first, tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] if first == marker => {
            Some(((tens - b'0') * 10 + (ones - b'0'), position + 5))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::args::Args;
    use crate::frame::{Parsed, parse_request};
    use crate::request::write_request;

    /// The end of a short request, after comparing its arguments with those of the general path.
    fn check(stream: &[u8]) -> Option<usize> {
        let mut ranges = vec![(7, 7)];
        let end = read_array(stream, &mut ranges);
        let mut args = Args::new();
        let parsed = parse_request(stream, &Limits::default(), &mut args);
        assert_eq!(ranges.remove(0), (7, 7));
        match end {
            Some(end) => {
                assert_eq!((parsed, &args.ranges), (Ok(Parsed::Complete { consumed: end }), &ranges));
            }
            None => assert!(ranges.is_empty()),
        }
        end
    }

    #[test]
    fn the_short_path_takes_short_requests_only() {
        let request = |words: usize, bytes: usize| {
            let mut request = Vec::new();
            write_request(&mut request, &vec!["x".repeat(bytes).as_bytes(); words]);
            request
        };
        for (words, bytes) in [(1, 0), (2, 9), (3, 10), (SHORT_ARGUMENTS, SHORT_BYTES)] {
            let whole = request(words, bytes);
            assert_eq!(check(&whole), Some(whole.len()));
            (0..whole.len()).for_each(|cut| assert_eq!(check(&whole[..cut]), None));
        }
        assert_eq!(check(&request(SHORT_ARGUMENTS + 1, 1)), None);
        assert_eq!(check(&request(1, SHORT_BYTES + 1)), None);
        for other in
            ["PING\r\n", "*0\r\n", "*-1\r\n", "*1\r\n$04\r\nPING\r\n", "*1\r\n$4\r\nPINGXX", "*1\r\n:4\r\n"]
        {
            assert_eq!(check(other.as_bytes()), None);
        }
    }

    #[test]
    fn small_limits_turn_the_short_path_off() {
        let short = Limits { bulk_bytes: 99, arguments: 99, line_bytes: 3, request_bytes: 10_600 };
        assert!(are_within(&short) && are_within(&Limits::default()));
        for smaller in [
            Limits { bulk_bytes: 98, ..short },
            Limits { arguments: 98, ..short },
            Limits { line_bytes: 2, ..short },
            Limits { request_bytes: 10_599, ..short },
        ] {
            assert!(!are_within(&smaller));
        }
    }

    proptest! {
        #[test]
        fn short_arrays_are_read_as_the_general_parser_reads_them(
            pieces in prop::collection::vec(
                prop::sample::select(vec!["*", "$", "1", "2", "0", "3", "\r\n", "\r", "a", "ab", "$1\r\na\r\n", "*2\r\n"]),
                0..12,
            )
        ) {
            check(pieces.concat().as_bytes());
        }
    }
}
