//! The config file: TOML, taken whole or refused whole.

mod arrays;
mod class;
mod difference;
mod error;
mod host;
mod limit;
mod source;
mod storage;
mod syntax;
mod value;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use lately::{Pattern, Settings, Span};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

pub use error::ConfigError;
pub(crate) use error::Problem;
pub use host::HostName;
pub use limit::NamedLimit;
pub(crate) use limit::info_name;
pub use source::Source;
pub use storage::{Mode, Storage, parse_folder};
pub use value::parse_address;

use crate::limits::{DEFAULT_CEILING_BYTES, DEFAULT_IDLE_TIMEOUT, DEFAULT_MAX_CLIENTS};
use class::ClassConfig;
use host::Hosts;
use limit::LimitConfig;
use storage::StorageConfig;
use value::{Address, Bytes, Clients, Timeout};

/// What the server is told, by file and flags.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where RESP clients connect. Port 0 picks a free one.
    pub resp: SocketAddr,
    /// Where HTTP clients connect.
    pub http: SocketAddr,
    /// Where else health and metrics are, and nothing else.
    pub metrics: Option<SocketAddr>,
    /// Names that HTTP clients may call the server by, beside loopback and the addresses it has.
    pub hosts: Vec<HostName>,
    /// Listen beyond loopback though nobody has to say who they are.
    pub insecure: bool,
    /// Event loops that serve RESP clients, each on a thread of its own.
    pub loops: usize,
    /// RESP clients served at once.
    pub max_clients: usize,
    /// After how much silence a client is disconnected; `None` is never.
    pub idle_timeout: Option<Duration>,
    /// Where counts are kept; `None` is in memory only.
    pub storage: Option<Storage>,
    /// The folder that the file names, also where it says that nothing is kept.
    pub storage_path: Option<std::path::PathBuf>,
    /// The most bytes keys and hits may take.
    pub ceiling_bytes: u64,
    /// Classes of keys in the order of the file: the first whose pattern matches counts.
    pub classes: Vec<(Pattern, Settings)>,
    /// Limits with names, in the order of the file.
    pub limits: Vec<NamedLimit>,
    /// The file it was read from.
    pub source: Option<Source>,
}

/// As of an empty file, but that counts are in memory only.
impl Default for Config {
    fn default() -> Config {
        Config {
            resp: SocketAddr::from(([127, 0, 0, 1], 7379)),
            http: SocketAddr::from(([127, 0, 0, 1], 7380)),
            metrics: None,
            hosts: Vec::new(),
            insecure: false,
            loops: 1,
            max_clients: DEFAULT_MAX_CLIENTS,
            idle_timeout: Some(DEFAULT_IDLE_TIMEOUT),
            storage: None,
            storage_path: None,
            ceiling_bytes: DEFAULT_CEILING_BYTES,
            classes: Vec::new(),
            limits: Vec::new(),
            source: None,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a file of tables")]
struct File {
    #[serde(default)]
    server: ServerConfig,
    #[serde(default)]
    storage: StorageConfig,
    #[serde(default)]
    memory: MemoryConfig,
    #[serde(default)]
    class: Vec<Spanned<ClassConfig>>,
    #[serde(default)]
    limit: Vec<Spanned<LimitConfig>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table: [server]")]
struct ServerConfig {
    resp: Option<Address>,
    http: Option<Address>,
    metrics: Option<Address>,
    #[serde(default)]
    hosts: Hosts,
    insecure: Option<bool>,
    max_clients: Option<Clients>,
    idle_timeout: Option<Timeout>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table: [memory]")]
struct MemoryConfig {
    ceiling: Option<Bytes>,
}

impl Config {
    /// The largest `max_skew` of a class, the default one included.
    pub(crate) fn largest_max_skew(&self) -> Span {
        let default = Settings::default().max_skew();
        self.classes.iter().map(|(_, settings)| settings.max_skew()).fold(default, Span::max)
    }

    /// Reads a config file.
    ///
    /// # Errors
    /// [`ConfigError`] names the file and, where there is one, the line and column.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let source = Source::read(path)?;
        let config = Config::parse(&source.text).map_err(|problem| problem.in_file(path, &source.text))?;
        Ok(Config { source: Some(source), ..config })
    }

    /// The least `max_skew` of a class, the default one included.
    #[must_use]
    pub fn least_max_skew(&self) -> Span {
        let default = Settings::default().max_skew();
        self.classes.iter().map(|(_, settings)| settings.max_skew()).fold(default, Span::min)
    }

    /// The config that a text is, without its file.
    pub(crate) fn parse(text: &str) -> Result<Config, Problem> {
        let document = DeTable::parse(text)
            .map_err(|error| syntax::explained(Problem::from(error).with_key(text), text))?;
        arrays::check(document.get_ref())?;
        let file: File = toml::from_str(text).map_err(|error| syntax::of_values(error.into()))?;
        let defaults = Config::default();
        let server = file.server;
        let classes = class::settle_all(file.class)?;
        let longest = class::longest_retention(&classes);
        Ok(Config {
            resp: server.resp.map_or(defaults.resp, |address| address.0),
            http: server.http.map_or(defaults.http, |address| address.0),
            metrics: server.metrics.map(|address| address.0),
            hosts: server.hosts.0,
            insecure: server.insecure.unwrap_or(defaults.insecure),
            loops: defaults.loops,
            max_clients: server.max_clients.map_or(defaults.max_clients, |clients| clients.0.get()),
            idle_timeout: server.idle_timeout.map_or(defaults.idle_timeout, |timeout| timeout.0),
            storage_path: file.storage.path(),
            storage: file.storage.settle(),
            ceiling_bytes: file.memory.ceiling.map_or(defaults.ceiling_bytes, |bytes| bytes.0),
            limits: limit::settle(file.limit, longest)?,
            classes,
            source: None,
        })
    }
}

#[cfg(test)]
mod tests;
