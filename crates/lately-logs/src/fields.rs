//! Fields that have one name in all formats, and the names that servers use for them in JSON and logfmt. The client,
//! `ip`, is `remote_addr` in nginx and `request.client_ip` in Caddy.
//!
//! The first name of a list that has a value in the line is used. The address that a server determined as the
//! client's comes before the address of the connection, which may be a proxy's. Headers that clients send are in no
//! list.

use std::borrow::Cow;
use std::cell::Cell;

use crate::request::{Request, without_host, without_query};
use lately_keys::address;

/// The part of a value that makes up a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// All of it.
    Text,
    /// The address, if the value is one. It may have a port, or be the first of a list.
    Address,
    /// The address, if the value is one, or else the whole value.
    AddressOrText,
    WithoutQuery,
    /// The part of a URL after the host.
    Url,
    /// The part of a URL after the host, without the query.
    Path,
    /// A part of a request such as `GET /a HTTP/1.1`, like the next two.
    RequestMethod,
    RequestUrl,
    RequestPath,
}

use Part::{Address, AddressOrText, Path, RequestMethod, RequestPath, RequestUrl, Text, Url, WithoutQuery};

/// The names of a field, and the part of the value for each.
type Names = &'static [(&'static str, Part)];

/// The known fields. Names of Traefik begin with a capital, those of Caddy with `request.`, of Google and AWS WAF
/// with `httpRequest.`, and of pino with `req.`.
const KNOWN: [(&str, Names); 7] = [
    (
        "ip",
        &[
            ("ip", AddressOrText),
            ("client_ip", Address),
            ("clientIp", Address),
            ("clientIP", Address),
            ("clientip", Address),
            // Cloudflare
            ("ClientIP", Address),
            ("client.ip", Address),
            ("request.client_ip", Address),
            ("ClientHost", Address),
            ("ClientAddr", Address),
            ("httpRequest.clientIp", Address),
            ("httpRequest.remoteIp", Address),
            // CloudTrail
            ("sourceIPAddress", Address),
            ("source.ip", Address),
            // Envoy
            ("downstream_remote_address", Address),
            ("c-ip", Address),
            ("client", Address),
            ("remote_ip", Address),
            ("remoteIp", Address),
            ("request.remote_ip", Address),
            ("remote_addr", Address),
            ("remoteAddr", Address),
            ("remote_address", Address),
            ("remoteAddress", Address),
            ("request.remote_addr", Address),
            ("req.remoteAddress", Address),
        ],
    ),
    (
        "path",
        &[
            ("path", WithoutQuery),
            ("request_uri", Path),
            ("request.uri", Path),
            ("RequestPath", Path),
            ("httpRequest.requestUrl", Path),
            ("httpRequest.uri", Path),
            ("req.url", Path),
            ("url", Path),
            ("request", RequestPath),
            // nginx: the path after rewrites.
            ("uri", Path),
        ],
    ),
    (
        "url",
        &[
            ("url", Text),
            ("request_uri", Url),
            ("request.uri", Url),
            ("RequestPath", Url),
            ("httpRequest.requestUrl", Url),
            ("req.url", Url),
            ("request", RequestUrl),
            ("uri", Url),
        ],
    ),
    (
        "status",
        &[
            ("status", Text),
            ("status_code", Text),
            // Envoy
            ("response_code", Text),
            ("DownstreamStatus", Text),
            ("httpRequest.status", Text),
            ("res.statusCode", Text),
        ],
    ),
    (
        "method",
        &[
            ("method", Text),
            ("request_method", Text),
            ("request.method", Text),
            ("RequestMethod", Text),
            ("httpRequest.requestMethod", Text),
            ("httpRequest.httpMethod", Text),
            ("req.method", Text),
            ("request", RequestMethod),
        ],
    ),
    ("user", &[("user", Text), ("remote_user", Text), ("user_id", Text), ("ClientUsername", Text)]),
    (
        "vhost",
        &[
            ("vhost", Text),
            ("http_host", Text),
            ("server_name", Text),
            ("request.host", Text),
            ("RequestHost", Text),
            // Envoy
            ("authority", Text),
            // May also be the name of the machine.
            ("host", Text),
        ],
    ),
];

/// The names under which to find each field.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    /// All names, each once.
    names: Vec<String>,
    fields: Vec<Vec<Source>>,
}

/// A name that a field may have.
#[derive(Clone, Debug)]
struct Source {
    name: usize,
    part: Part,
    /// The number of lines with the field under this name.
    lines: Cell<u64>,
}

