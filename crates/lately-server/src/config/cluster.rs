//! `[cluster]`: other nodes to count together with.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use lately::Span;
use lately_engines::{GroupProtocol, KafkaRole, PeerTls, Peers};
use serde::de;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::error::Problem;
use super::node::{ClusterConfig, PeerConfig};
use super::user::path;
use super::value::{Address, Length, Timeout, shown};
use crate::limits::{DEFAULT_PEER, MAX_READ_TIMEOUT, SESSION_WITHIN};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: [cluster]")]
pub(super) struct ClusterSection {
    engine: Option<Spanned<String>>,
    node: Option<Spanned<String>>,
    urls: Option<Spanned<Urls>>,
    upstream: Option<Spanned<Urls>>,
    parent: Option<Spanned<Parents>>,
    peer: Option<Spanned<Address>>,
    owners: Option<Spanned<Owners>>,
    tls: Option<Spanned<PeerTlsConfig>>,
    topic: Option<Spanned<String>>,
    group: Option<Spanned<String>>,
    role: Option<Spanned<String>>,
    group_protocol: Option<Spanned<String>>,
    session: Option<Spanned<Length>>,
    flush: Option<Length>,
    read_timeout: Option<Spanned<Timeout>>,
}

/// The files of TLS between nodes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: tls = { ca = \"…\", cert = \"…\", key = \"…\" }")]
struct PeerTlsConfig {
    ca: Spanned<String>,
    cert: Spanned<String>,
    key: Spanned<String>,
}

/// A text; for anything else, what is wrong with it.
fn text<E>(value: toml::Value, wrong: impl FnOnce(&toml::Value) -> E) -> Result<String, E> {
    match value {
        toml::Value::String(text) => Ok(text),
        other => Err(wrong(&other)),
    }
}

/// The addresses of servers.
struct Urls(Vec<String>);

impl<'de> Deserialize<'de> for Urls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Urls, D::Error> {
        const EXAMPLE: &str = "such as [\"redis://127.0.0.1:6379\"]";
        match toml::Value::deserialize(deserializer)? {
            toml::Value::Array(values) => {
                let wrong =
                    |value: &_| de::Error::custom(format!("{} is no address: give a text", shown(value)));
                values.into_iter().map(|value| text(value, wrong)).collect::<Result<_, _>>().map(Urls)
            }
            other => Err(de::Error::custom(format!("{} is no list of addresses, {EXAMPLE}", shown(&other)))),
        }
    }
}

/// The nodes that decide exact limits, with their addresses.
struct Owners(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Owners {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Owners, D::Error> {
        const EXAMPLE: &str = "such as { eu-1 = \"eu-1.example:7382\", eu-2 = \"eu-2.example:7382\" }";
        let toml::Value::Table(table) = toml::Value::deserialize(deserializer)? else {
            return Err(de::Error::custom(format!(
                "owners is a table of nodes and their addresses, {EXAMPLE}"
            )));
        };
        let wrong =
            |value: &_| de::Error::custom(format!("{} is no address: give a text, {EXAMPLE}", shown(value)));
        let entry = |(node, value)| Ok((node, text(value, wrong)?));
        table.into_iter().map(entry).collect::<Result<_, _>>().map(Owners)
    }
}

/// The address of a parent, or those of several.
struct Parents(Vec<String>);

impl<'de> Deserialize<'de> for Parents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Parents, D::Error> {
        const EXAMPLE: &str =
            "give that of a node above this one, such as \"peer://eu-1:7382\", or a list of them";
        let problem = |what: &str| de::Error::custom(format!("{what}: {EXAMPLE}"));
        let no_address =
            |value: &toml::Value| problem(&format!("{} is no address of a parent", shown(value)));
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => Ok(Parents(vec![text])),
            toml::Value::Array(values) if values.is_empty() => Err(problem("no address of a parent")),
            toml::Value::Array(values) => {
                values.into_iter().map(|value| text(value, no_address)).collect::<Result<_, _>>().map(Parents)
            }
            other => Err(no_address(&other)),
        }
    }
}

/// The keys that are for nodes that reach each other directly.
struct PeerKeys {
    parent: Option<Spanned<Parents>>,
    peer: Option<Spanned<Address>>,
    tls: Option<Spanned<PeerTlsConfig>>,
}

