//! A connection to a running server.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use redis::{Cmd, Connection, ErrorKind, FromRedisValue, Pipeline, RedisResult};

use crate::error::CliError;
use crate::http::Http;
use crate::limits::SERVER_TIMEOUT;
use crate::login::LoginArgs;

/// The server to connect to.
#[derive(Args, Clone)]
pub(crate) struct ServerArgs {
    /// Address of the server's RESP listener [env: LATELY_SERVER] [default: 127.0.0.1:7379].
    #[arg(long, value_name = "ADDR")]
    server: Option<String>,

    #[command(flatten)]
    login: LoginArgs,
}

/// A connection to a running server.
pub(crate) struct Server {
    address: String,
    connection: Arc<Mutex<Connection>>,
}

impl ServerArgs {
    /// The address from the flag, or else from the environment. An empty value is ignored.
    pub(crate) fn address(&self) -> String {
        self.named().unwrap_or_else(|| "127.0.0.1:7379".to_owned())
    }

    fn named(&self) -> Option<String> {
        let of_environment = || std::env::var("LATELY_SERVER").ok().filter(|address| !address.is_empty());
        self.server.clone().or_else(of_environment)
    }

    /// Whether the address is invalid.
    pub(crate) fn is_invalid(&self) -> bool {
        !is_address(&self.address())
    }

    /// The address for direct connections, and the user and password that these log in with. Checked by connecting once.
    pub(crate) fn resolve(&self) -> Result<(SocketAddr, Option<(String, String)>), CliError> {
        if self.login.has_tls() {
            let cause = "the load is sent without TLS";
            return Err(CliError::new("bench", cause, "use a server without TLS"));
        }
        let server = self.connect()?;
        // Fail early if this is no RESP server.
        server.ask::<String>(&redis::cmd("PING"))?;
        let asked = self.address();
        let unknown = |cause: String| CliError::new(&asked, cause, "give HOST:PORT, such as 127.0.0.1:7379");
        let mut found = asked.to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
        let found = found.find(|address| TcpStream::connect_timeout(address, SERVER_TIMEOUT).is_ok());
        let address = found.ok_or_else(|| unknown("no address".to_owned()))?;
        Ok((address, self.login.read()?.user_and_password()))
    }

    /// The server's HTTP listener: at `address`, or else on the same host at the port that the server reports. If the server is named,
    /// another one that listens there refuses, because requests carry the `run_id`.
    pub(crate) fn http(&self, address: Option<&str>) -> Result<Http, CliError> {
        if let Some(address) = address {
            check_http(address)?;
            if self.named().is_none() {
                return Http::new(address.to_owned(), None, &self.login.read()?);
            }
        }
        let asked = self.address();
        let info: String = self.connect()?.ask(redis::cmd("INFO").arg("server"))?;
        let field = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.ok_or_else(|| {
                CliError::new(&asked, format!("its INFO has no {name}"), "is it a lately server?")
            })
        };
        let host = asked.rsplit_once(':').map_or("127.0.0.1", |(host, _)| host);
        let reported = format!("{host}:{}", field("http_port")?);
        let address = address.unwrap_or(&reported).to_owned();
        Http::new(address, Some(field("run_id")?.to_owned()), &self.login.read()?)
    }

    pub(crate) fn connect(&self) -> Result<Server, CliError> {
        let address = self.address();
        let failed = |error| {
            let hint = hint_of(&error).unwrap_or("is the server running there? lately serve starts one");
            CliError::new(&address, reason(&error), hint)
        };
        let invalid = || {
            CliError::new(
                "--server",
                format!("invalid address '{address}'"),
                "give HOST:PORT, such as 127.0.0.1:7379",
            )
        };
        // Without a port the client would use that of Redis.
        if !is_address(&address) {
            return Err(invalid());
        }
        let client = match self.login.read()?.redis(&address) {
            Ok(client) => client,
            Err(error) if self.login.is_any() => return Err(failed(error)),
            Err(_) => return Err(invalid()),
        };
        let connection = client.get_connection_with_timeout(SERVER_TIMEOUT).map_err(failed)?;
        connection.set_read_timeout(Some(SERVER_TIMEOUT)).map_err(failed)?;
        connection.set_write_timeout(Some(SERVER_TIMEOUT)).map_err(failed)?;
        Ok(Server { address, connection: Arc::new(Mutex::new(connection)) })
    }
}

