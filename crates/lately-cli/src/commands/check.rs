//! `lately check`: reads a config file as the server does.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lately::{Pattern, Settings, Span};
use lately_server::alerts::{AlertRule, Condition};
use lately_server::config::{Alert, History, HostName, NamedLimit, OwnerDown, Tls, User, Webhook};
use lately_server::{Config, PeerTls, Storage};
use serde::Serialize;

use super::serve;
use crate::error::{CliError, Outcome};
use crate::output;
use crate::table::{harmless_json, printable, printable_path};

/// Check a config file, or rules of envoyproxy/ratelimit, and print the settings with all defaults.
///
/// It prints a line each for server, storage and memory, then one for each class, limit and alert, and one for TLS, for each user, for the
/// cluster, for otlp, and for each history, if there are any. The last line counts the domains and rules of --ratelimit-config. It reads the files of passwords and certificates. It binds no address and opens no folder. If the server would refuse the file, the exit code is 2, and the error names line and column.
#[derive(Args)]
pub(crate) struct Check {
    /// The config file.
    #[arg(required_unless_present = "ratelimit_config")]
    file: Option<PathBuf>,

    /// A folder with rules of envoyproxy/ratelimit, as for lately serve.
    #[arg(long, value_name = "DIR")]
    ratelimit_config: Option<PathBuf>,

    /// Print one object: server, storage, memory, classes, limits, alerts, tls, users, cluster, otlp, histories, ratelimit_config.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(check: &Check) -> Result<Outcome, CliError> {
    let would_not_start = "lately serve would not start with it";
    let load = |file: &PathBuf| Config::load(file);
    let mut config = match check.file.as_ref().map(load) {
        Some(loaded) => loaded.map_err(|error| CliError::new("config", error, would_not_start))?,
        None => Config::default(),
    };
    config.rule_folder = serve::rule_folder(check.ratelimit_config.as_deref(), would_not_start)?;
    let refused = |error: &_| serve::refusal("config", error, false);
    lately_server::check_addresses(&config).map_err(|error| refused(&error))?;
    lately_server::check_exact(&config.limits, &config).map_err(|error| refused(&error))?;
    lately_server::check_files(&config).map_err(|error| refused(&error))?;
    output::data(|out| {
        if check.json {
            let object = serde_json::to_string(&Checked::of(&config)).map_err(io::Error::other)?;
            writeln!(out, "{}", harmless_json(&object))
        } else {
            if check.file.is_some() {
                write_lines(out, &config)?;
            }
            match &config.rule_folder {
                Some(rules) => writeln!(out, "ratelimit_config: {rules}"),
                None => Ok(()),
            }
        }
    })?;
    Ok(Outcome::Done)
}

