//! `lately ship`: the hits of logs at a server, each line once, whatever ends in between.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use flate2::write::GzEncoder;
use lately::{Clock, SystemClock};

use crate::common::{Run, command, lately, lately_reading};
use crate::rng::Rng;
use crate::running::{FREE, Running, becomes, serve, serve_in, start};
use crate::top::append;

/// Kills for each durability.
const ROUNDS: u64 = 20;
const KEYS: u64 = 7;

/// A log that is written and rotated, and what is in all of its files.
struct Writer {
    folder: tempfile::TempDir,
    file: Option<File>,
    rng: Rng,
    lines: u64,
    rotations: u64,
    keys: BTreeMap<String, u64>,
}

impl Writer {
    fn new(seed: u64) -> Writer {
        let folder = tempfile::tempdir().expect("a folder");
        Writer { folder, file: None, rng: Rng::new(seed), lines: 0, rotations: 0, keys: BTreeMap::new() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("access.log")
    }

    fn rotated(&self, number: u64) -> PathBuf {
        self.folder.path().join(format!("access.log.{number}"))
    }

    /// Writes a few lines, at times a part of one first.
    fn write(&mut self) {
        let path = self.path();
        let now_ms = SystemClock::new().now().as_millis();
        for _ in 0..=self.rng.below(60) {
            let key = format!("k{}", self.rng.below(KEYS));
            let (second, milli) = (now_ms / 1_000, now_ms % 1_000);
            let line = format!("{{\"time\":{second}.{milli:03},\"ip\":\"{key}\",\"n\":{}}}\n", self.lines);
            let open = || File::options().append(true).create(true).open(&path).expect("a file");
            let file = self.file.get_or_insert_with(open);
            let cut = usize::try_from(self.rng.below(line.len() as u64)).expect("short");
            if self.rng.once_in(8) {
                file.write_all(&line.as_bytes()[..cut]).expect("room");
                file.write_all(&line.as_bytes()[cut..]).expect("room");
            } else {
                file.write_all(line.as_bytes()).expect("room");
            }
            self.lines += 1;
            *self.keys.entry(key).or_default() += 1;
        }
    }

    /// Gives the file another name, and at times compresses the one before it. The writer may go on with it for a while.
    fn rotate(&mut self) {
        if !self.path().exists() {
            return;
        }
        self.rotations += 1;
        fs::rename(self.path(), self.rotated(self.rotations)).expect("it is there");
        if self.rng.once_in(2) {
            self.write();
        }
        self.file = None;
        if self.rng.once_in(2) && self.rotations > 1 {
            self.compress(self.rotations - 1);
        }
    }

    fn compress(&self, number: u64) {
        let plain = self.rotated(number);
        if let Ok(text) = fs::read(&plain) {
            let packed = plain.with_extension(format!("{number}.gz"));
            gzip(&packed, &text);
            // As gzip and logrotate do.
            let written = fs::metadata(&plain).and_then(|metadata| metadata.modified()).expect("a time");
            File::options()
                .append(true)
                .open(packed)
                .and_then(|file| file.set_modified(written))
                .expect("a time");
            fs::remove_file(plain).expect("it is there");
        }
    }
}

fn gzip(path: &Path, text: &[u8]) {
    let mut encoder = GzEncoder::new(File::create(path).expect("a file"), flate2::Compression::fast());
    encoder.write_all(text).expect("room");
    encoder.finish().expect("room");
}

/// A running `lately ship`; killed when it is dropped.
struct Shipping(Child);

impl Shipping {
    fn start(server: &str, args: &[&str]) -> Shipping {
        Shipping(command(&[&["ship", "--server", server], args].concat()).spawn().expect("the binary starts"))
    }

    /// Waits until it says something.
    fn says(&mut self, what: &str) {
        let mut messages = BufReader::new(self.0.stderr.as_mut().expect("a pipe"));
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            assert_ne!(messages.read_line(&mut line).expect("text"), 0, "it ended without saying '{what}'");
        }
    }

