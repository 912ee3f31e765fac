//! Envoy in front of an application, with the configuration of the guide, against a real server.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::common::{has, installed};
use crate::http_clients::curl;
use crate::running::{Running, becomes, serve_with, start};

/// The first block of the guide in this language.
fn block(language: &str) -> String {
    nth_block(language, 0)
}

fn nth_block(language: &str, index: usize) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/envoy.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let block = guide.split(&format!("```{language}\n")).nth(index + 1).expect("it has one");
    block.split("```").next().expect("a block ends").to_owned()
}

/// Answers every request with `in`, and with the `x-tokens` of the request, until the test ends.
fn application() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut out = socket.try_clone().expect("a file descriptor");
                let mut tokens = String::new();
                for line in BufReader::new(socket).lines().map_while(Result::ok) {
                    if line.starts_with("x-tokens: ") {
                        tokens = line + "\r\n";
                    } else if line.is_empty() {
                        let tokens = std::mem::take(&mut tokens);
                        let answer = format!("HTTP/1.1 200 OK\r\n{tokens}content-length: 2\r\n\r\nin");
                        if out.write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    port
}

/// An Envoy; killed when dropped.
pub(crate) struct Envoy {
    address: String,
    child: Child,
    _folder: TempDir,
}

/// Envoy, if it and curl are installed.
pub(crate) fn program() -> Option<OsString> {
    installed("LATELY_TEST_ENVOY").filter(|_| has("curl"))
}

/// A server with the limits of the guide, its folder, and an Envoy that asks it.
fn stage() -> Option<(TempDir, Running, Envoy)> {
    let program = program()?;
    let folder = tempfile::tempdir().expect("a folder");
    let server = lately(folder.path(), "127.0.0.1:0").loaded();
    let envoy = Envoy::start(&program, &server, "");
    Some((folder, server, envoy))
}

impl Envoy {
    /// An Envoy that asks a server. It sends another descriptor of these actions, if there are any.
    pub(crate) fn start(program: &OsStr, server: &Running, actions: &str) -> Envoy {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, admin) = (folder.path().join("envoy.yaml"), folder.path().join("admin"));
        let lately = server.grpc.rsplit_once(':').expect("a port").1;
        let config = block("yaml");
        let beside = config.lines().find(|line| line.ends_with("descriptor_key: api_key } }]"));
        let beside = beside.expect("the guide has this descriptor");
        let (start, _) = beside.split_once('[').expect("a list");
        let more = if actions.is_empty() { String::new() } else { format!("\n{start}{actions}") };
        // Envoy lets a request pass that is not answered in time. Other tests keep the processors busy.
        assert!(config.contains("timeout: 0.1s"), "the guide has a timeout");
        let config = config
            .replace("timeout: 0.1s", "timeout: 30s")
            .replace(beside, &format!("{beside}{more}"))
            .replace("port_value: 8000", "port_value: 0")
            .replace("port_value: 8080", &format!("port_value: {}", application()))
            .replace("port_value: 7381", &format!("port_value: {lately}"));
        let own = "\nadmin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }\n";
        std::fs::write(&file, config + own).expect("room");
        let mut command = Command::new(program);
        command.arg("-c").arg(&file).arg("--admin-address-path").arg(&admin);
        command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("Envoy runs");
        let mut envoy = Envoy { address: String::new(), child, _folder: folder };
        let listening = || {
            let admin = std::fs::read_to_string(&admin).unwrap_or_default();
            let (_, listeners) =
                (!admin.is_empty()).then(|| curl(&[&format!("http://{admin}/listeners")]))?;
            let line = listeners.lines().find_map(|line| line.strip_prefix("http::"))?;
            Some(line.trim().to_owned())
        };
        let has_ended = |child: &mut Child| child.try_wait().expect("a child").is_some();
        assert!(becomes(|| listening().is_some() || has_ended(&mut envoy.child)), "Envoy does not start");
        envoy.address = listening().expect("Envoy listens");
        envoy
    }

    /// The status and the answer to a request from an address.
    pub(crate) fn get(&self, from: &str, path: &str, more: &[&str]) -> (u16, String) {
        let url = format!("http://{}{path}", self.address);
        curl(&[&["--interface", from], more, &[&url]].concat())
    }

    /// Checks the statuses of requests.
    fn check(&self, from: &str, path: &str, more: &[&str], expected: &[u16]) {
        let statuses: Vec<u16> = expected.iter().map(|_| self.get(from, path, more).0).collect();
        assert_eq!(statuses, expected, "{from} {path} {more:?}");
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with the limits of the guide. `folder` has its config and its counts.
fn lately(folder: &Path, grpc: &str) -> Running {
    let (config, data) = (folder.join("lately.toml"), folder.join("data"));
    std::fs::write(&config, block("toml")).expect("room");
    let [config, data] = [&config, &data].map(|path| path.to_str().expect("text"));
    let args = ["serve", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", grpc];
    start(&[&args[..], &["--config", config, "--data", data]].concat())
}

#[test]
#[cfg(target_os = "linux")]
fn envoy_limits_by_address_path_and_header() {
    let Some((_folder, server, envoy)) = stage() else { return };
    for left in (0..5).rev() {
        let (status, answer) = envoy.get("127.0.0.2", "/", &[]);
        assert!(status == 200 && answer.ends_with("\r\n\r\nin"), "{answer}");
        assert!(answer.contains("\r\nx-ratelimit-limit: 5, 5;w=60;name=\"address\"\r\n"), "{answer}");
        assert!(answer.contains(&format!("\r\nx-ratelimit-remaining: {left}\r\n")), "{answer}");
    }
    let (status, answer) = envoy.get("127.0.0.2", "/", &[]);
    assert_eq!(status, 429, "{answer}");
    for header in ["x-envoy-ratelimited: true", "x-ratelimit-remaining: 0", "x-ratelimit-reset: "] {
        assert!(answer.contains(&format!("\r\n{header}")), "{answer}");
    }
    assert_eq!(server.ask::<u64>("HITS address:remote_address=127.0.0.2"), 5);
    // By path, whatever its query: other paths pass.
    envoy.check("127.0.0.3", "/login", &[], &[200]);
    envoy.check("127.0.0.3", "/login?next=1", &[], &[200, 429]);
    envoy.check("127.0.0.3", "/", &[], &[200]);
    // By header: other values pass. The address counts each request.
    envoy.check("127.0.0.4", "/", &["-H", "x-api-key: a"], &[200, 200, 200, 429]);
    envoy.check("127.0.0.4", "/", &["-H", "x-api-key: b"], &[200, 429]);
    // In shadow every request passes.
    envoy.check("127.0.0.5", "/search?q=1", &[], &[200; 3]);
    envoy.check("127.0.0.6", "/search?q=1", &[], &[200; 3]);
    let metrics = server.get("/metrics");
    let would_deny = "{limit=\"search\",decision=\"would_deny\"} 5\n";
    assert!(metrics.contains(would_deny), "{metrics}");
}

/// A limit on tokens, which are known when the response has ended, denies the next request.
#[test]
#[cfg(target_os = "linux")]
fn envoy_reports_costs_when_responses_end() {
    let Some((_folder, server, envoy)) = stage() else { return };
    let used = |expected: u64| becomes(|| server.ask::<u64>("HITS tokens:tokens=a") == expected);
    envoy.check("127.0.0.7", "/", &["-H", "x-team: a", "-H", "x-tokens: 600"], &[200]);
    assert!(used(600), "the report of the first response");
    // More than what is left.
    envoy.check("127.0.0.7", "/", &["-H", "x-team: a", "-H", "x-tokens: 900"], &[200]);
    assert!(used(1_500), "the report of the second response");
    envoy.check("127.0.0.7", "/", &["-H", "x-team: a", "-H", "x-tokens: 1"], &[429]);
    envoy.check("127.0.0.7", "/", &["-H", "x-team: b", "-H", "x-tokens: 1"], &[200]);
    assert_eq!(server.ask::<u64>("HITS tokens:tokens=a"), 1_500);
}

/// While Lately is away Envoy lets everything pass, as it is configured. Then the counts of before are in force again.
#[test]
#[cfg(target_os = "linux")]
fn envoy_survives_a_killed_server() {
    let Some((folder, server, envoy)) = stage() else { return };
    envoy.check("127.0.0.3", "/login", &[], &[200, 200, 429]);
    let grpc = server.grpc.clone();
    server.signal("KILL");
    server.ended();
    envoy.check("127.0.0.3", "/login", &[], &[200]);
    let server = lately(folder.path(), &grpc).loaded();
    assert!(becomes(|| envoy.get("127.0.0.3", "/login", &[]).0 == 429), "the limit is in force again");
    assert_eq!(server.ask::<u64>("HITS login:header_match=login 1h"), 2);
}

/// The rules of the guide, with another descriptor of Envoy that has two entries.
#[test]
#[cfg(target_os = "linux")]
fn envoy_is_limited_by_rules_of_envoyproxy_ratelimit() {
    let Some(program) = program() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("edge.yaml"), nth_block("yaml", 1)).expect("room");
    let rules = folder.path().to_str().expect("text");
    let server = serve_with(&["--ratelimit-config", rules]);
    let nested = "[{ request_headers: { header_name: x-api-key, descriptor_key: api_key } }, { request_headers: { header_name: \":path\", descriptor_key: path } }]";
    let envoy = Envoy::start(&program, &server, nested);
    for left in (0..5).rev() {
        let (status, answer) = envoy.get("127.0.0.2", "/", &[]);
        assert!(status == 200, "{answer}");
        assert!(answer.contains("\r\nx-ratelimit-limit: 5, 5;w=60\r\n"), "{answer}");
        assert!(answer.contains(&format!("\r\nx-ratelimit-remaining: {left}\r\n")), "{answer}");
    }
    envoy.check("127.0.0.2", "/", &[], &[429]);
    // All paths below /login share a limit.
    envoy.check("127.0.0.3", "/login", &[], &[200]);
    envoy.check("127.0.0.3", "/login/reset", &[], &[200, 429]);
    // In shadow every request passes.
    envoy.check("127.0.0.4", "/search", &[], &[200; 3]);
    // By header and path together, for each key on its own.
    envoy.check("127.0.0.5", "/report", &["-H", "x-api-key: a"], &[200, 429]);
    envoy.check("127.0.0.5", "/report", &["-H", "x-api-key: b"], &[200]);
    envoy.check("127.0.0.6", "/other", &["-H", "x-api-key: a"], &[200; 3]);
    assert_eq!(server.ask::<u64>("HITS ratelimit:day:edge:api_key=a,path=/report"), 1);
    // Tokens, which are known when the response has ended, deny the next request.
    let used =
        |expected: u64| becomes(|| server.ask::<u64>("HITS ratelimit:minute:edge:tokens=a") == expected);
    for (tokens, sum) in [(600, 600), (900, 1_500)] {
        envoy.check("127.0.0.7", "/", &["-H", "x-team: a", "-H", &format!("x-tokens: {tokens}")], &[200]);
        assert!(used(sum), "the report of the response");
    }
    envoy.check("127.0.0.7", "/", &["-H", "x-team: a", "-H", "x-tokens: 1"], &[429]);
    envoy.check("127.0.0.7", "/", &["-H", "x-team: b", "-H", "x-tokens: 1"], &[200]);
    let metrics = server.get("/metrics");
    for (metric, rule, value) in [
        ("shadow_mode", "path_/search", 2),
        ("over_limit", "path_/login*", 1),
        ("near_limit", "remote_address", 1),
        ("within_limit", "api_key.path_/report", 2),
    ] {
        let line = format!("\nlately_ratelimit_{metric}_total{{domain=\"edge\",rule=\"{rule}\"}} {value}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}