/// The config of a node that others reach directly.
fn of_peers(
    node: &Spanned<String>,
    urls: Option<Spanned<Urls>>,
    keys: PeerKeys,
    at: Range<usize>,
) -> Result<ClusterConfig, Problem> {
    let PeerKeys { parent, peer, tls } = keys;
    if let Some(urls) = &urls
        && urls.get_ref().0.iter().all(|url| url.contains("://") && !Peers::is_meant(url))
    {
        let message = "these addresses are not of the engine peers: give peer://HOST:PORT".to_owned();
        return Err(Problem { at: urls.span(), message });
    }
    let [urls_at, parent_at] = [urls.as_ref().map(Spanned::span), parent.as_ref().map(Spanned::span)];
    let peer = PeerConfig {
        listen: peer.map_or(DEFAULT_PEER, |peer| peer.into_inner().0),
        tls: files(tls)?,
        parents: parent.map_or_else(Vec::new, |parent| parent.into_inner().0),
    };
    let urls = urls.map_or_else(Vec::new, |urls| urls.into_inner().0);
    ClusterConfig::of_peers(node.get_ref(), &urls, peer).map_err(|message| {
        let of = if message.contains("node name") {
            Some(node.span())
        } else if message.starts_with("parent: ") {
            parent_at
        } else {
            urls_at
        };
        Problem { at: of.unwrap_or(at), message }
    })
}

/// How other nodes reach this one, if the nodes do not carry the counts: only for exact limits.
fn with_peer_keys(config: ClusterConfig, keys: PeerKeys, at: Range<usize>) -> Result<ClusterConfig, Problem> {
    let engine = config.engine();
    let PeerKeys { parent, peer, tls } = keys;
    if let Some(parent) = parent {
        let message = format!(
            "a parent is for nodes that reach each other directly, and the engine is {engine}: leave it out, or set engine = \"peers\""
        );
        return Err(Problem { at: parent.span(), message });
    }
    let Some(peer) = peer else {
        return match tls {
            _ if config.owners.len() > 1 => {
                let message = "[cluster] does not say where other nodes reach this one: add an address of this machine, such as peer = \"127.0.0.1:7382\"";
                Err(Problem { at, message: message.to_owned() })
            }
            Some(tls) => {
                let message = "tls in [cluster] is for connections of nodes to each other, and there are none: for Redis and PostgreSQL the files are in the addresses";
                Err(Problem { at: tls.span(), message: message.to_owned() })
            }
            None => Ok(config),
        };
    };
    let (at, listen, tls) = (peer.span(), peer.into_inner().0, files(tls)?);
    let peer = PeerConfig { listen, tls, parents: Vec::new() };
    config.with_peer(peer).map_err(|message| Problem { at, message })
}

/// The files of TLS between nodes.
fn files(tls: Option<Spanned<PeerTlsConfig>>) -> Result<Option<PeerTls>, Problem> {
    let files = |tls: Spanned<PeerTlsConfig>| {
        let PeerTlsConfig { ca, cert, key } = tls.into_inner();
        Ok(PeerTls { ca: path(&ca)?, cert: path(&cert)?, key: path(&key)? })
    };
    tls.map(files).transpose()
}

/// The keys that are for Kafka only.
struct KafkaKeys {
    topic: Option<Spanned<String>>,
    group: Option<Spanned<String>>,
    role: Option<Spanned<String>>,
    group_protocol: Option<Spanned<String>>,
    session: Option<Spanned<Length>>,
}

/// One of the values of a key.
fn choice<T, const N: usize>(
    key: &str,
    text: &Spanned<String>,
    choices: [(&str, T); N],
) -> Result<T, Problem> {
    let names = choices.each_ref().map(|(name, _)| *name);
    let (last, others) = names.split_last().expect("there are some");
    let message = format!("unknown {key} '{}': give {} or {last}", text.get_ref(), others.join(", "));
    let found = choices.into_iter().find(|(name, _)| name == text.get_ref());
    found.map(|(_, value)| value).ok_or_else(|| Problem { at: text.span(), message })
}

/// Checks the keys that are for Kafka only.
fn with_kafka(config: ClusterConfig, keys: KafkaKeys) -> Result<ClusterConfig, Problem> {
    let KafkaKeys { topic, group, role, group_protocol, session } = keys;
    let spans = [
        ("topic", topic.as_ref().map(Spanned::span)),
        ("group", group.as_ref().map(Spanned::span)),
        ("role", role.as_ref().map(Spanned::span)),
        ("group_protocol", group_protocol.as_ref().map(Spanned::span)),
        ("session", session.as_ref().map(Spanned::span)),
    ];
    let Some(mut kafka) = config.kafka.clone() else {
        return match spans.into_iter().find_map(|(key, span)| Some((key, span?))) {
            Some((key, at)) => {
                let message = format!(
                    "{key} in [cluster] is for Kafka, and the engine is {}: leave it out",
                    config.engine()
                );
                Err(Problem { at, message })
            }
            None => Ok(config),
        };
    };
    let first = spans.into_iter().find_map(|(_, span)| span).unwrap_or_default();
    if let Some(topic) = topic {
        kafka.topic = topic.into_inner();
    }
    if let Some(group) = group {
        kafka.group = group.into_inner();
    }
    if let Some(role) = role {
        let roles = [KafkaRole::Both, KafkaRole::Serve, KafkaRole::Ingest, KafkaRole::Produce];
        let choices = roles.map(|role| (role.name(), role));
        kafka.role = choice("role", &role, choices)?;
    }
    if let Some(protocol) = group_protocol {
        let choices = [("classic", GroupProtocol::Classic), ("consumer", GroupProtocol::Consumer)];
        kafka.protocol = choice("group_protocol", &protocol, choices)?;
    }
    if let Some(session) = session {
        let (least, most) = SESSION_WITHIN;
        let length = session.get_ref().0;
        kafka.session = Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(0));
        if !(least..=most).contains(&kafka.session) {
            let message = format!(
                "session of {length} is out of range: give {}s to {}s",
                least.as_secs(),
                most.as_secs()
            );
            return Err(Problem { at: session.span(), message });
        }
    }
    config.with_kafka(kafka).map_err(|message| Problem { at: first, message })
}

