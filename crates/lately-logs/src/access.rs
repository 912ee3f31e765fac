//! Lines of the combined and common formats, cut up by hand.
//!
//! Values are given as they are written: a quote inside a request stays `\"`.

use memchr::{memchr, memchr_iter};

use crate::error::Malformed;
use crate::time::LOG_DATE_LEN;

/// A line in its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessLine<'a> {
    ip: &'a [u8],
    user: &'a [u8],
    pub(crate) date: &'a [u8; LOG_DATE_LEN],
    request: &'a [u8],
    status: &'a [u8],
    bytes: &'a [u8],
    /// What follows the bytes: nothing, or referer and agent in quotes.
    rest: &'a [u8],
}

/// The parts of a request: `GET /a?b HTTP/1.1`.
struct Request<'a> {
    method: &'a [u8],
    target: &'a [u8],
    /// Missing in HTTP/0.9.
    protocol: Option<&'a [u8]>,
}

/// A field of the formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessField {
    Ip,
    User,
    Request,
    Method,
    Path,
    Protocol,
    Status,
    Bytes,
    Referer,
    Agent,
}

/// The common format's fields, then the two that only combined has.
pub(crate) const ACCESS_FIELDS: [(&str, AccessField); 10] = [
    ("ip", AccessField::Ip),
    ("path", AccessField::Path),
    ("status", AccessField::Status),
    ("method", AccessField::Method),
    ("user", AccessField::User),
    ("request", AccessField::Request),
    ("protocol", AccessField::Protocol),
    ("bytes", AccessField::Bytes),
    ("referer", AccessField::Referer),
    ("agent", AccessField::Agent),
];

/// How many of [`ACCESS_FIELDS`] the common format has.
pub(crate) const COMMON_FIELDS: usize = 8;

impl<'a> AccessLine<'a> {
    pub(crate) fn parse(line: &'a [u8]) -> Result<AccessLine<'a>, Malformed> {
        AccessLine::cut(line).ok_or(Malformed::Shape)
    }

    fn cut(line: &'a [u8]) -> Option<AccessLine<'a>> {
        let (ip, rest) = word(line)?;
        let (_ident, rest) = word(rest)?;
        // A user name may have blanks in it.
        let bracket = memchr_iter(b'[', rest).find(|&at| at > 0 && rest[at - 1] == b' ')?;
        let (user, rest) = (&rest[..bracket - 1], &rest[bracket + 1..]);
        let (date, rest) = rest.split_first_chunk::<LOG_DATE_LEN>()?;
        let rest = rest.strip_prefix(b"] \"")?;
        let (request, rest) = quoted(rest)?;
        let (status, rest) = word(rest.strip_prefix(b" ")?)?;
        let (bytes, rest) = word(rest).unwrap_or((rest, b""));
        let number = |text: &[u8]| text == b"-" || !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        (!ip.is_empty() && number(status) && number(bytes)).then_some(AccessLine {
            ip,
            user,
            date,
            request,
            status,
            bytes,
            rest,
        })
    }

    /// The value of a field, or `None` when this line has none.
    pub(crate) fn field(&self, field: AccessField) -> Option<&'a [u8]> {
        match field {
            AccessField::Ip => Some(self.ip),
            AccessField::User => Some(self.user),
            AccessField::Request => Some(self.request),
            AccessField::Method => self.request_parts().map(|request| request.method),
            AccessField::Path => self.request_parts().map(|Request { target, .. }| {
                // The query would make a key of every request.
                &target[..memchr(b'?', target).unwrap_or(target.len())]
            }),
            AccessField::Protocol => self.request_parts().and_then(|request| request.protocol),
            AccessField::Status => Some(self.status),
            AccessField::Bytes => Some(self.bytes),
            AccessField::Referer => self.referer_and_agent().map(|(referer, _)| referer),
            AccessField::Agent => self.referer_and_agent().and_then(|(_, agent)| agent),
        }
    }

    /// Method, target and protocol; `None` when the request is no request: `-`, a TLS greeting.
    fn request_parts(&self) -> Option<Request<'a>> {
        let (method, rest) = word(self.request)?;
        let is_method = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
        let (target, protocol) = match memchr::memrchr(b' ', rest) {
            Some(at) if rest[at + 1..].starts_with(b"HTTP/") => (&rest[..at], Some(&rest[at + 1..])),
            _ => (rest, None),
        };
        (!method.is_empty() && method.iter().all(is_method) && !target.is_empty()).then_some(Request {
            method,
            target,
            protocol,
        })
    }

    /// The two quoted texts after the bytes. The last may be cut off, as logs are at a full disk.
    fn referer_and_agent(&self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        let (referer, rest) = quoted_or_cut(self.rest.strip_prefix(b"\"")?);
        Some((referer, rest.strip_prefix(b" \"").map(|agent| quoted_or_cut(agent).0)))
    }
}