/// The other names under which a field of the key was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundAs {
    /// The requested field.
    pub field: String,
    /// The names in the lines, with the number of lines.
    pub names: Vec<(String, u64)>,
}

impl Fields {
    /// The fields of the key, of the conditions and of the time, in this order. Those of the time, from `first_time`
    /// on, are found under their own names only.
    pub(crate) fn new(wanted: &[String], first_time: usize) -> Fields {
        let mut fields = Fields { names: Vec::new(), fields: Vec::new() };
        for (index, wanted) in wanted.iter().enumerate() {
            let known = KNOWN.iter().find(|(known, _)| index < first_time && known == wanted);
            let sources = match known {
                Some((_, names)) => names.iter().map(|(name, part)| fields.source(name, *part)).collect(),
                None => vec![fields.source(wanted, Text)],
            };
            fields.fields.push(sources);
        }
        fields
    }

    fn source(&mut self, name: &str, part: Part) -> Source {
        let known = self.names.iter().position(|known| known == name);
        let name = known.unwrap_or_else(|| {
            self.names.push(name.into());
            self.names.len() - 1
        });
        Source { name, part, lines: Cell::new(0) }
    }

    /// The names to look for.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The value of a field, from the values that a line has under the names. Empty values and dashes are used only
    /// if there is no other.
    #[inline]
    pub(crate) fn value<'a>(
        &self,
        field: usize,
        text: impl Fn(usize) -> Option<Cow<'a, [u8]>>,
    ) -> Option<Cow<'a, [u8]>> {
        let mut nothing = None;
        for source in &self.fields[field] {
            let Some(value) = text(source.name).and_then(|text| source.part.of(text)) else { continue };
            if !matches!(&*value, b"" | b"-") {
                source.lines.set(source.lines.get() + 1);
                return Some(value);
            }
            nothing = nothing.or(Some(value));
        }
        nothing
    }

    /// Whether a line has a value for a field.
    pub(crate) fn has<'a>(&self, field: usize, text: impl Fn(usize) -> Option<Cow<'a, [u8]>>) -> bool {
        self.fields[field]
            .iter()
            .any(|source| text(source.name).is_some_and(|text| source.part.of(text).is_some()))
    }

    /// The fields of the key that were found under other names than their own.
    pub(crate) fn found_as(&self, key: &[String]) -> Vec<FoundAs> {
        let found_as = key.iter().zip(&self.fields).map(|(field, sources)| {
            let names = sources.iter().filter(|source| source.lines.get() > 0);
            let names = names.map(|source| (self.names[source.name].clone(), source.lines.get())).collect();
            FoundAs { field: field.clone(), names }
        });
        found_as.filter(|found| found.names.iter().any(|(name, _)| *name != found.field)).collect()
    }
}

