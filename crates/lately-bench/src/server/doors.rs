//! What TLS and users cost, `LIMIT` over HTTP beside an axum handler that does nothing and throttlecrab-server, and the rate limit
//! service for Envoy.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::options::Options;
use crate::rounds::{Contender, interleave, median_ratio};
use crate::row::{Must, Row};
use crate::server::TABLE;
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::nothing::Way;
use crate::server::process::{Process, THROTTLECRAB_MISSING, free_address};

/// The note on figures without Envoy.
const ENVOY_MISSING: &str = "not measured: Envoy is not installed: cargo xtask test";

const HIT: [&str; 2] = ["HIT", "key:__rand_int__"];

/// Requests a second through Envoy: 100 on each of 50 connections.
const ENVOY_RATE: u64 = 5_000;

/// The config of Envoy: one limit by the address of the client. Its ports are filled in.
const ENVOY: &str = include_str!("envoy.yaml");

/// The limit, which is not reached.
const ENVOY_LIMIT: &str = r#"
[[limit]]
name = "address"
domain = "edge"
descriptors = { remote_address = "*" }
max = 1000000000
window = "1m"
"#;

/// Requests of a round.
const RESP_REQUESTS: u64 = 2_000_000;
const HTTP_REQUESTS: u64 = 100_000;

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let mut rows = vec![tls(options)?, users(options)?];
    rows.extend(http(options)?);
    rows.extend(envoy(options)?);
    Ok(rows)
}

fn openssl(arguments: &[&str]) -> Result<(), Failure> {
    let made = Command::new("openssl").args(arguments).stderr(Stdio::null()).status();
    let made = made.map_err(|error| Failure::new(format!("openssl did not start: {error}")))?;
    if made.success() { Ok(()) } else { Err(Failure::new("openssl made no certificate")) }
}

/// The figures of two servers, by redis-benchmark with these words before the request.
fn compare(
    options: &Options,
    (plain, plain_words): (&Process, &[&str]),
    (other, other_words): (&Process, &[&str]),
) -> [Vec<Measured>; 2] {
    let requests = options.pick(RESP_REQUESTS, RESP_REQUESTS / 4);
    let load = |name: &'static str, server, words: &[&str]| {
        let words: Vec<String> = words.iter().chain(&HIT).map(|&word| word.to_owned()).collect();
        Contender::new(name, move || {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            Measured::redis_benchmark(server, &words, 64, requests)
        })
    };
    let mut contenders = [load("plain", plain, plain_words), load("other", other, other_words)];
    let [plain, other] =
        interleave(&mut contenders, options.rounds()).try_into().expect("there are two contenders");
    [plain, other]
}

fn ratio_row(name: &str, [plain, other]: &[Vec<Measured>; 2], must: Must) -> Row {
    let per_second = |rounds: &[Measured]| rounds.iter().map(|m| m.per_second).collect::<Vec<f64>>();
    let ratio = median_ratio(&per_second(other), &per_second(plain));
    let note =
        format!("{}; without: {}", Measured::median(other).describe(), Measured::median(plain).describe());
    Row::new(TABLE, name, ratio, "×", must).note(note)
}

/// A server with TLS beside one without.
fn tls(options: &Options) -> Result<Row, Failure> {
    let folder = TempDir::new()?;
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (key, certificate, config) = (file("key.pem"), file("cert.pem"), folder.path().join("tls.toml"));
    let named = ["-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1"];
    let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"];
    openssl(&[&["req", "-x509", "-keyout", &key, "-out", &certificate], &named[..], &new_key].concat())?;
    let tables = format!("[server]\ntls = {{ cert = {certificate:?}, key = {key:?} }}\n");
    let (plain, with) = (Process::lately(options)?, configured(options, &config, &tables)?);
    let figures = compare(options, (&plain, &[]), (&with, &["--tls", "--cacert", &certificate]));
    let name = "doors: HIT with TLS ÷ without, pipeline 64, redis-benchmark";
    Ok(ratio_row(name, &figures, Must::AtLeast(0.6, 0.8)))
}

/// A server with users beside one without.
fn users(options: &Options) -> Result<Row, Failure> {
    let folder = TempDir::new()?;
    let (password, config) = (folder.path().join("password"), folder.path().join("users.toml"));
    fs::write(&password, "bench\n")?;
    let tables = format!(
        "[[user]]\nname = \"load\"\npassword_file = {password:?}\nkeys = [\"key:*\"]\nverbs = [\"hit\"]\n"
    );
    let (plain, with) = (Process::lately(options)?, configured(options, &config, &tables)?);
    let figures = compare(options, (&plain, &[]), (&with, &["--user", "load", "-a", "bench"]));
    let name = "doors: HIT of a user with a key pattern ÷ without users, pipeline 64, redis-benchmark";
    Ok(ratio_row(name, &figures, Must::AtLeast(0.95, 1.0)))
}

