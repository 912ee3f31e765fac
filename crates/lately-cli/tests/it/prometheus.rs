//! Prometheus and promtool against real servers: what `/metrics` says, and every query of the dashboard of Grafana and of the
//! alert rules in `packaging`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use test_support::{RedisServer, until};

use crate::common::has;
use crate::running::{FREE, Running, becomes, serve_with, start};
use crate::time_series::TimeSeries;

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text(path: &str) -> String {
    let path = file(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A server that has every metric: it has limits, an alert, rules of envoyproxy/ratelimit, receivers of OTLP, a data
/// folder, a history, and two engines.
struct Stage {
    server: Running,
    _folder: TempDir,
    _engines: [RedisServer; 2],
}

const CONFIG: &str = r#"
[[limit]]
name = "login"
max = 1
window = "1m"

[[limit]]
name = "search"
max = 1
window = "1m"
shadow = true

[[alert]]
name = "busy"
match = "k:*"
above = 2
window = "10s"

[otlp]
metrics = "http://127.0.0.1:1/"
traces = "http://127.0.0.1:1/"
"#;

const RULES: &str =
    "domain: shop\ndescriptors:\n- key: path\n  rate_limit: { unit: hour, requests_per_unit: 5 }\n";

/// A server that sends its history to this URL. `None` where a program is missing.
fn stage(history: &str) -> Option<Stage> {
    let programs = ["redis-server", "curl", "prometheus", "promtool"];
    if !programs.into_iter().all(has) {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let engines = [RedisServer::start(), RedisServer::start()];
    let (config, rules, data) =
        (folder.path().join("lately.toml"), folder.path().join("rules"), folder.path().join("data"));
    let history = format!(
        "[[history]]\nname = \"main\"\nurl = \"{history}\"\nmatch = \"k:*\"\ninterval = 1\ndelay = 1\n"
    );
    std::fs::write(&config, format!("{CONFIG}{history}")).expect("room");
    std::fs::create_dir(&rules).expect("room");
    std::fs::write(rules.join("shop.yaml"), RULES).expect("room");
    let [config, rules, data] = [&config, &rules, &data].map(|path| path.to_str().expect("text"));
    let (local, upstream) = (engines[0].url(), engines[1].url());
    let more = ["--config", config, "--ratelimit-config", rules, "--data", data, "--node", "a"];
    let server =
        start(&[&FREE[..], &more, &["--cluster", &local, "--upstream", &upstream]].concat()).loaded();
    server.ask::<u64>("HIT k:1 3");
    for limit in ["login", "search"] {
        for _ in 0..3 {
            server.ask::<Vec<i64>>(&format!("LIMIT u:1 @{limit}"));
        }
    }
    Some(Stage { server, _folder: folder, _engines: engines })
}

impl Stage {
    fn metrics(&self) -> String {
        self.server.get("/metrics").split_once("\r\n\r\n").expect("a body").1.to_owned()
    }
}

/// Servers with the metrics of other engines, and of exact limits. Nothing is where they look for others.
fn other_engines() -> Vec<Running> {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |name: &str, cluster: &str| {
        let config = folder.path().join(name);
        std::fs::write(&config, format!("[cluster]\nnode = \"a\"\n{cluster}")).expect("room");
        serve_with(&["--config", config.to_str().expect("text")])
    };
    let peers = "engine = \"peers\"\nurls = [\"peer://127.0.0.1:1\"]\npeer = \"127.0.0.1:0\"\n\
                 owners = { a = \"127.0.0.1:2\", b = \"127.0.0.1:1\" }\n";
    let kafka = "engine = \"kafka\"\nurls = [\"kafka://127.0.0.1:1\"]\n";
    let mut servers = vec![start("peers", peers)];
    if cfg!(feature = "kafka") {
        servers.push(start("kafka", kafka));
    }
    servers
}

fn promtool(args: &[&str], input: &str) -> (bool, String) {
    let mut command = Command::new("promtool");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).expect("text"))
}

/// The names of all metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("lately_")).collect()
}

