//! The parser of requests: an array of bulk strings, or an inline command on a line of its own.
//!
//! It is incremental. Given the same bytes and more, it continues where it stopped, so that a long request
//! that arrives in many pieces is not parsed from its start each time. A request parses to the same
//! arguments, or the same error, however the network cut it.
//!
//! It is stricter than Redis. A bulk string and a length must be followed by CR LF; Redis skips any two bytes
//! there, and so takes a wrong length for a shorter argument. A byte that cannot start a bulk string is
//! refused at once, not at the end of its line. An inline command with a NUL, or that starts like TLS or
//! HTTP, is refused: see `parse_inline`.

use memchr::{memchr, memchr2};

use crate::args::{Args, Progress, Source};
use crate::error::ProtocolError;
use crate::inline::split_inline;
use crate::integer::parse_integer;
use crate::limits::Limits;

/// The result of [`parse_request`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// The request is incomplete. Read more and call again with the same bytes and the new ones.
    Incomplete,
    /// A request without arguments (an empty line or `*0`), which gets no reply.
    Empty {
        /// Its length in bytes.
        consumed: usize,
    },
    /// A complete request. Its arguments are in [`Args`].
    Complete {
        /// Its length in bytes.
        consumed: usize,
    },
}

/// Parses the request at the start of `buffer` into `args`.
///
/// After `Incomplete`, the buffer of the next call with the same `args` must start with the same bytes,
/// unless [`Args::reset`] was called. After an error the stream cannot be parsed further: send the error and
/// close.
pub fn parse_request(buffer: &[u8], limits: &Limits, args: &mut Args) -> Result<Parsed, ProtocolError> {
    match buffer.first() {
        None => Ok(Parsed::Incomplete),
        Some(b'*') => parse_array(buffer, limits, args),
        Some(_) => parse_inline(buffer, limits, args),
    }
}

fn parse_array(buffer: &[u8], limits: &Limits, args: &mut Args) -> Result<Parsed, ProtocolError> {
    let Progress { mut position, mut missing } = std::mem::take(&mut args.progress);
    if position == 0 {
        args.clear(Source::Buffer);
        match read_length(buffer, limits) {
            Length::Incomplete => return Ok(Parsed::Incomplete),
            Length::LineTooLong => return Err(ProtocolError::CountLine),
            Length::Invalid => return Err(ProtocolError::Count),
            Length::Is { value, line_bytes } if value <= 0 => {
                return Ok(Parsed::Empty { consumed: line_bytes });
            }
            Length::Is { value, line_bytes } => {
                position = line_bytes;
                missing = within(value, limits.arguments).ok_or(ProtocolError::Count)?;
            }
        }
    }
    while missing > 0 {
        let Some((start, end)) = read_bulk(buffer, position, limits)? else {
            args.progress = Progress { position, missing };
            return Ok(Parsed::Incomplete);
        };
        args.ranges.push((start, end));
        position = end + 2;
        missing -= 1;
    }
    Ok(Parsed::Complete { consumed: position })
}

/// The start and the end of the content of the bulk string at `position`. `None` if it is incomplete.
fn read_bulk(
    buffer: &[u8],
    position: usize,
    limits: &Limits,
) -> Result<Option<(usize, usize)>, ProtocolError> {
    let Some(&marker) = buffer.get(position) else {
        return Ok(None);
    };
    if marker != b'$' {
        return Err(ProtocolError::ExpectedBulk { got: marker });
    }
    let (value, line_bytes) = match read_length(&buffer[position..], limits) {
        Length::Incomplete => return Ok(None),
        Length::LineTooLong => return Err(ProtocolError::BulkLine),
        Length::Invalid => return Err(ProtocolError::BulkLength),
        Length::Is { value, line_bytes } => (value, line_bytes),
    };
    if value < 0 {
        return Err(ProtocolError::BulkLength);
    }
    let too_long = ProtocolError::BulkTooLong { bytes: value, most: limits.bulk_bytes };
    let length = within(value, limits.bulk_bytes).ok_or(too_long)?;
    let start = position + line_bytes;
    let end = start + length;
    if end + 2 > limits.request_bytes {
        return Err(ProtocolError::RequestLength { most: limits.request_bytes });
    }
    match buffer.get(end..end + 2) {
        Some(b"\r\n") => Ok(Some((start, end))),
        Some(_) => Err(ProtocolError::BulkEnd),
        None => Ok(None),
    }
}

