//! Time series databases for tests: Prometheus and VictoriaMetrics.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::http_clients::curl;
use crate::running::becomes;

/// A server on a free port, with a folder for its data; stopped when dropped.
pub(crate) struct TimeSeries {
    pub(crate) address: String,
    command: Vec<String>,
    child: Option<Child>,
    ready: &'static str,
    folder: TempDir,
}

impl TimeSeries {
    /// A Prometheus that takes samples by remote write, and has a configuration.
    pub(crate) fn prometheus(config: &str) -> TimeSeries {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("prometheus.yml");
        std::fs::write(&path, config).expect("room");
        let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
        let command = vec![
            "prometheus".to_owned(),
            flag("config.file", &path),
            flag("storage.tsdb.path", &folder.path().join("tsdb")),
            "--web.enable-remote-write-receiver".to_owned(),
            "--web.listen-address={address}".to_owned(),
        ];
        TimeSeries::start(command, "/-/ready", folder)
    }

    /// A VictoriaMetrics that keeps one of several samples of a series at one time.
    pub(crate) fn victoria_metrics() -> TimeSeries {
        let folder = tempfile::tempdir().expect("a folder");
        let command = vec![
            "victoria-metrics".to_owned(),
            format!("-storageDataPath={}", folder.path().display()),
            "-dedup.minScrapeInterval=1ms".to_owned(),
            "-search.latencyOffset=0s".to_owned(),
            "-httpListenAddr={address}".to_owned(),
        ];
        TimeSeries::start(command, "/health", folder)
    }

    /// Another process may take the port first: then the server ends, and the next port is tried.
    fn start(command: Vec<String>, ready: &'static str, folder: TempDir) -> TimeSeries {
        let mut it = TimeSeries { address: String::new(), command, child: None, ready, folder };
        for _ in 0..20 {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            it.address = listener.local_addr().expect("bound").to_string();
            drop(listener);
            if it.run() {
                return it;
            }
        }
        panic!("{:?} does not start", it.command);
    }

    /// Runs it. Returns whether it serves.
    fn run(&mut self) -> bool {
        let words: Vec<String> =
            self.command.iter().map(|word| word.replace("{address}", &self.address)).collect();
        let mut command = Command::new(&words[0]);
        let mut child = command
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it is installed");
        // It waits when nobody takes its log.
        let log = BufReader::new(child.stderr.take().expect("a pipe"));
        std::thread::spawn(move || log.lines().map_while(Result::ok).for_each(drop));
        let ready = format!("http://{}{}", self.address, self.ready);
        let mut has_ended = false;
        let serves = becomes(|| {
            has_ended = child.try_wait().expect("a process").is_some();
            has_ended
                || Command::new("curl")
                    .args(["--silent", "--fail", "--output", "/dev/null", &ready])
                    .status()
                    .is_ok_and(|status| status.success())
        });
        assert!(serves, "{words:?} is not ready");
        self.child = Some(child);
        !has_ended
    }

    /// Stops it in the usual way, which keeps its data.
    pub(crate) fn stop(&mut self) {
        self.signal("TERM");
        self.child.take().expect("it runs").wait().expect("it ends");
    }

    /// Starts it again, with its data, on the same port.
    pub(crate) fn start_again(&mut self) {
        assert!(self.run(), "the port is free again");
    }

    /// Replaces the configuration of a Prometheus that runs.
    pub(crate) fn configure(&self, config: &str) {
        std::fs::write(self.folder.path().join("prometheus.yml"), config).expect("room");
        self.signal("HUP");
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.as_ref().expect("it runs").id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success(), "{kill}");
    }

    /// Where it takes samples by remote write.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/api/v1/write", self.address)
    }

    pub(crate) fn get(&self, path: &str, more: &[&str]) -> Value {
        let url = format!("http://{}{path}", self.address);
        let (status, answer) = curl(&[&["--get", &url], more].concat());
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        let answer: Value = serde_json::from_str(body).expect(body);
        assert!(status == 200 && answer["status"] == "success", "{path} {more:?}: {answer}");
        answer["data"].clone()
    }

    /// The series that a query finds.
    pub(crate) fn query(&self, query: &str) -> Vec<Value> {
        let data = self.get("/api/v1/query", &["--data-urlencode", &format!("query={query}")]);
        match data["resultType"].as_str() {
            Some("vector" | "matrix") => data["result"].as_array().expect("series").clone(),
            _ => panic!("{query}: {data}"),
        }
    }
}

impl Drop for TimeSeries {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
