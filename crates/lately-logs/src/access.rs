//! Lines of the combined, common and vhost formats, cut up by hand.
//!
//! Values are returned as written: a quote inside a request stays `\"`.
//!
//! Clients choose the user's name, the request, the referer and the agent. Apache and nginx escape quotes in all of
//! these, so an unescaped quote is always the server's, and the date comes before the first one. Before the date
//! there must be an address or a host name, an identity and a user. Anything else would shift the fields, so such a
//! line does not parse.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter, memmem, memrchr, memrchr_iter};

use crate::request::Request;
use crate::time::LOG_DATE_LEN;
use lately_keys::address;

/// The maximum length of a date between brackets.
const MAX_DATE_LEN: usize = 48;

/// A line in its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessLine<'a> {
    /// Everything before the user.
    front: &'a [u8],
    has_vhost: bool,
    /// The client, if it is an IPv4 address.
    ipv4: Option<&'a [u8]>,
    user: &'a [u8],
    pub(crate) date: &'a [u8],
    request: &'a [u8],
    status: &'a [u8],
    bytes: &'a [u8],
    /// The rest after the bytes: nothing, or referer and agent in quotes.
    rest: &'a [u8],
}

/// The start of a line: virtual host and client.
#[derive(Clone, Copy, Debug)]
struct Front<'a> {
    vhost: Option<&'a [u8]>,
    /// An address or a host name. `None` if the log has `-` there.
    ip: Option<&'a [u8]>,
    /// The addresses from a header such as `X-Forwarded-For`.
    forwarded: Option<&'a [u8]>,
    /// The address of the connection, if the log has another one, too.
    peer: Option<&'a [u8]>,
}

/// A field of the formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessField {
    Ip,
    Path,
    Url,
    Status,
    Method,
    User,
    Request,
    Protocol,
    Bytes,
    Forwarded,
    Peer,
    Referer,
    Agent,
    Vhost,
}

/// The fields of the common format, then the two more of combined, then the one more of vhost.
pub(crate) const ACCESS_FIELDS: [(&str, AccessField); 14] = [
    ("ip", AccessField::Ip),
    ("path", AccessField::Path),
    ("url", AccessField::Url),
    ("status", AccessField::Status),
    ("method", AccessField::Method),
    ("user", AccessField::User),
    ("request", AccessField::Request),
    ("protocol", AccessField::Protocol),
    ("bytes", AccessField::Bytes),
    ("forwarded", AccessField::Forwarded),
    ("peer", AccessField::Peer),
    ("referer", AccessField::Referer),
    ("agent", AccessField::Agent),
    ("vhost", AccessField::Vhost),
];

/// How many of [`ACCESS_FIELDS`] the common format has.
pub(crate) const COMMON_FIELDS: usize = 11;

/// How many of [`ACCESS_FIELDS`] the combined format has.
pub(crate) const COMBINED_FIELDS: usize = 13;

impl<'a> AccessLine<'a> {
    /// Parses a line that starts with the client, or with the virtual host. `None` if it is of neither format.
    #[inline(always)]
    pub(crate) fn cut(line: &'a [u8], has_vhost: bool) -> Option<AccessLine<'a>> {
        // Nearly all lines start with an IPv4 address.
        let ipv4 = address::ipv4_at_start(line).filter(|_| !has_vhost);
        let (ipv4, user_at) = match ipv4 {
            Some(ip) if line[ip.len()..].starts_with(b" - ") => (Some(ip), ip.len() + 3),
            _ => (None, line.len() - front(line, has_vhost)?.1.len()),
        };
        let (front, rest) = line.split_at(user_at);
        let start = Start { front, has_vhost, ipv4 };
        if let Some(tail) = traefik_tail(rest) {
            return start.traefik_line(rest, tail);
        }
        let without_user =
            if rest.starts_with(b"- [") { date_end(rest, 2).map(|end| (2, end)) } else { None };
        let (bracket, end) = without_user.or_else(|| first_date(rest))?;
        start.line(rest, bracket, end)
    }

    /// The value of a field. `None` if this line has none.
    #[inline]
    pub(crate) fn field(&self, field: AccessField) -> Option<Cow<'a, [u8]>> {
        let request = || Request::parse(self.request);
        let value = match field {
            AccessField::Ip => match self.ipv4 {
                Some(ip) => Some(ip),
                None => return self.front().ip.map(address::canonical),
            },
            AccessField::Path => request().map(|request| request.path()),
            AccessField::Url => request().map(|request| request.url),
            AccessField::Status => Some(self.status),
            AccessField::Method => request().map(|request| request.method),
            AccessField::User => Some(self.user),
            AccessField::Request => Some(self.request),
            AccessField::Protocol => request().and_then(|request| request.protocol),
            AccessField::Bytes => Some(self.bytes),
            AccessField::Forwarded => self.front().forwarded,
            AccessField::Peer => {
                let Front { peer, ip, .. } = self.front();
                return peer.or(ip).map(address::canonical);
            }
            AccessField::Referer => self.referer_and_agent().map(|(referer, _)| referer),
            AccessField::Agent => self.referer_and_agent().and_then(|(_, agent)| agent),
            AccessField::Vhost => self.front().vhost,
        };
        value.map(Cow::Borrowed)
    }

