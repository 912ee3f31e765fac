//! `[cluster]` of the config file.

use std::time::Duration;

use lately::Origin;
use lately_engines::{Remote, without_password};

use crate::limits::{DEFAULT_FLUSH, DEFAULT_READ_TIMEOUT};

/// How this node counts together with others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterConfig {
    /// The name of this node.
    pub node: String,
    /// The addresses of the engine: one server of Redis or Valkey, some of a Redis Cluster, Sentinels, or servers of PostgreSQL.
    pub urls: Vec<String>,
    /// The addresses of the upstream engine, which all data centres share. Empty without one.
    pub upstream: Vec<String>,
    /// How long changes are gathered before they are sent.
    pub flush: Duration,
    /// How long a read waits at most for the counts of other nodes on a key that is not known. `None`: it does not wait.
    pub read_timeout: Option<Duration>,
}

impl ClusterConfig {
    /// The config of a node and an engine, with the default times.
    ///
    /// # Errors
    /// Why the name or an address is invalid, naming it.
    pub fn new<U: AsRef<str>>(node: &str, urls: &[U]) -> Result<ClusterConfig, String> {
        if Origin::new(node, 0).is_none() {
            return Err(format!(
                "invalid node name '{}': give 1 to {} letters, digits, - or _, such as eu-1",
                node.escape_debug(),
                lately::limits::MAX_NODE_BYTES
            ));
        }
        Remote::new(urls).map_err(|error| error.to_string())?;
        let urls = urls.iter().map(|url| url.as_ref().to_owned()).collect();
        let (node, read_timeout) = (node.to_owned(), Some(DEFAULT_READ_TIMEOUT));
        Ok(ClusterConfig { node, urls, upstream: Vec::new(), flush: DEFAULT_FLUSH, read_timeout })
    }

    /// The same config with an upstream engine.
    ///
    /// # Errors
    /// Why an address is invalid, naming it.
    pub fn with_upstream<U: AsRef<str>>(self, upstream: &[U]) -> Result<ClusterConfig, String> {
        let engine = Remote::new(upstream).map_err(|error| format!("upstream: {error}"))?;
        let local = Remote::new(&self.urls).map_err(|error| error.to_string())?;
        if let Some(server) = engine.shared_server(&local) {
            return Err(format!(
                "upstream: {server} is the engine of this data centre: give that of all data centres, or none"
            ));
        }
        let upstream = upstream.iter().map(|url| url.as_ref().to_owned()).collect();
        Ok(ClusterConfig { upstream, ..self })
    }

    /// The kind of the engine, as in the config file.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        Remote::new(&self.urls).map_or("none", |engine| engine.kind())
    }

    /// Whether there is an upstream engine.
    #[must_use]
    pub fn has_upstream(&self) -> bool {
        !self.upstream.is_empty()
    }

    /// The addresses without their passwords.
    #[must_use]
    pub fn shown_urls(&self) -> Vec<String> {
        self.urls.iter().map(|url| without_password(url)).collect()
    }

    /// The addresses of the upstream engine without their passwords.
    #[must_use]
    pub fn shown_upstream(&self) -> Vec<String> {
        self.upstream.iter().map(|url| without_password(url)).collect()
    }
}
