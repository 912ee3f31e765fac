//! The heads of HTTP/1 requests that are refused before they are read. A target with a `#` is: it has no fragment (RFC 9112, 3.2),
//! and the library cuts one off without a word: `POST /v1/hit/a#b` would count a hit of `a`. The library refuses others itself,
//! with an empty answer: a document that says why takes its place.

use std::io;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use axum::http::StatusCode;
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::problem::raw_problem;
use super::stream::Stream;
use crate::limits::{HTTP_SLICE_BYTES, MAX_HTTP_HEAD_BYTES, MAX_HTTP_HEADERS};

/// The start of every HTTP/2 connection (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The first bytes of a connection.
pub(super) struct Start {
    bytes: Vec<u8>,
    pub(super) is_http2: bool,
}

impl Start {
    /// Reads until it is known which protocol the client speaks.
    pub(super) async fn read(socket: &mut Stream) -> io::Result<Start> {
        let mut bytes = Vec::with_capacity(PREFACE.len());
        while PREFACE.starts_with(&bytes) && bytes.len() < PREFACE.len() {
            let mut room = [0; PREFACE.len()];
            match socket.read(&mut room[bytes.len()..]).await? {
                0 => break,
                count => {
                    let end = bytes.len() + count;
                    bytes.extend_from_slice(&room[bytes.len()..end]);
                }
            }
        }
        let is_http2 = bytes == PREFACE;
        Ok(Start { bytes, is_http2 })
    }
}

/// Why the head of a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// Its target has a `#`.
    Fragment,
    /// The library refuses it with this status.
    Head(StatusCode),
}

impl Refusal {
    /// The refusal, if all of this is an answer of the library: it has no content, and all errors of the routes have some.
    fn of_answer(answer: &[u8]) -> Option<Refusal> {
        let rest = answer.strip_prefix(b"HTTP/1.1 ").or_else(|| answer.strip_prefix(b"HTTP/1.0 "));
        let status = rest?.get(..3).filter(|status| status[0] == b'4')?;
        let end = memchr::memmem::find(answer, b"\r\n\r\n").filter(|end| end + 4 == answer.len())?;
        memchr::memmem::find(&answer[..end + 2], b"\r\ncontent-length: 0\r\n")?;
        StatusCode::from_bytes(status).ok().map(Refusal::Head)
    }

    pub(super) fn problem(self) -> Vec<u8> {
        let (status, title, detail) = match self {
            Refusal::Fragment => {
                let detail = "a target has no '#': write %23 for one in a key";
                (StatusCode::BAD_REQUEST, "invalid target", detail.to_owned())
            }
            Refusal::Head(status @ StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE) => {
                let kib = MAX_HTTP_HEAD_BYTES >> 10;
                let detail =
                    format!("the head of a request has at most {kib} KiB and {MAX_HTTP_HEADERS} headers");
                (status, "too large", detail)
            }
            Refusal::Head(status @ StatusCode::URI_TOO_LONG) => (
                status,
                "too large",
                format!("the head of a request has at most {} KiB", MAX_HTTP_HEAD_BYTES >> 10),
            ),
            Refusal::Head(status) => {
                let detail =
                    "this is no request of HTTP/1.1: a line such as 'GET /v1/hits/a HTTP/1.1', then headers";
                (status, "invalid request", detail.to_owned())
            }
        };
        raw_problem(status, title, &detail)
    }
}

/// The socket of a client. After [`HTTP_SLICE_BYTES`] others have their turn. In HTTP/1 a read fails once a target has a `#`, and
/// an empty refusal of the library is kept back: the document that takes its place is sent when the connection has ended.
pub(super) struct Checked<'s> {
    /// Bytes that were read already.
    start: Vec<u8>,
    socket: &'s mut Stream,
    heads: Heads,
    is_http2: bool,
    refusal: &'s Mutex<Option<Refusal>>,
    /// What looks like a refusal. It was a part of some content if the library then reads or writes more: it is sent before that.
    kept_back: Vec<u8>,
    /// Bytes that were read in this slice.
    slice_bytes: usize,
}

