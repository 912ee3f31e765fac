//! Addresses of brokers: `kafka://HOST:PORT`, and `kafka+ssl://USER:PASSWORD@HOST:PORT?ca=FILE`.

use percent_encoding::percent_decode_str;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::EngineError;
use crate::url::{Parts, without_password};

/// The port of a broker that names none.
const PORT: u16 = 9092;

/// The names of the ways to log in, as Kafka has them.
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

/// The brokers, and how to connect to them.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Brokers {
    /// `HOST:PORT,HOST:PORT`.
    servers: String,
    security: Vec<(&'static str, String)>,
}

impl Brokers {
    /// Parses the addresses of brokers. They share one user, one password and one set of files.
    ///
    /// # Errors
    /// [`EngineError::Url`] names the first one that is invalid.
    pub(super) fn of<U: AsRef<str>>(urls: &[U]) -> Result<Brokers, EngineError> {
        let mut all: Option<Brokers> = None;
        for url in urls.iter().map(AsRef::as_ref) {
            let invalid = |why: String| EngineError::Url { url: without_password(url), why };
            let next = Brokers::one(url).map_err(invalid)?;
            all = Some(match all {
                None => next,
                Some(first) if first.security != next.security => {
                    let why = "the addresses of one cluster have the same scheme, user, password and options";
                    return Err(invalid(why.to_owned()));
                }
                Some(first) => Brokers { servers: format!("{},{}", first.servers, next.servers), ..first },
            });
        }
        let why = || "give the address of a broker, such as kafka://127.0.0.1:9092".to_owned();
        all.ok_or_else(|| EngineError::Url { url: String::new(), why: why() })
    }

    /// The brokers of one address.
    fn one(url: &str) -> Result<Brokers, String> {
        let Parts { scheme, login, hosts, path, query } = Parts::of(url);
        if !is_kafka(scheme) {
            return Err("the addresses of brokers begin with kafka:// or, with TLS, kafka+ssl://, such as kafka://127.0.0.1:9092".to_owned());
        }
        if !path.is_empty() {
            return Err(format!(
                "/{} behind the port: give a host and a port only, such as kafka://127.0.0.1:9092",
                path.escape_debug()
            ));
        }
        let security = Options::of(query)?.security(is_tls(scheme), login)?;
        let servers = hosts.split(',').map(broker).collect::<Option<Vec<_>>>();
        let servers =
            servers.ok_or("give a host and a port, such as kafka://127.0.0.1:9092 or kafka://[::1]:9092")?;
        Ok(Brokers { servers: servers.join(","), security })
    }

    /// The settings of the client library.
    #[cfg(any(test, feature = "kafka"))]
    pub(super) fn settings(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let security = self.security.iter().map(|(name, value)| (*name, value.as_str()));
        [("bootstrap.servers", self.servers.as_str())].into_iter().chain(security)
    }
}

/// The part after the `?`.
#[derive(Default)]
struct Options {
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    mechanism: Option<&'static str>,
}

impl Options {
    fn of(query: &str) -> Result<Options, String> {
        let mut options = Options::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            match &*name {
                "ca" => options.ca = Some(value),
                "cert" => options.cert = Some(value),
                "key" => options.key = Some(value),
                "mechanism" => options.mechanism = Some(mechanism(&value)?),
                _ => {
                    let name = name.escape_debug();
                    return Err(format!("unknown option '{name}': there are ca, cert, key, mechanism"));
                }
            }
        }
        Ok(options)
    }

    /// The settings of the client library for these options and a login.
    fn security(self, is_tls: bool, login: &str) -> Result<Vec<(&'static str, String)>, String> {
        let Options { ca, cert, key, mechanism } = self;
        let mut settings = Vec::new();
        if !is_tls && (ca.is_some() || cert.is_some() || key.is_some()) {
            return Err("ca, cert and key are for kafka+ssl://".to_owned());
        }
        if is_tls {
            ca.iter().chain(&cert).try_for_each(|path| check_certificates(path))?;
            key.iter().try_for_each(|path| check_key(path))?;
            // Without a file, the library looks where systems keep the certificates of authorities.
            settings.push(("ssl.ca.location", ca.unwrap_or_else(|| "probe".to_owned())));
            match (cert, key) {
                (None, None) => {}
                (Some(cert), Some(key)) => {
                    settings.extend([("ssl.certificate.location", cert), ("ssl.key.location", key)]);
                }
                _ => {
                    return Err(
                        "a certificate needs its key, and a key its certificate: cert, key".to_owned()
                    );
                }
            }
        }
        let protocol = match (is_tls, login.is_empty()) {
            (false, true) => "plaintext",
            (true, true) => "ssl",
            (false, false) => "sasl_plaintext",
            (true, false) => "sasl_ssl",
        };
        settings.push(("security.protocol", protocol.to_owned()));
        if login.is_empty() {
            return match mechanism {
                None => Ok(settings),
                Some(_) => {
                    Err("mechanism is for a user and a password: USER:PASSWORD@ before the host".to_owned())
                }
            };
        }
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let [user, password] =
            [user, password].map(|text| percent_decode_str(text).decode_utf8_lossy().into_owned());
        if user.is_empty() || password.is_empty() {
            return Err("give a user and a password: USER:PASSWORD@ before the host".to_owned());
        }
        let mechanism = match mechanism {
            Some(mechanism) => mechanism,
            None if is_tls => "PLAIN",
            None => {
                return Err(
                    "without TLS, say how to log in: mechanism=SCRAM-SHA-512 or SCRAM-SHA-256, or PLAIN, which sends the password as it is".to_owned()
                );
            }
        };
        settings.push(("sasl.mechanism", mechanism.to_owned()));
        settings.extend([("sasl.username", user), ("sasl.password", password)]);
        Ok(settings)
    }
}

