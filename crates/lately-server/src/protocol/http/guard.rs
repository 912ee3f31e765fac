//! Refuses HTTP requests because of their origin.
//!
//! A listener on loopback is not protected from web pages: any page can make a browser on the same machine send requests
//! there, and with a name that resolves to 127.0.0.1 (DNS rebinding) it can read the answers. So a request that changes
//! something or reads keys must name this server in `Host`, and must not come from another site. Clients other than
//! browsers send none of the other headers that are checked.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, HOST, HeaderName, ORIGIN, USER_AGENT};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, Version};
use memchr::memchr2;
use percent_encoding::percent_decode_str;

use super::decisions::{AUTH, is_trusted};
use super::listener::Link;
use super::problem::Problem;
use super::routes::METRICS;
use crate::config::HostName;
use crate::service::Service;
use crate::service::access::Principal;

/// Headers of which a proxy that asks about a request adds some. A page cannot set them without the browser asking first.
const ADDED_BY_PROXIES: [&str; 8] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-method",
    "x-forwarded-proto",
    "x-forwarded-uri",
    "x-original-uri",
    "x-real-ip",
];

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Content types that a page of any site can send without the browser asking first (Fetch standard, "CORS-safelisted").
const FORM_TYPES: [&str; 3] = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];

/// Whose requests a route takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Guard {
    /// Those of everyone but pages of other sites.
    SameSite,
    /// The same, and only from this machine, unless clients have to log in. For routes that read or replace all keys.
    SameMachine,
    /// Those of everyone. Only if values of requests are in `/metrics`, a page of another name does not get it.
    AnyClient,
}

impl Guard {
    /// Checks where a request comes from.
    ///
    /// # Errors
    /// Why it is refused.
    pub(super) fn check(self, service: &Service, link: &Link, request: &Request) -> Result<(), Problem> {
        let own = Own { local: link.local, hosts: &service.config.hosts };
        let (uri, headers) = (request.uri(), request.headers());
        if self == Guard::AnyClient {
            let has_values = uri.path() == METRICS && service.rate_limits.get().tallies.names_values();
            return if has_values {
                Ok(own.check_host(uri, headers, request.version()).map(drop)?)
            } else {
                Ok(())
            };
        }
        // A proxy that asks whether a request may pass sends the headers of that request. A browser may run beside the proxy.
        let is_forwarded = uri.path() == AUTH
            && is_trusted(service, link.peer)
            && ADDED_BY_PROXIES.iter().any(|&name| headers.contains_key(name));
        let host = own.check_host(uri, headers, request.version())?;
        if !is_forwarded {
            own.check_site(&host, headers)?;
            check_link(uri, headers)?;
        }
        if self == Guard::SameMachine { check_local(link, uri) } else { Ok(()) }
    }
}

impl From<Foreign> for Problem {
    fn from(foreign: Foreign) -> Problem {
        Problem::new(foreign.status(), foreign.title(), &foreign.detail())
    }
}

/// Refuses a `GET` that counts under a key of its address, if a browser sent it and does not say for which site: on HTTP without TLS
/// beyond this machine it says so only with `POST`. Any page can have it sent as a picture.
fn check_link(uri: &Uri, headers: &HeaderMap) -> Result<(), Foreign> {
    let is_key = |field: &str| percent_decode_str(field.split('=').next().unwrap_or(field)).eq(*b"key");
    let names_key = || uri.query().is_some_and(|query| query.split('&').any(is_key));
    let is_browser =
        || headers.get(USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"));
    let says_site = || headers.contains_key(SEC_FETCH_SITE);
    if uri.path() == AUTH && names_key() && is_browser() && !says_site() {
        Err(Foreign::Unknown)
    } else {
        Ok(())
    }
}

/// Refuses a peer on another machine, unless clients have to log in.
fn check_local(link: &Link, uri: &Uri) -> Result<(), Problem> {
    if link.is_local() || !matches!(link.principal, Principal::Anyone) {
        return Ok(());
    }
    let detail = format!(
        "{} is for clients on the same machine, and {} is on another: run the client there, or go through an SSH tunnel",
        uri.path(),
        link.peer
    );
    Err(Problem::new(StatusCode::FORBIDDEN, "not local", &detail))
}

/// The names and addresses of this server.
struct Own<'a> {
    /// The local address of the connection.
    local: IpAddr,
    hosts: &'a [HostName],
}

