//! The requests of one read, which are all parsed before any of them is run. So their operations can be
//! applied as a batch, while all borrow from the read buffer.

use std::ops::Range;
use std::slice;

use lately::limits::MAX_KEY_BYTES;

use crate::args::{ArgList, Args, Source};
use crate::error::ProtocolError;
use crate::frame::{Parsed, parse_request};
use crate::limits::{KEPT_BATCH, Limits, MAX_BATCH_ARGUMENTS, SHORT_BYTES};
use crate::short_array;
use crate::template::Template;

/// Complete requests, in the order of arrival. Can be reused.
#[derive(Default, Debug)]
pub struct Requests {
    /// The start and the end of each argument, relative to the start of its request. Requests of one template
    /// share them.
    ranges: Vec<(usize, usize)>,
    /// The words of inline commands without their quotes.
    unquoted: Vec<u8>,
    places: Vec<Place>,
    /// The number of arguments of all requests.
    arguments: usize,
}

/// The place of a request.
#[derive(Clone, Copy, Debug)]
struct Place {
    source: Source,
    /// Its arguments, in `ranges`.
    args: (usize, usize),
    /// Its start, in the read buffer or in `unquoted`.
    start: usize,
    /// Its end in the read buffer.
    end: usize,
    /// Whether it differs from the one before only in its key.
    repeats: bool,
}

/// How far [`Requests::parse`] came, and why it stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The end of the parsed bytes in the buffer.
    pub consumed: usize,
    /// Why it stopped there.
    pub end: End,
}

/// What follows the parsed requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// Nothing, or an incomplete request.
    Incomplete,
    /// Possibly more requests: the batch is full.
    Full,
    /// Bytes that are not a request. The stream cannot be parsed further.
    Broken(ProtocolError),
}

impl Requests {
    /// No requests.
    #[must_use]
    pub fn new() -> Requests {
        Requests::default()
    }

    /// Parses the complete requests at the start of `buffer`, up to a full batch.
    ///
    /// `args` has the state of an incomplete last request, like in [`parse_request`].
    pub fn parse(&mut self, buffer: &[u8], limits: &Limits, args: &mut Args) -> Progress {
        self.clear();
        self.parse_more(buffer, 0, limits, args)
    }

    /// Adds the complete requests of `buffer` from `start` on, which may be of another client. Earlier
    /// requests stay. All positions are in `buffer` as a whole.
    pub fn parse_more(&mut self, buffer: &[u8], start: usize, limits: &Limits, args: &mut Args) -> Progress {
        let (mut consumed, short) = (start, short_array::are_within(limits));
        let mut template: Option<Template<'_>> = None;
        let end = loop {
            if self.arguments >= MAX_BATCH_ARGUMENTS {
                break End::Full;
            }
            let rest = &buffer[consumed..];
            if short && args.progress.position == 0 {
                let again = template.as_mut().and_then(|template| template.read(rest, &mut self.ranges));
                if let Some((len, args)) = again {
                    let (start, end) = (consumed, consumed + len);
                    self.push(Place { source: Source::Buffer, args, start, end, repeats: true });
                    consumed = end;
                    continue;
                }
                let before = self.ranges.len();
                if let Some(len) = short_array::read_array(rest, &mut self.ranges) {
                    let args = (before, self.ranges.len());
                    template = Template::of(&rest[..len], args, &self.ranges);
                    let (start, end) = (consumed, consumed + len);
                    self.push(Place { source: Source::Buffer, args, start, end, repeats: false });
                    consumed = end;
                    continue;
                }
            }
            template = None;
            match parse_request(rest, limits, args) {
                Ok(Parsed::Incomplete) => break End::Incomplete,
                Ok(Parsed::Empty { consumed: bytes }) => consumed += bytes,
                Ok(Parsed::Complete { consumed: bytes }) => {
                    let before = self.ranges.len();
                    if before == 0 && args.ranges.len() > KEPT_BATCH {
                        // A copy of a million arguments would take milliseconds.
                        self.ranges = std::mem::take(&mut args.ranges);
                    } else {
                        self.ranges.extend_from_slice(&args.ranges);
                    }
                    let (source, end) = (args.source, consumed + bytes);
                    let start = match source {
                        Source::Buffer => consumed,
                        Source::Unquoted => {
                            self.unquoted.extend_from_slice(&args.unquoted);
                            self.unquoted.len() - args.unquoted.len()
                        }
                    };
                    let args = (before, self.ranges.len());
                    self.push(Place { source, args, start, end, repeats: false });
                    consumed = end;
                }
                Err(error) => break End::Broken(error),
            }
        };
        Progress { consumed, end }
    }