/// Checks the section. Without an engine, or with `engine = "none"`, the server counts alone.
pub(super) fn settle(section: Option<Spanned<ClusterSection>>) -> Result<Option<ClusterConfig>, Problem> {
    let Some(section) = section else { return Ok(None) };
    let (at, section) = (section.span(), section.into_inner());
    let problem = |at, message: &str| Problem { at, message: message.to_owned() };
    let (engine, engine_at) = match section.engine.as_ref() {
        Some(engine) => (engine.get_ref().as_str(), engine.span()),
        None => return Err(problem(at, "[cluster] names no engine: add engine = \"redis\"")),
    };
    let example = match engine {
        "redis" => "redis://HOST:PORT",
        "postgres" => "postgres://USER@HOST:PORT/DATABASE",
        "peers" => "peer://HOST:PORT",
        "kafka" => "kafka://HOST:PORT",
        "none" => {
            let Some(owners) = section.owners else { return Ok(None) };
            let message = "owners are nodes that count together, and with engine = \"none\" this one counts alone: name an engine, or take \
                           owners out";
            return Err(problem(owners.span(), message));
        }
        other => {
            let message = format!("unknown engine '{other}': give redis, postgres, kafka, peers or none");
            return Err(Problem { at: engine_at, message });
        }
    };
    let Some(node) = section.node else {
        return Err(problem(
            at,
            "[cluster] names no node: add a name of this server, such as node = \"eu-1\"",
        ));
    };
    for (urls, example) in [(&section.urls, example), (&section.upstream, "redis://HOST:PORT")] {
        if let Some(urls) = urls.as_ref().filter(|urls| urls.get_ref().0.is_empty()) {
            let message = format!("no address: give a list of them, such as [\"{example}\"]");
            return Err(Problem { at: urls.span(), message });
        }
    }
    let keys = PeerKeys { parent: section.parent, peer: section.peer, tls: section.tls };
    let (config, keys) = match section.urls {
        urls if engine == "peers" => (of_peers(&node, urls, keys, at.clone())?, None),
        None => {
            return Err(problem(at, &format!("[cluster] names no server: add urls = [\"{example}\"]")));
        }
        Some(urls) => {
            let config = ClusterConfig::new(node.get_ref(), &urls.get_ref().0).map_err(|message| {
                let at = if message.contains("node name") { node.span() } else { urls.span() };
                Problem { at, message }
            })?;
            if config.engine() != engine {
                let message = format!("these addresses are not of the engine {engine}: give {example}");
                return Err(Problem { at: urls.span(), message });
            }
            (config, Some(keys))
        }
    };
    let config = match section.owners {
        Some(owners) => {
            let at = owners.span();
            config.with_owners(owners.into_inner().0).map_err(|message| Problem { at, message })?
        }
        None => config,
    };
    let config = match keys {
        Some(keys) => with_peer_keys(config, keys, at)?,
        None => config,
    };
    let keys = KafkaKeys {
        topic: section.topic,
        group: section.group,
        role: section.role,
        group_protocol: section.group_protocol,
        session: section.session,
    };
    let config = with_kafka(config, keys)?;
    let config = match section.upstream {
        Some(upstream) => config
            .with_upstream(&upstream.get_ref().0)
            .map_err(|message| Problem { at: upstream.span(), message })?,
        None => config,
    };
    let time = |span: Span| Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(0));
    let read_timeout = match section.read_timeout {
        Some(timeout) if timeout.get_ref().0.is_some_and(|timeout| timeout > MAX_READ_TIMEOUT) => {
            let (most, ms) =
                (MAX_READ_TIMEOUT.as_secs(), timeout.get_ref().0.unwrap_or_default().as_millis());
            let message = format!("read_timeout of {ms}ms is too long: at most {most}s");
            return Err(Problem { at: timeout.span(), message });
        }
        Some(timeout) => timeout.into_inner().0,
        None => config.read_timeout,
    };
    let flush = section.flush.map_or(config.flush, |flush| time(flush.0));
    Ok(Some(ClusterConfig { flush, read_timeout, ..config }))
}