#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    let Some(stage) = stage("http://127.0.0.1:1/") else { return };
    let metrics = stage.metrics();
    assert_eq!(promtool(&["check", "metrics"], &metrics), (true, String::new()), "{metrics}");
    let more = other_engines();
    let more: Vec<String> = more.iter().map(|server| server.get("/metrics")).collect();
    let lines = more.iter().chain([&metrics]).flat_map(|metrics| metrics.lines());
    let all: BTreeSet<&str> =
        lines.filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(all.len() > 50, "{all:?}");
    // The reference has them all, and no other.
    let reference = text("docs/reference/http.md");
    let section = reference.split("\n## Metrics\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let mut described = names(section.expect("a section"));
    described.retain(|name| cfg!(feature = "kafka") || !name.starts_with("lately_kafka_"));
    assert_eq!(described, all);
}

#[test]
fn promtool_finds_nothing_wrong_with_the_rules() {
    if !has("promtool") {
        return;
    }
    let rules = text("packaging/prometheus/lately.rules.yml");
    let guide = text("docs/guide/monitoring.md");
    let tests = text("packaging/prometheus/lately.rules.test.yml");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in &alerts {
        assert!(guide.contains(&format!("| `{alert}` |")), "the guide does not have {alert}");
        // One test has it fire, and one has it silent.
        let (fires, silent) = (format!("- alertname: {alert}\n"), format!("{{ alertname: {alert}, "));
        assert!(tests.contains(&fires) && tests.contains(&silent), "{alert} has no test");
    }
    let path = |name: &str| file(&format!("packaging/prometheus/{name}")).display().to_string();
    let (passed, said) = promtool(&["check", "rules", &path("lately.rules.yml")], "");
    assert!(passed && said.contains(&format!("SUCCESS: {} rules found", alerts.len())), "{said}");
    let (passed, said) = promtool(&["test", "rules", &path("lately.rules.test.yml")], "");
    assert!(passed, "{said}");
}

/// A Prometheus that scrapes the server of a stage, has the rules, and gets the history of the server.
fn scrape(stage: &Stage, prometheus: &TimeSeries) {
    let rules = file("packaging/prometheus/lately.rules.yml");
    prometheus.configure(&format!(
        "global: {{ scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms }}\n\
         rule_files: ['{}']\n\
         scrape_configs:\n- job_name: lately\n  static_configs: [{{ targets: ['{}'] }}]\n",
        rules.canonicalize().expect("it is there").display(),
        stage.server.http
    ));
}

/// The queries in a dashboard, with the variables of Grafana filled in, and where they are.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let filled = |query: &Value| {
        let query = query.as_str().expect("a text");
        let values = [
            ("$__rate_interval", "1m"),
            ("$__interval_ms", "60000"),
            ("$__interval", "1m"),
            ("$__range", "1h"),
            ("$job", "lately"),
            ("$instance", ".*"),
            ("$metric", "lately_hits"),
            ("$key", ".*"),
            ("$top", "10"),
        ];
        let query = values.iter().fold(query.to_owned(), |query, (name, value)| query.replace(name, value));
        assert!(!query.contains('$'), "an unknown variable: {query}");
        query
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut queries = Vec::new();
    for panel in list(&dashboard["panels"]) {
        for target in list(&panel["targets"]) {
            queries.push((panel["title"].to_string(), filled(&target["expr"])));
        }
    }
    queries
}

