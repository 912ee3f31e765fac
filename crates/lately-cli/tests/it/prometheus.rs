//! Prometheus and promtool against real servers: what `/metrics` says, and every query of the dashboard of Grafana and of the
//! alert rules in `packaging`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use test_support::{RedisServer, until};

use crate::common::has;
use crate::http_clients::curl;
use crate::running::{FREE, Running, becomes, start};

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text(path: &str) -> String {
    let path = file(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A server that has every metric: it has limits, an alert, rules of envoyproxy/ratelimit, receivers of OTLP, a data
/// folder, and two engines.
struct Stage {
    server: Running,
    folder: TempDir,
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

/// `None` where a program is missing.
fn stage() -> Option<Stage> {
    let programs = ["redis-server", "curl", "prometheus", "promtool"];
    if !programs.into_iter().all(has) {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let engines = [RedisServer::start(), RedisServer::start()];
    let (config, rules, data) =
        (folder.path().join("lately.toml"), folder.path().join("rules"), folder.path().join("data"));
    std::fs::write(&config, CONFIG).expect("room");
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
    Some(Stage { server, folder, _engines: engines })
}

impl Stage {
    fn metrics(&self) -> String {
        self.server.get("/metrics").split_once("\r\n\r\n").expect("a body").1.to_owned()
    }
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
    let Some(stage) = stage() else { return };
    let metrics = stage.metrics();
    assert_eq!(promtool(&["check", "metrics"], &metrics), (true, String::new()), "{metrics}");
    let of_type = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let all: BTreeSet<&str> = of_type.collect();
    assert!(all.len() > 50, "{all:?}");
    // The reference has them all, and no other.
    let reference = text("docs/reference/http.md");
    let section = reference.split("\n## Metrics\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    assert_eq!(names(section.expect("a section")), all);
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

/// A Prometheus that scrapes a server; killed when dropped.
struct Prometheus {
    address: String,
    child: Child,
}

impl Prometheus {
    fn start(stage: &Stage) -> Prometheus {
        let folder = stage.folder.path();
        let rules = file("packaging/prometheus/lately.rules.yml");
        let config = format!(
            "global: {{ scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms }}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n- job_name: lately\n  static_configs: [{{ targets: ['{}'] }}]\n",
            rules.canonicalize().expect("it is there").display(),
            stage.server.http
        );
        let path = folder.join("prometheus.yml");
        std::fs::write(&path, config).expect("room");
        let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
        let mut command = Command::new("prometheus");
        command.arg(flag("config.file", &path)).arg(flag("storage.tsdb.path", &folder.join("tsdb")));
        command.arg("--web.listen-address=127.0.0.1:0").arg("--log.level=info");
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("Prometheus runs");
        let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut read = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).expect("text") > 0, "Prometheus ends: {read}");
            if let Some((_, rest)) = line.split_once("msg=\"Listening on\" address=") {
                break rest.trim().to_owned();
            }
            read += &line;
        };
        // It waits when nobody takes its log.
        std::thread::spawn(move || log.lines().map_while(Result::ok).for_each(drop));
        let prometheus = Prometheus { address, child };
        // It listens before it has read its data.
        let ready = format!("http://{}/-/ready", prometheus.address);
        assert!(becomes(|| curl(&[&ready]).0 == 200), "Prometheus is not ready");
        prometheus
    }

    fn get(&self, path: &str, more: &[&str]) -> Value {
        let url = format!("http://{}{path}", self.address);
        let (status, answer) = curl(&[&["--get", &url], more].concat());
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        let answer: Value = serde_json::from_str(body).expect(body);
        assert!(status == 200 && answer["status"] == "success", "{path} {more:?}: {answer}");
        answer["data"].clone()
    }

    /// The series that a query finds.
    fn query(&self, query: &str) -> Vec<Value> {
        let data = self.get("/api/v1/query", &["--data-urlencode", &format!("query={query}")]);
        match data["resultType"].as_str() {
            Some("vector") => data["result"].as_array().expect("series").clone(),
            _ => panic!("{query}: {data}"),
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The queries in a dashboard, with the variables of Grafana filled in, and where they are.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let filled = |query: &Value| {
        let query = query.as_str().expect("a text");
        let query =
            query.replace("$__rate_interval", "1m").replace("$job", "lately").replace("$instance", ".*");
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
fn prometheus_answers_every_query_of_the_dashboard_and_of_the_rules() {
    let Some(stage) = stage() else { return };
    let prometheus = Prometheus::start(&stage);
    // Rates need two scrapes.
    assert!(becomes(|| {
        let scrapes = prometheus.query("count_over_time(lately_build_info[1m]) > 2");
        !scrapes.is_empty()
    }));
    let dashboard: Value = serde_json::from_str(&text("packaging/grafana/lately.json")).expect("JSON");
    let queries = queries(&dashboard);
    assert!(queries.len() > 50, "{queries:?}");
    for (title, query) in &queries {
        assert!(!prometheus.query(query).is_empty(), "{title}: nothing for {query}");
    }
    // The dashboard shows every metric.
    let metrics = stage.metrics();
    let shown: String = queries.iter().map(|(_, query)| format!("{query} ")).collect();
    let of_type = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let missing: Vec<&str> = of_type.filter(|name| !names(&shown).contains(name)).collect();
    assert!(missing.is_empty(), "no panel shows {missing:?}");
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
        for name in names(rule["query"].as_str().expect("a text")) {
            assert!(!prometheus.query(name).is_empty(), "{rule}: there is no {name}");
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
fn the_dashboard_is_laid_out() {
    let dashboard: Value = serde_json::from_str(&text("packaging/grafana/lately.json")).expect("JSON");
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