fn write_lines(out: &mut dyn Write, config: &Config) -> io::Result<()> {
    let Config { resp, http, grpc, insecure, max_clients, ceiling_bytes, .. } = config;
    let metrics = or_word(config.metrics, "none");
    let hosts: Vec<String> = config.hosts.iter().map(HostName::to_string).collect();
    let hosts = or_word((!hosts.is_empty()).then(|| hosts.join(" ")), "none");
    let proxies = networks(config).join(" ");
    let proxies = if proxies.is_empty() { "none" } else { &proxies };
    let headers = config.ratelimit_headers;
    let idle_timeout = or_word(idle_timeout(config), "never");
    writeln!(
        out,
        "server: resp {resp}, http {http}, grpc {grpc}, metrics {metrics}, hosts {hosts}, trusted_proxies {proxies}, ratelimit_headers {headers}, insecure {insecure}, max_clients {max_clients}, idle_timeout {idle_timeout}"
    )?;
    let (path, durability) = storage(config);
    writeln!(out, "storage: path {}, durability {durability}", printable_path(&path))?;
    writeln!(out, "memory: ceiling {ceiling_bytes}B")?;
    for (pattern, settings) in &config.classes {
        let [resolution, window, exact, retain, max_skew] = spans(settings);
        let (pattern, precision) = (printable(pattern.as_bytes()), settings.precision());
        let top = if settings.top() { ", top true" } else { "" };
        let dedupe = settings.dedupe().map_or_else(String::new, |span| format!(", dedupe {span}"));
        let unique = if settings.unique() { ", unique true" } else { "" };
        writeln!(
            out,
            "class {pattern}: resolution {resolution}, window {window}, exact {exact}, retain {retain}, max_skew {max_skew}, precision {precision}{dedupe}{top}{unique}"
        )?;
    }
    if let Some(Tls { cert, key, client_ca }) = &config.tls {
        let client_ca = or_word(client_ca.as_deref().map(printable_path), "none");
        writeln!(
            out,
            "tls: cert {}, key {}, client_ca {client_ca}",
            printable_path(cert),
            printable_path(key)
        )?;
    }
    for user in &config.users {
        let keys: Vec<String> = user.keys.iter().map(|pattern| printable(pattern.as_bytes())).collect();
        let verbs: Vec<&str> = user.verbs.iter().map(|verb| verb.name()).collect();
        let file = printable_path(&user.password_file);
        let (name, keys, verbs) = (&user.name, keys.join(" "), verbs.join(" "));
        writeln!(out, "user {name}: keys {keys}, verbs {verbs}, password_file {file}")?;
    }
    if let Some(cluster) = &config.cluster {
        let (urls, flush_ms) = (cluster.shown_urls().join(" "), cluster.flush.as_millis());
        let urls = if urls.is_empty() { "none".into() } else { printable(urls.as_bytes()) };
        let timeout = cluster.read_timeout.map_or("0".to_owned(), |it| format!("{}ms", it.as_millis()));
        let (engine, node) = (cluster.engine(), &cluster.node);
        let upstream = cluster.shown_upstream().join(" ");
        let upstream = if upstream.is_empty() {
            upstream
        } else {
            format!(", upstream {}", printable(upstream.as_bytes()))
        };
        let peer = cluster.peer.as_ref().map_or_else(String::new, |peer| {
            let tls = peer.tls.as_ref().map_or_else(
                || "none".to_owned(),
                |PeerTls { ca, cert, key }| {
                    let [ca, cert, key] = [ca, cert, key].map(|file| printable_path(file));
                    format!("ca {ca}, cert {cert}, key {key}")
                },
            );
            let parent = match &peer.parents[..] {
                [] => String::new(),
                parents => format!(", parent {}", printable(parents.join(" ").as_bytes())),
            };
            format!("{parent}, peer {}, tls {tls}", peer.listen)
        });
        let owner = |(node, address): (&String, _)| format!("{node}={address}");
        let owners = cluster.owners.iter().map(owner).collect::<Vec<_>>().join(" ");
        let owners = if owners.is_empty() { owners } else { format!(", owners {owners}") };
        writeln!(
            out,
            "cluster: engine {engine}, node {node}, urls {urls}{peer}{owners}{upstream}, flush {flush_ms}ms, read_timeout {timeout}"
        )?;
    }
    if let Some(otlp) = &config.otlp {
        let url = |url: &Option<_>| printable(or_word(url.as_ref(), "none").as_bytes());
        let (metrics, traces, every) = (url(&otlp.metrics), url(&otlp.traces), span_of(otlp.every));
        writeln!(out, "otlp: metrics {metrics}, every {every}, traces {traces}, sample {}", otlp.sample)?;
    }
    for history in &config.histories {
        let History { name, url, protocol, interval, delay, max_keys, .. } = history;
        let (url, pattern) = (printable(url.to_string().as_bytes()), printable(history.pattern.as_bytes()));
        writeln!(
            out,
            "history {name}: {protocol} {url}, match {pattern}, interval {interval}, delay {delay}, max_keys {max_keys}, catches up {}",
            history.catches_up(&config.classes)
        )?;
    }
    config.limits.iter().try_for_each(|limit| {
        let NamedLimit { name, max, window, is_shadow, key, deny, prefix, domain, descriptors, .. } = limit;
        write!(out, "limit {name}: {max} in {window}, overdraft {}", limit.is_overdraft)?;
        match limit.lockout {
            None => write!(out, ", lockout none")?,
            Some(lockout) => {
                let (first, factor, longest) = (lockout.first(), lockout.factor().get(), lockout.longest());
                write!(out, ", lockout {first}, lockout_factor {factor}, lockout_max {longest}")?;
            }
        }
        let exempt: Vec<String> =
            limit.exempt.iter().map(|exempt| printable(exempt.to_string().as_bytes())).collect();
        let exempt = if exempt.is_empty() { "none".to_owned() } else { exempt.join(" ") };
        write!(out, ", exempt {exempt}, shadow {is_shadow}")?;
        if let Some(down) = limit.exact {
            write!(out, ", exact true, on_owner_down {}", down.name())?;
        }
        let (deny, (v4_bits, v6_bits)) = (deny.code(), prefix.lengths());
        let key = or_word(key.as_ref(), "none");
        let key = printable(key.as_bytes());
        write!(out, ", key {key}, deny {deny}, ipv4_prefix {v4_bits}, ipv6_prefix {v6_bits}")?;
        if let Some(domain) = domain {
            write!(out, ", domain {}", printable(domain.as_bytes()))?;
        }
        for (key, value) in descriptors {
            write!(out, ", descriptor {}={}", printable(key.as_bytes()), printable(value.as_bytes()))?;
        }
        writeln!(out)
    })?;
    config.alerts.iter().try_for_each(|alert| write_alert(out, alert))
}