fn mechanism(text: &str) -> Result<&'static str, String> {
    let known = MECHANISMS.into_iter().find(|name| name.eq_ignore_ascii_case(text));
    known.ok_or_else(|| format!("mechanism '{}': there are {}", text.escape_debug(), MECHANISMS.join(", ")))
}

fn check_certificates(path: &str) -> Result<(), String> {
    let mut all = CertificateDer::pem_file_iter(path).map_err(|error| format!("{path}: {error}"))?;
    match all.next() {
        Some(first) => first.map(drop).map_err(|error| format!("{path}: {error}")),
        None => Err(format!("{path}: there is no certificate in it (PEM)")),
    }
}

fn check_key(path: &str) -> Result<(), String> {
    PrivateKeyDer::from_pem_file(path).map(drop).map_err(|error| format!("{path}: {error}"))
}

fn broker(text: &str) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().ok().filter(|port: &u16| *port > 0)?)
        }
        _ => (text, PORT),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = |host: &str| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    let is_valid = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_host(host),
    };
    is_valid.then(|| format!("{host}:{port}"))
}

/// Whether a scheme is that of brokers.
pub(super) fn is_kafka(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("kafka") || is_tls(scheme)
}

fn is_tls(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("kafka+ssl")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(urls: &[&str]) -> Result<String, String> {
        let brokers = Brokers::of(urls).map_err(|error| error.to_string())?;
        let all: Vec<_> = brokers.settings().map(|(name, value)| format!("{name}={value}")).collect();
        Ok(all.join(" "))
    }

    #[test]
    fn addresses_are_read() {
        for (urls, expected) in [
            (&["kafka://127.0.0.1"][..], "127.0.0.1:9092 security.protocol=plaintext"),
            (&["KAFKA://k1:1,k2:2"], "k1:1,k2:2 security.protocol=plaintext"),
            (&["kafka://k1:1", "kafka://[::1]"], "k1:1,[::1]:9092 security.protocol=plaintext"),
            (&["kafka+ssl://k1"], "k1:9092 ssl.ca.location=probe security.protocol=ssl"),
            (
                &["kafka+ssl://me:a%40b:c@k1", "kafka+ssl://me:a%40b:c@k2"],
                "k1:9092,k2:9092 ssl.ca.location=probe security.protocol=sasl_ssl sasl.mechanism=PLAIN sasl.username=me sasl.password=a@b:c",
            ),
            (
                &["kafka://me:pw@k1?mechanism=scram-sha-512"],
                "k1:9092 security.protocol=sasl_plaintext sasl.mechanism=SCRAM-SHA-512 sasl.username=me sasl.password=pw",
            ),
        ] {
            let expected = Ok(format!("bootstrap.servers={expected}"));
            assert_eq!(settings(urls), expected);
        }
    }

    #[test]
    fn what_is_wrong_with_an_address_is_named() {
        let check = |urls: &[&str], expected: &str| {
            let error = settings(urls).expect_err(expected);
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        };
        check(&[], "give the address of a broker");
        check(&["redis://h"], "invalid URL 'redis://h': the addresses of brokers begin with kafka://");
        check(&["127.0.0.1:9092"], "begin with kafka://");
        check(&["kafka://me:secret@h"], "invalid URL 'kafka://…@h': without TLS, say how to log in");
        check(&["kafka+ssl://secret@h"], "give a user and a password");
        check(&["kafka+ssl://h?mechanism=PLAIN"], "mechanism is for a user and a password");
        check(&["kafka+ssl://me:secret@h?mechanism=GSSAPI"], "mechanism 'GSSAPI': there are PLAIN, ");
        check(&["kafka+ssl://me:secret@h", "kafka+ssl://me:secret2@i"], "the same scheme, user, password");
        check(&["kafka+ssl://h", "kafka://h"], "the same scheme, user, password");
        check(&["kafka://h/1"], "/1 behind the port: give a host and a port only");
        check(&["kafka://h?a=secret"], "unknown option 'a': there are ca, cert, key, mechanism");
        check(&["kafka://h?ca=/no/ca.pem"], "ca, cert and key are for kafka+ssl://");
        check(&["kafka+ssl://h?ca=/no/ca.pem"], "ca=/no/ca.pem': /no/ca.pem: ");
        check(&["kafka+ssl://h?ca=/dev/null"], "/dev/null: there is no certificate in it");
        check(&["kafka+ssl://h?key=/dev/null"], "/dev/null: ");
        for url in [
            "kafka://",
            "kafka://:1",
            "kafka://h:0",
            "kafka://h:x",
            "kafka://a b",
            "kafka://a,",
            "kafka://::1",
        ] {
            check(&[url], "give a host and a port, such as");
        }
    }
}