/// Our server in memory, with more tables in its config.
fn configured(options: &Options, config: &Path, tables: &str) -> Result<Process, Failure> {
    fs::write(config, format!("[memory]\nceiling = \"8GiB\"\n{tables}"))?;
    Process::ours_with(options, config, &["--in-memory"])
}

/// `LIMIT` over HTTP/1.1, 50 connections that are kept, by h2load.
fn http(options: &Options) -> Result<Vec<Row>, Failure> {
    let mut ours = Process::lately(options)?;
    let address = ours.http_address()?;
    let nothing = Process::nothing(Way::Axum)?;
    let folder = TempDir::new()?;
    let throttle = folder.path().join("throttle.json");
    fs::write(&throttle, r#"{"key":"a","max_burst":1000000,"count_per_period":1000000,"period":1}"#)?;
    let requests = options.pick(HTTP_REQUESTS, HTTP_REQUESTS / 4);
    let path = "/v1/limit/user:42?max=1000000000&window=60s";
    let load = |name: &'static str, server, at, path, body| {
        Contender::new(name, move || Measured::or_none(h2load(server, at, path, body, requests)))
    };
    let throttlecrab = Process::throttlecrab_http().transpose()?;
    let mut contenders = vec![
        load("ours", &ours, address, path, None),
        load("nothing", &nothing, nothing.address, path, None),
    ];
    if let Some(rival) = &throttlecrab {
        contenders.push(load("throttlecrab", rival, rival.address, "/throttle", Some(&*throttle)));
    }
    let figures = interleave(&mut contenders, options.rounds());
    let of = |at: usize, figure: fn(&Measured) -> f64| figures[at].iter().map(figure).collect::<Vec<f64>>();
    let medians: Vec<Measured> = figures.iter().map(|rounds| Measured::median(rounds)).collect();
    let ratio = median_ratio(&of(0, |m| m.per_second), &of(1, |m| m.per_second));
    let note = format!("{}; nothing: {}", medians[0].describe(), medians[1].describe());
    let name = "doors: LIMIT over HTTP/1.1 ÷ an axum handler that does nothing, 50 connections";
    let mut rows = vec![Row::new(TABLE, name, ratio, "×", Must::AtLeast(0.8, 0.9)).note(note)];
    let name = "doors: LIMIT over HTTP/1.1 ÷ throttlecrab-server, per second of server CPU";
    rows.push(match medians.get(2) {
        Some(rival) => {
            let ratio = median_ratio(&of(2, |m| m.cpu_us), &of(0, |m| m.cpu_us));
            Row::new(TABLE, name, ratio, "×", Must::AtLeast(1.2, 2.0)).note(rival.describe())
        }
        None => Row::new(TABLE, name, f64::NAN, "×", Must::Nothing).note(THROTTLECRAB_MISSING),
    });
    Ok(rows)
}

/// Posts to a path again and again, one request at a time on each of 50 connections.
fn h2load(
    server: &Process,
    address: SocketAddr,
    path: &str,
    body: Option<&Path>,
    requests: u64,
) -> Result<Measured, Failure> {
    let before = server.cpu_ns()?;
    let mut command = Command::new("h2load");
    command.args(["--h1", "-t", "1", "-c", "50", "-m", "1", "-n", &requests.to_string()]);
    match body {
        Some(body) => command.args(["-H", "content-type: application/json", "-d"]).arg(body),
        None => command.args(["-H", ":method: POST"]),
    };
    let output = command.arg(format!("http://{address}{path}")).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Failure::new(format!("h2load did not start: {error}")))?;
    let spent = server.cpu_ns()? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let all = format!("{requests} succeeded");
    match requests_per_second(&text) {
        Some(per_second) if text.contains(&all) => {
            #[expect(clippy::cast_precision_loss, reason = "a figure")]
            let cpu_us = spent as f64 / 1e3 / requests as f64;
            Ok(Measured { per_second, cpu_us, ..Measured::NONE })
        }
        _ => Err(Failure::new(format!("h2load {path}: {}", text.trim()))),
    }
}

/// What h2load says of its requests.
fn requests_per_second(text: &str) -> Option<f64> {
    let figures = text.lines().find_map(|line| line.strip_prefix("finished in "))?;
    figures.split(", ").nth(1)?.strip_suffix(" req/s")?.parse().ok()
}

