//! URLs of servers: `redis://`, `rediss://`, and the same for Sentinels.

use std::fmt::{self, Display};

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo,
    TlsCertificates,
};

use crate::EngineError;
use crate::url::{Parts, without_password};

/// The port of Sentinels.
const SENTINEL_PORT: u16 = 26_379;

/// The servers of a config, and the login.
#[derive(Debug)]
pub(super) struct Servers {
    /// The servers to connect to first.
    pub(super) seeds: Vec<Host>,
    /// How the servers with the data are found from the seeds.
    pub(super) route: Route,
    /// The database, the user and the password.
    pub(super) login: RedisConnectionInfo,
    tls: Option<TlsCertificates>,
}

/// How the servers with the data are found from the seeds.
#[derive(Debug)]
pub(super) enum Route {
    /// The seeds are a single server, or servers of a Redis Cluster.
    Direct,
    /// The seeds are Sentinels, which know the master.
    Sentinel {
        /// The name of the master.
        master: String,
        /// The user and the password for the Sentinels themselves.
        login: RedisConnectionInfo,
    },
}

impl Route {
    /// The name of the master, if Sentinels know it.
    pub(super) fn master(&self) -> Option<&str> {
        match self {
            Route::Direct => None,
            Route::Sentinel { master, .. } => Some(master),
        }
    }
}

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

impl Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

impl Servers {
    /// Parses the addresses of a config. They share one user, one password and one CA.
    pub(super) fn of<U: AsRef<str>>(urls: &[U]) -> Result<Servers, EngineError> {
        let invalid = |url: &str, why: String| EngineError::Url { url: without_password(url), why };
        let mut all: Option<(Servers, String)> = None;
        for url in urls {
            let url = url.as_ref();
            let servers = one(url).map_err(|why| invalid(url, why))?;
            match &mut all {
                None => all = Some((servers, access(url))),
                Some((_, first)) if *first != access(url) => {
                    let why = "the addresses of one cluster have the same scheme, user, password and files";
                    return Err(invalid(url, why.to_owned()));
                }
                Some((all, _)) if matches!(all.route, Route::Sentinel { .. }) => {
                    let why =
                        "give all Sentinels in one address: redis+sentinel://HOST:PORT,HOST:PORT/MASTER";
                    return Err(invalid(url, why.to_owned()));
                }
                Some((all, _)) => all.seeds.extend(servers.seeds),
            }
        }
        all.map(|(servers, _)| servers).ok_or_else(|| invalid("", "give redis://HOST:PORT".to_owned()))
    }

    /// The client for a server.
    pub(super) fn client(&self, host: &Host, login: &RedisConnectionInfo) -> redis::RedisResult<Client> {
        let Host { name, port } = host.clone();
        let info = |address: ConnectionAddr| -> redis::RedisResult<ConnectionInfo> {
            Ok(address.into_connection_info()?.set_redis_settings(login.clone()))
        };
        match &self.tls {
            None => Client::open(info(ConnectionAddr::Tcp(name, port))?),
            Some(tls) => {
                let address = ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None };
                Client::build_with_tls(info(address)?, tls.clone())
            }
        }
    }
}

/// The common part of the addresses of one cluster: everything but hosts and ports.
fn access(url: &str) -> String {
    let Parts { scheme, login, path, query, .. } = Parts::of(url);
    format!("{scheme} {login} {path} {query}")
}

/// The servers of one address, or the problem with it.
fn one(url: &str) -> Result<Servers, String> {
    let Parts { scheme, login, hosts, path, query } = Parts::of(url);
    let (scheme, is_sentinel) = match scheme {
        "redis" | "rediss" => (scheme, false),
        "redis+sentinel" => ("redis", true),
        "rediss+sentinel" => ("rediss", true),
        _ => {
            return Err(
                "it begins with none of redis://, rediss://, redis+sentinel://, postgres://, kafka://, peer://".to_owned()
            );
        }
    };
    let options = Options::of(query)?;
    let (master, database) = match path.split_once('/') {
        _ if !is_sentinel => ("", path),
        Some(both) => both,
        None => (path, ""),
    };
    if is_sentinel && master.is_empty() {
        return Err("the name of the master is missing: redis+sentinel://HOST:PORT/MASTER".to_owned());
    }
    if !is_sentinel && hosts.contains(',') {
        return Err("give each server of a cluster an address of its own".to_owned());
    }
    let login = if login.is_empty() { String::new() } else { format!("{login}@") };
    let mut seeds = Vec::new();
    let mut settings = None;
    for host in hosts.split(',') {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let port = if is_sentinel && !has_port { format!(":{SENTINEL_PORT}") } else { String::new() };
        let info = format!("{scheme}://{login}{host}{port}/{database}").into_connection_info();
        // The error may contain the text of the address, and so the password.
        let info = info.map_err(|error| error.to_string().split(" - ").next().unwrap_or("").to_owned())?;
        seeds.push(match info.addr() {
            ConnectionAddr::Tcp(name, port) => Host { name: name.clone(), port: *port },
            ConnectionAddr::TcpTls { host, port, .. } => Host { name: host.clone(), port: *port },
            _ => return Err("no host and port".to_owned()),
        });
        settings = Some(info.redis_settings().clone().set_skip_set_lib_name());
    }
    let tls = options.tls(scheme == "rediss")?;
    let route = if is_sentinel {
        Route::Sentinel { master: decoded(master), login: options.sentinel_login }
    } else {
        Route::Direct
    };
    Ok(Servers { seeds, route, login: settings.unwrap_or_default(), tls })
}

