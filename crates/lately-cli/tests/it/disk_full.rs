//! A full disk: hits are refused, acknowledged hits stay, and when there is room hits are accepted again.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::{lately, skip};
use crate::expected_counts::ExpectedCounts;
use crate::ledger::{Change, Client, Request};
use crate::running::{Running, becomes, serve, serve_in};
use crate::wire::{Reply, Wire};
use test_support::Rng;

/// The most requests sent at once.
const PIPELINE: u64 = 40;
/// The most attempts to fill a disk.
const TRIES: u32 = 20_000;
/// The number of refusals in a row after which the disk counts as full.
const REFUSALS: u32 = 50;
/// The most fillings until the server can make no more room.
const PATIENT_FILLS: u32 = 50;
/// The number of records of a kilobyte, more than fit on a disk.
const RECORDS: usize = 4_000;
/// The error of a server whose disk is full.
const FULL: &str = "MISCONF the journal cannot be written: No space left on device (os error 28)";
const SEED: u64 = 0xf0_11;

/// A disk in memory, removed when it is dropped.
struct SmallDisk {
    folder: TempDir,
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(message) }
}

impl SmallDisk {
    /// A disk of this many MiB. `None` if mounting is not allowed.
    fn mount(mib: u32) -> Option<SmallDisk> {
        let disk = SmallDisk { folder: tempfile::tempdir().expect("a folder") };
        let args = ["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs", disk.path()];
        run("mount", &args).map_err(|why| skip(&format!("no disk to fill: {why}"))).ok()?;
        Some(disk)
    }

    fn path(&self) -> &str {
        self.folder.path().to_str().expect("text")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn grow(&self) {
        run("mount", &["-o", "remount,size=64m", self.path()]).expect("a larger disk");
    }

    /// Fills the disk with another file, except for this many bytes. Returns the path of the file.
    fn fill(&self, left_bytes: u64) -> PathBuf {
        let path = self.folder.path().join("other");
        let mut file = File::create(&path).expect("a file");
        let mut len = 1 << 20;
        while len > 0 {
            if file.write_all(&vec![b'x'; len]).is_err() {
                len /= 2;
            }
        }
        let bytes = file.metadata().expect("a size").len();
        file.set_len(bytes - left_bytes).expect("a shorter file");
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Unmounting fails if the disk is not mounted. If it is still in use, it is removed later.
        _ = run("umount", &[self.path()]).or_else(|_| run("umount", &["-l", self.path()]));
    }
}

/// The number of segments of the log in a data folder.
fn segments(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a name"));
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with("log-")).count()
}

/// Hits keys of 900 bytes with one request. Returns the counts in the reply.
fn hit_long_keys(connection: &mut redis::Connection, keys: impl Iterator<Item = u32>) -> Vec<u64> {
    let mut command = redis::cmd("MHIT");
    for key in keys {
        command.arg(format!("{key:0>900}")).arg(1);
    }
    command.query(connection).expect("they are taken")
}

/// A client of a server with a disk that gets full.
struct Visit {
    client: Client,
    expected: ExpectedCounts,
    wire: Wire,
}

impl Visit {
    fn new(server: &Running) -> Visit {
        let mut client = Client::new(0, &mut Rng::new(SEED));
        client.look_at_the_clock(server);
        Visit {
            client,
            expected: ExpectedCounts::default(),
            wire: Wire::connect(&server.resp).expect("it listens"),
        }
    }

    /// Sends some requests. Returns whether all were acknowledged.
    fn exchange(&mut self) -> bool {
        let requests = self.client.requests(PIPELINE);
        self.expected.exchange(&mut self.wire, &requests)
    }

    /// Sends requests until all replies are refusals.
    fn until_full(&mut self, when: &str) {
        let mut refusals = 0;
        for _ in 0..TRIES {
            refusals = if self.exchange() { 0 } else { refusals + 1 };
            if refusals == REFUSALS {
                return;
            }
        }
        panic!("{when}: the disk does not get full");
    }

    /// Sends requests until all are refused and the server can make no more room. Until then it accepts hits again for a
    /// while. Reads stay right.
    fn until_surely_full(&mut self, server: &Running, when: &str) {
        let is_full = (0..PATIENT_FILLS).any(|_| {
            self.until_full(when);
            self.is_full(server, when)
        });
        assert!(is_full, "{when}: hits are accepted again and again");
    }

