//! Addresses of brokers: `kafka://HOST:PORT`.

use crate::EngineError;
use crate::url::{Parts, without_password};

/// The port of a broker that names none.
const PORT: u16 = 9092;

/// Parses the addresses of brokers. Returns them as the library wants them.
///
/// # Errors
/// [`EngineError::Url`] names the first one that is invalid.
pub(super) fn brokers<U: AsRef<str>>(urls: &[U]) -> Result<String, EngineError> {
    let mut all: Vec<String> = Vec::new();
    for url in urls {
        let url = url.as_ref();
        let invalid = |why: &str| EngineError::Url { url: without_password(url), why: why.to_owned() };
        let Parts { scheme, login, hosts, path, query } = Parts::of(url);
        if !is_kafka(scheme) {
            return Err(invalid(
                "the addresses of brokers begin with kafka://, such as kafka://127.0.0.1:9092",
            ));
        }
        if !login.is_empty() {
            return Err(invalid("users and passwords of Kafka are not supported in this version"));
        }
        if !path.is_empty() || !query.is_empty() || url.contains('?') {
            return Err(invalid("give a host and a port only, such as kafka://127.0.0.1:9092"));
        }
        all.extend(hosts.split(',').map(broker).collect::<Option<Vec<_>>>().ok_or_else(|| {
            invalid("give a host and a port, such as kafka://127.0.0.1:9092 or kafka://[::1]:9092")
        })?);
    }
    if all.is_empty() {
        let why = "give the address of a broker, such as kafka://127.0.0.1:9092".to_owned();
        return Err(EngineError::Url { url: String::new(), why });
    }
    Ok(all.join(","))
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
    scheme.eq_ignore_ascii_case("kafka")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (urls, expected) in [
            (&["kafka://127.0.0.1"][..], "127.0.0.1:9092"),
            (&["KAFKA://k1:1,k2:2"], "k1:1,k2:2"),
            (&["kafka://k1:1", "kafka://[::1]"], "k1:1,[::1]:9092"),
        ] {
            assert_eq!(brokers(urls).map_err(|error| error.to_string()).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn what_is_wrong_with_an_address_is_named() {
        let check = |urls: &[&str], expected: &str| {
            let error = brokers(urls).expect_err(expected).to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        };
        check(&[], "give the address of a broker");
        check(&["redis://h"], "invalid URL 'redis://h': the addresses of brokers begin with kafka://");
        check(&["127.0.0.1:9092"], "begin with kafka://");
        check(&["kafka://me:secret@h"], "invalid URL 'kafka://…@h': users and passwords");
        check(&["kafka://h/1"], "a host and a port only");
        check(&["kafka://h?a=b"], "a host and a port only");
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