fn write_alert(out: &mut dyn Write, alert: &Alert) -> io::Result<()> {
    let Alert { rule, webhook, alertmanager } = alert;
    let AlertRule { name, pattern, condition, window, hold, keep_firing, cooldown } = rule;
    let pattern = printable(pattern.as_bytes());
    let (kind, threshold) = (condition.name(), condition.threshold());
    write!(out, "alert {name}: {pattern} {kind} {threshold} in {window}")?;
    if let Condition::Spike { least, .. } = condition {
        write!(out, ", least {least}")?;
    }
    let [hold, keep_firing, cooldown] = [hold, keep_firing, cooldown].map(|span| or_word(*span, "0"));
    write!(out, ", for {hold}, keep_firing {keep_firing}, cooldown {cooldown}")?;
    if let Some(Webhook { url, secret_file }) = webhook {
        let secret_file = or_word(secret_file.as_deref().map(printable_path), "none");
        write!(out, ", webhook {}, webhook_secret_file {secret_file}", printable(url.as_bytes()))?;
    }
    if let Some(url) = alertmanager {
        write!(out, ", alertmanager {}", printable(url.to_string().as_bytes()))?;
    }
    writeln!(out)
}

fn or_word(value: Option<impl ToString>, word: &str) -> String {
    value.map_or_else(|| word.to_owned(), |value| value.to_string())
}

/// The networks of trusted proxies.
fn networks(config: &Config) -> Vec<String> {
    config.trusted_proxies.iter().map(ToString::to_string).collect()
}

/// The idle timeout. `None` is never. It was parsed as a span, so it fits one.
fn idle_timeout(config: &Config) -> Option<Span> {
    Span::from_millis(i64::try_from(config.idle_timeout?.as_millis()).ok()?)
}

/// It was parsed as a span, so it fits one.
fn span_of(duration: Duration) -> Span {
    i64::try_from(duration.as_millis()).ok().and_then(Span::from_millis).unwrap_or(Span::MAX)
}

/// The data folder and the durability.
fn storage(config: &Config) -> (PathBuf, String) {
    let path = config.storage_path.clone().unwrap_or_else(|| Storage::default().path);
    let durability = config.storage.as_ref().map(|storage| storage.durability.to_string());
    (path, durability.unwrap_or_else(|| "off".to_owned()))
}

fn spans(settings: &Settings) -> [Span; 5] {
    [settings.resolution(), settings.window(), settings.exact(), settings.retain(), settings.max_skew()]
}

/// The object that `--json` prints, in the order of its fields.
#[derive(Serialize)]
struct Checked<'a> {
    server: CheckedServer,
    storage: CheckedStorage,
    memory: CheckedMemory,
    classes: Vec<CheckedClass>,
    limits: Vec<CheckedLimit<'a>>,
    alerts: Vec<CheckedAlert<'a>>,
    tls: Option<CheckedTls>,
    users: Vec<CheckedUser<'a>>,
    cluster: Option<CheckedCluster<'a>>,
    otlp: Option<CheckedOtlp>,
    histories: Vec<CheckedHistory<'a>>,
    ratelimit_config: Option<CheckedRules>,
}

#[derive(Serialize)]
struct CheckedHistory<'a> {
    name: &'a str,
    url: String,
    protocol: String,
    #[serde(rename = "match")]
    pattern: String,
    interval_ms: i64,
    delay_ms: i64,
    max_keys: usize,
    metric: &'a str,
    /// How long the receiver may be away before hits cannot be sent.
    catches_up_ms: i64,
}

#[derive(Serialize)]
struct CheckedAlert<'a> {
    name: &'a str,
    #[serde(rename = "match")]
    pattern: String,
    kind: &'static str,
    threshold: f64,
    /// Only of a spike.
    least: Option<u64>,
    window_ms: i64,
    for_ms: i64,
    keep_firing_ms: i64,
    cooldown_ms: i64,
    webhook: Option<&'a str>,
    webhook_secret_file: Option<String>,
    alertmanager: Option<String>,
}

#[derive(Serialize)]
struct CheckedRules {
    domains: usize,
    rules: usize,
}

