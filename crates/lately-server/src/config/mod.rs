//! The config file: TOML. A file with a mistake is refused whole.

mod alert;
mod arrays;
mod class;
mod cluster;
mod difference;
mod doors;
mod error;
mod file;
mod history;
mod host;
mod key_template;
mod limit;
mod node;
mod otlp;
mod rule_folder;
mod source;
mod storage;
mod syntax;
mod tls;
mod user;
mod value;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use lately::{Pattern, Settings, Span};
use lately_engines::KafkaRole;
pub use lately_keys::Network;
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

pub(crate) use alert::ALERTS_PATH;
pub use alert::{Alert, Webhook};
pub use doors::{Deny, RateLimitHeaders};
pub use error::ConfigError;
pub(crate) use error::Problem;
pub use file::FileError;
pub(crate) use file::read as read_file;
pub use history::{History, HistoryLogin, HistoryProtocol};
pub use host::HostName;
pub use key_template::KeyTemplate;
pub(crate) use limit::{
    DEFAULT_IPV4_PREFIX, DEFAULT_IPV6_PREFIX, DOMAIN_PREFIX, RATELIMIT_PREFIX, info_name,
};
pub use limit::{NamedLimit, OwnerDown};
pub use node::{ClusterConfig, PeerConfig};
pub use otlp::Otlp;
pub(crate) use rule_folder::RuleFiles;
pub use rule_folder::{RuleFolder, RuleFolderError};
pub use source::Source;
pub use storage::{Mode, Storage, parse_folder};
pub use tls::Tls;
pub(crate) use user::DEFAULT_USER;
pub use user::User;
pub use value::parse_address;

use crate::limits::{DEFAULT_CEILING_BYTES, DEFAULT_IDLE_TIMEOUT, DEFAULT_MAX_CLIENTS, MAX_HTTP_CONNECTIONS};
use alert::AlertConfig;
use class::ClassConfig;
use cluster::ClusterSection;
use history::HistoryConfig;
use host::{Hosts, TrustedProxies};
use limit::LimitConfig;
use otlp::OtlpConfig;
use storage::StorageConfig;
use tls::TlsConfig;
use user::UserConfig;
use value::{Address, Bytes, Clients, Timeout};

/// The configuration of a server, from its file and flags.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address of the RESP listener. Port 0 picks a free one.
    pub resp: SocketAddr,
    /// The address of the HTTP listener.
    pub http: SocketAddr,
    /// The address of the gRPC listener.
    pub grpc: SocketAddr,
    /// The address of a second HTTP listener, which serves health and metrics only.
    pub metrics: Option<SocketAddr>,
    /// Host names that HTTP requests may use, beside loopback and the addresses of the server.
    pub hosts: Vec<HostName>,
    /// The networks of proxies whose headers are believed.
    pub trusted_proxies: Vec<Network>,
    /// The headers that tell HTTP clients what is left of a limit.
    pub ratelimit_headers: RateLimitHeaders,
    /// The users, who have to log in. Without any, every client may do everything.
    pub users: Vec<User>,
    /// TLS for RESP, HTTP and gRPC.
    pub tls: Option<Tls>,
    /// Allow RESP, HTTP and gRPC to listen beyond loopback without users.
    pub insecure: bool,
    /// Event loops that serve RESP clients, each on a thread of its own.
    pub loops: usize,
    /// One more event loop takes clients over while another one is busy and a core is idle.
    pub has_extra_loop: bool,
    /// RESP clients served at once.
    pub max_clients: usize,
    /// The most HTTP connections of a listener at once. With a low memory ceiling there are fewer.
    pub max_http_connections: usize,
    /// How long a client may send nothing before it is disconnected; `None` is forever.
    pub idle_timeout: Option<Duration>,
    /// The data folder; `None` keeps counts in memory only.
    pub storage: Option<Storage>,
    /// `path` in `[storage]`, even if `durability` is off.
    pub storage_path: Option<std::path::PathBuf>,
    /// The memory ceiling, in bytes.
    pub ceiling_bytes: u64,
    /// Classes of keys, in the order of the file. The first whose pattern matches applies.
    pub classes: Vec<(Pattern, Settings)>,
    /// Limits with names, in the order of the file.
    pub limits: Vec<NamedLimit>,
    /// Alerts, in the order of the file.
    pub alerts: Vec<Alert>,
    /// The rules of envoyproxy/ratelimit: `--ratelimit-config`.
    pub rule_folder: Option<RuleFolder>,
    /// Other nodes to count together with; `None` counts alone.
    pub cluster: Option<ClusterConfig>,
    /// Where the hits of closed panes are sent, in the order of the file.
    pub histories: Vec<History>,
    /// Where metrics and spans are sent.
    pub otlp: Option<Otlp>,
    /// The file it was read from.
    pub source: Option<Source>,
}