impl Server {
    /// Sends a command and waits for its answer.
    pub(crate) fn ask<T: FromRedisValue + Send + 'static>(&self, command: &Cmd) -> Result<T, CliError> {
        self.wait_for(command).map_err(|error| self.failed(&error))
    }

    /// Sends commands together, and waits for all answers. A command that the server refuses is an error in its place.
    pub(crate) fn ask_each<T: FromRedisValue + Send + 'static>(
        &self,
        mut commands: Pipeline,
    ) -> Result<Vec<RedisResult<T>>, CliError> {
        commands.ignore_errors();
        self.in_time(move |connection| commands.query(connection)).map_err(|error| self.failed(&error))
    }

    pub(crate) fn failed(&self, error: &redis::RedisError) -> CliError {
        let hint = match error.kind() {
            _ if hint_of(error).is_some() => hint_of(error).unwrap_or_default(),
            _ if error.code().is_some() => "the server refused it and changed nothing",
            _ => "is it a lately server?",
        };
        CliError::new(&self.address, reason(error), hint)
    }

    /// Sends a command and waits for its answer. The timeout is for the whole answer, because each read alone may stay below it.
    pub(crate) fn wait_for<T: FromRedisValue + Send + 'static>(&self, command: &Cmd) -> RedisResult<T> {
        let command = command.clone();
        self.in_time(move |connection| command.query(connection))
    }

    fn in_time<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> RedisResult<T> + Send + 'static,
    ) -> RedisResult<T> {
        let connection = Arc::clone(&self.connection);
        let (give, answer) = mpsc::channel();
        std::thread::spawn(move || {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            // The receiver may have timed out.
            let _ = give.send(work(&mut connection));
        });
        answer
            .recv_timeout(SERVER_TIMEOUT)
            .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
    }
}

/// What to do about an error of TLS, of the protocol, or of a login.
fn hint_of(error: &redis::RedisError) -> Option<&'static str> {
    match error.code() {
        _ if error.to_string().contains("InvalidContentType") => {
            Some("leave out --tls, --cacert and --cert, or give the address of a port with TLS")
        }
        _ if error.to_string().contains("certificate") => {
            Some("--cacert names the authority that signed the certificate of the server")
        }
        _ if error.kind() == ErrorKind::Parse => {
            Some("give the address that lately serve names for RESP; with TLS, add --tls or --cacert FILE")
        }
        Some("NOAUTH") => Some("log in with --password-file FILE, and --user NAME if it is not default"),
        Some("NOPERM") => Some("log in as a user that may: --user NAME --password-file FILE"),
        Some("WRONGPASS") => Some("check --user and --password-file"),
        _ if error.kind() == ErrorKind::AuthenticationFailed => {
            Some("check --user and --password-file; a server without users takes no password")
        }
        _ => None,
    }
}

/// Whether it has the form HOST:PORT.
fn is_address(address: &str) -> bool {
    wrong_in(address).is_none()
}

/// Why an address has not the form HOST:PORT, if it has not.
fn wrong_in(address: &str) -> Option<String> {
    Some(match address.split_once("://") {
        Some((scheme, _)) => format!("it begins with {scheme}://"),
        None if address.starts_with(':') => "it has no host".to_owned(),
        None if address.contains('/') => "it has a path".to_owned(),
        None if !has_port(address) => "it has no port".to_owned(),
        None => return None,
    })
}

/// Refuses an address of HTTP that is no HOST:PORT. Without a port, a client would use that of the web.
pub(crate) fn check_http(address: &str) -> Result<(), CliError> {
    let Some(wrong) = wrong_in(address) else { return Ok(()) };
    let cause = format!("invalid address '{address}': {wrong}");
    Err(CliError::new("--http", cause, "give HOST:PORT, such as 127.0.0.1:7380"))
}

fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// The cause of an error: the text of the server or of the system.
pub(crate) fn reason(error: &redis::RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ if error.kind() == ErrorKind::Parse => "what listens there does not speak RESP".to_owned(),
        _ if error.kind() == ErrorKind::AuthenticationFailed => "the server refused the login".to_owned(),
        _ if error.is_timeout() => format!("no answer within {} s", SERVER_TIMEOUT.as_secs()),
        _ => {
            let text = error.to_string();
            of_tls(&text).map_or(text, str::to_owned)
        }
    }
}

/// Why there is no connection with TLS, if the text of an error has the name of a reason of rustls.
fn of_tls(text: &str) -> Option<&'static str> {
    const REASONS: [(&str, &str); 5] = [
        (
            "CaUsedAsEndEntity",
            "the server shows the certificate of an authority: make one with basicConstraints=CA:FALSE",
        ),
        ("UnknownIssuer", "no authority that is trusted here signed the certificate of the server"),
        (
            "UnsupportedSignatureAlgorithm",
            "another authority with the same name signed the certificate of the server",
        ),
        ("BadSignature", "another authority with the same name signed the certificate of the server"),
        ("InvalidContentType", "what listens there does not speak TLS"),
    ];
    REASONS.iter().find(|(name, _)| text.contains(name)).map(|(_, reason)| *reason)
}

/// The bytes of a key from the command line.
pub(crate) fn key_bytes(key: &std::ffi::OsStr) -> &[u8] {
    key.as_encoded_bytes()
}
