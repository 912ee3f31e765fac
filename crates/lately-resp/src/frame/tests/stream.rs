//! Tests of any bytes as a stream of requests: cuts change nothing, and every parsed request can be written
//! and read back.
//!
//! The fuzz target `resp` includes this file. The property test at its end does the same without a fuzzer.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::command::{ArgumentSpec, Group, commands, spec_of};
use crate::{Args, Command, Encoder, Limits, Parsed, Protocol, parse_request, write_request};

pub(crate) const SMALL: Limits = Limits { bulk_bytes: 8, arguments: 3, line_bytes: 16, request_bytes: 40 };

/// Arguments of one request.
pub(crate) type Request = Vec<Vec<u8>>;

/// All requests of `stream`, and the text of the error, if one ends it.
pub(crate) fn read_all(stream: &[u8], limits: &Limits) -> (Vec<Request>, Option<String>) {
    read_in_pieces(stream, &[], limits)
}

/// The same for a stream that is cut at `cuts`.
pub(crate) fn read_in_pieces(
    stream: &[u8],
    cuts: &[usize],
    limits: &Limits,
) -> (Vec<Request>, Option<String>) {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    ends.push(stream.len());
    ends.sort_unstable();
    let (mut args, mut requests, mut start) = (Args::new(), Vec::new(), 0);
    for end in ends {
        loop {
            let buffer = &stream[start..end];
            match parse_request(buffer, limits, &mut args) {
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Empty { consumed }) => start += consumed,
                Ok(Parsed::Complete { consumed }) => {
                    requests.push(args.list(buffer).iter().map(<[u8]>::to_vec).collect());
                    start += consumed;
                }
                Err(error) => return (requests, Some(error.to_string())),
            }
        }
    }
    (requests, None)
}

/// Checks the bytes behind a header. The header has a byte for the limits, for whether the rest is words (see
/// [`from_words`]), and for the number of cuts; and two bytes for each cut.
///
/// # Panics
/// If a check fails.
pub(crate) fn check(bytes: &[u8]) {
    let Some((&how, rest)) = bytes.split_first() else { return };
    let (cuts, rest) = rest.split_at(rest.len().min(2 * usize::from(how >> 2 & 0x0f)));
    let cuts: Vec<usize> =
        cuts.chunks_exact(2).map(|cut| usize::from(u16::from_le_bytes([cut[0], cut[1]]))).collect();
    let limits = if how & 0x01 == 0 { Limits::default() } else { SMALL };
    let stream = if how & 0x02 == 0 { rest.to_vec() } else { from_words(rest) };

    let whole = read_all(&stream, &limits);
    assert_eq!(read_in_pieces(&stream, &cuts, &limits), whole, "cut at {cuts:?}");
    for request in whole.0 {
        check_request(&request);
    }
}

/// Writes and reads a request back, and parses it as a command.
fn check_request(request: &Request) {
    assert!(!request.is_empty());
    let mut stream = Vec::new();
    write_request(&mut stream, &request.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let mut args = Args::new();
    let parsed = parse_request(&stream, &Limits::default(), &mut args);
    assert_eq!(parsed, Ok(Parsed::Complete { consumed: stream.len() }));
    let args = args.list(&stream);
    assert!(args.iter().eq(request.iter().map(Vec::as_slice)));
    if let Err(error) = Command::parse(args) {
        let mut reply = Vec::new();
        Encoder::new(&mut reply, Protocol::V2).error(&error);
        let line = reply.strip_prefix(b"-").and_then(|line| line.strip_suffix(b"\r\n"));
        let line = line.expect("an error is a line");
        assert!(!line.contains(&b'\r') && !line.contains(&b'\n'), "{error}");
        // Errors of commands that Redis does not have include the usage.
        let spec = spec_of(args).ok().filter(|spec| matches!(spec.group, Group::Hits | Group::Limits));
        if let Some(spec) = spec {
            let usage = format!(". Usage: {} <", spec.name.to_uppercase());
            assert!(error.to_string().contains(&usage), "{error}");
        }
    }
}

/// Names of commands, their options, and values.
static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let values = ["k", "", "0", "1", "-1", "5m", "1w", "250ms", "1700000000.25", "9223372036854775807", "*"];
    let mut words: BTreeSet<&str> = values.into();
    for spec in commands().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands)) {
        words.extend(spec.name.split('|'));
        add_tokens(spec.arguments, &mut words);
    }
    words.into_iter().collect()
});

fn add_tokens(arguments: &'static [ArgumentSpec], words: &mut BTreeSet<&str>) {
    for argument in arguments {
        words.extend(argument.token);
        add_tokens(argument.parts, words);
    }
}

/// Requests of words. A byte is the index of one of [`WORDS`]; 255 is the end of a request; 254 is followed
/// by a length and that many literal bytes.
fn from_words(mut bytes: &[u8]) -> Vec<u8> {
    let (mut stream, mut request) = (Vec::new(), Vec::<&[u8]>::new());
    while let [first, rest @ ..] = bytes {
        bytes = rest;
        match (first, rest) {
            (255, _) => write_request(&mut stream, &std::mem::take(&mut request)),
            (254, [length, rest @ ..]) => {
                let (own, rest) = rest.split_at(rest.len().min(usize::from(*length)));
                request.push(own);
                bytes = rest;
            }
            _ => request.push(WORDS[usize::from(*first) % WORDS.len()].as_bytes()),
        }
    }
    write_request(&mut stream, &request);
    stream
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_word_has_a_byte() {
        assert!(WORDS.len() <= 254, "{}", WORDS.len());
        for word in ["hit", "AT", "client", "setname", "MATCH", "5m"] {
            assert!(WORDS.contains(&word), "{word} in {:?}", *WORDS);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_048))]

        #[test]
        fn any_stream_is_parsed_the_same_when_cut(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            check(&bytes);
        }
    }
}