fn within(value: i64, most: usize) -> Option<usize> {
    usize::try_from(value).ok().filter(|&value| value <= most)
}

/// A line of a marker and an integer.
enum Length {
    Incomplete,
    LineTooLong,
    Invalid,
    Is { value: i64, line_bytes: usize },
}

/// Reads `*3\r\n` or `$16\r\n`. This is the fast path for lengths of a few digits, as clients send them.
#[inline]
fn read_length(line: &[u8], limits: &Limits) -> Length {
    const SHORT_DIGITS: usize = 8;
    let mut value = 0;
    let mut at = 1;
    while let Some(digit) = line.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit <= 9) {
        if at > SHORT_DIGITS {
            return read_long_length(line, limits);
        }
        value = value * 10 + i64::from(digit);
        at += 1;
    }
    let canonical = at == 2 || (at > 2 && line[1] != b'0');
    if canonical && line.get(at..at + 2) == Some(b"\r\n") && at <= limits.line_bytes {
        return Length::Is { value, line_bytes: at + 2 };
    }
    read_long_length(line, limits)
}

#[cold]
fn read_long_length(line: &[u8], limits: &Limits) -> Length {
    let most = limits.line_bytes;
    let Some(end) = memchr(b'\r', &line[..line.len().min(most + 1)]) else {
        return if line.len() > most { Length::LineTooLong } else { Length::Incomplete };
    };
    match (line.get(end + 1), parse_integer(&line[1..end])) {
        (None, _) => Length::Incomplete,
        (Some(b'\n'), Some(value)) => Length::Is { value, line_bytes: end + 2 },
        _ => Length::Invalid,
    }
}

/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Reads an inline command.
///
/// A website can make a browser send TLS to this port, and can choose some bytes of the handshake, such as a line end
/// and a command. So a line that starts like TLS, or has a NUL, which no user types, is an error that closes the
/// connection. Redis looks for the end of the line only up to the first NUL. It does not run such
/// commands either, but never replies.
fn parse_inline(buffer: &[u8], limits: &Limits, args: &mut Args) -> Result<Parsed, ProtocolError> {
    if buffer.first() == Some(&TLS_HANDSHAKE) {
        return Err(ProtocolError::Tls);
    }
    let most = limits.line_bytes.min(limits.request_bytes);
    let Some(end) = memchr2(b'\n', 0, &buffer[..buffer.len().min(most + 1)]) else {
        return if buffer.len() > most { Err(ProtocolError::InlineLine) } else { Ok(Parsed::Incomplete) };
    };
    if buffer[end] == 0 {
        return Err(ProtocolError::InlineNul);
    }
    args.clear(Source::Unquoted);
    let line = &buffer[..end];
    if is_http(line) {
        return Err(ProtocolError::Http);
    }
    split_inline(line, &mut args.unquoted, &mut args.ranges)?;
    let consumed = end + 1;
    Ok(if args.ranges.is_empty() { Parsed::Empty { consumed } } else { Parsed::Complete { consumed } })
}

/// Whether a line is the start of an HTTP request: method, target, version. A website can choose the method,
/// even `DEL`, and the path.
fn is_http(line: &[u8]) -> bool {
    let mut words = line.trim_ascii().rsplit(|byte| *byte == b' ');
    let version = words.next().unwrap_or_default();
    version.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"HTTP/")) && words.nth(1).is_some()
}

#[cfg(test)]
mod tests;
