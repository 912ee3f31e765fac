//! `[cluster]` of the config file.

use std::time::Duration;

use lately::Origin;
use lately_engines::{Redis, without_password};

use crate::limits::{DEFAULT_FLUSH, DEFAULT_READ_TIMEOUT};

/// How this node counts together with others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterConfig {
    /// The name of this node.
    pub node: String,
    /// The address of the engine.
    pub url: String,
    /// How long changes are gathered before they are sent.
    pub flush: Duration,
    /// How long a read waits at most for the counts of other nodes on a key that is not known. `None`: it does not wait.
    pub read_timeout: Option<Duration>,
}

impl ClusterConfig {
    /// The config of a node and an engine, with the default times.
    ///
    /// # Errors
    /// Why the name or the address is invalid, naming it.
    pub fn new(node: &str, url: &str) -> Result<ClusterConfig, String> {
        if Origin::new(node, 0).is_none() {
            return Err(format!(
                "invalid node name '{}': give 1 to {} letters, digits, - or _, such as eu-1",
                node.escape_debug(),
                lately::limits::MAX_NODE_BYTES
            ));
        }
        Redis::new(url).map_err(|error| format!("{error}; give redis://HOST:PORT"))?;
        let (node, url) = (node.to_owned(), url.to_owned());
        Ok(ClusterConfig { node, url, flush: DEFAULT_FLUSH, read_timeout: Some(DEFAULT_READ_TIMEOUT) })
    }

    /// The address without its password.
    #[must_use]
    pub fn shown_url(&self) -> String {
        without_password(&self.url)
    }
}