    /// Parses the start of the line again, because few keys need it.
    fn front(&self) -> Front<'a> {
        let empty = Front { vhost: None, ip: None, forwarded: None, peer: None };
        front(self.front, self.has_vhost).map_or(empty, |(front, _)| front)
    }

    /// The two quoted texts after the bytes. The second may be cut off: a full disk ends a log in the middle of a
    /// line.
    fn referer_and_agent(&self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        let (referer, rest) = value(self.rest)?;
        Some((referer, rest.strip_prefix(b" ").and_then(value).map(|(agent, _)| agent)))
    }
}

/// The start of a line, up to the user.
#[derive(Clone, Copy)]
struct Start<'a> {
    front: &'a [u8],
    has_vhost: bool,
    ipv4: Option<&'a [u8]>,
}

impl<'a> Start<'a> {
    /// A line of Traefik, whose referer is at `tail`. Traefik does not escape quotes in a user's name, so a client
    /// can write text that looks like a date and a request. Texts of clients after the date have no blanks and
    /// brackets, so the last date before the tail is the server's.
    #[cold]
    fn traefik_line(self, rest: &'a [u8], tail: usize) -> Option<AccessLine<'a>> {
        let mut brackets = memchr_iter(b'[', &rest[..tail]).rev();
        brackets.find_map(|bracket| self.line(rest, bracket, date_end(rest, bracket)?))
    }

    /// The line whose date starts after `bracket` and ends at `end`.
    #[inline(always)]
    fn line(self, rest: &'a [u8], bracket: usize, end: usize) -> Option<AccessLine<'a>> {
        let Start { front, has_vhost, ipv4 } = self;
        let (user, date) = (&rest[..bracket - 1], &rest[bracket + 1..end]);
        let text = &rest[end + 3..];
        let mut from = 0;
        loop {
            let end = closing_quote(text, from)?;
            // Traefik does not escape quotes in a query. A query has no blanks, so the closing quote is the one
            // before the numbers.
            from = end + 1;
            let Some((status, after)) = text.get(from + 1..).and_then(number) else { continue };
            let Some((bytes, rest)) = after.strip_prefix(b" ").and_then(number) else { continue };
            let rest = rest.strip_prefix(b" ").unwrap_or(rest);
            let request = &text[..end];
            return Some(AccessLine { front, has_vhost, ipv4, user, date, request, status, bytes, rest });
        }
    }
}

/// Parses the virtual host, if there is one, the client and its identity. Returns the rest, too.
fn front(line: &[u8], has_vhost: bool) -> Option<(Front<'_>, &[u8])> {
    if !has_vhost {
        return client(None, line);
    }
    let (vhost, rest) = word(line)?;
    let is_vhost = !vhost.is_empty() && !vhost.contains(&b',') && !vhost.contains(&b'"');
    if is_vhost { client(Some(vhost), rest) } else { None }
}

/// Parses the client and its identity. Returns the rest, too.
fn client<'a>(vhost: Option<&'a [u8]>, text: &'a [u8]) -> Option<(Front<'a>, &'a [u8])> {
    let (first, mut rest) = word(text)?;
    let mut front = Front { vhost, ip: Some(first), forwarded: None, peer: None };
    let mut is_known = address::is_address(first);
    if is_known {
        if let Some(list) = rest.strip_prefix(b"(") {
            let end = forwarded_end(list)?;
            rest = &list[end + 2..];
            // The client chooses this text, which may have parentheses. Only the list before the first one is used,
            // so that the user's name does not change it.
            let list = &list[..memchr(b')', list)?];
            let ip = first_address(list).unwrap_or(first);
            front = Front { ip: Some(ip), forwarded: Some(list), peer: Some(first), ..front };
        }
    } else if first.contains(&b',') {
        let list = list(text)?;
        // The last address is that of the connection, or was added by a proxy.
        let last = list.rsplit(|&byte| byte == b',').next().map(<[u8]>::trim_ascii);
        front = Front { ip: Some(first_address(list)?), forwarded: Some(list), peer: last, ..front };
        (rest, is_known) = (text.get(list.len() + 1..)?, true);
    } else if first == b"-" {
        front.ip = None;
    } else if first != b"unix:" && !address::is_host_name(first) {
        return None;
    }
    let (ident, rest) = word(rest)?;
    // After a host name, which may be any word, only an identity of `-` is accepted.
    (ident == b"-" || is_known && is_ident(ident)).then_some((front, rest))
}

/// The end of the text in parentheses: the last `) - ` before the date, or else the first `)` that an identity
/// follows. Clients can write parentheses and blanks into this text.
fn forwarded_end(text: &[u8]) -> Option<usize> {
    let text = &text[..first_date(text).map_or(text.len(), |(bracket, _)| bracket)];
    let is_end = |end: &usize| {
        let rest = text[*end..].strip_prefix(b") ").and_then(word);
        rest.is_some_and(|(ident, _)| is_ident(ident))
    };
    memmem::rfind(text, b") - ").or_else(|| memchr_iter(b')', text).find(is_end))
}

/// A list of addresses: words that end with a comma, and one more.
fn list(text: &[u8]) -> Option<&[u8]> {
    let mut len = 0;
    loop {
        let (element, _) = word(&text[len..])?;
        len += element.len();
        if !element.ends_with(b",") {
            return Some(&text[..len]);
        }
        len += 1;
    }
}

/// The first address of a list. The last element was added by a proxy, so it must be an address, too.
fn first_address(list: &[u8]) -> Option<&[u8]> {
    let mut elements = list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let is_list = elements.clone().next_back().is_some_and(address::is_address);
    elements.find(|element| address::is_address(element)).filter(|_| is_list)
}

/// Whether a text can be an identity (RFC 1413). It is nearly always `-`.
fn is_ident(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.iter().all(is_part) && !address::is_address(text)
}

/// The first bracket that starts a date, and the end of the date.
fn first_date(rest: &[u8]) -> Option<(usize, usize)> {
    memchr_iter(b'[', rest).find_map(|bracket| Some((bracket, date_end(rest, bracket)?)))
}

/// The end of the date after this bracket, if a bracket, a blank and the quote of the request follow it.
#[inline]
fn date_end(rest: &[u8], bracket: usize) -> Option<usize> {
    if rest.get(bracket.checked_sub(1)?) != Some(&b' ') {
        return None;
    }
    let date = &rest[bracket + 1..];
    if date.get(LOG_DATE_LEN..LOG_DATE_LEN + 3) == Some(b"] \"") && date[2] == b'/' && date[6] == b'/' {
        return Some(bracket + 1 + LOG_DATE_LEN);
    }
    let len = memmem::find(&date[..date.len().min(MAX_DATE_LEN)], b"] \"")?;
    let date = &date[..len];
    let is_date =
        date.first().is_some_and(u8::is_ascii_digit) && date.contains(&b':') && !date.contains(&b'[');
    is_date.then_some(bracket + 1 + len)
}

/// The start of the referer in a line that ends like Traefik's: `… "referer" "agent" 7 "router" "http://192.0.2.1"
/// 12ms`. Searches from the end, where all quotes within texts are escaped.
fn traefik_tail(line: &[u8]) -> Option<usize> {
    let text = before_number(line.strip_suffix(b"ms")?)?;
    let text = before_quoted(before_quoted(text)?.strip_suffix(b" ")?)?;
    let text = before_quoted(before_number(text.strip_suffix(b" ")?)?)?;
    before_quoted(text.strip_suffix(b" ")?).map(<[u8]>::len)
}

/// Splits off a blank and a number at the end.
fn before_number(text: &[u8]) -> Option<&[u8]> {
    let (before, number) = text.split_at(memrchr(b' ', text)?);
    (number.len() > 1 && number[1..].iter().all(u8::is_ascii_digit)).then_some(before)
}

/// Splits off a quoted text at the end, or the `-` in its place.
fn before_quoted(text: &[u8]) -> Option<&[u8]> {
    let Some(inner) = text.strip_suffix(b"\"") else { return text.strip_suffix(b"-") };
    let is_escaped =
        |quote: usize| inner[..quote].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1;
    let quote = memrchr_iter(b'"', inner).find(|&quote| !is_escaped(quote))?;
    Some(&inner[..quote])
}

/// Splits at the first blank.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr(b' ', text)?;
    Some((&text[..end], &text[end + 1..]))
}