    /// Ends it in order; gives its messages.
    fn end(mut self) -> String {
        let kill = format!("kill -TERM {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
        let mut messages = String::new();
        self.0.stderr.take().expect("a pipe").read_to_string(&mut messages).expect("text");
        assert_eq!(self.0.wait().expect("it ends").code(), Some(0), "{messages}");
        messages
    }
}

impl Drop for Shipping {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The hits of keys at a server, in the last day.
fn counts(server: &Running) -> BTreeMap<String, u64> {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let hits: Vec<u64> = server.ask(&format!("MHITS 1d {}", keys.join(" ")));
    keys.into_iter().zip(hits).filter(|(_, hits)| *hits > 0).collect()
}

/// Waits until the server has all lines, or more.
fn has_all(server: &Running, lines: u64) -> bool {
    becomes(|| counts(server).values().sum::<u64>() >= lines)
}

/// A log grows and rotates while `ship` and the server are killed at random moments. Each time both run again, the server has
/// each line once.
fn survives_kills(durability: &str, seed: u64) {
    let mut writer = Writer::new(seed);
    let data = tempfile::tempdir().expect("a folder");
    let log = writer.path();
    let log = log.to_str().expect("text").to_owned();
    let more = ["--durability", durability];
    let mut server = serve_in(data.path(), &more);
    let mut shipping = Shipping::start(&server.resp, &[&log]);
    for round in 0..ROUNDS {
        for _ in 0..=writer.rng.below(40) {
            writer.write();
            if writer.rng.once_in(12) {
                writer.rotate();
            }
            // It goes on to read, to send and to be answered meanwhile.
            (0..writer.rng.below(3_000)).for_each(|_| drop(fs::read_dir(writer.folder.path())));
        }
        let kills_server = writer.rng.once_in(2);
        if kills_server {
            let address = server.resp.clone();
            drop(server);
            writer.write();
            let restart = [
                "serve",
                "--resp",
                &address,
                "--http",
                "127.0.0.1:0",
                "--data",
                data.path().to_str().expect("text"),
            ];
            server = start(&[&restart[..], &more].concat()).loaded();
        }
        if !kills_server || writer.rng.once_in(3) {
            drop(shipping);
            writer.write();
            if writer.rng.once_in(2) {
                writer.rotate();
                writer.write();
            }
            shipping = Shipping::start(&server.resp, &[&log]);
        }
        let about = || format!("round {round}, {durability}, {} lines", writer.lines);
        assert!(has_all(&server, writer.lines), "{}: {:?}", about(), counts(&server));
        assert_eq!(counts(&server), writer.keys, "{}", about());
    }
    assert!(writer.rotations > 5, "{}", writer.rotations);
    shipping.end();
    assert_eq!(counts(&server), writer.keys);
    // After a kill the positions are there with the counts.
    drop(server);
    let server = serve_in(data.path(), &more);
    let shipping = Shipping::start(&server.resp, &[&log]);
    writer.write();
    assert!(has_all(&server, writer.lines));
    shipping.end();
    assert_eq!(counts(&server), writer.keys);
}

#[test]
fn each_line_counts_once_over_kills() {
    survives_kills("interval", 1);
}

#[test]
fn each_line_counts_once_over_kills_where_replies_wait_for_the_disk() {
    survives_kills("always", 2);
}

#[test]
fn rotations_while_nothing_runs_lose_nothing() {
    let mut writer = Writer::new(3);
    let log = writer.path();
    let log = log.to_str().expect("text").to_owned();
    // What was rotated before the first start is not sent.
    writer.write();
    writer.rotate();
    writer.write();
    writer.compress(1);
    (writer.lines, writer.keys) = (0, BTreeMap::new());
    writer.file = None;
    fs::remove_file(writer.path()).expect("it is there");
    let server = serve();
    writer.write();
    let shipping = Shipping::start(&server.resp, &[&log]);
    assert!(has_all(&server, writer.lines));
    shipping.end();
    // The rest of a file that was renamed and compressed; a whole one that came and went; and a plain one.
    for _ in 0..3 {
        writer.write();
        writer.rotate();
    }
    for number in 2..writer.rotations {
        writer.compress(number);
    }
    writer.write();
    let shipping = Shipping::start(&server.resp, &[&log]);
    assert!(has_all(&server, writer.lines), "{:?} of {}", counts(&server), writer.lines);
    shipping.end();
    assert_eq!(counts(&server), writer.keys);
}

#[test]
fn a_copy_and_truncation_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("access.log");
    let (mut number, mut keys) = (0, BTreeMap::new());
    let mut write = |count: u64| {
        for _ in 0..count {
            let key = format!("k{}", number % KEYS);
            let now = SystemClock::new().now().as_millis() / 1_000;
            append(&log, &format!("{{\"time\":{now},\"ip\":\"{key}\",\"n\":{number}}}\n"));
            *keys.entry(key).or_default() += 1;
            number += 1;
        }
        (number, keys.clone())
    };
    let server = serve();
    let path = log.to_str().expect("text");
    let (lines, _) = write(50);
    let shipping = Shipping::start(&server.resp, &[path]);
    assert!(has_all(&server, lines));
    for copy in 1..4 {
        write(30);
        fs::copy(&log, folder.path().join(format!("access.log.{copy}"))).expect("room");
        File::options().write(true).open(&log).and_then(|file| file.set_len(0)).expect("truncated");
        let (lines, keys) = write(10);
        assert!(has_all(&server, lines), "{:?} of {lines}", counts(&server));
        assert_eq!(counts(&server), keys);
    }
    shipping.end();
}

#[test]
fn once_sends_what_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let now = SystemClock::new().now().as_millis() / 1_000;
    let line = |key: &str, age: i64| format!("{{\"time\":{},\"ip\":\"{key}\"}}\n", now - age);
    let text = line("a", 9) + &line("b", 8) + "hello\n" + &line("a", 7) + &line("old", 9_000_000);
    fs::write(path("plain.log"), text.trim_end()).expect("room");
    gzip(Path::new(&path("packed.log.gz")), (line("a", 5) + &line("c", 5)).as_bytes());
    let server = serve();
    let ship =
        |args: &[&str]| -> Run { lately(&[&["ship", "--server", &server.resp, "--once"], args].concat()) };
    let args = [&path("plain.log")[..], &path("packed.log.gz"), "--prefix", "web:"];
    let run = ship(&args);
    assert_eq!((run.code, run.out.as_str()), (Some(0), ""), "{}", run.err);
    assert!(run.err.contains("lately: ship: 5 hits counted\n"), "{}", run.err);
    assert!(run.err.contains("lately: ship: 1 hit refused: older than the server keeps"), "{}", run.err);
    assert!(run.err.contains("lately: ship: 1 of 7 lines does not parse"), "{}", run.err);
    let hits = || server.ask::<Vec<u64>>("MHITS 1d web:a web:b web:c web:old a");
    assert_eq!(hits(), [3, 1, 1, 0, 0]);
    // Again nothing is sent, nor when the file has another name.
    fs::rename(path("plain.log"), path("other.log")).expect("it is there");
    let run = ship(&[&path("other.log"), &path("packed.log.gz"), "--prefix", "web:"]);
    assert!(run.code == Some(0) && run.err.contains("lately: ship: 0 hits counted\n"), "{}", run.err);
    assert_eq!(hits(), [3, 1, 1, 0, 0]);
    // Another machine has logs of its own, conditions hold, and the state file knows what a server has forgotten.
    let state = path("state");
    let of_machine = ["--machine", "other", "--where", "ip=b", "--state", &state];
    let run = ship(&[&[&path("other.log")[..]], &of_machine[..]].concat());
    assert!(run.err.contains("lately: ship: 1 hit counted\n"), "{}", run.err);
    let other = serve();
    let log = path("other.log");
    let args = [&["ship", "--server", &other.resp, "--once", &log], &of_machine[..]].concat();
    let run = lately(&args);
    assert!(run.err.contains("lately: ship: 0 hits counted\n"), "{}", run.err);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("a.log");
    append(&log, "{\"time\":1700000000,\"ip\":\"a\"}\n");
    let log = log.to_str().expect("text");
    let server = serve();
    let check = |run: Run, expected: &str| {
        assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{}", run.err);
        assert!(run.err.contains(expected), "{}", run.err);
    };
    let ship = |args: &[&str]| lately_reading(&[&["ship", "--server", &server.resp], args].concat(), b"x\n");
    check(ship(&["-"]), "lately: standard input: a pipe has no positions to go on from");
    check(ship(&["/dev/null"]), "a pipe has no positions to go on from");
    check(ship(&[log, "--top", "3"]), "--top does not go with ship");
    check(ship(&["--once", "missing.log"]), "No such file");
    check(ship(&[log, "--once", "--format", "alb", "--strict"]), "does not parse");
    check(lately(&["ship", "--server", "nowhere", log]), "invalid address 'nowhere'");
}