/// The part after the `?`.
#[derive(Default)]
struct Options {
    ca: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    sentinel_login: RedisConnectionInfo,
}

impl Options {
    fn of(query: &str) -> Result<Options, String> {
        let mut options = Options::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let file = || std::fs::read(&*value).map(Some).map_err(|error| format!("{value}: {error}"));
            match &*name {
                "ca" => options.ca = file()?,
                "cert" => options.cert = file()?,
                "key" => options.key = file()?,
                "sentinel_user" => options.sentinel_login = options.sentinel_login.set_username(value),
                "sentinel_password" => options.sentinel_login = options.sentinel_login.set_password(value),
                _ => {
                    let name = name.escape_debug();
                    return Err(format!(
                        "unknown option '{name}': there are ca, cert, key, sentinel_user, sentinel_password"
                    ));
                }
            }
        }
        Ok(options)
    }

    /// The certificates. Only an address with TLS may have them.
    fn tls(&self, is_tls: bool) -> Result<Option<TlsCertificates>, String> {
        let client_tls = match (&self.cert, &self.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => {
                Some(ClientTlsConfig { client_cert: cert.clone(), client_key: key.clone() })
            }
            _ => return Err("a certificate needs its key, and a key its certificate: cert, key".to_owned()),
        };
        if !is_tls {
            let has_files = self.ca.is_some() || client_tls.is_some();
            return if has_files { Err("ca, cert and key are for rediss://".to_owned()) } else { Ok(None) };
        }
        let tls = TlsCertificates { client_tls, root_cert: self.ca.clone() };
        // Reads the files' contents.
        let address =
            ConnectionAddr::TcpTls { host: "h".to_owned(), port: 1, insecure: false, tls_params: None };
        let checked = Client::build_with_tls(address, tls.clone());
        checked.map_err(|error| format!("its files: {error}"))?;
        Ok(Some(tls))
    }
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(urls: &[&str]) -> Result<String, String> {
        let servers = Servers::of(urls).map_err(|error| error.to_string())?;
        let seeds: Vec<_> = servers.seeds.iter().map(Host::to_string).collect();
        let login = |login: &RedisConnectionInfo| {
            let (user, password) = (login.username().unwrap_or("-"), login.password().unwrap_or("-"));
            format!("{user} {password} {}", login.db())
        };
        let sentinel = match &servers.route {
            Route::Direct => String::new(),
            Route::Sentinel { master, login: of_sentinel } => format!(" {master}: {}", login(of_sentinel)),
        };
        let tls = if servers.tls.is_some() { " TLS" } else { "" };
        Ok(format!("{} {}{sentinel}{tls}", seeds.join(" "), login(&servers.login)))
    }

    #[test]
    fn addresses_are_read() {
        let check =
            |urls: &[&str], expected: &str| assert_eq!(parsed(urls).as_deref(), Ok(expected), "{urls:?}");
        check(&["redis://127.0.0.1"], "127.0.0.1:6379 - - 0");
        check(&["redis://127.0.0.1:7100/3"], "127.0.0.1:7100 - - 3");
        check(&["redis://:pw@redis.example"], "redis.example:6379 - pw 0");
        check(&["rediss://me:p%40ss@[::1]:7100"], "[::1]:7100 me p@ss 0 TLS");
        check(&["redis://me:a@h1:1", "redis://me:a@h2:2", "redis://me:a@h3"], "h1:1 h2:2 h3:6379 me a 0");
        check(&["redis+sentinel://h1,h2:5,[::1]/main"], "h1:26379 h2:5 [::1]:26379 - - 0 main: - - 0");
        check(
            &["rediss+sentinel://me:a@h1/my%20main/2?sentinel_user=s&sentinel_password=b%26"],
            "h1:26379 me a 2 my main: s b& 0 TLS",
        );
    }

    #[test]
    fn what_is_wrong_with_an_address_is_named_without_its_password() {
        let check = |urls: &[&str], expected: &str| {
            let error = parsed(urls).expect_err(expected);
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        };
        check(&[], "give redis://HOST:PORT");
        check(&["http://me:secret@h"], "invalid URL 'http://…@h': it begins with none of redis://");
        check(&["redis://me:sec/ret?secret@h:x"], "invalid URL 'redis://…@h:x': ");
        check(&["redis://h/x?sentinel_password=secret"], "invalid URL 'redis://h/x?sentinel_password=…': ");
        check(&["redis://h?secure=secret"], "unknown option 'secure'");
        check(&["redis://h1,h2"], "an address of its own");
        check(&["redis+sentinel://h1:1"], "the name of the master is missing");
        check(&["redis+sentinel://h1/m", "redis+sentinel://h2/m"], "all Sentinels in one address");
        check(&["redis://:secret@h1", "redis://:other@h2"], "the same scheme, user, password");
        check(&["rediss://h?ca=/nosuch"], "invalid URL 'rediss://h?ca=/nosuch': /nosuch: No such file");
        check(&["rediss://h?cert=/dev/null"], "a certificate needs its key");
        check(&["redis://h?ca=/dev/null"], "ca, cert and key are for rediss://");
    }

    #[test]
    fn no_password_is_in_the_debug_form() {
        let servers = Servers::of(&["redis+sentinel://me:secret@h1/main?sentinel_password=secret"]);
        let text = format!("{:?}", servers.expect("valid"));
        assert!(!text.contains("secret"), "{text}");
    }
}