#[derive(Serialize)]
struct CheckedTls {
    cert: String,
    key: String,
    client_ca: Option<String>,
}

#[derive(Serialize)]
struct CheckedUser<'a> {
    name: &'a str,
    keys: Vec<String>,
    verbs: Vec<&'static str>,
    password_file: String,
}

#[derive(Serialize)]
struct CheckedCluster<'a> {
    engine: &'static str,
    node: &'a str,
    urls: Vec<String>,
    upstream: Vec<String>,
    peer: Option<CheckedPeer>,
    owners: BTreeMap<&'a str, String>,
    flush_ms: u64,
    read_timeout_ms: u64,
}

#[derive(Serialize)]
struct CheckedPeer {
    address: String,
    parent: Vec<String>,
    tls: Option<CheckedPeerTls>,
}

#[derive(Serialize)]
struct CheckedPeerTls {
    ca: String,
    cert: String,
    key: String,
}

#[derive(Serialize)]
struct CheckedOtlp {
    metrics: Option<String>,
    every_ms: i64,
    traces: Option<String>,
    sample: f64,
}

#[derive(Serialize)]
struct CheckedServer {
    resp: SocketAddr,
    http: SocketAddr,
    grpc: SocketAddr,
    metrics: Option<SocketAddr>,
    hosts: Vec<String>,
    trusted_proxies: Vec<String>,
    ratelimit_headers: String,
    insecure: bool,
    max_clients: usize,
    idle_timeout_ms: Option<i64>,
}

#[derive(Serialize)]
struct CheckedStorage {
    path: String,
    durability: String,
}

#[derive(Serialize)]
struct CheckedMemory {
    ceiling_bytes: u64,
}

#[derive(Serialize)]
struct CheckedClass {
    #[serde(rename = "match")]
    pattern: String,
    resolution_ms: i64,
    window_ms: i64,
    exact_ms: i64,
    retain_ms: i64,
    max_skew_ms: i64,
    precision: f64,
    dedupe_ms: Option<i64>,
    top: bool,
    unique: bool,
}

#[derive(Serialize)]
struct CheckedLimit<'a> {
    name: &'a str,
    max: u64,
    window_ms: i64,
    overdraft: bool,
    lockout_ms: Option<i64>,
    lockout_factor: Option<f64>,
    lockout_max_ms: Option<i64>,
    exempt: Vec<String>,
    shadow: bool,
    exact: bool,
    on_owner_down: Option<&'static str>,
    key: Option<String>,
    deny: u16,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
    domain: Option<&'a str>,
    descriptors: &'a BTreeMap<String, String>,
}

impl Checked<'_> {
    fn of(config: &Config) -> Checked<'_> {
        let (path, durability) = storage(config);
        Checked {
            server: CheckedServer {
                resp: config.resp,
                http: config.http,
                grpc: config.grpc,
                metrics: config.metrics,
                hosts: config.hosts.iter().map(HostName::to_string).collect(),
                trusted_proxies: networks(config),
                ratelimit_headers: config.ratelimit_headers.to_string(),
                insecure: config.insecure,
                max_clients: config.max_clients,
                idle_timeout_ms: idle_timeout(config).map(Span::as_millis),
            },
            storage: CheckedStorage { path: text(&path), durability },
            memory: CheckedMemory { ceiling_bytes: config.ceiling_bytes },
            classes: config.classes.iter().map(CheckedClass::of).collect(),
            limits: config.limits.iter().map(CheckedLimit::of).collect(),
            alerts: config.alerts.iter().map(CheckedAlert::of).collect(),
            tls: config.tls.as_ref().map(|Tls { cert, key, client_ca }| CheckedTls {
                cert: text(cert),
                key: text(key),
                client_ca: client_ca.as_deref().map(text),
            }),
            users: config.users.iter().map(CheckedUser::of).collect(),
            cluster: config.cluster.as_ref().map(|cluster| CheckedCluster {
                engine: cluster.engine(),
                node: &cluster.node,
                urls: cluster.shown_urls(),
                upstream: cluster.shown_upstream(),
                peer: cluster.peer.as_ref().map(|peer| CheckedPeer {
                    address: peer.listen.to_string(),
                    parent: peer.parents.clone(),
                    tls: peer.tls.as_ref().map(|PeerTls { ca, cert, key }| CheckedPeerTls {
                        ca: text(ca),
                        cert: text(cert),
                        key: text(key),
                    }),
                }),
                owners: cluster.owners.iter().map(|(node, at)| (&**node, at.to_string())).collect(),
                flush_ms: u64::try_from(cluster.flush.as_millis()).unwrap_or(u64::MAX),
                read_timeout_ms: cluster
                    .read_timeout
                    .map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)),
            }),
            otlp: config.otlp.as_ref().map(|otlp| CheckedOtlp {
                metrics: otlp.metrics.as_ref().map(ToString::to_string),
                every_ms: span_of(otlp.every).as_millis(),
                traces: otlp.traces.as_ref().map(ToString::to_string),
                sample: otlp.sample,
            }),
            histories: config
                .histories
                .iter()
                .map(|history| CheckedHistory {
                    name: &history.name,
                    url: history.url.to_string(),
                    protocol: history.protocol.to_string(),
                    pattern: String::from_utf8_lossy(history.pattern.as_bytes()).into_owned(),
                    interval_ms: history.interval.as_millis(),
                    delay_ms: history.delay.as_millis(),
                    max_keys: history.max_keys,
                    metric: &history.metric,
                    catches_up_ms: history.catches_up(&config.classes).as_millis(),
                })
                .collect(),
            ratelimit_config: config
                .rule_folder
                .as_ref()
                .map(|folder| CheckedRules { domains: folder.domains(), rules: folder.rules() }),
        }
    }
}