/// Why a request is foreign: the value of a header.
#[derive(PartialEq, Debug)]
enum Foreign {
    NoHost,
    Host(String),
    Origin(String),
    Site(String),
    Form(String),
    Unknown,
}

impl Foreign {
    fn status(&self) -> StatusCode {
        match self {
            Foreign::NoHost => StatusCode::BAD_REQUEST,
            Foreign::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            _ => StatusCode::FORBIDDEN,
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Foreign::NoHost => "invalid Host",
            Foreign::Host(_) => "foreign Host",
            Foreign::Origin(_) => "foreign Origin",
            Foreign::Site(_) => "foreign site",
            Foreign::Form(_) => "form content type",
            Foreign::Unknown => "unknown site",
        }
    }

    fn detail(&self) -> String {
        match self {
            Foreign::NoHost => "the request needs one header Host, with a name or an address".to_owned(),
            Foreign::Host(host) => {
                format!(
                    "this server is not '{host}': if it is to be, add the name to hosts in [server] of the config"
                )
            }
            Foreign::Origin(origin) => {
                format!(
                    "the request comes from '{origin}', which is not this server: if it is, add its name to hosts in [server] of the config"
                )
            }
            Foreign::Site(site) => {
                format!("a browser sent the request for another site: Sec-Fetch-Site is '{site}'")
            }
            Foreign::Form(form) => {
                format!(
                    "the content type '{form}' is that of a form, which any web page can send: give application/octet-stream or none"
                )
            }
            Foreign::Unknown => {
                "a browser sent the request, and does not say for which site (Sec-Fetch-Site): let a proxy of trusted_proxies ask, with \
                 X-Forwarded-For, or a client that is no browser"
                    .to_owned()
            }
        }
    }
}

impl Own<'_> {
    /// The host of a request, which must be this server.
    fn check_host(&self, uri: &Uri, headers: &HeaderMap, version: Version) -> Result<Place, Foreign> {
        let mut hosts = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
        // A request target with a host takes precedence over the header. In HTTP/2 it replaces the header.
        let target = uri.authority().map(|target| target.as_str().as_bytes());
        let (host, target) = match (hosts.next(), hosts.next(), target) {
            (None, None, Some(target)) if version == Version::HTTP_2 => (target, None),
            (Some(host), None, target) => (host, target),
            _ => return Err(Foreign::NoHost),
        };
        let own = |host: &[u8]| {
            let place = std::str::from_utf8(host).ok().and_then(Place::of);
            place.filter(|place| self.is_own(&place.host)).ok_or_else(|| Foreign::Host(text(host)))
        };
        let place = own(host)?;
        target.map(own).transpose()?;
        Ok(place)
    }

    /// Refuses what a page of another site sent.
    fn check_site(&self, host: &Place, headers: &HeaderMap) -> Result<(), Foreign> {
        let all = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes);
        if let Some(origin) = all(ORIGIN).find(|origin| !self.is_own_origin(origin, host)) {
            return Err(Foreign::Origin(text(origin)));
        }
        // Another port of this machine is the same site but another server.
        if let Some(site) = all(SEC_FETCH_SITE).find(|&site| site != b"same-origin" && site != b"none") {
            return Err(Foreign::Site(text(site)));
        }
        match all(CONTENT_TYPE).find(|kind| is_form(kind)) {
            Some(kind) => Err(Foreign::Form(text(kind))),
            None => Ok(()),
        }
    }

    fn is_own(&self, host: &HostName) -> bool {
        let is_here = match host {
            HostName::Address(address) => {
                let address = address.to_canonical();
                address.is_loopback() || address == self.local
            }
            HostName::Name(name) => name == "localhost",
        };
        is_here || self.hosts.contains(host)
    }

    /// An origin is ours when it equals `Host`, or when the config lists its name: a proxy may have replaced `Host`.
    fn is_own_origin(&self, origin: &[u8], host: &Place) -> bool {
        let Some((scheme, authority)) = std::str::from_utf8(origin).ok().and_then(|it| it.split_once("://"))
        else {
            return false;
        };
        let default_port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return false,
        };
        let Some(place) = Place::of(authority) else { return false };
        let port_of = |place: &Place| place.port.unwrap_or(default_port);
        place.host == host.host && port_of(&place) == port_of(host)
            || port_of(&place) == default_port && self.hosts.contains(&place.host)
    }
}

