//! Programs and libraries made for Redis, with their defaults, against a real server.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{has, installed};
use crate::running::{Running, serve, serve_with};

/// Runs a program to its end. Returns its standard output.
fn run(command: &mut Command, input: &str) -> Output {
    let name = command.get_program().to_string_lossy().into_owned();
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().unwrap_or_else(|error| panic!("{name}: {error}: run `cargo xtask test`"));
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    _ = writer.join();
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn redis_cli(server: &Running, args: &[&str], input: &str) -> String {
    let output =
        run(Command::new("redis-cli").args(["-h", "127.0.0.1", "-p", server.port()]).args(args), input);
    assert_eq!((text(&output.stderr).as_str(), output.status.code()), ("", Some(0)), "{args:?}");
    text(&output.stdout)
}

#[test]
fn redis_cli_sends_one_command() {
    if !has("redis-cli") {
        return;
    }
    let server = serve();
    let check =
        |args: &[&str], expected: &str| assert_eq!(redis_cli(&server, args, ""), expected, "{args:?}");
    check(&["PING"], "PONG\n");
    check(&["HIT", "k", "5"], "5\n");
    check(&["-n", "0", "HITS", "k", "1m", "5m"], "5\n5\n");
    check(&["--no-raw", "HITS", "k", "1m", "5m"], "1) (integer) 5\n2) (integer) 5\n");
    check(&["-3", "--no-raw", "RATE", "k", "1m"], "(double) 0.08333333333333333\n");
    check(&["RATE", "k", "50"], "0.1\n");
    check(&["--json", "HITS", "k", "1m", "5m"], "[5,5]\n");
    check(&["--no-raw", "TYPE", "k"], "hits\n");
    check(&["--no-raw", "NOSUCH"], "(error) ERR unknown command 'NOSUCH', with args beginning with: \n");
    check(&["-3", "CONFIG", "GET", "appendonly"], "appendonly no\n");
    check(&["--scan", "--pattern", "k*"], "k\n");
    check(&["--user", "default", "--pass", "x", "--no-auth-warning", "DBSIZE"], "1\n");
    let client = redis_cli(&server, &["-3", "CLIENT", "INFO"], "");
    assert!(client.starts_with("id=") && client.contains(" resp=3"), "{client}");
    let info = redis_cli(&server, &["INFO", "stats"], "");
    assert!(info.starts_with("# Stats\r\n") && info.contains("\r\ntotal_hits:5\r\n"), "{info}");
    assert!(redis_cli(&server, &["COMMAND", "DOCS", "HIT"], "").starts_with("hit\nsummary\n"));
}

#[test]
fn redis_cli_reads_commands_from_a_pipe() {
    if !has("redis-cli") {
        return;
    }
    let server = serve();
    let commands = "HIT k\nHIT k 2\nMULTI\nHIT k\nHITS k 1m 5m\nEXEC\nHIT\nHITS \"k\"\n";
    let expected = "1\n3\nOK\nQUEUED\nQUEUED\n4\n4\n4\nERR wrong number of arguments for 'hit' command. Usage: HIT <key> [<count>] [AT <time>] [ID <id>] [MEMBER <member>]\n\n4\n";
    assert_eq!(redis_cli(&server, &[], commands), expected);
    let hits = "HIT many\r\n".repeat(10_000);
    let output_text = redis_cli(&server, &["--pipe"], &hits);
    assert!(output_text.ends_with("errors: 0, replies: 10000\n"), "{output_text}");
    assert_eq!(server.ask::<u64>("HITS many"), 10_000);
}

fn redis_benchmark(server: &Running, args: &[&str]) {
    let mut command = Command::new("redis-benchmark");
    let output = run(command.args(["-h", "127.0.0.1", "-p", server.port()]).args(args), "");
    let output_text = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{output_text}");
    for trouble in ["WARNING", "ERR", "Error"] {
        assert!(!output_text.contains(trouble), "{args:?}: {output_text}");
    }
    assert!(
        output_text.contains("requests per second") || output_text.contains("throughput summary"),
        "{output_text}"
    );
}

#[test]
fn redis_benchmark_prints_no_warning() {
    if !has("redis-benchmark") {
        return;
    }
    redis_benchmark(&serve(), &["-t", "ping", "-n", "1000"]);
}

#[test]
fn every_hit_of_redis_benchmark_is_counted() {
    if !has("redis-benchmark") {
        return;
    }
    let server = serve();
    redis_benchmark(&server, &["-n", "20000", "-P", "16", "-r", "1000", "hit", "key:__rand_int__"]);
    let keys: u64 = server.ask("DBSIZE");
    assert!((900..=1_000).contains(&keys), "{keys}");
    let names: Vec<String> = (0..1_000).map(|number| format!("key:{number:012}")).collect();
    let counts: Vec<u64> = server.ask(&format!("MHITS 5m {}", names.join(" ")));
    assert_eq!(counts.iter().sum::<u64>(), 20_000);
    assert_eq!(server.info("total_hits"), "20000");
    assert_eq!(server.info("refused_hits"), "0");
}

/// Symptom: `redis-cli --stat` showed wrong columns. Cause: `INFO` lacked fields that it reads. Fix: they are there.
#[test]
fn redis_cli_watches_the_server() {
    if !has("redis-cli") {
        return;
    }
    let server = serve();
    assert_eq!(server.ask::<u64>("HIT k"), 1);
    let mut command = Command::new("redis-cli");
    command.args(["-h", "127.0.0.1", "-p", server.port(), "-i", "0.01", "--stat"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    // redis-cli prints only when its buffer is full, after a hundred rows or more.
    let mut printed = vec![0; 8 << 10];
    child.stdout.take().expect("a pipe").read_exact(&mut printed).expect("rows");
    child.kill().and_then(|()| child.wait()).expect("it ends");
    let printed = text(&printed);
    let rows = printed.lines().filter(|row| row.starts_with('1')).collect::<Vec<_>>();
    assert!(rows.len() > 20, "{printed}");
    // The last row may be incomplete.
    for row in &rows[..rows.len() - 1] {
        let columns: Vec<&str> = row.split_whitespace().collect();
        // The columns: keys, memory, clients, blocked, requests (+ those since the last row), connections.
        let [keys, memory, clients, blocked, requests, since, connections] = columns[..] else {
            panic!("{row}")
        };
        assert_eq!((keys, clients, blocked, connections), ("1", "1", "0", "2"), "{row}");
        assert!(memory.ends_with(['B', 'K']) && requests.parse::<u64>().is_ok(), "{row}");
        assert!(since.starts_with("(+") && since.ends_with(')'), "{row}");
    }
}

/// Runs a script in `tests/clients`, which makes its own checks and prints their number.
fn script(interpreter: &str, name: &str) {
    let Some(program) = installed(interpreter) else { return };
    if name.ends_with(".mjs") && installed("LATELY_TEST_NODE_MODULES").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    let rules = "[[limit]]\nname = \"login\"\nmax = 1\nwindow = \"1h\"\n\n\
        [[alert]]\nname = \"busy\"\nmatch = \"alerted:*\"\nabove = 2\nwindow = \"1h\"\n";
    std::fs::write(&config, rules).expect("room for a file");
    let server = serve_with(&["--config", config.to_str().expect("text")]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name);
    let output = run(Command::new(program).arg(path).args(["127.0.0.1", server.port()]), "");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && err.is_empty(), "{name}: {out}{err}");
    assert!(out.starts_with("ok ") && out.ends_with(" checks\n"), "{name}: {out}");
}

#[test]
fn redis_py() {
    script("LATELY_TEST_PYTHON", "redis_py.py");
}

#[test]
fn ioredis() {
    script("LATELY_TEST_NODE", "ioredis.mjs");
}

#[test]
fn node_redis() {
    script("LATELY_TEST_NODE", "node_redis.mjs");
}
