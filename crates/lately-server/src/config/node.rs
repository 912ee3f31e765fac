//! How a node counts together with others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::http::uri::Authority;
use lately::Origin;
use lately_engines::{GroupProtocol, KafkaRole, KafkaTopic, check_brokers, is_kafka};
use lately_engines::{PeerTls, Peers, Remote, without_password};

use crate::limits::{
    DEFAULT_FLUSH, DEFAULT_GROUP, DEFAULT_PEER, DEFAULT_READ_TIMEOUT, DEFAULT_SESSION, DEFAULT_TOPIC,
    MAX_OWNERS,
};

/// How this node counts together with others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterConfig {
    /// The name of this node.
    pub node: String,
    /// The addresses of the engine: one server of Redis or Valkey, some of a Redis Cluster, Sentinels, servers of PostgreSQL, or the
    /// other nodes of a mesh.
    pub urls: Vec<String>,
    /// The topic and the consumer group. `None` with any engine but Kafka.
    pub kafka: Option<KafkaTopic>,
    /// How the other nodes reach this one, if they do, and which are above it in a tree.
    pub peer: Option<PeerConfig>,
    /// The nodes that decide exact limits, this one included, each with the address where the others reach it. Empty without exact
    /// limits.
    pub owners: BTreeMap<String, Authority>,
    /// The addresses of the upstream engine, which all data centres share. Empty without one.
    pub upstream: Vec<String>,
    /// How long changes are gathered before they are sent.
    pub flush: Duration,
    /// How long a read waits at most for the counts of other nodes on a key that is not known. `None`: it does not wait.
    pub read_timeout: Option<Duration>,
}

/// How other nodes reach this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerConfig {
    /// The address to listen on for them.
    pub listen: SocketAddr,
    /// With TLS, each node needs a certificate.
    pub tls: Option<PeerTls>,
    /// The addresses of the nodes above this one, in a tree.
    pub parents: Vec<String>,
}

impl Default for PeerConfig {
    fn default() -> PeerConfig {
        PeerConfig { listen: DEFAULT_PEER, tls: None, parents: Vec::new() }
    }
}

impl ClusterConfig {
    /// The config of a node and an engine, with the default times. Other nodes are beside this one, and reach it at the default address.
    ///
    /// # Errors
    /// Why the name or an address is invalid, naming it.
    pub fn new<U: AsRef<str>>(node: &str, urls: &[U]) -> Result<ClusterConfig, String> {
        if urls.iter().any(|url| Peers::is_meant(url.as_ref())) {
            return ClusterConfig::of_peers(node, urls, PeerConfig::default());
        }
        check_node(node)?;
        let is_kafka = urls.iter().any(|url| is_kafka(url.as_ref()));
        if is_kafka {
            check_brokers(urls).map_err(|error| error.to_string())?;
        } else {
            Remote::new(urls).map_err(|error| error.to_string())?;
        }
        let kafka = is_kafka.then(|| KafkaTopic {
            topic: DEFAULT_TOPIC.to_owned(),
            group: DEFAULT_GROUP.to_owned(),
            role: KafkaRole::default(),
            protocol: GroupProtocol::default(),
            session: DEFAULT_SESSION,
        });
        let config = ClusterConfig::plain(node, urls);
        match kafka {
            Some(kafka) => config.with_kafka(kafka),
            None => Ok(config),
        }
    }

    fn plain<U: AsRef<str>>(node: &str, urls: &[U]) -> ClusterConfig {
        ClusterConfig {
            node: node.to_owned(),
            urls: urls.iter().map(|url| url.as_ref().to_owned()).collect(),
            kafka: None,
            peer: None,
            owners: BTreeMap::new(),
            upstream: Vec::new(),
            flush: DEFAULT_FLUSH,
            read_timeout: Some(DEFAULT_READ_TIMEOUT),
        }
    }

    /// The config of a node that other nodes reach directly, with the default times. `urls` are those beside it. Without these and parents, it is the
    /// root of a tree.
    ///
    /// # Errors
    /// Why the name or an address is invalid, naming it.
    pub fn of_peers<U: AsRef<str>>(
        node: &str,
        urls: &[U],
        peer: PeerConfig,
    ) -> Result<ClusterConfig, String> {
        check_node(node)?;
        let siblings = Peers::hosts(urls).map_err(|error| error.to_string())?;
        let above = Peers::hosts(&peer.parents).map_err(|error| format!("parent: {error}"))?;
        let own = peer.listen.to_string();
        if siblings.contains(&own) {
            return Err(format!("{own} is this server itself: give the addresses of the other nodes only"));
        }
        if above.contains(&own) {
            return Err(format!(
                "parent: {own} is this server itself: give the address of a node that is nearer to the root, or no parent for the root"
            ));
        }
        if let Some(both) = above.iter().find(|address| siblings.contains(address)) {
            return Err(format!(
                "parent: {both} is in urls, too: give a node once, in urls if it is beside this one, or as a parent if it is above it"
            ));
        }
        Ok(ClusterConfig { peer: Some(peer), ..ClusterConfig::plain(node, urls) })
    }

    /// The same config with this topic and group. Only with addresses of brokers.
    ///
    /// # Errors
    /// A name is invalid, or that of this node.
    pub fn with_kafka(self, kafka: KafkaTopic) -> Result<ClusterConfig, String> {
        kafka.check()?;
        if !kafka.may_be(&self.node) {
            return Err(format!(
                "the hits of the topic '{}' are counted under this name: give the node another one than '{}'",
                kafka.topic, self.node
            ));
        }
        if !kafka.role.decides_limits() && !self.owners.is_empty() {
            return Err(format!(
                "a node with role = \"{}\" decides no limits: leave [cluster.owners] out, and take the node out of those of the others",
                kafka.role.name()
            ));
        }
        Ok(ClusterConfig { kafka: Some(kafka), ..self })
    }

