//! `lately ship` counts each line of a log once, even if either side is stopped or killed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::write::GzEncoder;
use lately::{Clock, SystemClock};

use crate::common::{Run, command, lately, lately_reading};
use crate::running::{FREE, Running, becomes, serve, serve_in, serve_with, serve_with_ceiling, start};
use crate::top::append;
use test_support::Rng;

/// The number of rounds for each durability. Each has a kill of `ship`, of the server, or of both.
const ROUNDS: u64 = 26;
const KEYS: u64 = 7;

/// Writes and rotates a log, and records the lines of all its files.
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

    /// Writes a few lines, sometimes in two pieces.
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

    /// Renames the file, and sometimes compresses the one before it. The writer may continue the renamed file for a while.
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
            // The compressed file gets the time of the plain one, as with gzip and logrotate.
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

    /// Waits for a message that contains `what`.
    fn wait_for(&mut self, what: &str) {
        let mut messages = BufReader::new(self.0.stderr.as_mut().expect("a pipe"));
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            assert_ne!(
                messages.read_line(&mut line).expect("text"),
                0,
                "it ended without the message '{what}'"
            );
        }
    }

    /// Stops it with SIGTERM. Returns its messages.
    fn end(self) -> String {
        let kill = format!("kill -TERM {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
        self.wait()
    }

    /// Waits for its end. Returns its messages.
    fn wait(mut self) -> String {
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

/// The hits of the keys in the last day.
fn counts(server: &Running) -> BTreeMap<String, u64> {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let hits: Vec<u64> = server.ask(&format!("MHITS 1d {}", keys.join(" ")));
    keys.into_iter().zip(hits).filter(|(_, hits)| *hits > 0).collect()
}

/// Waits until the server has at least this number of lines.
fn has_all(server: &Running, lines: u64) -> bool {
    becomes(|| counts(server).values().sum::<u64>() >= lines)
}

/// A log grows and rotates while `ship` and the server are killed at random moments. When both run again, the server has
/// counted each line once.
fn survives_kills(durability: &str, seed: u64) {
    let mut writer = Writer::new(seed);
    let data = tempfile::tempdir().expect("a folder");
    let log = writer.path();
    let log = log.to_str().expect("text").to_owned();
    let more = ["--durability", durability];
    let mut server = serve_in(data.path(), &more);
    let mut shipping = Shipping::start(&server.resp, &[&log]);
    // Files that were rotated before the first start are not sent.
    writer.write();
    assert!(has_all(&server, writer.lines));
    let (mut server_kills, mut ship_kills) = (0, 0);
    for round in 0..ROUNDS {
        for _ in 0..=writer.rng.below(30) {
            writer.write();
            if writer.rng.once_in(12) {
                writer.rotate();
            }
            // Meanwhile `ship` reads, sends and receives replies.
            (0..writer.rng.below(3_000)).for_each(|_| drop(fs::read_dir(writer.folder.path())));
        }
        let kills_server = writer.rng.once_in(2);
        if kills_server {
            let address = server.resp.clone();
            drop(server);
            server_kills += 1;
            writer.write();
            let restart = [
                "serve",
                "--resp",
                &address,
                "--http",
                "127.0.0.1:0",
                "--grpc",
                "127.0.0.1:0",
                "--data",
                data.path().to_str().expect("text"),
            ];
            server = start(&[&restart[..], &more].concat()).loaded();
        }
        if !kills_server || writer.rng.once_in(3) {
            drop(shipping);
            ship_kills += 1;
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
    assert!(server_kills >= 10 && ship_kills >= 10, "{server_kills} of the server, {ship_kills} of ship");
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
fn rotations_while_ship_is_stopped_lose_nothing() {
    let mut writer = Writer::new(3);
    let log = writer.path();
    let log = log.to_str().expect("text").to_owned();
    // Files that were rotated before the first start are not sent.
    writer.write();
    writer.rotate();
    writer.write();
    writer.compress(1);
    let long_ago = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let packed = writer.path().with_extension("log.1.gz");
    File::options().append(true).open(packed).and_then(|file| file.set_modified(long_ago)).expect("a time");
    (writer.lines, writer.keys) = (0, BTreeMap::new());
    writer.file = None;
    fs::remove_file(writer.path()).expect("it is there");
    let server = serve();
    writer.write();
    let shipping = Shipping::start(&server.resp, &[&log]);
    assert!(has_all(&server, writer.lines));
    shipping.end();
    // To be sent: the rest of a file that was renamed and compressed, a file that was created and compressed meanwhile, and
    // a plain one.
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
fn once_sends_the_current_lines() {
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
    // A second run sends nothing, and neither does one after a rename.
    fs::rename(path("plain.log"), path("other.log")).expect("it is there");
    let run = ship(&[&path("other.log"), &path("packed.log.gz"), "--prefix", "web:"]);
    assert!(run.code == Some(0) && run.err.contains("lately: ship: 0 hits counted\n"), "{}", run.err);
    assert_eq!(hits(), [3, 1, 1, 0, 0]);
    // Logs of another machine are distinct, conditions are applied, and the state file has positions that a server has
    // forgotten.
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
fn invalid_inputs_of_ship_are_refused() {
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
    check(lately(&["ship", "--once", "--server", &server.http, log]), "does not speak RESP");
    check(lately(&["ship", "--server", &server.http, log]), "does not speak RESP");
}

/// While the server does not answer, lines wait. A stop does not wait for the server.
#[test]
fn a_missing_server_is_retried() {
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
    shipping.wait_for("it is tried again");
    let folder = data.path().to_str().expect("text");
    let server = start(&[
        "serve",
        "--resp",
        &address,
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--data",
        folder,
    ])
    .loaded();
    assert!(has_all(&server, writer.lines));
    shipping.wait_for("the server takes lines again");
    drop(server);
    writer.write();
    shipping.wait_for("it is tried again");
    shipping.end();
    let server = serve_in(data.path(), &[]);
    let shipping = Shipping::start(&server.resp, &[&log]);
    assert!(has_all(&server, writer.lines));
    shipping.end();
    assert_eq!(counts(&server), writer.keys);
}

/// The log rotates after `ship` has started and before the server answers for the first time. No line may be lost.
#[test]
fn rotations_before_the_first_answer_lose_nothing() {
    let mut writer = Writer::new(5);
    let log = writer.path();
    let log = log.to_str().expect("text").to_owned();
    let address = serve().resp.clone();
    let mut shipping = Shipping::start(&address, &[&log]);
    shipping.wait_for("it is tried again");
    for _ in 0..3 {
        writer.write();
        writer.rotate();
    }
    writer.compress(1);
    writer.write();
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().to_str().expect("text");
    let server = start(&[
        "serve",
        "--resp",
        &address,
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--data",
        folder,
    ])
    .loaded();
    assert!(has_all(&server, writer.lines), "{:?} of {}", counts(&server), writer.lines);
    let messages = shipping.end();
    assert!(!messages.contains("missing"), "{messages}");
    assert_eq!(counts(&server), writer.keys);
}

/// Symptom: lines of a log that was rotated were never sent. Cause: `ship` had ended before the server answered for the first time, so
/// nothing knew that it had started. Fix: the file of `--state` knows.
#[test]
fn a_rotation_before_the_first_answer_is_sent_after_another_start() {
    let mut writer = Writer::new(5);
    let (log, address) = (writer.path(), serve().resp.clone());
    let state = writer.path().with_file_name("state");
    let [log, state] = [log, state].map(|path| path.to_str().expect("text").to_owned());
    writer.write();
    for is_running in [true, false] {
        let mut shipping = Shipping::start(&address, &[&log, "--state", &state]);
        shipping.wait_for("it is tried again");
        if is_running {
            writer.rotate();
            writer.write();
        }
        let messages = shipping.end();
        assert!(!messages.contains("no server has answered"), "{messages}");
    }
    writer.rotate();
    // The new log has no line yet.
    fs::write(&log, "").expect("room");
    let server = serve_at(&address);
    let shipping = Shipping::start(&address, &[&log, "--state", &state]);
    assert!(has_all(&server, writer.lines), "{:?} of {}", counts(&server), writer.lines);
    writer.write();
    assert!(has_all(&server, writer.lines), "{:?} of {}", counts(&server), writer.lines);
    let messages = shipping.end();
    assert!(!messages.contains("missing"), "{messages}");
    assert_eq!(counts(&server), writer.keys);
    // Without the file, the end says what the next start does not know.
    drop(server);
    let mut shipping = Shipping::start(&address, &[&log]);
    shipping.wait_for("it is tried again");
    let messages = shipping.end();
    assert!(messages.contains("no server has answered"), "{messages}");
}

/// What was rotated before the first start is not sent, also if the log is empty then and the rotated file has later lines.
#[test]
fn a_file_that_was_rotated_before_the_first_start_is_not_sent_with_a_state_either() {
    for has_line in [false, true] {
        let mut writer = Writer::new(5);
        let (log, state) = (writer.path(), writer.path().with_file_name("state"));
        let [log, state] = [log, state].map(|path| path.to_str().expect("text").to_owned());
        writer.write();
        writer.rotate();
        let (rotated, mut expected) = (writer.lines, 0);
        let written =
            fs::metadata(writer.rotated(1)).and_then(|metadata| metadata.modified()).expect("a time");
        set_time(writer.rotated(1), written - Duration::from_secs(10));
        fs::write(&log, "").expect("room");
        set_time(&log, written - Duration::from_secs(60));
        if has_line {
            writer.write();
            expected = writer.lines - rotated;
        }
        let server = serve();
        let shipping = Shipping::start(&server.resp, &[&log, "--state", &state]);
        assert!(has_all(&server, expected));
        writer.write();
        assert!(has_all(&server, writer.lines - rotated), "{:?}", counts(&server));
        let messages = shipping.end();
        assert!(!messages.contains("missing"), "{messages}");
        assert!(has_all(&server, writer.lines - rotated), "{:?}", counts(&server));
    }
}

/// Starts a server without data at an address that is free.
fn serve_at(address: &str) -> Running {
    start(&["serve", "--resp", address, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--in-memory"])
}

/// Copies a log to `name` and truncates it, as logrotate does with `copytruncate`. With `keeps_time`, the copy has the time of the log.
fn copy_and_truncate(ledger: &Ledger, log: &str, name: &str, keeps_time: bool) {
    let copy = ledger.path(name);
    fs::copy(log, &copy).expect("room");
    if keeps_time {
        let written = fs::metadata(log).and_then(|metadata| metadata.modified()).expect("a time");
        set_time(&copy, written);
    }
    File::options().write(true).open(log).and_then(|file| file.set_len(0)).expect("truncated");
}

fn set_time(path: impl AsRef<Path>, written: SystemTime) {
    let file = File::options().append(true).open(path).expect("it is there");
    file.set_modified(written).expect("a time");
}

/// Symptom: lines before a truncation were lost, and later ones were counted twice after the next start. Cause: the log was truncated
/// while a batch waited for the server, the server had another position, and the new lines were sent under the old name. Fix: a
/// file that is read again must begin as when it was found.
#[test]
fn a_truncation_while_a_batch_waits_loses_nothing() {
    let mut ledger = Ledger::new();
    let (log, address) = (ledger.path("a.log"), ledger.server.resp.clone());
    ledger.append("a.log", 20);
    let mut shipping = Shipping::start(&address, &[&log]);
    assert!(becomes(|| ledger.wrong().is_empty()));
    drop(std::mem::replace(&mut ledger.server, serve()));
    ledger.append("a.log", 20);
    shipping.wait_for("it is tried again");
    copy_and_truncate(&ledger, &log, "a.log.2", false);
    ledger.append("a.log", 90);
    copy_and_truncate(&ledger, &log, "a.log.1", false);
    ledger.append("a.log", 150);
    ledger.server = serve_at(&address);
    assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
    let messages = shipping.end();
    assert!(!messages.contains("missing") && !messages.contains("within a line"), "{messages}");
    ledger.send(&[&log]);
    assert_eq!(ledger.wrong(), []);
}

/// Symptom: lines of a copy were lost, or a message claimed so. Cause: the log was truncated after `ship` had found it and before
/// the server said how far it was sent. Fix: a log that has changed meanwhile is looked at again, and its copy is sent even
/// if it is older than the start.
#[test]
fn a_truncation_before_the_position_is_known_loses_nothing() {
    let check = |is_known: bool, is_once: bool, age: i64| {
        let mut ledger = Ledger::new();
        let (log, state, address) = (ledger.path("a.log"), ledger.path("state"), ledger.server.resp.clone());
        let args = [&log[..], "--state", &state];
        let args = if is_known { &args[..] } else { &args[..1] };
        ledger.append("a.log", 20);
        // The second server knows nothing of these lines, and the state file has their position.
        let first = if is_known { ledger.lines } else { 0 };
        if is_known {
            ledger.send(args);
        }
        drop(std::mem::replace(&mut ledger.server, serve()));
        ledger.append("a.log", 30);
        let now_ms = SystemClock::new().now().as_millis();
        set_time(&log, UNIX_EPOCH + Duration::from_millis((now_ms - age).unsigned_abs()));
        let once = if is_once { &["--once"][..] } else { &[] };
        let mut shipping = Shipping::start(&address, &[args, once].concat());
        shipping.wait_for("it is tried again");
        copy_and_truncate(&ledger, &log, "a.log.1", true);
        ledger.append("a.log", 200);
        ledger.server = serve_at(&address);
        let wrong = |ledger: &Ledger| ledger.wrong_of(first..ledger.lines);
        assert!(becomes(|| wrong(&ledger).is_empty()), "{is_known}, {is_once}, {age}: {:?}", wrong(&ledger));
        let messages = if is_once { shipping.wait() } else { shipping.end() };
        assert!(!messages.contains("missing") && !messages.contains("within a line"), "{messages}");
        ledger.send(args);
        assert_eq!(wrong(&ledger), []);
    };
    for is_once in [false, true] {
        check(false, is_once, 0);
        check(false, is_once, 100_000);
        check(true, is_once, 0);
    }
}

/// Symptom: the rest of a rotated file was not sent, and the message said that it was gone. Cause: bzip2 cuts the time of a file to the
/// second, which was before the mark. Fix: files near the mark and plain files are looked at, and cut times count as later.
#[test]
fn files_with_cut_times_are_sent() {
    let second = UNIX_EPOCH + Duration::from_secs(1_710_234_000);
    let after = |millis: u64| second + Duration::from_millis(millis);
    for has_earlier in [false, true] {
        let mut ledger = Ledger::new();
        let (log, earlier) = (ledger.path("a.log"), ledger.path("a.log.9"));
        // Rotated before the first start, and cut after it.
        if has_earlier {
            ledger.append("a.log.9", 5);
            set_time(&earlier, after(2_300));
        }
        let first = ledger.lines;
        ledger.append("a.log", 10);
        set_time(&log, after(3_900));
        ledger.send(&[&log]);
        if has_earlier {
            set_time(&earlier, after(2_000));
        }
        // A known file and an unknown one, both compressed and cut.
        for number in [8, 7] {
            ledger.append("a.log", 10);
            let text = fs::read(&log).expect("it is there");
            fs::remove_file(&log).expect("it is there");
            let packed = ledger.path(&format!("a.log.{number}.gz"));
            gzip(Path::new(&packed), &text);
            set_time(&packed, after(3_000));
        }
        ledger.append("a.log", 10);
        set_time(&log, after(3_950));
        let messages = ledger.send(&[&log]);
        assert!(!messages.contains("missing"), "{messages}");
        assert_eq!(ledger.wrong_of(first..ledger.lines), []);
        // The clock is set back: the rest of a known file, and what was written after it.
        for number in [6, 5] {
            ledger.append("a.log", 10);
            ledger.rename("a.log", &format!("a.log.{number}"));
            set_time(ledger.path(&format!("a.log.{number}")), after(10 - number));
        }
        ledger.append("a.log", 10);
        set_time(&log, after(20));
        ledger.send(&[&log]);
        assert_eq!(ledger.wrong_of(first..ledger.lines), []);
        assert_eq!(ledger.wrong().len() as u64, first, "files rotated before the first run are not sent");
    }
}

/// Symptom: lines of a log that rsync had replaced came after a minute. Cause: the deleted file was kept. Fix: the copy is read
/// in its place.
#[test]
fn a_log_that_is_replaced_by_a_longer_copy_goes_on() {
    let mut ledger = Ledger::new();
    let (log, copy) = (ledger.path("a.log"), ledger.path("copy"));
    ledger.append("a.log", 20);
    let shipping = Shipping::start(&ledger.server.resp, &[&log]);
    for _ in 0..4 {
        assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
        fs::copy(&log, &copy).expect("room");
        ledger.append("copy", 20);
        ledger.rename("copy", "a.log");
    }
    assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
    let messages = shipping.end();
    assert!(!messages.contains("not sent"), "{messages}");
    assert_eq!(ledger.wrong(), []);
}

#[test]
fn dumps_include_the_positions() {
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

/// Logs with a different key in each line, and their server.
struct Ledger {
    folder: tempfile::TempDir,
    server: Running,
    lines: u64,
}

impl Ledger {
    fn new() -> Ledger {
        Ledger::of(serve())
    }

    fn of(server: Running) -> Ledger {
        Ledger { folder: tempfile::tempdir().expect("a folder"), server, lines: 0 }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("text").to_owned()
    }

    /// The next `count` lines.
    fn next(&mut self, count: u64) -> String {
        let now = SystemClock::new().now().as_millis() / 1_000;
        let first = self.lines;
        self.lines += count;
        (first..self.lines)
            .map(|n| format!("{{\"time\":{now},\"ip\":\"l{n}\",\"of\":\"ledger\"}}\n"))
            .collect()
    }

    fn append(&mut self, name: &str, count: u64) {
        let text = self.next(count);
        append(Path::new(&self.path(name)), &text);
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).expect("it is there");
    }

    fn once(&self, args: &[&str]) -> Run {
        lately(&[&["ship", "--server", &self.server.resp, "--once"], args].concat())
    }

    /// Sends logs, which must succeed. Returns the messages.
    fn send(&self, args: &[&str]) -> String {
        let run = self.once(args);
        assert_eq!(run.code, Some(0), "{}", run.err);
        run.err
    }

    /// The lines of a range that were not counted exactly once, with their hits.
    fn wrong_of(&self, range: std::ops::Range<u64>) -> Vec<(u64, u64)> {
        let keys: Vec<String> = range.clone().map(|n| format!("l{n}")).collect();
        let hits: Vec<u64> = self.server.ask(&format!("MHITS 1d {}", keys.join(" ")));
        range.zip(hits).filter(|(_, hits)| *hits != 1).collect()
    }

    fn wrong(&self) -> Vec<(u64, u64)> {
        self.wrong_of(0..self.lines)
    }
}

/// Symptom: lines of a log that was empty at one look, and rotated at the next, were sent only when the new log got a line. Cause: a file without a
/// line was not remembered, so the next one seemed to be the same. Fix: it is.
#[test]
fn a_log_that_was_empty_and_is_rotated_at_once_is_sent() {
    let mut ledger = Ledger::new();
    let log = ledger.path("log");
    ledger.append("log", 10);
    let shipping = Shipping::start(&ledger.server.resp, &[&log]);
    assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
    ledger.rename("log", "log.2");
    fs::write(&log, "").expect("room");
    // By the second line, the empty log was seen.
    for _ in 0..2 {
        ledger.append("log.2", 1);
        assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
    }
    ledger.append("log", 5);
    ledger.rename("log", "log.1");
    fs::write(&log, "").expect("room");
    assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
    shipping.end();
}

/// Symptom: after more rotations than a bound, no rotated file was sent. Cause: the files within the bound did not include
/// the one that the server knew. Fix: the server has a mark for the log, and all later files are sent, some at a time.
#[test]
fn any_number_of_rotations_is_sent() {
    let mut ledger = Ledger::new();
    let log = ledger.path("access.log");
    ledger.append("access.log", 3);
    let shipping = Shipping::start(&ledger.server.resp, &[&log]);
    assert!(becomes(|| ledger.wrong().is_empty()));
    shipping.end();
    for rotation in 0..40 {
        ledger.append("access.log", 3);
        ledger.rename("access.log", &format!("access.log.{rotation}"));
        ledger.append("access.log", 3);
    }
    let shipping = Shipping::start(&ledger.server.resp, &[&log]);
    assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
    shipping.end();
    // The file that was sent last is deleted, and a later one is left.
    let known = ledger.lines;
    ledger.append("access.log", 1);
    fs::remove_file(&log).expect("it is there");
    ledger.append("access.log", 2);
    ledger.rename("access.log", "access.log.40");
    ledger.append("access.log", 2);
    for rotation in 0..40 {
        fs::remove_file(ledger.path(&format!("access.log.{rotation}"))).expect("it is there");
    }
    let messages = ledger.send(&[&log]);
    assert!(messages.contains("sent last is gone: lines may be missing"), "{messages}");
    assert_eq!(ledger.wrong(), [(known, 0)]);
    assert!(!ledger.send(&[&log]).contains("gone"));
}

/// Symptom: logs with the same first kilobyte were the same source, and the later ones were lost. Cause: the name of a file
/// depended on its first kilobyte only. Fix: it depends on everything up to the first line with a time, except zeros.
#[test]
fn files_with_the_same_start_are_distinguished() {
    let mut ledger = Ledger::new();
    let comments = "# -------------------- JVM option 20240312\n".repeat(80);
    let banner = "-------------------- JVM option 20240312\n".repeat(40);
    for (name, start) in [("comments.log", &comments), ("banner.log", &banner)] {
        let log = ledger.path(name);
        for rotation in 0..3 {
            fs::write(&log, start).expect("room");
            ledger.append(name, 10);
            ledger.send(&[&log, "--format", "json"]);
            ledger.rename(name, &format!("{name}.{rotation}"));
        }
        assert_eq!(ledger.wrong(), [], "{name}");
    }
    // The time comes last in a long line.
    let log = ledger.path("long.log");
    for rotation in 0..3 {
        let (number, now) = (ledger.lines, SystemClock::new().now().as_millis());
        ledger.lines += 1;
        let pad = "x".repeat(100_000);
        fs::write(&log, format!("{{\"pad\":\"{pad}\",\"ip\":\"l{number}\",\"time\":{now}}}\n"))
            .expect("room");
        ledger.send(&[&log]);
        ledger.rename("long.log", &format!("long.log.{rotation}"));
    }
    assert_eq!(ledger.wrong(), []);
}

/// Symptom: a log with a hole of zeros at its start was taken for the one before it, or its first line was lost. Cause: the
/// zeros were a part of the name and of the line. Fix: they are skipped.
#[test]
fn a_writer_that_leaves_a_hole_loses_nothing() {
    let mut ledger = Ledger::new();
    let log = ledger.path("app.log");
    // The writer has no O_APPEND, as with `command > app.log`.
    let mut writer = File::create(&log).expect("a file");
    let mut write = |ledger: &mut Ledger| writer.write_all(ledger.next(20).as_bytes()).expect("room");
    write(&mut ledger);
    ledger.send(&[&log]);
    for copy in 0..3 {
        write(&mut ledger);
        fs::copy(&log, ledger.path(&format!("app.log.{copy}"))).expect("room");
        File::options().write(true).open(&log).and_then(|file| file.set_len(0)).expect("truncated");
        write(&mut ledger);
        ledger.send(&[&log]);
    }
    assert_eq!(ledger.wrong(), []);
    let shipping = Shipping::start(&ledger.server.resp, &[&log]);
    for copy in 3..6 {
        write(&mut ledger);
        fs::copy(&log, ledger.path(&format!("app.log.{copy}"))).expect("room");
        File::options().write(true).open(&log).and_then(|file| file.set_len(0)).expect("truncated");
        write(&mut ledger);
        assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
    }
    shipping.end();
    assert_eq!(ledger.wrong(), []);
}

/// Symptom: a log that had been sent was not sent again with another prefix, key or condition. Cause: the server had one
/// position for all. Fix: these options are a part of the name.
#[test]
fn other_keys_of_a_log_are_counted_separately() {
    let mut ledger = Ledger::new();
    ledger.append("a.log", 10);
    let log = ledger.path("a.log");
    let check = |args: &[&str], expected: &str| {
        let messages = ledger.send(&[&[&log[..]], args].concat());
        assert!(messages.contains(&format!("lately: ship: {expected} counted\n")), "{args:?}: {messages}");
    };
    check(&[], "10 hits");
    check(&["--prefix", "p:"], "10 hits");
    check(&["--key", "of"], "10 hits");
    check(&["--where", "ip=l3"], "1 hit");
    check(&["--where", "ip=l4"], "1 hit");
    check(&["--where", "ip=l4", "--where", "of=ledger"], "1 hit");
    // Equivalent options have the same name.
    check(&["--where", "of=ledger", "--where", "ip=l4"], "0 hits");
    check(&["--key", "ip", "--format", "json", "--since", "1d"], "0 hits");
    let hits: Vec<u64> = ledger.server.ask("MHITS 1d l3 l4 l5 p:l5 ledger");
    assert_eq!(hits, [2, 3, 1, 1, 10]);
}

/// Symptom: files of other logs were sent as rotated ones. Cause: any name that starts with the log's name was taken for one.
/// Fix: only numbers, dates and suffixes of compression may follow.
#[test]
fn other_logs_in_the_folder_are_left_alone() {
    let mut ledger = Ledger::new();
    let log = ledger.path("access.log");
    for turn in 0..3 {
        let sent = ledger.lines..ledger.lines + 10;
        ledger.append("access.log", 10);
        for other in ["access.log.ssl", "access.log-errors", "access.log.grep", "access.log2"] {
            ledger.append(other, 5);
        }
        ledger.send(&[&log]);
        let others = sent.end..ledger.lines;
        assert_eq!(ledger.wrong_of(sent), []);
        assert!(ledger.wrong_of(others.clone()).into_iter().eq(others.map(|line| (line, 0))), "{turn}");
        ledger.rename("access.log", &format!("access.log.{turn}"));
    }
}

/// Symptom: with `--once` the lines between the last run and a rotation were lost. Cause: rotated files were not read. Fix:
/// they are.
#[test]
fn once_sends_the_rest_of_rotated_files() {
    let mut ledger = Ledger::new();
    let log = ledger.path("a.log");
    ledger.append("a.log", 10);
    ledger.rename("a.log", "a.log.0");
    let earlier = UNIX_EPOCH + Duration::from_secs(1_710_234_000);
    let rotated = File::options().append(true).open(ledger.path("a.log.0")).expect("it is there");
    rotated.set_modified(earlier).expect("a time");
    let before = ledger.lines;
    ledger.append("a.log", 10);
    ledger.send(&[&log]);
    assert_eq!(ledger.wrong().len() as u64, before, "files rotated before the first run are not sent");
    for rotation in 1..4 {
        ledger.append("a.log", 10);
        ledger.rename("a.log", &format!("a.log.{rotation}"));
        ledger.append("a.log", 10);
        ledger.rename("a.log", &format!("a.log-2024031{rotation}"));
        ledger.append("a.log", 10);
        ledger.send(&[&log]);
        assert_eq!(ledger.wrong_of(before..ledger.lines), [], "{rotation}");
    }
    assert!(ledger.send(&[&log]).contains("lately: ship: 0 hits counted\n"));
    assert_eq!(ledger.wrong().len() as u64, before);
}

/// Symptom: a rewritten log with the same first line was silently skipped. Cause: the server already has a position for it.
/// Fix: that is reported.
#[test]
fn a_rewritten_log_is_reported() {
    let mut ledger = Ledger::new();
    let log = ledger.path("a.log");
    let first = ledger.next(1);
    fs::write(&log, &first).expect("room");
    ledger.append("a.log", 50);
    let shipping = Shipping::start(&ledger.server.resp, &[&log]);
    assert!(becomes(|| ledger.wrong().is_empty()));
    let rest = ledger.next(5);
    fs::write(&log, format!("{first}{rest}")).expect("room");
    let mut shipping = shipping;
    shipping.wait_for("begins as a file that was sent up to byte");
    shipping.end();
    let message = "begins as a file that was sent up to byte";
    let messages = ledger.send(&[&log]);
    assert_eq!(messages.matches(message).count(), 1, "{messages}");
    append(Path::new(&log), &"x".repeat(10_000));
    let messages = ledger.send(&[&log]);
    assert!(messages.contains("which is within a line: lines before that are not sent"), "{messages}");
    // After a rename, the rest of the file is sent.
    let other = ledger.next(1);
    fs::write(ledger.path("b.log"), &other).expect("room");
    ledger.send(&[&ledger.path("b.log")]);
    ledger.rename("b.log", "c.log");
    ledger.append("c.log", 2);
    let messages = ledger.send(&[&ledger.path("c.log")]);
    assert!(
        messages.contains("begins as a file that was sent under another name: lines up to byte"),
        "{messages}"
    );
    assert!(messages.contains("lately: ship: 2 hits counted\n"), "{messages}");
}

/// Symptom: with a small ceiling no hit was counted. Cause: a batch was larger than the server accepts from a client. Fix:
/// batches are bounded in bytes.
#[test]
fn batches_fit_the_smallest_server() {
    let (server, _config) = serve_with_ceiling(1 << 20);
    let ledger = Ledger::of(server);
    let log = ledger.path("a.log");
    let now = SystemClock::new().now().as_millis();
    let key = "k".repeat(300);
    let text: String = (0..1_500).map(|n| format!("{{\"time\":{now},\"ip\":\"{key}{n}\"}}\n")).collect();
    fs::write(&log, text).expect("room");
    let messages = ledger.send(&[&log, "--prefix", &"p".repeat(100)]);
    assert!(messages.contains("lately: ship: 1500 hits counted\n"), "{messages}");
}

/// Symptom: `ship` ended when the server was full of clients. Cause: it took that error for a refusal of its batch. Fix: it
/// retries.
#[test]
fn a_server_full_of_clients_is_retried() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    fs::write(&config, "[server]\nmax_clients = 1\n").expect("room");
    let mut ledger = Ledger::of(serve_with(&["--config", config.to_str().expect("text")]));
    let held = ledger.server.connect();
    ledger.append("a.log", 10);
    let mut shipping = Shipping::start(&ledger.server.resp, &[&ledger.path("a.log")]);
    shipping.wait_for("max number of clients reached; it is tried again");
    drop(held);
    shipping.wait_for("the server takes lines again");
    let messages = shipping.end();
    assert!(messages.contains("lately: ship: 10 hits counted\n"), "{messages}");
}

/// Symptom: a position in the state file beyond the end of a log skipped all its lines. Cause: it was not checked. Fix: it is
/// an error that names the position.
#[test]
fn a_state_beyond_the_end_of_a_log_is_refused() {
    let mut ledger = Ledger::new();
    let (log, state) = (ledger.path("a.log"), ledger.path("state"));
    ledger.append("a.log", 10);
    ledger.send(&[&log, "--state", &state]);
    let len = fs::metadata(&log).expect("it is there").len().to_string();
    let text = fs::read_to_string(&state).expect("it was written");
    assert!(text.contains(&format!(" {len}\n")), "{text}");
    fs::write(&state, text.replace(&format!(" {len}\n"), " 999999999\n")).expect("room");
    ledger.server = serve();
    let run = ledger.once(&[&log, "--state", &state]);
    assert_eq!(run.code, Some(2), "{}", run.err);
    let expected = format!("the file of --state has position 999999999 for it, and it ends at {len}");
    assert!(run.err.contains(&expected), "{}", run.err);
}

/// Appends a record of a container runtime.
fn append_record(log: &str, tag: &str, text: &str) {
    let now = jiff::Timestamp::from_millisecond(SystemClock::new().now().as_millis()).expect("a time");
    let at = now.strftime("%Y-%m-%dT%H:%M:%S.000000000Z");
    append(Path::new(log), &format!("{at} stdout {tag} {text}\n"));
}

/// Appends a line in two records, the second one after a rotation.
fn cut_by_rotation(ledger: &mut Ledger, log: &str, rotated: &str) {
    let line = ledger.next(1);
    append_record(log, "P", &line[..20]);
    ledger.rename("c.log", rotated);
    append_record(log, "F", line[20..].trim_end());
}

/// Symptom: a line cut by a container runtime was lost when its parts were in two files. Cause: each file was read separately.
/// Fix: the next file continues the line.
#[test]
fn a_line_cut_by_a_rotation_is_joined() {
    let mut ledger = Ledger::new();
    let log = ledger.path("c.log");
    append_record(&log, "F", ledger.next(1).trim_end());
    let shipping = Shipping::start(&ledger.server.resp, &[&log]);
    assert!(becomes(|| ledger.wrong().is_empty()));
    cut_by_rotation(&mut ledger, &log, "c.log.1");
    assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
    shipping.end();
    cut_by_rotation(&mut ledger, &log, "c.log.2");
    ledger.send(&[&log]);
    assert_eq!(ledger.wrong(), []);
}

/// Symptom: a line was lost, or counted with the start of an older one. Cause: after a restart, recent rotated files were read newest
/// first, so the start of a line that was cut by an earlier rotation came right before the log. Fix: the oldest come first.
#[test]
fn the_start_of_a_cut_line_is_joined_to_its_own_end() {
    let mut ledger = Ledger::new();
    let log = ledger.path("c.log");
    append_record(&log, "F", ledger.next(1).trim_end());
    let shipping = Shipping::start(&ledger.server.resp, &[&log]);
    cut_by_rotation(&mut ledger, &log, "c.log.1");
    assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
    ledger.rename("c.log", "c.log.2");
    append_record(&log, "F", ledger.next(1).trim_end());
    assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
    shipping.end();
    let shipping = Shipping::start(&ledger.server.resp, &[&log]);
    append_record(&log, "F", ledger.next(1).trim_end());
    assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
    shipping.end();
}

/// Symptom: a line that was cut while `ship` ran was lost when it was away over two rotations. Cause: the file with the start had no new
/// lines, so it was not read before the file with the end. Fix: it is read.
#[test]
fn a_line_cut_before_two_rotations_without_a_reader_is_joined() {
    let mut ledger = Ledger::new();
    let log = ledger.path("c.log");
    append_record(&log, "F", ledger.next(1).trim_end());
    let line = ledger.next(1);
    append_record(&log, "P", &line[..20]);
    ledger.once(&[&log]);
    ledger.rename("c.log", "c.log.1");
    append_record(&log, "F", line[20..].trim_end());
    ledger.rename("c.log", "c.log.2");
    append_record(&log, "F", ledger.next(1).trim_end());
    ledger.send(&[&log]);
    assert_eq!(ledger.wrong(), []);
}

/// Symptom: when the server came back from an older dump, the rest of a renamed file was missing until `ship` was restarted.
/// Cause: it searched for rotated files only after rotations. Fix: it also searches after each new connection.
#[test]
fn a_server_from_an_older_dump_gets_the_missing_lines() {
    let data = tempfile::tempdir().expect("a folder");
    let mut ledger = Ledger::of(serve_in(data.path(), &[]));
    let (log, dump) = (ledger.path("a.log"), ledger.path("dump"));
    ledger.append("a.log", 10);
    let shipping = Shipping::start(&ledger.server.resp, &[&log]);
    assert!(becomes(|| ledger.wrong().is_empty()));
    let run = lately(&["dump", "-o", &dump, "--server", &ledger.server.resp]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    ledger.append("a.log", 10);
    assert!(becomes(|| ledger.wrong().is_empty()));
    ledger.rename("a.log", "a.log.1");
    ledger.append("a.log", 10);
    assert!(becomes(|| ledger.wrong().is_empty()));
    let older = tempfile::tempdir().expect("a folder");
    let folder = older.path().join("data");
    let folder = folder.to_str().expect("text");
    let run = lately(&["restore", "--data", folder, &dump]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let address = ledger.server.resp.clone();
    ledger.server.signal("KILL");
    let restart =
        ["serve", "--resp", &address, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--data", folder];
    drop(std::mem::replace(&mut ledger.server, serve()));
    ledger.server = start(&restart).loaded();
    ledger.append("a.log", 10);
    assert!(becomes(|| ledger.wrong().is_empty()), "{:?}", ledger.wrong());
    shipping.end();
}

/// Lines that cannot be counted are reported at once, and one unreadable log does not end the others.
#[test]
fn uncounted_lines_are_reported_at_once() {
    let mut ledger = Ledger::new();
    let (good, bad, same) = (ledger.path("good.log"), ledger.path("bad.log"), ledger.path("same.log"));
    ledger.append("good.log", 10);
    fs::copy(&good, &same).expect("room");
    fs::write(&bad, "{\"time\":1710234000}\n").expect("room");
    let strict = ["--format", "json", "--key", "ip"];
    let mut shipping = Shipping::start(&ledger.server.resp, &[&[&good[..], &same], &strict[..]].concat());
    shipping.wait_for("same.log begins as another file that is read: its lines are not sent");
    assert!(becomes(|| ledger.wrong().is_empty()));
    append(Path::new(&good), "{\"time\":1710234000,\"ip\":\"old\"}\n");
    shipping.wait_for("lately: ship: 1 hit refused: older than the server keeps, or ahead of its clock");
    shipping.end();
    // A log of an unknown format ends alone.
    let junk = ledger.path("junk.log");
    fs::write(&junk, "at 10:00:00 something\n".repeat(200)).expect("room");
    let mut shipping = Shipping::start(&ledger.server.resp, &[&junk, &good]);
    shipping.wait_for("junk.log: ");
    ledger.append("good.log", 5);
    assert!(becomes(|| ledger.wrong().is_empty()));
    drop(shipping);
    let run = ledger.once(&[&junk, &good]);
    assert_eq!(run.code, Some(2), "{}", run.err);
    assert!(run.err.contains("lately: ship: 1 of 2 logs were not read to their end"), "{}", run.err);
    for address in ["http://127.0.0.1:7379", "redis://127.0.0.1:7379"] {
        let run = lately(&["ship", "--server", address, &good]);
        assert!(run.code == Some(2) && run.err.contains("invalid address"), "{}", run.err);
    }
    // A partial first line would give another name later.
    let half = ledger.path("half.log");
    fs::write(&half, "{\"time\":1710234000,\"i").expect("room");
    let messages = ledger.send(&[&half]);
    assert!(
        messages.contains("half.log: its first line with a time has no end: it is not sent"),
        "{messages}"
    );
    let run = ledger.once(&["missing.log"]);
    assert!(run.err.contains("hint: give the path of a log that this user may read"), "{}", run.err);
    let run = lately(&["ship", "--help"]);
    assert!(!run.out.contains("- is standard input"), "{}", run.out);
}