    /// Adds a parsed request.
    #[inline(always)]
    fn push(&mut self, place: Place) {
        self.arguments += place.args.1 - place.args.0;
        self.places.push(place);
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.places.clear();
        self.places.shrink_to(KEPT_BATCH);
        self.ranges.clear();
        self.ranges.shrink_to(KEPT_BATCH);
        self.unquoted.clear();
        self.unquoted.shrink_to(KEPT_BATCH);
        self.arguments = 0;
    }

    /// The number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The end of the first `count` requests in the buffer.
    #[must_use]
    pub fn bytes_of_first(&self, count: usize) -> usize {
        count.checked_sub(1).map_or(0, |last| self.places[last].end)
    }

    /// The requests, out of the buffer they were parsed from. Panics if that is shorter.
    #[must_use]
    pub fn iter<'a>(&'a self, buffer: &'a [u8]) -> Selected<'a> {
        self.range(0..self.len(), buffer)
    }

    /// The requests with these numbers, like [`Requests::iter`].
    #[must_use]
    pub fn range<'a>(&'a self, numbers: Range<usize>, buffer: &'a [u8]) -> Selected<'a> {
        Selected { places: self.places[numbers].iter(), requests: self, buffer }
    }
}

/// Some of the requests, one by one.
#[derive(Clone, Debug)]
pub struct Selected<'a> {
    places: slice::Iter<'a, Place>,
    requests: &'a Requests,
    buffer: &'a [u8],
}

impl<'a> Iterator for Selected<'a> {
    type Item = ArgList<'a>;

    #[inline]
    fn next(&mut self) -> Option<ArgList<'a>> {
        let place = self.places.next()?;
        let bytes = match place.source {
            Source::Buffer => self.buffer,
            Source::Unquoted => &self.requests.unquoted,
        };
        let ranges = &self.requests.ranges[place.args.0..place.args.1];
        Some(ArgList { bytes: &bytes[place.start..], ranges })
    }
}