    /// The same config with the nodes that decide exact limits, each with an address such as `eu-1.example:7382`.
    ///
    /// # Errors
    /// A name or an address is invalid, or this node is not among them.
    pub fn with_owners(self, owners: BTreeMap<String, String>) -> Result<ClusterConfig, String> {
        let mut read = BTreeMap::new();
        for (node, address) in owners {
            check_node(&node).map_err(|why| format!("owners: {why}"))?;
            let parsed = address.parse::<Authority>().ok().filter(|parsed| {
                parsed.port_u16().is_some_and(|port| port > 0)
                    && !parsed.host().is_empty()
                    && !address.contains('@')
            });
            let Some(parsed) = parsed else {
                return Err(format!(
                    "invalid address '{}' of {node} in owners: give a host and a port, such as eu-1.example:7382",
                    address.escape_debug()
                ));
            };
            if let Some((other, _)) = read.iter().find(|(_, before)| **before == parsed) {
                return Err(format!(
                    "{other} and {node} have the same address {parsed} in owners: give each its own"
                ));
            }
            read.insert(node, parsed);
        }
        if !read.contains_key(&self.node) {
            return Err(format!(
                "owners does not have this node: add {} = \"HOST:PORT\" with the address where the others reach it",
                self.node
            ));
        }
        if read.len() > MAX_OWNERS {
            return Err(format!("owners has {} nodes: at most {MAX_OWNERS} are possible", read.len()));
        }
        Ok(ClusterConfig { owners: read, ..self })
    }

    /// The same config of a node that the others ask for exact limits at this address. Only with owners, and with another engine than the nodes
    /// themselves, which have such an address anyway.
    ///
    /// # Errors
    /// No other node reaches this one.
    pub fn with_peer(self, peer: PeerConfig) -> Result<ClusterConfig, String> {
        if !self.is_mesh() && self.owners.len() > 1 && peer.parents.is_empty() {
            return Ok(ClusterConfig { peer: Some(peer), ..self });
        }
        Err(format!(
            "a peer address is for nodes that reach each other directly, and the engine is {}: leave it out, or give peer://HOST:PORT of the other nodes",
            self.engine()
        ))
    }

    /// Whether an address is that of a node, by its scheme.
    #[must_use]
    pub fn is_peer(url: &str) -> bool {
        Peers::is_meant(url)
    }

    /// Why exact limits cannot be decided. `kept`: counts are kept in a data folder.
    pub(crate) fn check_exact(&self, kept: bool) -> Result<(), &'static str> {
        if self.kafka.as_ref().is_some_and(|kafka| !kafka.role.decides_limits()) {
            return Ok(());
        }
        if self.owners.is_empty() {
            return Err(
                "needs the nodes that decide: add owners = { NODE = \"HOST:PORT\", … } with all nodes to [cluster]",
            );
        }
        if !kept && self.owners.len() > 1 {
            return Err("needs a data folder: a node that was killed has to know what it had allowed");
        }
        Ok(())
    }

    /// Whether the nodes reach each other directly.
    #[must_use]
    pub fn is_mesh(&self) -> bool {
        self.peer.is_some() && Peers::check(&self.urls).is_ok()
    }

    /// The same config with an upstream engine.
    ///
    /// # Errors
    /// Why an address is invalid, naming it.
    pub fn with_upstream<U: AsRef<str>>(self, upstream: &[U]) -> Result<ClusterConfig, String> {
        if self.kafka.is_some() || upstream.iter().any(|url| is_kafka(url.as_ref())) {
            return Err(
                "upstream: nodes that count through Kafka have no upstream engine: leave it out".to_owned()
            );
        }
        if self.is_mesh() || upstream.iter().any(|url| Peers::is_meant(url.as_ref())) {
            return Err(
                "upstream: nodes that reach each other directly have no upstream engine: leave it out"
                    .to_owned(),
            );
        }
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
        if self.is_mesh() {
            return "peers";
        }
        if self.kafka.is_some() {
            return "kafka";
        }
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

    /// The addresses of the nodes above this one.
    #[must_use]
    pub fn parents(&self) -> &[String] {
        self.peer.as_ref().map_or(&[], |peer| &peer.parents)
    }

    /// What this node counts through, in a line: the addresses of the engine, or of the nodes that it reaches.
    #[must_use]
    pub fn through(&self) -> String {
        match (&self.shown_urls()[..], self.parents()) {
            ([], []) => "the nodes below this one".to_owned(),
            (urls, []) => urls.join(" "),
            ([], parents) => format!("parent {}", parents.join(" ")),
            (urls, parents) => format!("{} parent {}", urls.join(" "), parents.join(" ")),
        }
    }

    /// The addresses of the upstream engine without their passwords.
    #[must_use]
    pub fn shown_upstream(&self) -> Vec<String> {
        self.upstream.iter().map(|url| without_password(url)).collect()
    }
}

fn check_node(node: &str) -> Result<(), String> {
    match Origin::new(node, 0) {
        Some(_) => Ok(()),
        None => Err(format!(
            "invalid node name '{}': give 1 to {} letters, digits, - or _, such as eu-1",
            node.escape_debug(),
            lately::limits::MAX_NODE_BYTES
        )),
    }
}