#[test]
fn prometheus_answers_every_query_of_the_dashboards_and_of_the_rules() {
    if !["curl", "prometheus"].into_iter().all(has) {
        return;
    }
    let prometheus = TimeSeries::prometheus("global: {}\n");
    let Some(stage) = stage(&prometheus.url()) else { return };
    scrape(&stage, &prometheus);
    // Rates need two scrapes.
    assert!(becomes(|| {
        let scrapes = prometheus.query("count_over_time(lately_build_info[1m]) > 2");
        !scrapes.is_empty()
    }));
    let dashboard: Value = serde_json::from_str(&text("packaging/grafana/lately.json")).expect("JSON");
    let queries = self::queries(&dashboard);
    assert!(queries.len() > 50, "{queries:?}");
    for (title, query) in &queries {
        // After a scrape that took too long, nothing is there until the next one.
        until(&format!("{title}: {query}"), || !prometheus.query(query).is_empty());
    }
    // The dashboard shows every metric.
    let metrics = stage.metrics();
    let shown: String = queries.iter().map(|(_, query)| format!("{query} ")).collect();
    let of_type = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let missing: Vec<&str> = of_type.filter(|name| !names(&shown).contains(name)).collect();
    assert!(missing.is_empty(), "no panel shows {missing:?}");
    // The dashboard of the history has one of the hits that were counted.
    until("the history is there", || !prometheus.query("lately_hits").is_empty());
    let hits_by_key = serde_json::from_str(&text("packaging/grafana/lately-history.json")).expect("JSON");
    let of_history = self::queries(&hits_by_key);
    assert!(of_history.len() > 7, "{of_history:?}");
    for (title, query) in &of_history {
        // After a scrape that took too long, nothing is there until the next one.
        until(&format!("{title}: {query}"), || !prometheus.query(query).is_empty());
    }
    let keys = prometheus.get("/api/v1/label/key/values", &["-d", "match[]=lately_hits"]);
    assert_eq!(keys, serde_json::json!(["k:1"]));
    // What an annotation and the lists of variables ask.
    for annotation in dashboard["annotations"]["list"].as_array().expect("a list") {
        let query = annotation["expr"].as_str().expect("a text");
        let query = query.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*");
        prometheus.query(&query);
    }
    for variable in dashboard["templating"]["list"].as_array().expect("a list").iter().skip(1) {
        let name = variable["name"].as_str().expect("a name");
        let list =
            prometheus.get(&format!("/api/v1/label/{name}/values"), &["-d", "match[]=lately_build_info"]);
        assert_eq!(list.as_array().expect("a list").len(), 1, "{name}: {list}");
    }
    // Every rule is evaluated, and what it asks about is there.
    let rules = || prometheus.get("/api/v1/rules", &[]);
    let of = |rules: &Value| rules["groups"][0]["rules"].as_array().expect("rules").clone();
    until("every rule is evaluated", || of(&rules()).iter().all(|rule| rule["health"] != "unknown"));
    let rules = of(&rules());
    assert!(rules.len() > 10, "{rules:?}");
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        let asked = names(rule["query"].as_str().expect("a text"));
        // A server without Kafka has no metrics of it.
        for name in asked.into_iter().filter(|name| !name.starts_with("lately_kafka_")) {
            until(&format!("{rule}: {name}"), || !prometheus.query(name).is_empty());
        }
    }
    // The alert of the config fires in Prometheus, too.
    let firing = "ALERTS{alertname=\"LatelyAlertFires\",alert=\"busy\",alertstate=\"firing\"}";
    until("the alert fires", || {
        stage.server.ask::<u64>("HIT k:1 3");
        !prometheus.query(firing).is_empty()
    });
}

#[test]
fn the_dashboards_are_laid_out() {
    for name in ["lately", "lately-history"] {
        check_layout(&format!("packaging/grafana/{name}.json"));
    }
}

fn check_layout(name: &str) {
    let dashboard: Value = serde_json::from_str(&text(name)).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64()), "{panel}: another has its id");
        let [x, y, width, height] =
            ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_u64().expect(name));
        assert!(x + width <= 24, "{panel}: too wide");
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{}: over another panel", panel["title"]);
        }
        let is_row = panel["type"] == "row";
        assert!(is_row || panel["description"].is_string(), "{}: no description", panel["title"]);
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        }
    }
}
