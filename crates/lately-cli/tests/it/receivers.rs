//! Receivers of alerts that are not ours: an Alertmanager of Prometheus, and a webhook over HTTPS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::Certificates;

use crate::common::{command, has};
use crate::running::{FREE, PATIENCE, Running, becomes, start_command};

/// A listener on a free port that answers each request with 200.
struct Hook {
    /// `127.0.0.1:PORT`
    address: String,
    /// The bodies of the requests, or why there was none.
    got: Receiver<std::io::Result<Value>>,
}

impl Hook {
    fn new(tls: Option<Arc<ServerConfig>>) -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let (sender, got) = channel();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let socket = socket.expect("a client");
                socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                let body = match &tls {
                    None => answer(socket),
                    Some(tls) => {
                        let connection = ServerConnection::new(Arc::clone(tls)).expect("a connection");
                        answer(StreamOwned::new(connection, socket))
                    }
                };
                // When nobody waits, the test has ended.
                if sender.send(body).is_err() {
                    return;
                }
            }
        });
        Hook { address, got }
    }

    fn next(&self) -> Value {
        self.got.recv_timeout(PATIENCE).expect("a client").expect("a request")
    }
}

/// Reads a request and answers it. Returns its body.
fn answer(stream: impl Read + Write) -> std::io::Result<Value> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let stream = stream.get_mut();
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    stream.flush()?;
    Ok(serde_json::from_slice(&body).expect("JSON"))
}

/// A server with one alert, on more than two hits of `k:*` in an hour, with these receivers. `FLUSHALL` ends it.
fn server_with(receiver: &str, environment: &[(&str, &str)]) -> (Running, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    let text =
        format!("[[alert]]\nname = \"many\"\nmatch = \"k:*\"\nabove = 2\nwindow = \"1h\"\n{receiver}\n");
    std::fs::write(&config, text).expect("room");
    let config = ["--in-memory", "--config", config.to_str().expect("text")];
    let mut command = command(&[&FREE, &config[..]].concat());
    (start_command(command.envs(environment.iter().copied())), folder)
}

/// An Alertmanager on a free port; killed when dropped.
struct Alertmanager {
    url: String,
    child: Child,
    _folder: TempDir,
}

impl Alertmanager {
    /// One that notifies a webhook at once.
    fn start(hook: &str) -> Alertmanager {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("alertmanager.yml");
        let text = format!(
            "route: {{ receiver: hook, group_wait: 0s, group_interval: 1s }}\n\
             receivers: [{{ name: hook, webhook_configs: [{{ url: 'http://{hook}/' }}] }}]\n"
        );
        std::fs::write(&config, text).expect("room");
        let mut child = Command::new("prometheus-alertmanager")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", folder.path().display()))
            .args(["--web.listen-address=127.0.0.1:0", "--cluster.listen-address="])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
        let (mut line, mut lines) = (String::new(), String::new());
        let address = loop {
            line.clear();
            assert_ne!(log.read_line(&mut line).expect("text"), 0, "it ended: {lines}");
            lines.push_str(&line);
            if let Some((_, address)) = line.trim().split_once("msg=\"Listening on\" address=") {
                break address.to_owned();
            }
        };
        // It goes on logging.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Alertmanager { url: format!("http://{address}"), child, _folder: folder }
    }

    /// The alerts that it has.
    fn alerts(&self) -> Value {
        let mut answer = ureq::get(format!("{}/api/v2/alerts", self.url)).call().expect("an answer");
        serde_json::from_str(&answer.body_mut().read_to_string().expect("text")).expect("JSON")
    }
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The Alertmanager of Debian takes an alert with its labels, fires it, and resolves it when it has ended.
#[test]
fn a_real_alertmanager_fires_and_resolves_an_alert() {
    if !has("prometheus-alertmanager") {
        return;
    }
    let hook = Hook::new(None);
    let manager = Alertmanager::start(&hook.address);
    let (server, _folder) = server_with(&format!("alertmanager = \"{}\"", manager.url), &[]);
    server.ask::<Vec<u64>>("MHIT k:a 3 k:b 1");
    assert!(becomes(|| manager.alerts() != json!([])));
    let alert = manager.alerts()[0].clone();
    let labels = json!({"alertname": "many", "job": "lately", "kind": "above", "match": "k:*"});
    assert_eq!(alert["labels"], labels);
    let annotations =
        json!({"summary": "4 hits of k:* in 1h, more than 2", "keys": "k:a 3 (75 %), k:b 1 (25 %)"});
    assert_eq!(alert["annotations"], annotations);
    assert_eq!(alert["status"]["state"], "active");
    let fired = hook.next();
    assert_eq!((&fired["status"], &fired["alerts"][0]["labels"]), (&json!("firing"), &labels));
    assert_eq!(fired["alerts"][0]["annotations"], annotations);
    server.ask::<String>("FLUSHALL");
    let resolved = hook.next();
    assert_eq!((&resolved["status"], &resolved["alerts"][0]["labels"]), (&json!("resolved"), &labels));
    assert!(becomes(|| manager.alerts() == json!([])));
    assert!(server.get("/metrics").contains("\nlately_alert_delivery_failures_total 0\n"));
}

/// A webhook over HTTPS gets alerts when an authority that is trusted has signed its certificate, and else nothing.
#[test]
fn a_webhook_over_https_is_verified() {
    if !has("openssl") {
        return;
    }
    let (known, unknown) = (Certificates::make(), Certificates::make());
    let tls = |of: &Certificates| {
        let certificate = CertificateDer::from_pem_file(of.file("cert.pem")).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(of.file("key.pem")).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("versions").with_no_client_auth();
        Arc::new(builder.with_single_cert(vec![certificate], key).expect("they agree"))
    };
    let (hook, stranger) = (Hook::new(Some(tls(&known))), Hook::new(Some(tls(&unknown))));
    let authority = known.file("ca.pem");
    let trust = [("SSL_CERT_FILE", authority.to_str().expect("text")), ("SSL_CERT_DIR", "")];
    // The second alert is the same, for a receiver whose authority is not trusted.
    let more = format!(
        "webhook = \"https://{}/hook\"\n[[alert]]\nname = \"other\"\nmatch = \"k:*\"\nabove = 2\nwindow = \"1h\"\nwebhook = \"https://{}/\"",
        hook.address, stranger.address
    );
    let (server, _folder) = server_with(&more, &trust);
    server.ask::<u64>("HIT k:a 3");
    let started = hook.next();
    assert_eq!((&started["type"], &started["data"]["name"]), (&json!("alert.started"), &json!("many")));
    assert_eq!(started["data"]["keys"], json!([{"key": "k:a", "hits": 3, "share": 1.0}]));
    server.ask::<String>("FLUSHALL");
    assert_eq!(hook.next()["type"], "alert.ended");
    let refused = stranger.got.recv_timeout(PATIENCE).expect("a client").expect_err("no request");
    assert!(refused.to_string().starts_with("received fatal alert"), "{refused}");
}