/// While the server does not answer, lines wait; a stop does not wait for it.
#[test]
fn a_server_that_is_not_there_is_tried_again() {
    let mut writer = Writer::new(4);
    let log = writer.path();
    let log = log.to_str().expect("text").to_owned();
    let data = tempfile::tempdir().expect("a folder");
    let server = serve_in(data.path(), &[]);
    let address = server.resp.clone();
    writer.write();
    let mut shipping = Shipping::start(&address, &[&log]);
    assert!(has_all(&server, writer.lines));
    drop(server);
    writer.write();
    shipping.says("it is tried again");
    let folder = data.path().to_str().expect("text");
    let server = start(&["serve", "--resp", &address, "--http", "127.0.0.1:0", "--data", folder]).loaded();
    assert!(has_all(&server, writer.lines));
    shipping.says("the server takes lines again");
    drop(server);
    writer.write();
    shipping.says("it is tried again");
    shipping.end();
    let server = serve_in(data.path(), &[]);
    let shipping = Shipping::start(&server.resp, &[&log]);
    assert!(has_all(&server, writer.lines));
    shipping.end();
    assert_eq!(counts(&server), writer.keys);
}

#[test]
fn dumps_have_the_positions() {
    let [first, second] = [&FREE, &FREE].map(|free| start(&[&free[..], &["--in-memory"]].concat()));
    let now: Vec<u64> = first.ask("TIME");
    let batch = format!("INGEST log 0 90 a 3 {}", now[0]);
    assert_eq!(first.ask::<[u64; 3]>(&batch), [90, 3, 0]);
    let folder = tempfile::tempdir().expect("a folder");
    let dump = folder.path().join("dump");
    let dump = dump.to_str().expect("text");
    for args in [
        ["dump", "-o", dump, "--server", &first.resp],
        ["restore", dump, "--replace", "--server", &second.resp],
    ] {
        let run = lately(&args);
        assert_eq!(run.code, Some(0), "{}", run.err);
    }
    assert_eq!(second.ask::<Option<u64>>("INGEST log"), Some(90));
    assert_eq!(second.ask::<[u64; 3]>(&batch), [90, 0, 0]);
    assert_eq!(second.ask::<u64>("HITS a"), 3);
    assert_eq!(second.ask::<Option<u64>>("INGEST other"), None);
}
