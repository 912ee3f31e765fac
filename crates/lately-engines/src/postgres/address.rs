//! URLs of PostgreSQL: `postgres://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE`.

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::EngineError;
use crate::limits::ENGINE_TIMEOUT;
use crate::url::{Parts, without_password};

/// The servers of one URL.
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: Option<MakeRustlsConnect>,
    /// Its hosts with their ports, and the database, for messages.
    pub(super) server: String,
    pub(super) user: String,
}

impl Address {
    /// Parses the URLs of a config.
    pub(super) fn all<U: AsRef<str>>(urls: &[U]) -> Result<Vec<Address>, EngineError> {
        let parse = |url: &U| {
            let url = url.as_ref();
            Address::of(url).map_err(|why| EngineError::Url { url: without_password(url), why })
        };
        urls.iter().map(parse).collect()
    }

    fn of(url: &str) -> Result<Address, String> {
        let Parts { scheme, login, hosts, path, query } = Parts::of(url);
        if !is_postgres(scheme) {
            return Err("it begins with neither postgres:// nor postgresql://".to_owned());
        }
        let (files, rest) = Files::take(query)?;
        let tls = files.tls()?;
        let separator = if login.is_empty() { "" } else { "@" };
        let config = format!("postgres://{login}{separator}{hosts}/{path}?{rest}").parse::<Config>();
        // The error names no value, so no password.
        let mut config = config.map_err(|error| error.to_string())?;
        let user = config.get_user().ok_or("the user is missing: postgres://USER@HOST/DATABASE")?.to_owned();
        if config.get_dbname().is_none() {
            return Err("the database is missing: postgres://USER@HOST/DATABASE".to_owned());
        }
        let server = server(&config)?;
        config
            .ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable })
            .connect_timeout(ENGINE_TIMEOUT)
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_application_name().is_none() {
            config.application_name("lately");
        }
        Ok(Address { config, tls, server, user })
    }

    /// Whether another address has one of the hosts of this one, and the same database.
    pub(super) fn shares_with(&self, other: &Address) -> bool {
        let theirs = hosts(&other.config);
        self.config.get_dbname() == other.config.get_dbname()
            && hosts(&self.config).iter().any(|host| theirs.contains(host))
    }
}

/// Whether a URL with this scheme is one of PostgreSQL.
pub(super) fn is_postgres(scheme: &str) -> bool {
    ["postgres", "postgresql"].contains(&scheme)
}

const PORT: u16 = 5_432;

/// The hosts with their ports.
fn hosts(config: &Config) -> Vec<(Host, u16)> {
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(PORT);
    config.get_hosts().iter().cloned().enumerate().map(|(index, host)| (host, port(index))).collect()
}

/// The hosts with their ports, and the database.
fn server(config: &Config) -> Result<String, String> {
    let shown = hosts(config).into_iter().map(|(host, port)| match host {
        Host::Tcp(name) => format!("{name}:{port}"),
        Host::Unix(path) => path.display().to_string(),
    });
    let hosts: Vec<String> = shown.collect();
    if hosts.is_empty() {
        return Err("no host: postgres://USER@HOST/DATABASE".to_owned());
    }
    Ok(format!("{}/{}", hosts.join(","), config.get_dbname().unwrap_or_default()))
}

/// The options about TLS. The client library does not know the files, and would connect without checking who answers.
#[derive(Default)]
struct Files {
    mode: Option<String>,
    root: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

impl Files {
    /// Takes the options about TLS out of a query. Returns the others.
    fn take(query: &str) -> Result<(Files, String), String> {
        let (mut files, mut rest) = (Files::default(), Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            match name {
                "sslmode" => files.mode = Some(value),
                "sslrootcert" => files.root = Some(value),
                "sslcert" => files.cert = Some(value),
                "sslkey" => files.key = Some(value),
                _ => rest.push(option),
            }
        }
        if let Some(mode) = files.mode.as_deref().filter(|mode| !["disable", "verify-full"].contains(mode)) {
            return Err(format!(
                "sslmode '{}': give verify-full for TLS, which checks the name of the server, or disable",
                mode.escape_debug()
            ));
        }
        Ok((files, rest.join("&")))
    }

    fn tls(&self) -> Result<Option<MakeRustlsConnect>, String> {
        let has_files = self.root.is_some() || self.cert.is_some() || self.key.is_some();
        if self.mode.as_deref() != Some("verify-full") {
            return if has_files {
                Err("sslrootcert, sslcert and sslkey are for sslmode=verify-full".to_owned())
            } else {
                Ok(None)
            };
        }
        let mut roots = RootCertStore::empty();
        match &self.root {
            Some(path) => roots.add_parsable_certificates(certificates(path)?),
            None => roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
        };
        if roots.is_empty() {
            return Err("there is no certificate of an authority: give sslrootcert=FILE".to_owned());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let config = match (&self.cert, &self.key) {
            (None, None) => config.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{key}: {error}"))?;
                let config = config.with_client_auth_cert(certificates(cert)?, private);
                config.map_err(|error| format!("{cert}: {error}"))?
            }
            _ => {
                return Err(
                    "a certificate needs its key, and a key its certificate: sslcert, sslkey".to_owned()
                );
            }
        };
        Ok(Some(MakeRustlsConnect::new(config)))
    }
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    all.map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_servers_and_a_database() {
        let check = |url: &str, expected: Result<&str, &str>| {
            let found = Address::of(url).map(|address| format!("{} {}", address.user, address.server));
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{url}");
        };
        check("postgres://me:secret@db/counts", Ok("me db:5432/counts"));
        check("postgresql://me@[::1]:7000/counts?sslmode=disable", Ok("me ::1:7000/counts"));
        check("postgres://me@a:1,b:2/counts", Ok("me a:1,b:2/counts"));
        check("redis://a", Err("it begins with neither postgres:// nor postgresql://"));
        check("postgres://db/counts", Err("the user is missing: postgres://USER@HOST/DATABASE"));
        check("postgres://me@db", Err("the database is missing: postgres://USER@HOST/DATABASE"));
        check(
            "postgres://me@db/counts?sslmode=prefer",
            Err(
                "sslmode 'prefer': give verify-full for TLS, which checks the name of the server, or disable",
            ),
        );
        check(
            "postgres://me@db/counts?sslrootcert=ca.pem",
            Err("sslrootcert, sslcert and sslkey are for sslmode=verify-full"),
        );
        let missing = Address::of("postgres://me@db/counts?sslmode=verify-full&sslrootcert=/no/ca.pem");
        assert!(missing.err().expect("no file").starts_with("/no/ca.pem: "));
        let invalid = Address::of("postgres://me:secret@db:x/counts").err().expect("no port");
        assert!(!invalid.contains("secret"), "{invalid}");
    }

    #[test]
    fn servers_are_shared_when_host_port_and_database_are_the_same() {
        let shares = |a: &str, b: &str| {
            let [a, b] = [a, b].map(|url| Address::of(url).expect("valid"));
            a.shares_with(&b)
        };
        assert!(shares("postgres://a@x/d", "postgres://b@y,x/d"));
        assert!(!shares("postgres://a@x/d", "postgres://a@x/e"));
        assert!(!shares("postgres://a@x:1/d", "postgres://a@x:2/d"));
    }
}