/// The value of a header, for an error.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_form(kind: &[u8]) -> bool {
    let end = memchr2(b';', b',', kind).unwrap_or(kind.len());
    let kind = kind[..end].trim_ascii();
    FORM_TYPES.iter().any(|form| kind.eq_ignore_ascii_case(form.as_bytes()))
}

/// A host and an optional port.
#[derive(PartialEq, Debug)]
struct Place {
    host: HostName,
    port: Option<u16>,
}

impl Place {
    /// `None` when it is not a host with an optional port.
    fn of(text: &str) -> Option<Place> {
        // The colons of an IPv6 address are in brackets. An empty port is that of the scheme (RFC 9110, section 4.2.3).
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !text.ends_with(']') => (host, port),
            _ => (text, ""),
        };
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
        if !is_number || is_bare_ipv6 {
            return None;
        }
        let port = if port.is_empty() { None } else { Some(port.parse().ok()?) };
        Some(Place { host: host.parse().ok()?, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a request with these headers that was sent to 192.0.2.7.
    fn check(target: &str, headers: &[(&str, &str)]) -> Result<(), Foreign> {
        let hosts: [HostName; 2] =
            ["lately.example.org", "2001:db8::1"].map(|host| host.parse().expect(host));
        let own = Own { local: IpAddr::from([192, 0, 2, 7]), hosts: &hosts };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a name");
            map.append(name, value.parse().expect("a value"));
        }
        let target = target.parse().expect("a target");
        own.check_host(&target, &map, Version::HTTP_11).and_then(|host| own.check_site(&host, &map))
    }

    #[test]
    fn hosts_of_this_server_are_accepted() {
        let check = |host: &str| check("/v1/dump", &[("host", host)]);
        for own in [
            "localhost",
            "localhost:",
            "localhost:7380",
            "LOCALHOST.:80",
            "127.0.0.1:7380",
            "127.9.9.9",
            "[::1]:7380",
            "[::1]",
            "[::ffff:127.0.0.1]:1",
            "192.0.2.7:7380",
            "lately.example.org",
            "Lately.Example.Org.:443",
            "[2001:DB8:0::1]:7380",
        ] {
            assert_eq!(check(own), Ok(()), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:7380",
            "0.0.0.0:7380",
            "[::]:7380",
            "192.0.2.8:7380",
            "localhost.evil.example",
            "evil.localhost",
            "127.0.0.1.evil.example",
            "127.1",
            "2130706433",
            "x.lately.example.org",
            "lately.example.org..",
            "localhost@evil.example",
            "evil.example@localhost",
            "",
            ":",
            "localhost::",
            "localhost:x",
            "localhost:99999",
            "localhost:+80",
            "::1",
            "1::2:3",
            "[::1",
            "[::1]1",
            "a b",
            "/",
        ] {
            assert_eq!(check(foreign), Err(Foreign::Host(foreign.to_owned())), "{foreign}");
        }
    }

    #[test]
    fn a_request_needs_exactly_one_host() {
        let local = ("host", "localhost");
        assert_eq!(check("/", &[]), Err(Foreign::NoHost));
        assert_eq!(check("/", &[local, local]), Err(Foreign::NoHost));
        assert_eq!(check("http://127.0.0.1:1/", &[local]), Ok(()));
        assert_eq!(check("http://evil.example/", &[local]), Err(Foreign::Host("evil.example".to_owned())));
    }

    #[test]
    fn http2_names_its_host_in_the_target() {
        let check = |target: &str, host: Option<&'static str>| {
            let own = Own { local: IpAddr::from([192, 0, 2, 7]), hosts: &[] };
            let headers = host.map(|host| (HOST, host.parse().expect(host))).into_iter().collect();
            own.check_host(&target.parse().expect(target), &headers, Version::HTTP_2)
        };
        assert_eq!(check("http://localhost:1/", None), Ok(Place::of("localhost:1").expect("a place")));
        assert!(check("http://localhost:1/", Some("localhost:1")).is_ok());
        assert_eq!(check("http://evil.example/", None), Err(Foreign::Host("evil.example".to_owned())));
        assert_eq!(
            check("http://localhost/", Some("evil.example")),
            Err(Foreign::Host("evil.example".to_owned()))
        );
        assert_eq!(check("/", None), Err(Foreign::NoHost));
    }

    #[test]
    fn origins_of_this_server_are_accepted() {
        let check = |host: &str, origins: &[&str]| {
            let origins = origins.iter().map(|origin| ("origin", *origin));
            check("/", &[("host", host)].into_iter().chain(origins).collect::<Vec<_>>())
        };
        for (host, origin) in [
            ("localhost:7380", "http://localhost:7380"),
            ("127.0.0.1:7380", "https://127.0.0.1:7380"),
            ("localhost", "http://localhost"),
            ("localhost", "http://localhost:80"),
            ("localhost:443", "https://localhost"),
            ("[::1]:7380", "http://[::1]:7380"),
            // Behind a proxy.
            ("127.0.0.1:7380", "https://lately.example.org"),
            ("lately.example.org", "https://lately.example.org"),
        ] {
            assert_eq!(check(host, &[origin]), Ok(()), "{origin}");
        }
        for (host, origin) in [
            ("localhost:7380", "http://evil.example"),
            ("localhost:7380", "http://localhost:3000"),
            ("localhost:7380", "http://localhost"),
            ("localhost:7380", "http://127.0.0.1:7380"),
            ("localhost:7380", "null"),
            ("localhost:7380", ""),
            ("localhost:7380", "localhost:7380"),
            ("localhost:7380", "file://localhost:7380"),
            ("127.0.0.1:7380", "https://lately.example.org:8443"),
            ("127.0.0.1:7380", "https://lately.example.org.evil.example"),
        ] {
            let foreign = Err(Foreign::Origin(origin.to_owned()));
            assert_eq!(check(host, &[origin]), foreign, "{origin}");
            assert_eq!(check(host, &[&format!("http://{host}"), origin]), foreign, "{origin}");
        }
    }

    #[test]
    fn cross_site_fetches_are_recognized() {
        let check = |site: &str| check("/", &[("host", "localhost"), ("sec-fetch-site", site)]);
        for own in ["same-origin", "none"] {
            assert_eq!(check(own), Ok(()), "{own}");
        }
        for foreign in ["cross-site", "same-site", "", "Same-Origin"] {
            assert_eq!(check(foreign), Err(Foreign::Site(foreign.to_owned())), "{foreign}");
        }
    }

    /// Symptom: on a server beyond loopback any web page could lock out any key, by a picture.
    #[test]
    fn a_browser_that_names_no_site_counts_no_key() {
        let check = |target: &str, headers: &[(&str, &str)]| {
            let headers = headers.iter().map(|(name, value)| {
                (name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"))
            });
            check_link(&target.parse().expect("a target"), &headers.collect())
        };
        let (browser, curl) = (("user-agent", "Mozilla/5.0 (X11)"), ("user-agent", "curl/8.5.0"));
        for target in [
            "/v1/auth?key=login:a&max=0&window=1s",
            "/v1/auth?max=0&window=1s&key=login:a",
            "/v1/auth?k%65y=login:a&max=0&window=1s",
        ] {
            assert_eq!(check(target, &[browser]), Err(Foreign::Unknown), "{target}");
            assert_eq!(check(target, &[browser, ("sec-fetch-site", "none")]), Ok(()), "{target}");
            assert_eq!((check(target, &[curl]), check(target, &[])), (Ok(()), Ok(())), "{target}");
        }
        // The key is that of the client itself.
        assert_eq!(check("/v1/auth?limit=login", &[browser]), Ok(()));
        assert_eq!(check("/v1/hits/a?key=b", &[browser]), Ok(()));
    }

    #[test]
    fn forms_are_refused() {
        let check = |kind: &str| check("/", &[("host", "localhost"), ("content-type", kind)]);
        for good in
            ["application/octet-stream", "application/json; charset=utf-8", "application/vnd.lately.dump", ""]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for form in [
            "text/plain",
            "TEXT/Plain;charset=UTF-8",
            " text/plain ;x",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "text/plain, application/json",
        ] {
            assert_eq!(check(form), Err(Foreign::Form(form.to_owned())), "{form}");
        }
    }
}