/// What comes before the first blank, and what after it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr(b' ', text)?;
    Some((&text[..end], &text[end + 1..]))
}

/// What comes before the closing quote, and what after it. A quote closes when no backslash escapes
/// it and a blank or the end follows, so that clients which send bare quotes do not break the line.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    loop {
        let at = from + memchr::memchr2(b'"', b'\\', &text[from..])?;
        if text[at] == b'\\' {
            from = (at + 2).min(text.len());
        } else if matches!(text.get(at + 1), None | Some(b' ')) {
            return Some((&text[..at], &text[at + 1..]));
        } else {
            from = at + 1;
        }
    }
}

fn quoted_or_cut(text: &[u8]) -> (&[u8], &[u8]) {
    quoted(text).unwrap_or((text, b""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        r#"::1 - jo [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.1" 200 12 "/from" "Moz/5 (\"x\")""#;

    fn get<'a>(line: &'a str, name: &str) -> Option<&'a str> {
        let (_, field) = ACCESS_FIELDS.into_iter().find(|(known, _)| *known == name)?;
        let value = AccessLine::cut(line.as_bytes())?.field(field)?;
        Some(std::str::from_utf8(value).expect("cut at ASCII"))
    }

    #[test]
    fn fields_are_found() {
        for (name, expected) in [
            ("ip", "::1"),
            ("user", "jo"),
            ("request", "GET /a?b=c HTTP/1.1"),
            ("method", "GET"),
            ("path", "/a"),
            ("protocol", "HTTP/1.1"),
            ("status", "200"),
            ("bytes", "12"),
            ("referer", "/from"),
            ("agent", r#"Moz/5 (\"x\")"#),
        ] {
            assert_eq!(get(LINE, name), Some(expected), "{name}");
        }
    }

    #[test]
    fn odd_requests() {
        let check = |request: &str, method: Option<&str>, path: Option<&str>| {
            let line = format!("h - - [17/May/2015:10:05:03 +0000] \"{request}\" 400 -");
            assert_eq!(get(&line, "request"), Some(request), "{request}");
            assert_eq!(get(&line, "method"), method, "{request}");
            assert_eq!(get(&line, "path"), path, "{request}");
        };
        check("-", None, None);
        check("", None, None);
        check(r"\x16\x03\x01 \x00", None, None);
        check("GET", None, None);
        check("GET ", None, None);
        check("GET /", Some("GET"), Some("/"));
        check("GET  HTTP/1.1", None, None);
        check("GET /a b HTTP/1.1", Some("GET"), Some("/a b"));
        check(r#"GET /\"a\" HTTP/1.1"#, Some("GET"), Some(r#"/\"a\""#));
        check(r#"GET /x"y HTTP/1.1"#, Some("GET"), Some(r#"/x"y"#));
        check(r"GET /\\ HTTP/1.1", Some("GET"), Some(r"/\\"));
        check("OPTIONS * HTTP/1.1", Some("OPTIONS"), Some("*"));
        check("GET http://h/p?q HTTP/1.1", Some("GET"), Some("http://h/p"));
        check("GET ?q HTTP/1.1", Some("GET"), Some(""));
    }

    #[test]
    fn lines_may_end_early_or_late() {
        let check = |tail: &str, referer: Option<&str>, agent: Option<&str>| {
            let line = format!("h - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5{tail}");
            assert_eq!(get(&line, "bytes"), Some("5"), "{tail}");
            assert_eq!(get(&line, "referer"), referer, "{tail}");
            assert_eq!(get(&line, "agent"), agent, "{tail}");
        };
        check("", None, None);
        check(" ", None, None);
        check(" \"-\"", Some("-"), None);
        check(" \"-\" \"agent (cut", Some("-"), Some("agent (cut"));
        check(" \"cut", Some("cut"), None);
        check(" \"-\" \"a\" \"10.0.0.1\" 0.004", Some("-"), Some("a"));
        check(" 0.004", None, None);
    }

    #[test]
    fn what_is_not_of_the_format_is_refused() {
        for bad in [
            "",
            "hello",
            "h - - [17/May/2015:10:05:03 +0000]",
            "h - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\"",
            "h - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200",
            "h - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1 200 12",
            "h - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" ok 12",
            "h - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 x",
            "h - - 17/May/2015:10:05:03 +0000 \"GET / HTTP/1.1\" 200 12",
            "h - - [17/May/2015:10:05 +0000] \"GET / HTTP/1.1\" 200 12",
            " - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 12",
        ] {
            assert!(AccessLine::cut(bad.as_bytes()).is_none(), "{bad}");
        }
        let spaced = LINE.replace(" jo ", " jo van der berg [x] ");
        assert_eq!(get(&spaced, "user"), None, "a bracket after a blank is where the time is expected");
        assert_eq!(get(&LINE.replace(" jo ", " jo van dam "), "user"), Some("jo van dam"));
    }
}