    /// Whether nothing is accepted. The server may find room at any moment: a checkpoint cuts the log, or one that
    /// failed leaves room.
    fn is_full(&mut self, server: &Running, when: &str) -> bool {
        assert_eq!(self.expected.why, FULL, "{when}");
        assert!(self.expected.acknowledged > 0, "{when}");
        let [status, trouble] = server.infos(["aof_last_write_status", "journal_trouble"]);
        if status == "ok" {
            return false;
        }
        assert_eq!(trouble, "No space left on device (os error 28)", "{when}");
        let error = Reply::Error(FULL.to_owned());
        let hits = |key: &str, hits| Change::Hits(key.to_owned(), hits);
        let forget = |key: &String| Change::Forget(key.clone());
        let probes = [
            ("HIT another", vec![hits("another", 1)]),
            ("MHIT another 1 more 2", vec![hits("another", 1), hits("more", 2)]),
            ("DEL another", vec![forget(&"another".to_owned())]),
            ("FLUSHALL", self.expected.counts.keys().map(forget).collect()),
        ];
        let are_refused = probes.into_iter().all(|(line, changes)| {
            let reply = self.wire.ask(line);
            self.expected.take(&Request { changes, ..Request::idle(line) }, &reply);
            reply.leaves().iter().all(|leaf| **leaf == error)
        });
        self.expected.check(server, when);
        are_refused
    }

    /// Sends hits until one is accepted, and then more, which must all be accepted.
    fn until_taken(&mut self, server: &Running, when: &str) {
        let taken = becomes(|| self.expected.exchange(&mut self.wire, &[Request::hit("one")]));
        assert!(taken, "{when}: {}", self.expected.why);
        assert!((0..20).all(|_| self.exchange()), "{when}: {}", self.expected.why);
        assert_eq!(server.info("aof_last_write_status"), "ok", "{when}");
        self.expected.check(server, when);
    }
}

/// The log is cut before it fills a small disk.
#[test]
fn a_log_is_cut_before_it_fills_a_small_disk() {
    let Some(disk) = SmallDisk::mount(24) else { return };
    let server = serve_in(&disk.data(), &[]);
    let mut connection = server.connect();
    // In all, the requests are twice what fits on the disk, but the log is cut after each part.
    for round in 0..100 {
        // The log has a record for each hit, because consecutive hits have different keys.
        let counts = hit_long_keys(&mut connection, (0..500).map(|index| index % 50));
        assert_eq!(counts.len(), 500, "round {round}");
        let log_bytes = || server.info("aof_current_size").parse::<u64>().expect("a number");
        let is_cut = becomes(|| log_bytes() < 16 << 20);
        assert!(is_cut, "round {round}: {} bytes", log_bytes());
    }
    assert!(server.info("rdb_saves") != "0");
    assert_eq!(server.info("journal_failures"), "0");
}

/// Symptom: hits at full speed filled a small disk, and then all hits were refused, also after a restart. Cause: the room
/// reserved for a checkpoint was free for hits while the checkpoint was made. Fix: the checkpoint itself has the room.
#[test]
fn a_quickly_filled_disk_accepts_hits_again() {
    let Some(disk) = SmallDisk::mount(2) else { return };
    let server = serve_in(&disk.data(), &[]);
    let load = ["bench", "--server", &server.resp, "--clients", "8", "--pipeline", "64", "--keys", "5000"];
    let words = [&load[..], &["--order", "uniform", "--seconds", "1"]].concat();
    let is_refused = (0..PATIENT_FILLS).any(|_| lately(&words).code == Some(1));
    assert!(is_refused, "the disk does not get full");
    assert!(server.info("journal_failures") != "0");
    let mut wire = Wire::connect(&server.resp).expect("it listens");
    let is_taken = becomes(|| matches!(wire.ask("HIT one"), Reply::Number(1..)));
    assert!(is_taken, "{:?}", wire.ask("HIT one"));
    let count = wire.ask("HITS one 1d");
    drop(server);
    let server = serve_in(&disk.data(), &[]);
    let mut wire = Wire::connect(&server.resp).expect("it listens");
    assert_eq!(wire.ask("HITS one 1d"), count);
}

fn check_that_room_is_found(durability: &str) {
    let Some(disk) = SmallDisk::mount(1) else { return };
    let start = || serve_in(&disk.data(), &["--durability", durability]);
    let server = start();
    let mut visit = Visit::new(&server);
    visit.until_surely_full(&server, durability);
    disk.grow();
    visit.until_taken(&server, durability);
    drop(server);
    visit.expected.check(&start(), &format!("{durability}, after a kill"));
}

fn check_that_another_file_may_go(durability: &str) {
    let Some(disk) = SmallDisk::mount(8) else { return };
    let start = || serve_in(&disk.data(), &["--durability", durability]);
    let server = start();
    let mut visit = Visit::new(&server);
    assert!((0..50).all(|_| visit.exchange()), "{durability}: {}", visit.expected.why);
    let fill = |visit: &mut Visit| {
        let other = disk.fill(0);
        visit.until_surely_full(&server, durability);
        other
    };
    let other = fill(&mut visit);
    std::fs::remove_file(other).expect("it goes");
    visit.until_taken(&server, durability);
    // Then a kill while the disk is full.
    let other = fill(&mut visit);
    drop(server);
    std::fs::remove_file(other).expect("it goes");
    visit.expected.check(&start(), &format!("{durability}, after a kill"));
}