impl<'s> Checked<'s> {
    pub(super) fn new(
        socket: &'s mut Stream,
        start: Start,
        refusal: &'s Mutex<Option<Refusal>>,
    ) -> Checked<'s> {
        let heads = if start.is_http2 { Heads::Body } else { Heads::default() };
        let (is_http2, start) = (start.is_http2, start.bytes);
        Checked { start, socket, heads, is_http2, refusal, kept_back: Vec::new(), slice_bytes: 0 }
    }

    fn refusal(&self) -> MutexGuard<'_, Option<Refusal>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this answer is kept back.
    fn keeps_back(&mut self, answer: &[u8]) -> bool {
        let refusal = if self.is_http2 { None } else { Refusal::of_answer(answer) };
        let is_kept = refusal.is_some() && self.refusal().is_none();
        if is_kept {
            *self.refusal() = refusal;
            self.kept_back = answer.to_vec();
        }
        is_kept
    }

    /// Sends what was kept back: the library goes on, so it was no refusal.
    fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.kept_back.is_empty() {
            *self.refusal() = None;
        }
        while !self.kept_back.is_empty() {
            match ready!(Pin::new(&mut *self.socket).poll_write(cx, &self.kept_back))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => _ = self.kept_back.drain(..count),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Checked<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.slice_bytes >= HTTP_SLICE_BYTES {
            // The other clients come first.
            self.slice_bytes = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Poll::Ready(released) = self.poll_release(cx) {
            released?;
        }
        let before = buf.filled().len();
        let polled = if self.start.is_empty() {
            Pin::new(&mut *self.socket).poll_read(cx, buf)
        } else {
            let count = self.start.len().min(buf.remaining());
            buf.put_slice(&self.start[..count]);
            self.start.drain(..count);
            Poll::Ready(Ok(()))
        };
        let read_bytes = buf.filled().len() - before;
        self.slice_bytes = if polled.is_ready() { self.slice_bytes + read_bytes } else { 0 };
        if self.heads.has_fragment(&buf.filled()[before..]) {
            // The first refusal is the answer.
            self.refusal().get_or_insert(Refusal::Fragment);
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        polled
    }
}

impl AsyncWrite for Checked<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_release(cx))?;
        if self.keeps_back(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut *self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_release(cx))?;
        if let [piece] = pieces
            && self.keeps_back(piece)
        {
            return Poll::Ready(Ok(piece.len()));
        }
        Pin::new(&mut *self.socket).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.refusal().is_none() {
            ready!(self.poll_release(cx))?;
        }
        Pin::new(&mut *self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The answer is still to come.
        if self.refusal().is_some() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_release(cx))?;
        Pin::new(&mut *self.socket).poll_shutdown(cx)
    }
}

/// How much of a header is kept: enough for the names below and the length 0.
const HEADER_START_BYTES: usize = 32;

/// Where in the requests of a connection the bytes are.
#[derive(Default)]
enum Heads {
    /// Before a request, where empty lines are skipped (RFC 9112, 2.2).
    #[default]
    Before,
    /// In the line with the target.
    Request,
    /// In a header, which starts so.
    Header(HeaderStart),
    /// Behind a header that announces a body: the connection ends with this request. Or in a connection of HTTP/2.
    Body,
}

/// The start of a header.
#[derive(Clone, Copy, Default)]
struct HeaderStart {
    bytes: [u8; HEADER_START_BYTES],
    len: usize,
}