/// How the connections of a load begin, each of which sends a request each hundredth of a second.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// A millisecond apart. So their requests come in ten groups.
    Apart,
    /// At once. So their requests come at once, too.
    Together,
}

impl Begin {
    fn describe(self) -> &'static str {
        match self {
            Begin::Apart => "",
            Begin::Together => ", 50 at once",
        }
    }
}

/// Our rate limit service behind Envoy, all on the same processors.
fn envoy(options: &Options) -> Result<Vec<Row>, Failure> {
    let mut rows = envoy_with(options, Begin::Apart)?;
    rows.extend(envoy_with(options, Begin::Together)?);
    Ok(rows)
}

fn envoy_with(options: &Options, begin: Begin) -> Result<Vec<Row>, Failure> {
    let what =
        format!("doors: rate limit service behind Envoy at {ENVOY_RATE} requests/s{}", begin.describe());
    let (latency, cost) = (format!("{what}, p99"), format!("{what}, server CPU"));
    let Some(program) = envoy_program() else {
        let missing = |name| Row::new(TABLE, name, f64::NAN, "", Must::Nothing).note(ENVOY_MISSING);
        return Ok(vec![missing(latency), missing(cost)]);
    };
    let folder = TempDir::new()?;
    let (config, file) = (folder.path().join("lately.toml"), folder.path().join("envoy.yaml"));
    let mut ours = configured(options, &config, ENVOY_LIMIT)?;
    ours.http_address()?;
    let grpc = ours.grpc_address()?;
    let application = Process::nothing(Way::Axum)?;
    let [door, admin] = [free_address()?, free_address()?];
    let port = |address: SocketAddr| address.port().to_string();
    let text =
        ENVOY.replace("LATELY_PORT", &port(grpc)).replace("APPLICATION_PORT", &port(application.address));
    fs::write(&file, text.replace("ADMIN_PORT", &port(admin)).replace("DOOR_PORT", &port(door)))?;
    let mut command = Command::new(program);
    command.arg("-c").arg(&file).args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "off"]);
    let _envoy = Process::listening(&mut command, door, None)?;
    let seconds = options.pick(30, 3);
    let requests = ENVOY_RATE * seconds;
    let before = ours.cpu_ns()?;
    let mut load = Command::new("h2load");
    load.args(["--h1", "-t", "1", "-c", "50", "-m", "1", "--rps", "100", "-n", &requests.to_string()]);
    if begin == Begin::Apart {
        load.args(["-r", "1", "--rate-period", "1ms"]);
    }
    let output = load.arg(format!("http://{door}/")).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Failure::new(format!("h2load did not start: {error}")))?;
    let spent = ours.cpu_ns()? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    // A server that is too slow lowers the rate.
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    let is_slow = requests_per_second(&text).is_none_or(|rate| rate < 0.9 * ENVOY_RATE as f64);
    if is_slow || !text.contains(&format!("{requests} succeeded")) {
        return Err(Failure::new(format!("h2load through Envoy: {}", text.trim())));
    }
    let p99 = envoy_p99(admin)?;
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    let cpu_us = spent as f64 / 1e3 / requests as f64;
    let note = format!("{requests} requests in {seconds} s, by Envoy's `upstream_rq_time`");
    Ok(vec![
        Row::new(TABLE, latency, p99, "ms", Must::AtMost(2.0, 1.0)).note(note),
        Row::new(TABLE, cost, cpu_us, "µs", Must::AtMost(16.0, 10.0)),
    ])
}

/// The p99 of the calls to our service, as Envoy measures it, in milliseconds.
fn envoy_p99(admin: SocketAddr) -> Result<f64, Failure> {
    let mut socket = TcpStream::connect(admin)?;
    write!(
        socket,
        "GET /stats?filter=cluster.lately.upstream_rq_time HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    // `… P99(1.05,1.05) …`: of the last interval, and of all.
    let all =
        text.split("P99(").nth(1).and_then(|rest| rest.split(')').next()?.split(',').nth(1)?.parse().ok());
    all.ok_or_else(|| Failure::new(format!("Envoy has no upstream_rq_time: {text}")))
}

/// Envoy, where `cargo xtask test` installs it, in `clients` beside the build folder of this program.
fn envoy_program() -> Option<PathBuf> {
    let ours = std::env::current_exe().ok()?;
    let python = ours.parent()?.parent()?.join("clients/python/lib");
    let mut versions = fs::read_dir(python).ok()?.flatten();
    versions.find_map(|version| {
        let path = version.path().join("site-packages/envoy/_bin/envoy");
        path.is_file().then_some(path)
    })
}