impl<'a> Selected<'a> {
    /// The keys, which are the second arguments, of the next requests that differ from the one before only in
    /// their key, up to the first key that `may` refuses. Requests whose keys are not taken are returned by the
    /// iterator as usual.
    pub fn repeated_keys<F: Fn(&[u8]) -> bool>(&mut self, may: F) -> impl Iterator<Item = &'a [u8]> {
        const { assert!(SHORT_BYTES <= MAX_KEY_BYTES, "no more is looked for in those that repeat") };
        std::iter::from_fn(move || {
            let place = self.places.as_slice().first().filter(|place| place.repeats)?;
            let &(start, end) = self.requests.ranges.get(place.args.0 + 1)?;
            let key = &self.buffer[place.start + start..place.start + end];
            if key.is_empty() || !may(key) {
                return None;
            }
            self.places.next();
            Some(key)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    fn parsed(buffer: &str) -> (Requests, Args, Progress) {
        let (mut requests, mut args) = (Requests::new(), Args::new());
        let progress = requests.parse(buffer.as_bytes(), &Limits::default(), &mut args);
        (requests, args, progress)
    }

    fn words(requests: &Requests, buffer: &str) -> Vec<Vec<String>> {
        let word = |arg: &[u8]| String::from_utf8_lossy(arg).into_owned();
        requests.iter(buffer.as_bytes()).map(|args| args.iter().map(word).collect()).collect()
    }

    #[test]
    fn arrays_and_lines_in_one_read() {
        let buffer = "*2\r\n$3\r\nHIT\r\n$1\r\na\r\n\r\nHIT 'b c'\r\n*0\r\nHIT \"\\x64\" 7\n*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nHI";
        let (requests, _, progress) = parsed(buffer);
        let expected: [&[&str]; 4] = [&["HIT", "a"], &["HIT", "b c"], &["HIT", "d", "7"], &["PING"]];
        assert_eq!(words(&requests, buffer), expected);
        assert_eq!(progress.end, End::Incomplete);
        assert_eq!(&buffer[progress.consumed..], "*2\r\n$3\r\nHI");
        assert_eq!(requests.bytes_of_first(0), 0);
        assert!(buffer[requests.bytes_of_first(1)..].starts_with("\r\nHIT 'b c'"));
        assert_eq!(requests.bytes_of_first(4), progress.consumed);
    }

    #[test]
    fn the_start_of_a_cut_request_is_parsed_again() {
        let (whole, more) = ("PING\r\n*3\r\n$4\r\nMHIT\r\n$1\r\na\r\n$1", "\r\n5\r\n");
        let (mut requests, mut args, progress) = parsed(whole);
        let rest = format!("{}{more}", &whole[progress.consumed..]);
        let progress = requests.parse(rest.as_bytes(), &Limits::default(), &mut args);
        assert_eq!(progress, Progress { consumed: rest.len(), end: End::Incomplete });
        let args = requests.iter(rest.as_bytes()).next().expect("one");
        assert!(matches!(Command::parse(args), Ok(Command::MultiHit { .. })));
    }

    #[test]
    fn requests_of_several_clients_in_one_buffer() {
        let (mut requests, mut args, first) = parsed("HIT 'a b'\r\nPING\r\nHI");
        let buffer = "HIT 'a b'\r\nPING\r\nHI*2\r\n$3\r\nHIT\r\n$1\r\nk\r\nPING\r\n*1\r\n";
        let start = buffer.find("HI*2").map_or(0, |partial| partial + 2);
        args.reset();
        let more = requests.parse_more(buffer.as_bytes(), start, &Limits::default(), &mut args);
        assert_eq!((first.consumed, more.consumed), (start - 2, buffer.len() - 4));
        let expected: [&[&str]; 4] = [&["HIT", "a b"], &["PING"], &["HIT", "k"], &["PING"]];
        assert_eq!(words(&requests, buffer), expected);
        let second: Vec<_> = requests.range(2..4, buffer.as_bytes()).map(ArgList::len).collect();
        assert_eq!((second, requests.bytes_of_first(4)), (vec![2, 1], more.consumed));
    }

    #[test]
    fn an_error_comes_after_the_requests_before_it() {
        let (requests, _, progress) = parsed("PING\r\n*1\r\n!\r\nPING\r\n");
        assert_eq!(requests.len(), 1);
        assert_eq!(
            progress,
            Progress { consumed: 6, end: End::Broken(ProtocolError::ExpectedBulk { got: b'!' }) }
        );
    }

    #[test]
    fn a_batch_is_bounded() {
        let most = "PING\n".repeat(MAX_BATCH_ARGUMENTS);
        let (requests, _, progress) = parsed(&most);
        assert_eq!((requests.len(), progress.end), (MAX_BATCH_ARGUMENTS, End::Full));
        let (requests, _, progress) = parsed(&most[5..]);
        assert_eq!((requests.len(), progress.end), (MAX_BATCH_ARGUMENTS - 1, End::Incomplete));
        // The arguments of a long request are moved, not copied.
        let (requests, args, _) = parsed(&format!("DEL{}\n", " k".repeat(KEPT_BATCH)));
        assert_eq!(requests.iter(b"").next().map(ArgList::len), Some(KEPT_BATCH + 1));
        assert_eq!(args.ranges.capacity(), 0);
        // A request with more arguments is a batch of its own.
        let many = format!("DEL{}\nPING\n", " k".repeat(MAX_BATCH_ARGUMENTS));
        let (requests, _, progress) = parsed(&many);
        assert_eq!((requests.len(), progress.end), (1, End::Full));
    }
}
