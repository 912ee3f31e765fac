//! A request as servers log it: `GET /a?b HTTP/1.1`.

use memchr::{memchr, memrchr};

/// The parts of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a [u8],
    /// The target, with the query.
    pub(crate) url: &'a [u8],
    /// Absent in HTTP/0.9.
    pub(crate) protocol: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// Parses a request. `None` if the text is not a request: `-`, a TLS greeting.
    pub(crate) fn parse(request: &'a [u8]) -> Option<Request<'a>> {
        let blank = memchr(b' ', request)?;
        let (method, rest) = (&request[..blank], &request[blank + 1..]);
        let is_method = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
        let (url, protocol) = match memrchr(b' ', rest) {
            Some(at) if rest[at + 1..].starts_with(b"HTTP/") => (&rest[..at], Some(&rest[at + 1..])),
            _ => (rest, None),
        };
        (!method.is_empty() && method.iter().all(is_method) && !url.is_empty()).then_some(Request {
            method,
            url,
            protocol,
        })
    }

    /// The URL up to its `?`. With the query, every request would be a key of its own.
    pub(crate) fn path(&self) -> &'a [u8] {
        without_query(self.url)
    }
}

pub(crate) fn without_query(url: &[u8]) -> &[u8] {
    &url[..memchr(b'?', url).unwrap_or(url.len())]
}

/// A URL without scheme and host. Load balancers log the whole URL.
pub(crate) fn without_host(url: &[u8]) -> &[u8] {
    let Some(at) = memchr::memmem::find(url, b"://") else { return url };
    if !url[..at].iter().all(u8::is_ascii_alphabetic) {
        return url;
    }
    let host = &url[at + 3..];
    host.iter().position(|byte| matches!(byte, b'/' | b'?')).map_or(&b"/"[..], |at| &host[at..])
}
