//! A failing disk: hits that cannot be written or synced are refused and never counted. When the disk recovers, hits are
//! accepted again. strace makes the system calls fail.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::skip;
use crate::expected_counts::ExpectedCounts;
use crate::ledger::Client;
use crate::running::{FREE, Running, becomes, serve_in, start_command};
use crate::wire::Wire;
use test_support::Rng;

const CLIENTS: u64 = 3;
/// The most requests sent at once.
const PIPELINE: u64 = 12;
/// After this many accepted requests in a row, the server has recovered.
const TAKEN: u32 = 20;
/// The number of requests to a disk that does not recover.
const REFUSED: u32 = 100;
const SEED: u64 = 0xe10;

/// System calls that fail, and the numbers of the failing calls of a thread. The first call of each kind is made at the
/// start.
type Failures<'a> = &'a [&'a str];

/// Whether strace is installed and permitted.
fn can_inject() -> bool {
    let tried = Command::new("strace").args(["-qq", "-f", "-o", "/dev/null", "true"]).output();
    let why = match tried {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    skip(&format!("strace: {why}"));
    false
}

/// A server whose system calls fail. The child process is the server itself, not strace.
fn serve_failing(folder: &Path, durability: &str, failures: Failures<'_>) -> Running {
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null"]);
    let calls: Vec<&str> =
        failures.iter().map(|failure| failure.split(':').next().unwrap_or_default()).collect();
    command.args(["-e", &format!("trace={}", calls.join(","))]);
    for failure in failures {
        command.args(["-e", &format!("inject={failure}")]);
    }
    command.arg(env!("CARGO_BIN_EXE_lately")).args(FREE).arg("--data").arg(folder);
    command.args(["--durability", durability, "--threads", "2"]);
    start_command(command.stdout(Stdio::piped()).stderr(Stdio::piped())).loaded()
}

/// Runs clients at the same time. Returns the sum of their expected counts.
fn visit(server: &Running, visit: impl Fn(&mut dyn FnMut() -> bool) + Sync) -> ExpectedCounts {
    let mut rng = Rng::new(SEED);
    let clients = (0..CLIENTS).map(|name| Client::new(name, &mut rng));
    let mut all = ExpectedCounts::default();
    std::thread::scope(|scope| {
        let visit = &visit;
        let run = |mut client: Client| {
            client.look_at_the_clock(server);
            scope.spawn(move || {
                let (mut expected, mut wire) =
                    (ExpectedCounts::default(), Wire::connect(&server.resp).expect("it listens"));
                visit(&mut || expected.exchange(&mut wire, &client.requests(PIPELINE)));
                expected
            })
        };
        let threads: Vec<_> = clients.map(run).collect();
        threads.into_iter().for_each(|thread| all.add(thread.join().expect("a client")));
    });
    all
}

/// Checks that all refusals were because of the disk.
fn check_why(expected: &ExpectedCounts, when: &str) {
    let words = "MISCONF the journal cannot be written: ";
    assert!(expected.why.starts_with(words), "{when}: {}", expected.why);
}

fn check_recovery(durability: &str, failures: Failures<'_>) {
    let when = format!("{durability}, {failures:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_failing(folder.path(), durability, failures);
    // Any client may see the refusal; one alone may be too slow.
    let refused = AtomicBool::new(false);
    let expected = visit(&server, |exchange| {
        let is_refused = |all_taken: bool| refused.fetch_or(!all_taken, Relaxed) || !all_taken;
        assert!(becomes(|| is_refused(exchange())), "{when}: nothing was refused");
        let mut taken = 0;
        let recovered = becomes(|| {
            taken = if exchange() { taken + 1 } else { 0 };
            taken == TAKEN
        });
        assert!(recovered, "{when}: hits are not accepted again");
    });
    check_why(&expected, &when);
    expected.check(&server, &when);
    assert_eq!(server.info("aof_last_write_status"), "ok", "{when}");
    drop(server);
    expected.check(&serve_in(folder.path(), &[]), &format!("{when}, after a kill"));
}

/// The disk never recovers, and the server tries until the log has a file of this number.
fn check_failure(durability: &str, failures: Failures<'_>, number: u32) {
    let when = format!("{durability}, {failures:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_failing(folder.path(), durability, failures);
    let expected = visit(&server, |exchange| {
        assert!(becomes(|| !exchange()), "{when}: nothing was refused");
        assert!((0..REFUSED).all(|_| !exchange()), "{when}: hits were accepted although the disk fails");
    });
    check_why(&expected, &when);
    expected.check(&server, &when);
    assert_eq!(server.info("aof_last_write_status"), "err", "{when}");
    let file = folder.path().join(format!("log-{number:010}"));
    let is_begun = || server.ask::<String>("PING") == "PONG" && file.metadata().is_ok_and(|it| it.len() > 0);
    assert!(becomes(is_begun), "{when}: no {}", file.display());
    drop(server);
    expected.check(&serve_in(folder.path(), &[]), &format!("{when}, after a kill"));
}

#[test]
fn hits_are_refused_while_they_cannot_be_synced() {
    if can_inject() {
        check_recovery("always", &["fdatasync:error=EIO:when=3..6"]);
        check_recovery("interval", &["fdatasync:error=EIO:when=2..4"]);
    }
}

#[test]
fn hits_are_refused_while_they_cannot_be_written() {
    if can_inject() {
        // In addition, their partial records cannot be cut off.
        let failures = &["pwrite64:error=EIO:when=9+40", "ftruncate:error=EIO:when=1..3"];
        check_recovery("always", failures);
        check_recovery("interval", failures);
    }
}

/// Symptom: a server that was killed when it could not sync for a second did not start again. Cause: it found several
/// segments of the log without a beginning, and took them for damaged. Fix: the content of such segments does not count.
#[test]
fn hits_refused_by_a_dead_disk_are_gone_after_a_kill() {
    if can_inject() {
        check_failure("always", &["fdatasync:error=EIO:when=2+"], 2);
        check_failure("interval", &["fdatasync:error=EIO:when=2+"], 2);
    }
}

/// Symptom: with `interval`, some refused hits were there after a kill. Cause: hits that waited for a slow sync were refused
/// when it failed, and stayed in the log. Fix: they are cut off.
#[test]
fn hits_of_a_failed_sync_are_gone_after_a_kill() {
    if can_inject() {
        check_failure("interval", &["fdatasync:error=EIO:delay_enter=1500000:when=2+"], 1);
    }
}

/// Symptom: a limit of file sizes ended the server. Cause: the first write past the limit sends a signal, which ends a
/// process that does not catch it. Fix: the server catches it, and the write fails as on a full disk.
#[test]
fn hits_are_refused_past_a_limit_of_file_sizes() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_in(folder.path(), &[]);
    if let Err(why) = server.limit_file_bytes("65536") {
        return skip(&why);
    }
    let refused = AtomicBool::new(false);
    let expected = visit(&server, |exchange| {
        let is_refused = |all_taken: bool| refused.fetch_or(!all_taken, Relaxed) || !all_taken;
        assert!(becomes(|| is_refused(exchange())), "nothing was refused");
        server.limit_file_bytes("unlimited").expect("a limit may be raised");
        assert!(becomes(exchange), "hits are not accepted again");
    });
    check_why(&expected, "a limit of file sizes");
    expected.check(&server, "a limit of file sizes");
    drop(server);
    expected.check(&serve_in(folder.path(), &[]), "after a kill");
}
