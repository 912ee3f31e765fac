//! curl over HTTP/1.1 and HTTP/2, and nginx with the configuration of the guide, against a real server.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use crate::common::{has, installed};
use crate::running::{Running, becomes, serve, serve_with};

/// Runs curl to its end. Returns the status of the answer, and its head and body.
pub(crate) fn curl(args: &[&str]) -> (u16, String) {
    let Output { status, stdout, stderr } = Command::new("curl")
        .args(["--silent", "--show-error", "--include", "--max-time", "60", "--write-out", "\n%{http_code}"])
        .args(args)
        .output()
        .expect("curl runs");
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    let text = String::from_utf8_lossy(&stdout).into_owned();
    let (answer, code) = text.rsplit_once('\n').expect("a status");
    (code.parse().expect("a number"), answer.to_owned())
}

const VERSIONS: [(&str, &str); 2] = [("--http1.1", "HTTP/1.1 "), ("--http2-prior-knowledge", "HTTP/2 ")];

#[test]
fn curl_speaks_http_1_and_2() {
    if !has("curl") {
        return;
    }
    for (flag, version) in VERSIONS {
        let server = serve();
        let url = |path: &str| format!("http://{}{path}", server.http);
        let check = |args: &[&str], path: &str, status: u16, part: &str| {
            let (found, answer) = curl(&[&[flag], args, &[&url(path)]].concat());
            assert_eq!(found, status, "{flag} {path}: {answer}");
            assert!(answer.starts_with(version) && answer.contains(part), "{flag} {path}: {answer}");
        };
        check(&["-XPOST"], "/v1/hit/a%2Fb?n=3", 200, r#"{"key":"a/b","hits":3}"#);
        check(&[], "/v1/hits/a/b?window=1m", 200, r#""hits":3,"#);
        check(&[], "/v1/series/a/b?window=1m&step=1m", 200, r#""points":[{"start":"#);
        check(&["-XPOST"], "/v1/limit/l?max=1&window=1m", 200, r#""allowed":true"#);
        check(&["-XPOST"], "/v1/limit/l?max=1&window=1m", 429, "quota-exceeded");
        check(&["-XPOST"], "/v1/limit/l?max=1&window=1m", 429, "ratelimit-policy: \"default\";q=1;w=60\r\n");
        check(&[], "/v1/auth?key=l&max=5&window=1m", 204, "ratelimit: \"default\";r=3;t=");
        check(&[], "/v1/nowhere", 404, "content-type: application/problem+json\r\n");
        check(&["-XPUT"], "/v1/hits/k", 405, "allow: GET,HEAD\r\n");
        check(&["-H", "Host: evil.example"], "/v1/hits/k", 421, "foreign Host");
        check(&["-H", "Origin: http://evil.example"], "/v1/hits/k", 403, "foreign Origin");
        check(&[], "/openapi.json", 200, r#""openapi":"3.1.0""#);
        check(&[], "/metrics", 200, "lately_hits_total 5\n");
        let lines = ["-H", "content-type: application/x-ndjson", "--data-binary", "{\"key\":\"k\"}\nno"];
        check(&lines, "/v1/hits", 200, r#"{"accepted":1,"rejected_lines":1,"rejected":[{"line":2,"#);
        check(&["-XDELETE"], "/v1/key/k", 204, "");
        assert_eq!(server.ask::<u64>("DBSIZE"), 2);
        check(&[], "/v1/dump", 200, "content-type: application/vnd.lately.dump\r\n");
    }
}

/// A body that does not fit the window of a stream, and many requests on one connection.
#[test]
fn curl_sends_long_bodies_and_many_requests() {
    if !has("curl") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let lines = folder.path().join("lines");
    std::fs::write(&lines, "{\"key\":\"lines\",\"n\":2}\n".repeat(100_000)).expect("room");
    for (flag, version) in VERSIONS {
        let server = serve();
        let body = format!("@{}", lines.display());
        let kind = "content-type: application/x-ndjson";
        let url = format!("http://{}/v1/hits", server.http);
        let (status, answer) = curl(&[flag, "-H", kind, "--data-binary", &body, &url]);
        assert_eq!(status, 200, "{answer}");
        assert!(answer.ends_with(r#"{"accepted":100000,"rejected_lines":0,"rejected":[]}"#), "{answer}");
        assert_eq!(server.ask::<u64>("HITS lines"), 200_000);
        // Some versions of curl cannot send a second request over HTTP/2 without TLS.
        if version == "HTTP/1.1 " {
            let url = format!("http://{}/v1/hit/k?n=[1-1000]", server.http);
            let (_, answers) = curl(&["-XPOST", &url]);
            assert_eq!(answers.matches("HTTP/1.1 200").count(), 1_000, "{answers}");
            assert_eq!(server.ask::<u64>("HITS k"), 500_500);
        }
    }
}

/// Four connections with 64 requests at once each.
#[test]
fn requests_over_one_http_2_connection_run_at_once() {
    if !has("h2load") {
        return;
    }
    let server = serve();
    let url = format!("http://{}/v1/auth?key=k&max=100000&window=1m", server.http);
    let output = Command::new("h2load").args(["-n", "5000", "-c", "4", "-m", "64", &url]).output();
    let output = output.expect("h2load runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("status codes: 5000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{printed}");
    assert_eq!(server.ask::<u64>("HITS k"), 5_000);
}

/// Requests made from the description are answered as it says: no status, header, type or member that it does not have, and
/// no error of the server. That all valid ones are accepted is left out, because whether a time is too old, or a window longer
/// than the retention, is not in the description. schemathesis leaves out the description itself, and the stream of events has no end.
#[test]
fn http_answers_as_its_description_says() {
    let Some(schemathesis) = installed("LATELY_TEST_SCHEMATHESIS") else { return };
    let server = serve();
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let folder = tempfile::tempdir().expect("a folder");
    // A line that is wrong is rejected in an answer of status 200.
    let lines =
        "[[operations]]\ninclude-name = \"POST /v1/hits\"\nchecks.negative_data_rejection.enabled = false\n";
    std::fs::write(folder.path().join("schemathesis.toml"), lines).expect("room");
    let Output { status, stdout, .. } = Command::new(schemathesis)
        .args(["run", &format!("http://{}/openapi.json", server.http), "--no-color", "--continue-on-failure"])
        .args(["--exclude-path", "/v1/events"])
        .args(["--max-examples", "30", "--seed", "1", "--exclude-checks", "positive_data_acceptance"])
        .env("PYTHONPATH", hooks)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SCHEMATHESIS_HOOKS", "schemathesis_hooks")
        .current_dir(folder.path())
        .output()
        .expect("schemathesis runs");
    let printed = String::from_utf8_lossy(&stdout);
    assert!(status.success(), "{printed}");
    let selected = printed.split_once("Selected: ").and_then(|(_, rest)| rest.split_once('/'));
    let (selected, _) = selected.unwrap_or_else(|| panic!("{printed}"));
    assert!(
        printed.contains(&format!("Selected: {selected}/{}", selected.parse::<u32>().expect("a number") + 1)),
        "{printed}"
    );
    assert!(printed.contains(&format!("Tested: {selected}\n")), "{printed}");
}

/// The first block of the guide in this language.
fn block(language: &str) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/http.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let (_, block) = guide.split_once(&format!("```{language}\n")).expect("it has one");
    block.split("```").next().expect("a block ends").to_owned()
}

/// An nginx in front of an application that always answers `in`; killed when dropped.
struct Nginx {
    address: String,
    child: Child,
    _folder: TempDir,
}

impl Nginx {
    fn start(server: &Running) -> Nginx {
        // Another process may take the port before nginx does.
        (0..10).find_map(|_| Nginx::try_start(server)).expect("nginx starts")
    }

    fn try_start(server: &Running) -> Option<Nginx> {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        drop(listener);
        let path = folder.path().display().to_string();
        let locations = block("nginx").replace("127.0.0.1:7380", &server.http);
        let locations = locations.replace("http://127.0.0.1:8080", &format!("http://unix:{path}/app.sock:"));
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {path}/{name};\n"))
            .concat();
        let config = format!(
            "daemon off;\nmaster_process off;\npid {path}/pid;\nerror_log {path}/error.log;\nevents {{}}\nhttp {{\n{temporary}access_log off;\n\
            server {{\nlisten {address};\n{locations}}}\n\
            server {{\nlisten unix:{path}/app.sock;\nlocation / {{ return 200 \"in\"; }}\n}}\n}}\n"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, config).expect("room");
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&file).args(["-e", &format!("{path}/error.log")]);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("nginx runs");
        let mut has_ended = || child.try_wait().expect("a child").is_some();
        assert!(becomes(|| TcpStream::connect(&address).is_ok() || has_ended()), "nginx does not start");
        if has_ended() {
            let log = std::fs::read_to_string(folder.path().join("error.log")).unwrap_or_default();
            assert!(log.contains("Address already in use"), "{log}");
            return None;
        }
        Some(Nginx { address, child, _folder: folder })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The snippets of the guide: five logins a minute for each client, who cannot pass for another.
#[test]
#[cfg(target_os = "linux")]
fn nginx_asks_lately_whether_a_request_may_pass() {
    if !has("nginx") || !has("curl") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    std::fs::write(&config, block("toml")).expect("room");
    let server = serve_with(&["--config", config.to_str().expect("text")]);
    let nginx = Nginx::start(&server);
    let login = |from: &str, more: &[&str]| {
        let url = format!("http://{}/login", nginx.address);
        curl(&[&["--interface", from, "-H", "Origin: https://app.example"], more, &[&url]].concat())
    };
    for _ in 0..5 {
        let (status, answer) = login("127.0.0.2", &["--data", "password=1234"]);
        assert!(status == 200 && answer.ends_with("\r\n\r\nin"), "{answer}");
    }
    for forged in ["X-Other: 1", "X-Forwarded-For: 198.51.100.7", "X-Real-IP: 198.51.100.7"] {
        let (status, answer) = login("127.0.0.2", &["-H", forged]);
        assert_eq!(status, 429, "{answer}");
        assert!(answer.to_lowercase().contains("\r\nretry-after: 900\r\n"), "{answer}");
    }
    assert_eq!(login("127.0.0.3", &[]).0, 200);
    assert_eq!(server.ask::<u64>("HITS login:127.0.0.2"), 5);
    // Without Lately nothing passes.
    drop(server);
    assert_eq!(login("127.0.0.3", &[]).0, 500);
}