/// A number or a dash, before a blank or the end. Returns the rest, too.
#[inline]
fn number(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let len = if digits == 0 { usize::from(text.first() == Some(&b'-')) } else { digits };
    (len > 0 && matches!(text.get(len), None | Some(b' '))).then(|| text.split_at(len))
}

/// Splits at the closing quote.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    closing_quote(text, 0).map(|at| (&text[..at], &text[at + 1..]))
}

/// The end of a quoted text, searched from `from` on. A quote closes the text if no backslash escapes it and a blank
/// or the end follows. So a client that sends unescaped quotes does not break the line.
#[inline]
fn closing_quote(text: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let at = from + memchr::memchr2(b'"', b'\\', text.get(from..)?)?;
        if text[at] == b'\\' {
            from = at + 2;
        } else if matches!(text.get(at + 1), None | Some(b' ')) {
            return Some(at);
        } else {
            from = at + 1;
        }
    }
}

/// A text in quotes, which may be cut off, or `-`, which Traefik writes without quotes. Returns the rest, too.
fn value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    match text {
        [b'"', text @ ..] => Some(quoted(text).unwrap_or((text, b""))),
        [b'-'] | [b'-', b' ', ..] => Some(text.split_at(1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        r#"::1 - jo [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.1" 200 12 "/from" "Moz/5 (\"x\")""#;

    fn get(line: &str, name: &str) -> Option<String> {
        let (_, field) = ACCESS_FIELDS.into_iter().find(|(known, _)| *known == name)?;
        let value = AccessLine::cut(line.as_bytes(), name == "vhost")?.field(field)?;
        Some(String::from_utf8(value.into_owned()).expect("cut at ASCII"))
    }

    #[test]
    fn fields_are_found() {
        for (name, expected) in [
            ("ip", "::1"),
            ("user", "jo"),
            ("request", "GET /a?b=c HTTP/1.1"),
            ("method", "GET"),
            ("path", "/a"),
            ("url", "/a?b=c"),
            ("peer", "::1"),
            ("protocol", "HTTP/1.1"),
            ("status", "200"),
            ("bytes", "12"),
            ("referer", "/from"),
            ("agent", r#"Moz/5 (\"x\")"#),
        ] {
            assert_eq!(get(LINE, name).as_deref(), Some(expected), "{name}");
        }
    }

    #[test]
    fn odd_requests() {
        let check = |request: &str, method: Option<&str>, path: Option<&str>| {
            let line = format!("h - - [17/May/2015:10:05:03 +0000] \"{request}\" 400 -");
            assert_eq!(get(&line, "request").as_deref(), Some(request), "{request}");
            assert_eq!(get(&line, "method").as_deref(), method, "{request}");
            assert_eq!(get(&line, "path").as_deref(), path, "{request}");
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
            assert_eq!(get(&line, "bytes").as_deref(), Some("5"), "{tail}");
            assert_eq!(get(&line, "referer").as_deref(), referer, "{tail}");
            assert_eq!(get(&line, "agent").as_deref(), agent, "{tail}");
        };
        check("", None, None);
        check(" ", None, None);
        check(" \"-\"", Some("-"), None);
        check(" \"-\" \"agent (cut", Some("-"), Some("agent (cut"));
        check(" \"cut", Some("cut"), None);
        check(" \"-\" \"a\" \"10.0.0.1\" 0.004", Some("-"), Some("a"));
        check(" 0.004", None, None);
        // Traefik writes what is missing without quotes.
        check(" - - 7 \"web@docker\" \"http://192.0.2.1\" 12ms", Some("-"), Some("-"));
        check(" - \"a\" 7 - - 12ms", Some("-"), Some("a"));
        check(" \"-\" -", Some("-"), Some("-"));
        check(" -x \"a\"", None, None);
    }

    const REST: &str = r#" [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 12 "-" "curl""#;

    #[test]
    fn lines_of_another_format_are_refused() {
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
            "h - - [now] \"GET / HTTP/1.1\" 200 12",
            " - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 12",
        ] {
            assert!(AccessLine::cut(bad.as_bytes(), false).is_none(), "{bad}");
        }
    }

    /// Symptom: what stood before a line was counted as its client. Cause: client, identity and user could be anything.
    /// Fix: they are what servers write, or the line is refused.
    #[test]
    fn text_before_the_client_is_not_taken_for_the_client() {
        let check = |front: &str, ip: Option<&str>| {
            assert_eq!(get(&format!("{front}{REST}"), "ip").as_deref(), ip, "{front}");
        };
        check("198.51.100.7 - -", Some("198.51.100.7"));
        check("2001:DB8:0::7 - -", Some("2001:db8::7"));
        check("fe80::1%eth0 - -", Some("fe80::1"));
        check("crawl-66-249.example.com - -", Some("crawl-66-249.example.com"));
        check("localhost - -", Some("localhost"));
        check("unix: - -", Some("unix:"));
        check("198.51.100.7 jo -", Some("198.51.100.7"));
        check("- - -", None);
        for shifted in [
            "www.example.com:443 198.51.100.7 - -",
            "www.example.com 198.51.100.7 - -",
            "203.0.113.5 198.51.100.7 - -",
            "Mar 12 09:00:01 web1 nginx: 198.51.100.7 - -",
            "2024-03-12T09:00:01.5Z stdout F 198.51.100.7 - -",
            "web-1  | 198.51.100.7 - -",
            "access.log:198.51.100.7 - -",
            "access.log-198.51.100.7 - -",
            "[pod/web] 198.51.100.7 - -",
            "x 198.51.100.7 - -",
            "1.2.3 - -",
            "1.2.3.4.5 - -",
            "1.2.3.400 - -",
            "\"198.51.100.7\" - -",
        ] {
            check(shifted, None);
        }
    }

    #[test]
    fn virtual_hosts_and_forwarded_addresses_are_fields() {
        let check = |front: &str, vhost: bool, fields: [Option<&str>; 4]| {
            let line = format!("{front}{REST}");
            let line = AccessLine::cut(line.as_bytes(), vhost).expect(front);
            let names = [AccessField::Vhost, AccessField::Ip, AccessField::Forwarded, AccessField::Peer];
            let found =
                names.map(|name| line.field(name).map(|value| String::from_utf8_lossy(&value).into_owned()));
            assert_eq!(found.each_ref().map(Option::as_deref), fields, "{front}");
            assert_eq!(line.field(AccessField::User).as_deref(), Some(&b"-"[..]), "{front}");
        };
        let (client, proxy) = (Some("198.51.100.7"), Some("192.0.2.1"));
        check(
            "www.example.com:443 198.51.100.7 - -",
            true,
            [Some("www.example.com:443"), client, None, client],
        );
        check("203.0.113.5 198.51.100.7 - -", true, [Some("203.0.113.5"), client, None, client]);
        let list = Some("198.51.100.7, 192.0.2.1");
        check("198.51.100.7, 192.0.2.1 - -", false, [None, client, list, proxy]);
        check("198.51.100.7,192.0.2.1 - -", false, [None, client, Some("198.51.100.7,192.0.2.1"), proxy]);
        check("unknown, 198.51.100.7 - -", false, [None, client, Some("unknown, 198.51.100.7"), client]);
        check("192.0.2.1 (198.51.100.7) - -", false, [None, client, client, proxy]);
        check("192.0.2.1 (198.51.100.7, 192.0.2.1) - -", false, [None, client, list, proxy]);
        check("198.51.100.7 (-) - -", false, [None, client, Some("-"), client]);
        check("h.example 192.0.2.1 (198.51.100.7) - -", true, [Some("h.example"), client, client, proxy]);
    }

    /// Symptom: a client with `X-Forwarded-For: a b` or `x) (y` left the count, also that by `peer`. Cause: the line was
    /// refused when the text in parentheses was no list of addresses. Fix: such a text leaves `ip` to the peer.
    #[test]
    fn a_forwarded_text_of_any_kind_keeps_its_peer() {
        let check = |forwarded: &str, user: &str, ip: &str, found: &str, found_user: &str| {
            let line = format!("192.0.2.1 ({forwarded}) - {user}{REST}");
            let names = ["peer", "ip", "forwarded", "user", "path", "status"].map(|name| get(&line, name));
            let expected =
                ["192.0.2.1", ip, found, found_user, "/", "200"].map(|value| Some(value.to_owned()));
            assert_eq!(names, expected, "{line}");
        };
        let peer = "192.0.2.1";
        for text in
            ["a b", "unknown", "evil, 1.2", "[17/May/2015:10:05:03 +0000] x", "", " ", "1.2.3.4,", "- -", "é"]
        {
            check(text, "jo", peer, text, "jo");
        }
        for (text, found) in
            [("x) (y", "x"), (")", ""), ("x) - a", "x"), ("x) - - [1/May/2015:1] \\x22", "x"), ("()", "(")]
        {
            check(text, "jo", peer, found, "jo");
        }
        check("198.51.100.7) - root, 192.0.2.9", "-", "198.51.100.7", "198.51.100.7", "-");
        check("198.51.100.7", "a b", "198.51.100.7", "198.51.100.7", "a b");
        check("198.51.100.7", "a) b", "198.51.100.7", "198.51.100.7", "a) b");
        // A user's name changes itself at most.
        check("198.51.100.7", "a) - b", "198.51.100.7", "198.51.100.7", "b");
        // What is no address is not followed by such a text.
        assert_eq!(get(&format!("host (a) - jo{REST}"), "peer"), None);
        assert_eq!(get(&format!("192.0.2.1 (a - jo{REST}"), "peer"), None);
    }

    /// Symptom: a user's name with a bracket took the line out of the count. Cause: the first bracket was the date's.
    /// Fix: it is the one that a date and the request's quote follow.
    #[test]
    fn a_user_may_have_brackets_and_blanks() {
        let check = |user: &str| {
            let line = LINE.replace(" jo ", &format!(" {user} "));
            assert_eq!(get(&line, "user").as_deref(), Some(user));
            assert_eq!(get(&line, "agent").as_deref(), Some(r#"Moz/5 (\"x\")"#), "{user}");
        };
        check("jo van dam");
        check("x [y");
        check("x [y] z");
        check("[17/May/2015:10:05:03 +0000]");
        check("x [17/May/2015:10:05:03 +0000] \\x22GET / HTTP/1.1\\x22 200 5");
        check(r#"x [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5"#);
        check("x [1: ");
        check("- -");
        check("");
    }

    /// Traefik writes a user's name as it came.
    #[test]
    fn a_user_of_traefik_may_look_like_a_request() {
        let tail = r#"[17/May/2015:10:05:03 +0000] "GET /b HTTP/1.1" 200 12 "-" "a [17/May/2015:10:05:03 +0000] " 7 "r" "u" 3ms"#;
        for user in
            ["jo", "x [17/May/2015:10:05:04 +0000] \"GET /a HTTP/1.1\" 404 5 \"-\" \"-", "\"", "a\" 200 5"]
        {
            let line = format!("::1 - {user} {tail}");
            let found = ["user", "path", "status"].map(|name| get(&line, name));
            assert_eq!(found, [user, "/b", "200"].map(|value| Some(value.to_owned())), "{user}");
        }
    }
}