#[test]
fn a_full_disk_refuses_hits_until_there_is_room() {
    check_that_room_is_found("interval");
    check_that_room_is_found("always");
}

#[test]
fn hits_are_accepted_after_another_file_frees_the_disk() {
    check_that_another_file_may_go("interval");
    check_that_another_file_may_go("always");
}

/// Symptom: after a BGSAVE that failed, all keys were written again every half second, each time to another file. Cause: it was
/// retried at once. Fix: it is retried after growing delays.
#[test]
fn a_checkpoint_that_fails_is_retried_with_backoff() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_in(folder.path(), &[]);
    let counts = hit_long_keys(&mut server.connect(), 0..4_000);
    assert_eq!(counts, [1; 4_000]);
    // A checkpoint cannot be written where a folder has its name.
    let names: Vec<_> =
        (2..20).map(|number| folder.path().join(format!("checkpoint-{number:010}"))).collect();
    for name in &names {
        std::fs::create_dir(name).expect("a folder");
    }
    let seconds = |server: &Running| server.ask::<Vec<u64>>("TIME")[0];
    let end = seconds(&server) + 5;
    assert_eq!(server.ask::<String>("BGSAVE"), "Background saving started");
    // Each attempt starts a segment of the log, if there were hits after the one before.
    while seconds(&server) < end {
        server.ask::<u64>("HIT one");
    }
    assert_eq!(server.info("rdb_saves"), "0");
    assert_eq!(server.info("rdb_last_bgsave_status"), "err");
    // The first attempt, one at once, one after 1 s, and one after 2 s more.
    let segments = || segments(folder.path());
    assert!((2..=5).contains(&segments()), "{} files", segments());
    for name in &names {
        std::fs::remove_dir(name).expect("it goes");
    }
    assert_eq!(server.ask::<String>("BGSAVE"), "Background saving started");
    let is_short = || server.info("rdb_saves") != "0" && segments() == 1;
    assert!(becomes(is_short), "{} files", segments());
    let hits: u64 = server.ask("HITS one 1d");
    drop(server);
    let server = serve_in(folder.path(), &[]);
    assert_eq!(server.ask::<u64>("DBSIZE"), 4_001);
    assert_eq!(server.ask::<u64>("HITS one 1d"), hits);
    let mut command = redis::cmd("MHITS");
    command.arg("1d");
    for key in 0..4_000 {
        command.arg(format!("{key:0>900}"));
    }
    let counts: Vec<u64> = command.query(&mut server.connect()).expect("counts");
    assert_eq!(counts, [1; 4_000]);
}

/// A few keys are hit so often that the log would fill the disk many times.
#[test]
fn a_log_that_filled_the_disk_is_cut() {
    let Some(disk) = SmallDisk::mount(1) else { return };
    let mut visit = Visit::new(&serve());
    let requests: Vec<_> = (0..PIPELINE).map(|key| Request::hit(&format!("key:{key}"))).collect();
    for start in 1..=3 {
        let server = serve_in(&disk.data(), &[]);
        visit.wire = Wire::connect(&server.resp).expect("it listens");
        visit.expected.check(&server, &format!("start {start}"));
        let mut records = 0;
        let are_taken = becomes(|| {
            records += usize::from(visit.expected.exchange(&mut visit.wire, &requests));
            records == RECORDS
        });
        assert!(are_taken, "start {start}: {records} records");
        visit.expected.check(&server, "a log that filled the disk");
        // The server is killed when there is hardly any room.
        while visit.expected.exchange(&mut visit.wire, &requests) {}
    }
    assert_eq!(visit.expected.why, FULL);
}

/// Symptom: a `DEL` was answered with 0, and the hits of its key were there afterwards. Cause: it came behind another one in a batch that the
/// full disk refused, and a deletion that finds no key was no change. Fix: it is refused with the batch.
#[test]
fn a_deletion_that_finds_no_key_is_refused_with_its_batch() {
    let Some(disk) = SmallDisk::mount(1) else { return };
    let server = serve_in(&disk.data(), &[]);
    let mut wire = Wire::connect(&server.resp).expect("it listens");
    let mut refused = 0;
    for round in 0..TRIES {
        wire.send(&format!("HIT {round:0>900}\r\nHIT k\r\nDEL k\r\nDEL k\r\n")).expect("it reads");
        let replies: Vec<Reply> = (0..4).map(|_| wire.reply().expect("a reply")).collect();
        let errors = replies.iter().filter(|reply| matches!(reply, Reply::Error(_))).count();
        assert!(errors == 0 || errors == 4, "round {round}: {replies:?}");
        refused += usize::from(errors > 0);
        if refused == REFUSALS as usize {
            return;
        }
    }
    panic!("the disk does not get full");
}