impl CheckedClass {
    fn of((pattern, settings): &(Pattern, Settings)) -> CheckedClass {
        let [resolution_ms, window_ms, exact_ms, retain_ms, max_skew_ms] =
            spans(settings).map(Span::as_millis);
        let pattern = String::from_utf8_lossy(pattern.as_bytes()).into_owned();
        CheckedClass {
            pattern,
            resolution_ms,
            window_ms,
            exact_ms,
            retain_ms,
            max_skew_ms,
            precision: settings.precision(),
            dedupe_ms: settings.dedupe().map(Span::as_millis),
            top: settings.top(),
            unique: settings.unique(),
        }
    }
}

impl CheckedAlert<'_> {
    fn of(Alert { rule, webhook, alertmanager }: &Alert) -> CheckedAlert<'_> {
        let ms = |span: Option<Span>| span.map_or(0, Span::as_millis);
        let webhook = webhook.as_ref();
        CheckedAlert {
            name: &rule.name,
            pattern: String::from_utf8_lossy(rule.pattern.as_bytes()).into_owned(),
            kind: rule.condition.name(),
            threshold: rule.condition.threshold(),
            least: match rule.condition {
                Condition::Spike { least, .. } => Some(least),
                Condition::Above(_) | Condition::Below(_) => None,
            },
            window_ms: rule.window.as_millis(),
            for_ms: ms(rule.hold),
            keep_firing_ms: ms(rule.keep_firing),
            cooldown_ms: ms(rule.cooldown),
            webhook: webhook.map(|webhook| &*webhook.url),
            webhook_secret_file: webhook.and_then(|webhook| webhook.secret_file.as_deref()).map(text),
            alertmanager: alertmanager.as_ref().map(ToString::to_string),
        }
    }
}

impl CheckedUser<'_> {
    fn of(user: &User) -> CheckedUser<'_> {
        let keys = user.keys.iter().map(|keys| String::from_utf8_lossy(keys.as_bytes()).into_owned());
        CheckedUser {
            name: &user.name,
            keys: keys.collect(),
            verbs: user.verbs.iter().map(|verb| verb.name()).collect(),
            password_file: text(&user.password_file),
        }
    }
}

impl CheckedLimit<'_> {
    fn of(limit: &NamedLimit) -> CheckedLimit<'_> {
        let (ipv4_prefix, ipv6_prefix) = limit.prefix.lengths();
        CheckedLimit {
            name: &limit.name,
            max: limit.max,
            window_ms: limit.window.as_millis(),
            overdraft: limit.is_overdraft,
            lockout_ms: limit.lockout.map(|lockout| lockout.first().as_millis()),
            lockout_factor: limit.lockout.map(|lockout| lockout.factor().get()),
            lockout_max_ms: limit.lockout.map(|lockout| lockout.longest().as_millis()),
            exempt: limit.exempt.iter().map(ToString::to_string).collect(),
            shadow: limit.is_shadow,
            exact: limit.exact.is_some(),
            on_owner_down: limit.exact.map(OwnerDown::name),
            key: limit.key.as_ref().map(ToString::to_string),
            deny: limit.deny.code(),
            ipv4_prefix,
            ipv6_prefix,
            domain: limit.domain.as_deref(),
            descriptors: &limit.descriptors,
        }
    }
}

/// A path of a TOML file: it is UTF-8.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