impl Heads {
    /// Takes the next bytes of a connection: whether one of the targets in them has a `#`.
    fn has_fragment(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let end = memchr(b'\n', bytes);
            let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            bytes = rest.get(1..).unwrap_or_default();
            if matches!(self, Heads::Before) && line != b"\r" && !line.is_empty() {
                *self = Heads::Request;
            }
            match self {
                Heads::Before => {}
                Heads::Request if memchr(b'#', line).is_some() => return true,
                Heads::Request if end.is_some() => *self = Heads::Header(HeaderStart::default()),
                Heads::Request => {}
                Heads::Header(start) => {
                    start.push(line);
                    if end.is_some() {
                        self.end_header();
                    }
                }
                Heads::Body => return false,
            }
        }
        false
    }

    fn end_header(&mut self) {
        let Heads::Header(start) = self else { return };
        match start.bytes[..start.len].trim_ascii() {
            b"" => *self = Heads::Before,
            header if is_of_body(header) => *self = Heads::Body,
            _ => start.len = 0,
        }
    }
}

impl HeaderStart {
    /// Adds as many of these bytes as there is room for.
    fn push(&mut self, bytes: &[u8]) {
        let room = &mut self.bytes[self.len..];
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        self.len += count;
    }
}

/// Whether a header says that a body follows the head.
fn is_of_body(header: &[u8]) -> bool {
    let value_of = |name: &[u8]| {
        let (start, rest) = header.split_at_checked(name.len())?;
        start.eq_ignore_ascii_case(name).then(|| rest.trim_ascii())
    };
    value_of(b"transfer-encoding:").is_some()
        || value_of(b"content-length:").is_some_and(|length| length.iter().any(|digit| *digit != b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: 431 and some 400 had no content. Cause: the library answers them before any route is asked.
    #[test]
    fn an_empty_refusal_of_the_library_is_replaced() {
        let refusal = |answer: &str| Refusal::of_answer(answer.as_bytes());
        let empty =
            "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(refusal(empty), Some(Refusal::Head(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)));
        assert_eq!(refusal("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), None);
        assert_eq!(refusal("HTTP/1.1 404 Not Found\r\ncontent-length: 7\r\n\r\n"), None);
        assert_eq!(refusal(&format!("{empty}more")), None);
        // Content is not searched.
        assert_eq!(refusal("HTTP/1.1 404 Not Found\r\n\r\n\r\ncontent-length: 0\r\n"), None);
    }

    #[test]
    fn a_fragment_is_found_only_in_targets() {
        let check = |bytes: &str, expected: bool| {
            assert_eq!(Heads::default().has_fragment(bytes.as_bytes()), expected, "{bytes:?}");
            // The network may cut the head anywhere.
            let mut heads = Heads::default();
            let found = bytes.bytes().any(|byte| heads.has_fragment(&[byte]));
            assert_eq!(found, expected, "{bytes:?}");
        };
        check("GET /v1/hits/a#b HTTP/1.1\r\n", true);
        check("GET /v1/hits/a#", true);
        check("GET /v1/hits/a%23b HTTP/1.1\r\nHost: x\r\n\r\n", false);
        check("GET /a HTTP/1.1\r\nReferer: /a#b\r\n\r\n", false);
        check("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /a#b HTTP/1.1\r\n", true);
        check("GET /a HTTP/1.1\nHost: x\n\nGET /a#b HTTP/1.1\n", true);
        check("POST /a HTTP/1.1\r\nContent-Length: 0\r\n\r\nGET /a#b HTTP/1.1\r\n", true);
        check("\r\n\r\nGET /a#b HTTP/1.1\r\n", true);
        check("\nGET /a HTTP/1.1\r\n\r\n\r\nGET /a#b HTTP/1.1\r\n", true);
        check("\r\nGET /a HTTP/1.1\r\nReferer: /a#b\r\n\r\n", false);
        check("POST /a HTTP/1.1\r\nContent-Length: 000\r\n\r\nGET /a#b HTTP/1.1\r\n", true);
        // A body is no head.
        check("POST /a HTTP/1.1\r\nContent-Length: 9\r\nX: 1\r\n\r\nGET /a#b \r\n#", false);
        check("POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\n#\r\n", false);
    }
}