impl Part {
    #[inline]
    fn of(self, text: Cow<'_, [u8]>) -> Option<Cow<'_, [u8]>> {
        match self {
            Text => Some(text),
            Address => part_of(text, address::client),
            // Most are a plain address.
            AddressOrText if !text.iter().any(|byte| matches!(byte, b':' | b',')) => Some(text),
            AddressOrText => part_of(text, |text| Some(address::client(text).unwrap_or(text))),
            WithoutQuery => part_of(text, |text| Some(without_query(text))),
            Url => part_of(text, |text| Some(without_host(text))),
            Path => part_of(text, |text| Some(without_query(without_host(text)))),
            RequestMethod => part_of(text, |text| Some(Request::parse(text)?.method)),
            RequestUrl => part_of(text, |text| Some(without_host(Request::parse(text)?.url))),
            RequestPath => part_of(text, |text| Some(without_query(without_host(Request::parse(text)?.url)))),
        }
    }
}

/// A part of a text that may be owned.
#[inline]
fn part_of(text: Cow<'_, [u8]>, part: impl Fn(&[u8]) -> Option<&[u8]>) -> Option<Cow<'_, [u8]>> {
    match text {
        Cow::Borrowed(text) => part(text).map(Cow::Borrowed),
        Cow::Owned(text) => part(&text).map(|part| Cow::Owned(part.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{MAX_FILTERS, MAX_KEY_FIELDS};
    use crate::wanted::MAX_WANTED;

    #[test]
    fn the_names_of_all_known_fields_and_others_have_room() {
        let known = KNOWN.iter().map(|(name, _)| (*name).to_owned());
        let others = (0..).map(|number| format!("other {number}"));
        let most: Vec<String> = known.chain(others).take(2 * MAX_KEY_FIELDS + MAX_FILTERS).collect();
        let names = Fields::new(&most, MAX_KEY_FIELDS + MAX_FILTERS);
        // And that of journald.
        assert!(names.names().len() < MAX_WANTED, "{}", names.names().len());
    }

    #[test]
    fn the_first_name_with_a_value_counts() {
        let check = |field: &str, line: &[(&str, &str)], expected: Option<&str>| {
            let fields = Fields::new(&[field.to_owned()], 1);
            let text = |name: usize| {
                let (_, text) = line.iter().find(|(there, _)| *there == fields.names()[name])?;
                Some(Cow::Borrowed(text.as_bytes()))
            };
            let value = fields.value(0, text);
            assert_eq!(value.as_deref(), expected.map(str::as_bytes), "{field} in {line:?}");
            assert_eq!(fields.has(0, text), expected.is_some(), "{field} in {line:?}");
        };
        for (_, names) in KNOWN {
            let own = names[0].0;
            check(own, &[(own, "x")], Some("x"));
            check(own, &[("other", "x")], None);
            // Each counts where none before it is there.
            for (place, (name, part)) in names.iter().enumerate() {
                let (text, expected) = match part {
                    Address | AddressOrText => ("198.51.100.7:443", "198.51.100.7"),
                    RequestMethod => ("GET /a?b HTTP/1.1", "GET"),
                    RequestUrl => ("GET /a?b HTTP/1.1", "/a?b"),
                    RequestPath => ("GET /a?b HTTP/1.1", "/a"),
                    Url => ("https://www.example.com/a?b", "/a?b"),
                    Path => ("https://www.example.com/a?b", "/a"),
                    WithoutQuery => ("/a?b", "/a"),
                    Text => ("/a?b", "/a?b"),
                };
                check(own, &[(name, text)], Some(expected));
                let behind: Vec<(&str, &str)> =
                    names[place + 1..].iter().map(|(name, _)| (*name, "y")).collect();
                check(own, &[&[(*name, text)], &behind[..]].concat(), Some(expected));
            }
        }
        // The client is before the proxy, and what is no address is no client.
        check("ip", &[("remote_addr", "10.0.0.1"), ("client_ip", "192.0.2.1")], Some("192.0.2.1"));
        check(
            "ip",
            &[("request.remote_ip", "10.0.0.1"), ("request.client_ip", "192.0.2.1")],
            Some("192.0.2.1"),
        );
        check(
            "ip",
            &[("ClientHost", "192.0.2.1, 10.0.0.2"), ("ClientAddr", "10.0.0.1:80")],
            Some("192.0.2.1"),
        );
        check("ip", &[("client", "mobile"), ("remote_addr", "192.0.2.1")], Some("192.0.2.1"));
        check("ip", &[("client", "mobile")], None);
        check("ip", &[("ip", "anonymous"), ("remote_addr", "192.0.2.1")], Some("anonymous"));
        check("ip", &[("ip", "-"), ("remote_addr", "192.0.2.1")], Some("192.0.2.1"));
        check("ip", &[("ip", "")], Some(""));
        check("ip", &[("client_ip", ""), ("remote_addr", "192.0.2.1")], Some("192.0.2.1"));
        check("ip", &[("x_forwarded_for", "192.0.2.1"), ("http_x_forwarded_for", "192.0.2.1")], None);
        check("user", &[("ClientUsername", "-")], Some("-"));
        check("method", &[("request", "hello")], None);
        check("remote_addr", &[("ip", "192.0.2.1")], None);
    }

    #[test]
    fn names_are_counted() {
        let fields = Fields::new(&["ip".into(), "path".into(), "ip".into()], 2);
        let place = |name: &str| fields.names().iter().position(|known| known == name).expect(name);
        let line = |name: &'static str| {
            let place = place(name);
            move |asked: usize| (asked == place).then_some(Cow::Borrowed(&b"192.0.2.1"[..]))
        };
        let key = ["ip".to_owned(), "path".to_owned()];
        for _ in 0..2 {
            fields.value(0, line("ip"));
            fields.value(1, line("path"));
        }
        assert_eq!(fields.found_as(&key), []);
        fields.value(0, line("remote_addr"));
        fields.value(2, line("remote_addr"));
        let names = vec![("ip".to_owned(), 2), ("remote_addr".to_owned(), 1)];
        assert_eq!(fields.found_as(&key), [FoundAs { field: "ip".into(), names }]);
    }
}