/// The config of an empty file, except that counts are kept in memory only.
impl Default for Config {
    fn default() -> Config {
        Config {
            resp: SocketAddr::from(([127, 0, 0, 1], 7379)),
            http: SocketAddr::from(([127, 0, 0, 1], 7380)),
            grpc: SocketAddr::from(([127, 0, 0, 1], 7381)),
            metrics: None,
            hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            ratelimit_headers: RateLimitHeaders::default(),
            users: Vec::new(),
            tls: None,
            insecure: false,
            loops: 1,
            has_extra_loop: false,
            max_clients: DEFAULT_MAX_CLIENTS,
            max_http_connections: MAX_HTTP_CONNECTIONS,
            idle_timeout: Some(DEFAULT_IDLE_TIMEOUT),
            storage: None,
            storage_path: None,
            ceiling_bytes: DEFAULT_CEILING_BYTES,
            classes: Vec::new(),
            limits: Vec::new(),
            alerts: Vec::new(),
            rule_folder: None,
            cluster: None,
            histories: Vec::new(),
            otlp: None,
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
    #[serde(default)]
    alert: Vec<Spanned<AlertConfig>>,
    #[serde(default)]
    user: Vec<Spanned<UserConfig>>,
    cluster: Option<Spanned<ClusterSection>>,
    #[serde(default)]
    history: Vec<Spanned<HistoryConfig>>,
    otlp: Option<Spanned<OtlpConfig>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table: [server]")]
struct ServerConfig {
    resp: Option<Address>,
    http: Option<Address>,
    grpc: Option<Address>,
    metrics: Option<Address>,
    #[serde(default)]
    hosts: Hosts,
    #[serde(default)]
    trusted_proxies: TrustedProxies,
    #[serde(default)]
    ratelimit_headers: RateLimitHeaders,
    insecure: Option<bool>,
    password_file: Option<Spanned<String>>,
    tls: Option<TlsConfig>,
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

    /// The longest retention of a class, the default one included where keys have none.
    pub(crate) fn longest_retention(&self) -> Span {
        class::longest_retention(&self.classes)
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

    /// Whether this node has the counts that the other tables need.
    fn check_role(&self) -> Result<(), String> {
        let kafka = self.cluster.as_ref().and_then(|cluster| cluster.kafka.as_ref());
        if !self.histories.is_empty() && kafka.is_some_and(|kafka| kafka.role == KafkaRole::Ingest) {
            return Err(
                "[[history]] needs counts, and a node with role = \"ingest\" knows those of some partitions only: move it to a node with the role both or serve".to_owned(),
            );
        }
        Ok(())
    }

    /// Parses a config.
    pub(crate) fn parse(text: &str) -> Result<Config, Problem> {
        let document = DeTable::parse(text)
            .map_err(|error| syntax::explained(Problem::from(error).with_key(text), text))?;
        arrays::check(document.get_ref())?;
        let file: File = toml::from_str(text).map_err(|error| syntax::of_values(error.into()))?;
        let defaults = Config::default();
        let server = file.server;
        let classes = class::settle_all(file.class)?;
        let longest = class::longest_retention(&classes);
        let cluster_at = file.cluster.as_ref().map(toml::Spanned::span).unwrap_or_default();
        let config = Config {
            resp: server.resp.map_or(defaults.resp, |address| address.0),
            http: server.http.map_or(defaults.http, |address| address.0),
            grpc: server.grpc.map_or(defaults.grpc, |address| address.0),
            metrics: server.metrics.map(|address| address.0),
            hosts: server.hosts.0,
            trusted_proxies: server.trusted_proxies.0,
            ratelimit_headers: server.ratelimit_headers,
            users: user::settle(file.user, server.password_file.as_ref())?,
            tls: server.tls.as_ref().map(TlsConfig::settle).transpose()?,
            insecure: server.insecure.unwrap_or(defaults.insecure),
            loops: defaults.loops,
            has_extra_loop: defaults.has_extra_loop,
            max_clients: server.max_clients.map_or(defaults.max_clients, |clients| clients.0.get()),
            max_http_connections: defaults.max_http_connections,
            idle_timeout: server.idle_timeout.map_or(defaults.idle_timeout, |timeout| timeout.0),
            storage_path: file.storage.path(),
            storage: file.storage.settle(),
            ceiling_bytes: file.memory.ceiling.map_or(defaults.ceiling_bytes, |bytes| bytes.0),
            limits: limit::settle(file.limit, longest)?,
            alerts: alert::settle(file.alert)?,
            histories: history::settle(file.history, &classes)?,
            classes,
            rule_folder: None,
            cluster: cluster::settle(file.cluster)?,
            otlp: otlp::settle(file.otlp)?,
            source: None,
        };
        config.check_role().map_err(|message| Problem { at: cluster_at, message })?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests;
